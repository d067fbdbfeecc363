#!/bin/sh
# chat.sh SPECDEC MODEL - three questions to SmolLM2, one conversation each, and its answers: greedy ones, which are the same
# on every machine. The system message is the one that this model was trained with.
specdec=$1
model=$2
[ -f "$model" ] || { echo "make chat: $model is missing: make model fetches it" >&2; exit 1; }
for question in "Who are you?" "What is the capital of France?" "Give me three tips for a good night's sleep."; do
    printf '> %s\n' "$question"
    "$specdec" -m "$model" --chat --system "You are a helpful AI assistant named SmolLM, trained by Hugging Face" \
        -p "$question" -n 200 --temp 0 || exit 1
    printf '\n\n'
done
echo "Ask it yourself: $specdec -m $model --chat"
