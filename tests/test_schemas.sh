#!/bin/sh
# test_schemas.sh - real models and JSON schemas: SmolLM2 and TinyLlama, where make model has put them into models/ (or MODELS), answer 40
# prompts with schemas of ten shapes; see schemas.py. Needs Python's jsonschema (PYTHON: another interpreter than python3).
# SPECDEC_QUICK=1: ten prompts, SmolLM2 only, no figures of time.
. tests/check.sh
MODELS=${MODELS:-models} PYTHON=${PYTHON:-python3}

if ! "$PYTHON" -c 'import jsonschema' 2> /dev/null; then
    skip "jsonschema for $PYTHON is missing (PyPI)"
    report test_schemas
    exit
fi
for file in smollm2-135m-instruct-q4_1.gguf tinyllama-1.1b-chat-q4_0.gguf; do
    [ -f "$MODELS/$file" ] || { skip "$MODELS/$file is missing: make model fetches it"; continue; }
    case $file in tinyllama*) [ -z "$SPECDEC_QUICK" ] || continue ;; esac
    "$PYTHON" tests/schemas.py "$B" "$MODELS/$file" ${SPECDEC_QUICK:+quick} > "$T/out" 2> "$T/err"
    sed '$d' "$T/out"
    counts=$(sed -n 's/^schemas.py: \([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$T/out")
    check "$file is judged" [ -n "$counts" ]
    [ -z "$counts" ] || passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
done
report test_schemas
