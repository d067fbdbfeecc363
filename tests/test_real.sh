#!/bin/sh
# test_real.sh - real models, where make model and make model-gemma have put them into models/ (or MODELS): tokens and what
# follows as llama.cpp has them (real_tokens.jsonl, made with its 0.5.0), logits, texts with and without speculation, texts that
# are saved, eight texts at a time, contexts of up to 8,192 tokens, with DEPTH=2 of 32,768. To be run in the repository root, after
# make; SPECDEC_QUICK=1: half a minute.
. tests/check.sh
MODELS=${MODELS:-models}
SAMPLED="--temp 0.8 --top-k 40 --top-p 0.95 --min-p 0.05 --seed 7"

# Eight prompts, some of which repeat themselves, so that n-grams have something to guess from.
cat > "$T/prompts.jsonl" <<'END'
{"prompt":"The capital of France is"}
{"prompt":"1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"}
{"prompt":"def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b\n\ndef multiply(a, b):\n"}
{"prompt":"red, green, blue, red, green, blue, red, green,"}
{"prompt":"Once upon a time"}
{"prompt":"Dear Sir or Madam,\n\nI am writing to"}
{"prompt":"Water boils at 100 degrees"}
{"prompt":"| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n|"}
END

# expected NAME: the table's tokens of every text of a model, and behind a blank the next one, or -1 where it is not sure
expected()
{
    grep "\"model\":\"$1\"" tests/real_tokens.jsonl | sed 's/.*"ids":\[\(.*\)\],"next":\(.*\)}/\1 \2/'
}

# tokens NAME: every text of the table has the tokens, and where it is sure, the continuation that llama.cpp gives it
tokens()
{
    grep "\"model\":\"$1\"" tests/real_tokens.jsonl | sed 's/"model":"[^"]*",//; s/,"ids":\[[-0-9,]*\],"next":.*/}/' > "$T/texts.jsonl"
    run "$B/many" -m "$MODEL" -f "$T/texts.jsonl" --ids --in-order -n 1 -c 256 --spec off
    check "$1: texts of the table are read" [ $status -eq 0 ]
    sed 's/.*"ids":\[\(.*\)\].*/\1/' "$T/out" > "$T/ids"
    expected "$1" | paste -d ' ' - "$T/ids" > "$T/both" # expected ids, next; ids with the one that was written
    check "$1: all of them" [ "$(wc -l < "$T/both")" -eq "$(wc -l < "$T/texts.jsonl")" ]
    while read -r ids next got; do
        case $got in
        "$ids",*) check "$1: tokens as llama.cpp's" true ;;
        *) check "$1: tokens as llama.cpp's" [ "$got" = "$ids,..." ] ;;
        esac
        [ "$next" = -1 ] || check "$1: the next token, too" [ "${got##*,}" = "$next" ]
    done < "$T/both"
}

# logits NAME: the same bytes whatever the width of a step, the threads and the instruction set
logits()
{
    ids=$(expected "$1" | sed -n '14,15s/ .*//p' | tr '\n' ',' | sed 's/,$//')
    "$B/specdec-logits" -m "$MODEL" --tokens "$ids" -w 64 -t 1 -o "$T/logits"
    check "$1: there are logits" [ -s "$T/logits" ]
    for how in "-w 1 -t 2" "-w 7 -t 2 --isa avx2" "-w 5 -t 2 --tree" "-w 64 -t 2 --isa sse41" "-w 64 -t 2 --in-place" "-w 33 -t 3"; do
        [ -z "$SPECDEC_QUICK" ] || case $how in *sse41* | *place* | *33*) continue ;; esac
        isa=${how##*--isa }
        [ "$isa" = "$how" ] || "$B/specdec-info" -m "$MODEL" | grep '^instruction set' | grep -q "$isa" || continue
        # shellcheck disable=SC2086
        run "$B/specdec-logits" -m "$MODEL" --tokens "$ids" $how -o "$T/other"
        check "$1: logits are the same with $how" same "$T/logits" "$T/other"
    done
}

# texts NAME: eight at a time with n-grams, or one by one without, greedy and sampled
texts()
{
    for how in "--temp 0" "$SAMPLED"; do
        # shellcheck disable=SC2086
        "$B/many" -m "$MODEL" -f "$T/prompts.jsonl" --in-order -n "$LENGTH" -c 512 --sequences 1 --spec off $how > "$T/plain" 2> "$T/err"
        check "$1: eight texts ($how)" [ "$(grep -c '"text":"..*"' "$T/plain")" -eq 8 ]
        for other in "--sequences 8 --spec ngram" "--sequences 8 --spec off" "--sequences 3 --spec auto"; do
            [ -z "$SPECDEC_QUICK" ] || [ "$other" = "--sequences 8 --spec ngram" ] || continue
            # shellcheck disable=SC2086
            run "$B/many" -m "$MODEL" -f "$T/prompts.jsonl" --in-order -n "$LENGTH" -c 512 $other $how
            check "$1: the same texts with $other ($how)" same "$T/plain" "$T/out"
        done
    done
}

# saves NAME: a text that was saved goes on as if it had not been
saves()
{
    for how in "--temp 0" "$SAMPLED"; do
        [ -z "$SPECDEC_QUICK" ] || [ "$how" = "$SAMPLED" ] || continue
        flags="-m $MODEL -c 512 $how"
        # shellcheck disable=SC2086
        "$B/specdec" $flags -p "Once upon a time" -n 32 --spec off > "$T/plain" 2> "$T/err"
        # shellcheck disable=SC2086
        "$B/specdec" $flags -p "Once upon a time" -n 16 --spec ngram --save "$T/saved" > "$T/first" 2> "$T/err"
        # shellcheck disable=SC2086
        run "$B/specdec" $flags --load "$T/saved" --no-echo -n 16 --spec ngram
        check "$1: it loads ($how)" [ $status -eq 0 ]
        cat "$T/first" "$T/out" > "$T/joined"
        check "$1: a saved text goes on as if it had not been ($how)" same "$T/plain" "$T/joined"
    done
}

# long NAME TOKENS: a text to the end of so long a context, with and without speculation, whatever the steps
long()
{
    awk -v tokens="$2" 'BEGIN {
        for (i = 1; i * 8 < tokens * 0.98; i++)
            printf "%s item %c%c was sold.\n", i % 7 ? "The" : "Then", 65 + i % 26, 97 + i % 17
    }' > "$T/long"
    count=$("$B/specdec-tokens" -m "$MODEL" -f "$T/long" | wc -w)
    check "$1: a long prompt nearly fills the context" [ "$count" -gt $(($2 * 3 / 4)) -a "$count" -lt "$2" ]
    "$B/specdec" -m "$MODEL" -f "$T/long" -c "$2" --no-echo --spec off -b 64 > "$T/plain" 2> "$T/err"
    check "$1: something follows it" [ -s "$T/plain" ]
    run "$B/specdec" -m "$MODEL" -f "$T/long" -c "$2" --no-echo --spec ngram -b 200
    check "$1: the same text with n-grams at $2 tokens" same "$T/plain" "$T/out"
}

# real NAME FILE TARGET QUICK_CONTEXT CONTEXT: all of it, for one model
real()
{
    MODEL=$MODELS/$2
    [ -f "$MODEL" ] || { skip "$MODEL is missing: make $3 fetches it"; return; }
    tokens "$1"
    logits "$1"
    texts "$1"
    saves "$1"
    if [ -n "$SPECDEC_QUICK" ]; then long "$1" "$4"; else long "$1" "$5"; fi
}

LENGTH=96
[ -z "$SPECDEC_QUICK" ] || LENGTH=16
GEMMA_CONTEXT=8192
[ "${DEPTH:-1}" -lt 2 ] || GEMMA_CONTEXT=32768
real smollm2 smollm2-135m-instruct-q4_1.gguf model 400 8192
real gemma gemma-3-270m-q4_k_m.gguf model-gemma 800 $GEMMA_CONTEXT
report test_real.sh
