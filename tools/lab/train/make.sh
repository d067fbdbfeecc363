#!/bin/sh
# make.sh TARGET.gguf OUT-q8_0.gguf [FOLDER]: teaches a small story model to fork, judges it. Run from the repository's
# root, after `make build/specdec-quantize build/specdec-logits`. Needs python3-torch and python3-numpy, and is several
# times faster with libopenblas0-serial. Files on the way are kept in FOLDER (build/train); what is there is not made
# again, and training goes on where it was stopped.
set -eu
target=$1 out=$2 folder=${3:-build/train} here=$(dirname "$0")
mkdir -p "$folder"

# make NAME COMMAND...: runs a command that writes NAME.part, unless NAME is there already.
make() {
    name=$1
    shift
    test -e "$name" || { "$@" && mv "$name.part" "$name"; }
}

make "$folder/valid.jsonl" python3 "$here/stories.py" "$folder/valid.jsonl.part" 300 2
make "$folder/lists.jsonl" python3 "$here/stories.py" "$folder/lists.jsonl.part" 10000 1 --without "$folder/valid.jsonl"
make "$folder/plain-valid.jsonl" python3 "$here/plain.py" "$target" "$folder/plain-valid.jsonl.part" 100 12
make "$folder/plain.jsonl" python3 "$here/plain.py" "$target" "$folder/plain.jsonl.part" 900 11
make "$folder/fork-f32.gguf" python3 "$here/train.py" "$target" "$folder/fork-f32.gguf.part" \
    --data "$folder/lists.jsonl" --data "$folder/plain.jsonl" --data "$folder/plain.jsonl" \
    --judge "$folder/valid.jsonl" --judge "$folder/plain-valid.jsonl" \
    --steps 2000 --tokens 2048 --rate 1e-3 --seed 1 --checkpoint "$folder/fork.pt"
build/specdec-quantize "$folder/fork-f32.gguf" "$out" Q8_0
python3 "$here/judge.py" "$out" "$folder/valid.jsonl" "$folder/plain-valid.jsonl" --show 4 --logits build/specdec-logits
