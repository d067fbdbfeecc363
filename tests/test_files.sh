#!/bin/sh
# Promises of the command-line programs about files, signals and streams: nothing is lost, nothing is left behind, nothing hangs.
# Runs in the repository root, on what make has built.
. tests/check.sh
ALL="specdec specdec-logits specdec-info specdec-tokens specdec-quantize specdec-bench specdec-tune"
quantize() { run "$B/specdec-quantize" "$@"; }
unfinished() { find "$T" -name '*.part' | grep -q .; }
no_part() { ! unfinished; }
# within SECONDS COMMAND...: its status, or 124 when it hangs
within()
{
    if command -v timeout > /dev/null; then
        timeout -k 1 "$@"
    else
        shift
        "$@"
    fi
}
# until_true COMMAND...: waits for it, ten seconds at most
until_true()
{
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -gt 100 ] && return 1
        sleep 0.1
    done
}
mode_of() { ls -l "$1" | cut -c 1-10; }

# --- stages of made layers do not go with a measured machine
printf 'Once upon a time\n' > "$T/prompts"
for flags in "--machine here" "--record $T/trace -m $TARGET -md $DRAFT -f $T/prompts -n 4 -t 2 --runs 1"; do
    # shellcheck disable=SC2086
    within 20 "$B/specdec-sim" $flags --split 2,2 --pretend 5 > "$T/out" 2> "$T/err" < /dev/null
    check "specdec-sim --split with ${flags%% -m*} is wrong usage" [ $? -eq 2 -a ! -e "$T/trace" ]
done

# --- scripts
mkdir "$T/scratch"
TMPDIR=$T/scratch sh tools/demo.sh "$B/specdec" -m $TARGET -p "Once upon a time" -n 200 -t 1 > "$T/out" 2> "$T/err" < /dev/null &
process=$!
# shellcheck disable=SC2016
until_true sh -c '[ -n "$(ls "$1")" ]' sh "$T/scratch"
kill -TERM $process
wait $process
check "a script that is ended by a signal says so" [ $? -eq 143 ]
check "and leaves nothing behind" [ -z "$(ls "$T/scratch")" ]
if command -v python3 > /dev/null; then
    mkdir "$T/one" "$T/two"
    echo '{"prompt": "Once upon a time"}' > "$T/one/p.jsonl"
    echo '{"prompt": "Tom had a"}' > "$T/two/p.jsonl"
    run python3 tools/lab/compare_drafts.py -m $TARGET --mode 'n-grams=--spec ngram' --specdec "$B/specdec" --temps 0 -n 4 --state "$T/state" \
        "$T/one/p.jsonl" "$T/two/p.jsonl"
    check "compare_drafts.py: files of the same name are two" [ "$status $(grep -o 'p.jsonl 0' "$T/state" | wc -l | tr -d ' ')" = "0 2" ]
else
    skip "no python3"
fi

# --- inputs stay as they are
"$B/specdec-quantize" $DRAFT "$T/q4.gguf" Q4_0 > /dev/null 2>&1
cp $DRAFT "$T/a.gguf.part"
quantize "$T/a.gguf.part" "$T/a.gguf" Q4_0
check "an input called OUT.part is read" [ $status -eq 0 ]
check "and stays as it was" same $DRAFT "$T/a.gguf.part"
check "the output is complete" same "$T/q4.gguf" "$T/a.gguf"
echo mine > "$T/a.gguf.part"
quantize $DRAFT "$T/a.gguf" Q4_0
check "an unrelated OUT.part stays as it was" [ "$(cat "$T/a.gguf.part")" = mine ]
rm "$T/a.gguf.part"
cp $DRAFT "$T/in.gguf"
ln -s in.gguf "$T/in-link.gguf"
ln "$T/in.gguf" "$T/in-hard.gguf"
for out in in in-link in-hard; do
    quantize "$T/in.gguf" "$T/$out.gguf" Q4_0
    check "the input is not overwritten as $out.gguf" [ $status -eq 1 ]
    check "which is said" says 'same file'
    check "the input stays as it was" same $DRAFT "$T/in.gguf"
done
"$B/specdec-quantize" "$T/in.gguf" - Q4_0 >> "$T/in.gguf" 2> "$T/err"
check "nor by standard output" [ $? -eq 1 ]
check "it stays as it was" same $DRAFT "$T/in.gguf"
run "$B/specdec-logits" -m "$T/in.gguf" --tokens 1 -o "$T/in-link.gguf"
check "logits do not overwrite the model" [ $status -eq 1 ]
run "$B/specdec" -m "$T/in.gguf" -p a -n 2 --stats "$T/in-hard.gguf"
check "stats do not overwrite the model" [ $status -eq 1 ]
check "the model stays as it was" same $DRAFT "$T/in.gguf"
check "nothing unfinished is left" no_part

# --- links
mkdir "$T/far"
echo old > "$T/far/real.gguf"
ln -s far/real.gguf "$T/link.gguf"
ln -s link.gguf "$T/link2.gguf"
quantize $DRAFT "$T/link2.gguf" Q4_0
check "output through links writes what they name" same "$T/q4.gguf" "$T/far/real.gguf"
check "and the links stay" [ -L "$T/link2.gguf" -a -L "$T/link.gguf" -a ! -L "$T/far/real.gguf" ]
ln -s far/new.gguf "$T/dangling.gguf"
quantize $DRAFT "$T/dangling.gguf" Q4_0
check "a dangling link: what it names is created" same "$T/q4.gguf" "$T/far/new.gguf"
check "and the link stays" [ -L "$T/dangling.gguf" ]
ln -s nowhere/new.gguf "$T/lost.gguf"
quantize $DRAFT "$T/lost.gguf" Q4_0
check "a link into no folder is an error" [ $status -eq 1 ]
check "that names it" says 'lost.gguf: No such file'
ln -s loop-a "$T/loop-b"
ln -s loop-b "$T/loop-a"
quantize $DRAFT "$T/loop-a" Q4_0
check "a loop of links is an error" [ $status -eq 1 ]
check "that says so" says 'symbolic links'
run "$B/specdec" -m $DRAFT -p a -n 2 --stats "$T/link.gguf"
check "stats go through links, too" grep -q '^{"tokens":2,' "$T/far/real.gguf"
check "and keep them" [ -L "$T/link.gguf" ]
"$B/specdec-tune" --defaults > "$T/family"
printf '/* BEGIN GENERATED TREES */\nold\n/* END GENERATED TREES */\n' > "$T/far/header.h"
ln -s far/header.h "$T/header.h"
run "$B/specdec-tune" --defaults "$T/header.h"
check "a header is refreshed through a link" sh -c "[ -L $T/header.h ] && ! grep -q old $T/far/header.h"

# --- what is no regular file, and standard output by its names. (Links of our own: a fault here must not hurt the machine's.)
[ -e /proc/self/fd/1 ] && ln -s /proc/self/fd/1 "$T/stdout" && ln -s stdout "$T/stdout2"
for out in - "$T/stdout" "$T/stdout2"; do
    [ "$out" = - ] || [ -L "$out" ] || continue
    "$B/specdec-quantize" $DRAFT "$out" Q4_0 > "$T/piped.gguf" 2> "$T/err"
    check "a model on standard output, as $out" same "$T/q4.gguf" "$T/piped.gguf"
    check "words go elsewhere" says 'Q4_0, '
    "$B/specdec-quantize" $DRAFT "$out" Q4_0 2> /dev/null | cat > "$T/piped.gguf"
    check "the same into a pipe" same "$T/q4.gguf" "$T/piped.gguf"
    "$B/specdec" -m $DRAFT -p a -n 4 --stats "$out" > "$T/both" 2> "$T/err"
    check "text and stats on standard output: the stats are a line of their own" sh -c "tail -n 1 $T/both | grep -q '^{\"tokens\":4,'"
    check "and the text is there" sh -c "head -c 1 $T/both | grep -q a"
done
check "the links to standard output stay" [ ! -e /proc/self/fd/1 -o -L "$T/stdout" ]
echo before > "$T/log"
"$B/specdec" -m $DRAFT -p a -n 4 --stats "$T/log" >> "$T/log" 2> "$T/err"
check "a file that is standard output, too, gets both" sh -c "head -n 1 $T/log | grep -q before && tail -n 1 $T/log | grep -q tokens"
if [ -e /proc/self/fd/3 ] 3> /dev/null; then
    echo before > "$T/log"
    "$B/specdec" -m $DRAFT -p a -n 4 --stats /proc/self/fd/3 3>> "$T/log" > /dev/null 2> "$T/err"
    check "a file behind a descriptor is appended to" sh -c "head -n 1 $T/log | grep -q before && tail -n 1 $T/log | grep -q tokens"
fi
printf 'a\n  /* BEGIN GENERATED TREES */\nold\n  /* END GENERATED TREES */\nb\n' | "$B/specdec-tune" --defaults - > "$T/out"
check "specdec-tune --defaults -: from standard input to standard output" sh -c "sed '1,2d' $T/out | head -n 64 | cmp -s - $T/family"
mkfifo "$T/fifo"
within 20 cat "$T/fifo" > "$T/piped.gguf" &
quantize $DRAFT "$T/fifo" Q4_0
wait
check "a pipe is written straight" same "$T/q4.gguf" "$T/piped.gguf"
check "and stays one" [ -p "$T/fifo" ]
ln -s /dev/null "$T/null"
quantize $DRAFT "$T/null" Q4_0
check "a device is written straight, through a link as well" [ $status -eq 0 -a -L "$T/null" -a -c /dev/null ]
for out in "$T/far" "$T/far/"; do
    quantize $DRAFT "$out" Q4_0
    check "a folder as output is an error" [ $status -eq 1 ]
    check "which says so" says 'far/*: Is a directory'
done
for out in "" "$T/absent/" "$T/q4.gguf/x" "$T/absent/x"; do
    quantize $DRAFT "$out" Q4_0
    check "an output that cannot be is an error: '$out'" [ $status -eq 1 ]
    check "which is explained" says "cannot write $out: "
done
check "nothing unfinished is left" no_part

# --- names and permissions
(umask 027 && "$B/specdec-quantize" $DRAFT "$T/masked.gguf" Q4_0 > /dev/null 2>&1)
check "a new file has the usual permissions" [ "$(mode_of "$T/masked.gguf")" = "-rw-r-----" ]
chmod 604 "$T/masked.gguf"
quantize $DRAFT "$T/masked.gguf" Q4_0
check "a replaced file keeps its own" [ "$(mode_of "$T/masked.gguf")" = "-rw----r--" ]
long=$(printf '%0255d' 7)
quantize $DRAFT "$T/$long" Q4_0
check "a name may be as long as the system allows" same "$T/q4.gguf" "$T/$long"
cp $DRAFT "$T/-in.gguf"
program=$(cd "$B" && pwd)/specdec-quantize
for how in "-t 1 -- -in.gguf - q4_0" "-t 1 ./-in.gguf - Q4_0" "./-in.gguf - Q4_0 -t 2" "./-in.gguf -t 2 - Q4_0"; do
    # shellcheck disable=SC2086
    (cd "$T" && "$program" $how > order.gguf 2> err)
    check "flags before, between and behind words: $how" same "$T/q4.gguf" "$T/order.gguf"
done
for how in "a b" "a b Q4_0 c" "a b Q5" "-t 65 a b Q4_0" "-t x a b Q4_0" "-t"; do
    # shellcheck disable=SC2086
    quantize $how
    check "specdec-quantize: wrong usage: $how" [ $status -eq 2 ]
    check "is explained" says .
done

# --- full devices
if [ -c /dev/full ]; then
    for program in $ALL; do
        for flag in --help --version; do
            "$B/$program" $flag > /dev/full 2> "$T/err"
            check "$program $flag on a full device fails" [ $? -eq 1 ]
            check "and says why" says 'No space left'
        done
    done
    for how in "specdec-logits --tokens 1,2,3 -o -" "specdec-logits --tokens 1 -o /dev/full" "specdec-tokens -p a" "specdec-info --tensors" \
        "specdec -n 2 -p a" "specdec -n 2 -p a --stats /dev/full" "specdec -n 0 -p a --no-echo --save /dev/full"; do
        # shellcheck disable=SC2086
        "$B/"$how -m $TARGET > /dev/full 2> "$T/err"
        check "a full device is an error: $how" [ $? -eq 1 ]
        check "that is called by its name: $how" says 'No space left'
    done
    quantize $DRAFT /dev/full Q4_0
    check "a model on a full device is an error" [ $status -eq 1 ]
    check "that is called by its name" says 'No space left'
fi
# --- a program that fails has not replaced its outputs
head -c 20000 /dev/zero | tr '\0' a > "$T/long"
printf 'Once upon a time\n' > "$T/prompts"
printf '{"prompt": "Once"}\n' > "$T/line.jsonl"
printf '1 2 3\n' > "$T/ids"
# keeps HOW COMMAND...: a program that fails, its standard output closed, full or put away, leaves the old $T/kept
keeps()
{
    how=$1
    shift
    echo old > "$T/kept"
    case $how in
    closed) "$@" >&- 2> "$T/err" < /dev/null ;;
    full) "$@" > /dev/full 2> "$T/err" < /dev/null ;;
    *) "$@" > /dev/null 2> "$T/err" < /dev/null ;;
    esac
    status=$?
    check "fails ($how): $*" [ $status -eq 1 ]
    check "and leaves the old file ($how): $*" [ "$(cat "$T/kept")" = old ]
    check "and says why ($how): $*" says .
}
ways=closed
[ -c /dev/full ] && ways="closed full"
for how in $ways; do
    keeps $how "$B/specdec-quantize" $DRAFT "$T/kept" F16
    keeps $how "$B/specdec-quantize" --draft-vocab 300 --counts "$T/ids" $DRAFT "$T/kept" Q8_0
    keeps $how "$B/specdec" -m $DRAFT -p hi -n 40 --stats "$T/kept"
    keeps $how "$B/specdec" -m $DRAFT -p hi -n 40 --save "$T/kept"
    keeps $how "$B/specdec" -m $DRAFT -p hi -n 4 --save "$T/other" --stats "$T/kept"
    check "nor is the other one there" [ ! -e "$T/other" ]
    keeps $how "$B/specdec" -m $DRAFT --chat --chat-format zephyr -p hi -n 4 --stats "$T/kept"
    keeps $how "$B/many" -m $DRAFT -f "$T/line.jsonl" -n 4 --seen "$T/none" --spec ngram
    check "nor is what was seen there" [ ! -e "$T/none" ]
    keeps $how "$B/specdec-sim" --tokens 300 --svg "$T/kept"
    keeps $how "$B/specdec-sim" --tokens 300 --json "$T/kept"
    keeps $how "$B/specdec-sim" --record "$T/kept" -m $TARGET -md $DRAFT -f "$T/prompts" -n 4 -t 2 --runs 1
done
keeps away "$B/specdec" -m $DRAFT --chat -p hi -n 4 --stats "$T/kept" # no chat format
keeps away "$B/specdec" -m $DRAFT --chat -p hi -n 4 --save "$T/kept"
keeps away "$B/specdec" -m $DRAFT -c 16 -f "$T/long" -n 4 --stats "$T/kept"
keeps away "$B/specdec" -m $DRAFT -p hi --load $DRAFT --stats "$T/kept"
keeps away "$B/specdec" -m $DRAFT -p hi -n 4 --stats "$T/kept" --save "$T/absent/saved"
keeps away "$B/specdec-sim" --tokens 300 --svg "$T/kept" --json "$T/absent/json"
keeps away "$B/specdec-sim" --record "$T/kept" -m $TARGET -md $DRAFT -f "$T/prompts" -n 4 -t 2 --runs 1 --svg "$T/absent/svg"
keeps away "$B/specdec-logits" -m $TARGET --tokens 1,4096 -o "$T/kept"
check "nothing unfinished is left" no_part

echo old > "$T/small.gguf"
(ulimit -f 100 && exec "$B/specdec-quantize" $DRAFT "$T/small.gguf" F32) > "$T/out" 2>&1
check "a file that may not grow so large is an error" [ $? -ne 0 ]
check "the old one stays" [ "$(cat "$T/small.gguf")" = old ]
check "nothing unfinished is left" no_part

# --- pipes and endless devices as inputs
for how in "specdec -p a -m" "specdec -p a -m $TARGET -md" "specdec-logits --tokens 1 -o $T/x.f32 -m" "specdec-info -m" "specdec-tokens -p a -m"; do
    # shellcheck disable=SC2086
    run within 10 "$B/"$how "$T/fifo"
    check "a pipe as a model is an error: $how" [ $status -eq 1 ]
    check "which is explained: $how" says 'not a regular file'
done
run within 10 "$B/specdec-quantize" "$T/fifo" "$T/x.gguf" Q4_0
check "a pipe as a model is an error: specdec-quantize" [ $status -eq 1 ]
check "which is explained: specdec-quantize" says 'not a regular file'
for how in "specdec -f" "specdec-tokens -f" "specdec-logits -o $T/x.f32 --tokens-file"; do
    # shellcheck disable=SC2086
    run within 60 "$B/"$how /dev/zero -m $TARGET
    check "an endless device is an error: $how" [ $status -eq 1 ]
    check "which is explained: $how" says 'more than'
done
echo '{"prompt": "Once"}' > "$T/line.jsonl"
mkdir -p "$T/folder"
for odd in "$T/fifo" /dev/null /dev/zero "$T/folder"; do # what holds a text that was seen, or a header, is a regular file
    run within 10 "$B/many" -m $DRAFT -f "$T/line.jsonl" -n 2 --seen "$odd"
    check "many --seen $odd is an error" [ $status -eq 1 ]
    check "which is explained: $odd" says 'not a regular file'
    run within 10 "$B/specdec" -m $DRAFT -p a -n 2 --load "$odd"
    check "specdec --load $odd is an error" [ $status -eq 1 ]
    check "which is explained: --load $odd" says 'not a regular file'
    run within 10 "$B/specdec-tune" --defaults "$odd"
    check "specdec-tune --defaults $odd is an error" [ $status -eq 1 ]
    check "which is explained: --defaults $odd" says 'not a regular file'
    run within 10 "$B/specdec-convert" --checkpoint "$odd" --vocabulary $DRAFT -o "$T/x.gguf"
    check "specdec-convert --checkpoint $odd is an error" [ $status -eq 1 ]
    check "which is explained: --checkpoint $odd" says 'not a regular file'
done
ln -s fifo "$T/fifo-link"
run within 10 "$B/many" -m $DRAFT -f "$T/line.jsonl" -n 2 --seen "$T/fifo-link"
check "a link to a pipe is none, either" [ $status -eq 1 ]
echo 'Once upon a time' > "$T/fifo" &
run within 20 "$B/specdec" -m $DRAFT -f "$T/fifo" -n 2
check "a prompt may come through a pipe" [ $status -eq 0 ]
wait
for id in 4294967297 -3 99999999999999999999 4096; do
    run "$B/specdec-tokens" -m $TARGET --decode "1,$id"
    check "an id outside the vocabulary is an error: $id" [ $status -eq 1 ]
    check "and is called by its name: $id" says "token $id is not"
done
run "$B/specdec-tokens" -m $TARGET --decode 1,2x
check "what is no id is wrong usage" [ $status -eq 2 ]

# --- signals: the old file stays, nothing unfinished does
mkfifo "$T/lines"
for signal in TERM:143 INT:130 HUP:129; do
    echo old > "$T/stats.json"
    listening "$B/specdec" -m $DRAFT --chat --chat-format zephyr --stats "$T/stats.json" < "$T/lines" > "$T/out" 2> "$T/err" &
    process=$!
    exec 4> "$T/lines"
    check "stats are written beside their file" until_true unfinished
    kill -"${signal%:*}" $process
    wait $process 2> /dev/null
    check "${signal%:*} ends the program" [ $? -eq "${signal#*:}" ]
    exec 4>&-
    check "${signal%:*}: nothing unfinished is left" no_part
    check "${signal%:*}: the old file stays" [ "$(cat "$T/stats.json")" = old ]
done
listening "$B/specdec" -m $TARGET --chat --chat-format zephyr -n 100000 --slide 4 < "$T/lines" > "$T/out" 2> "$T/err" &
process=$!
printf 'Tell me a story\nAnother one\n' > "$T/lines"
check "a conversation from a pipe is answered" until_true test -s "$T/out"
kill -INT $process
wait $process 2> /dev/null
check "and one Ctrl-C ends it, not the answer alone" [ $? -eq 130 ]
# started with a signal ignored, as by nohup or by a script in the background: it stays ignored
for signal in INT TERM HUP; do
    : > "$T/out"
    (trap '' $signal && exec "$B/specdec" -m $TARGET --chat --chat-format zephyr -n 8 --stats "$T/ignored.json") < "$T/lines" > "$T/out" 2> "$T/err" &
    process=$!
    exec 4> "$T/lines"
    echo 'Tell me a story' >&4
    check "a conversation begins with SIG$signal ignored" until_true [ -s "$T/out" ]
    kill -$signal $process
    echo 'And then?' >&4
    kill -$signal $process
    exec 4>&-
    wait $process
    check "SIG$signal stays ignored" [ $? -eq 0 ]
    check "SIG$signal ignored: both lines are answered" [ "$(wc -l < "$T/out")" -ge 2 ]
done
printf '{"prompt": "Once"}\n{"prompt": "Tom"}\n' > "$T/line.jsonl"
(trap '' INT && exec "$B/many" -m $TARGET -f - -n 40) < "$T/lines" > "$T/out" 2> "$T/err" &
process=$!
exec 4> "$T/lines"
kill -INT $process
cat "$T/line.jsonl" >&4
exec 4>&-
sleep 0.1
kill -INT $process 2> /dev/null
wait $process
check "many: SIGINT stays ignored" [ $? -eq 0 ]
( # ignored from the program's birth on: it is an heir
    trap '' INT
    "$B/specdec-quantize" -t 1 $TARGET "$T/ignored.gguf" Q4_0 > /dev/null 2>&1 &
    for i in 1 2 3 4 5; do kill -INT $! 2> /dev/null; sleep 0.02; done
    wait $!
)
check "specdec-quantize: SIGINT stays ignored" [ $? -eq 0 -a -s "$T/ignored.gguf" ]
"$B/specdec-quantize" $TARGET "$T/big.gguf" F32 > /dev/null 2>&1
echo old > "$T/killed.gguf"
for wait in 0 0 0.005 0.01 0.02 0.03 0.04 0.05 0.06 0.08; do
    for signal in TERM INT; do
        listening "$B/specdec-quantize" -t 1 "$T/big.gguf" "$T/killed.gguf" Q4_K_M > /dev/null 2>&1 &
        sleep $wait
        kill -$signal $! 2> /dev/null
        wait $! 2> /dev/null
    done
done
check "whenever signals come: nothing unfinished is left" no_part
check "and the file is the old one or complete" sh -c "[ \"\$(head -c 3 $T/killed.gguf)\" = old ] || $B/specdec-info -m $T/killed.gguf > $T/out"

# --- a run of tests that is interrupted ends what it runs
if [ -d /proc/self ] && command -v make > /dev/null; then
    printf 'test:\n\t@WATCH=$$PPID sh tests/run.sh %s\n' "$T/slow.sh" > "$T/slow.mk"
    printf 'trap "" INT\nsleep 300 &\necho $$ $! > "%s"\nsleep 300\n' "$T/pids" > "$T/slow.sh"
    for signal in INT TERM; do
        rm -f "$T/pids"
        listening make -s -f "$T/slow.mk" test > "$T/out" 2>&1 &
        process=$!
        check "make test begins" until_true [ -s "$T/pids" ]
        kill -$signal $process
        wait $process 2> /dev/null
        read -r test child < "$T/pids"
        check "SIG$signal to make ends the test that runs" until_true sh -c "! kill -0 $test 2> /dev/null"
        check "SIG$signal to make ends what that test runs" until_true sh -c "! kill -0 $child 2> /dev/null"
    done
else
    skip "no /proc, or no make"
fi

# --- models that shrink while they are in use
cp $DRAFT "$T/shrinks.gguf"
rm -f "$T/out" # else what is there from before looks like a beginning
"$B/specdec" -m "$T/shrinks.gguf" --in-place -t 1 --chat --chat-format zephyr -n 8 --stats "$T/stats.json" < "$T/lines" > "$T/out" 2> "$T/err" &
process=$!
exec 4> "$T/lines"
echo 'Tell me a story' >&4
check "a conversation begins" until_true [ -s "$T/out" ]
head -c 4096 $DRAFT > "$T/head"
cat "$T/head" > "$T/shrinks.gguf"
echo 'And then?' >&4
exec 4>&-
wait $process
check "a model that shrinks while it is in use ends specdec with a failure" [ $? -eq 1 ]
check "that says so" says 'specdec: a model file became shorter'
check "nothing unfinished is left" no_part
check "the old file stays" [ "$(cat "$T/stats.json")" = old ]
cp $DRAFT "$T/shrinks.gguf"
rm -f "$T/out"
"$B/specdec" -m "$T/shrinks.gguf" --no-mmap -t 1 --chat --chat-format zephyr -n 8 < "$T/lines" > "$T/out" 2> "$T/err" &
process=$!
exec 4> "$T/lines"
echo 'Tell me a story' >&4
check "a conversation with a model that was read begins" until_true [ -s "$T/out" ]
cat "$T/head" > "$T/shrinks.gguf"
echo 'And then?' >&4
exec 4>&-
wait $process
check "--no-mmap: nobody minds what becomes of the file" [ $? -eq 0 ]
for type in F32 Q8_0; do # converted, copied
    cp $TARGET "$T/shrinks.gguf"
    "$B/specdec-quantize" "$T/shrinks.gguf" - $type 2> "$T/err" > "$T/fifo" &
    process=$!
    exec 4< "$T/fifo"
    dd bs=1000 count=1 <&4 > "$T/piped.gguf" 2> /dev/null
    cat "$T/head" > "$T/shrinks.gguf"
    cat <&4 > "$T/piped.gguf"
    exec 4<&-
    wait $process
    check "specdec-quantize notices it, too ($type)" [ $? -eq 1 ]
    check "and says so" says 'specdec-quantize: a model file became shorter'
done

# --- JSON
odd="$T/we\"ird\\name	with"
cp $DRAFT "$odd.gguf"
run "$B/specdec-bench" -m "$odd.gguf" -md $DRAFT -r 1 -w 1,2 -n 4 --no-prefill -o json
check "specdec-bench -o json" [ $status -eq 0 ]
check "is valid, whatever the file is called" valid "$T/out"
check "and has the name escaped" grep -q '"file":"we\\"ird\\\\name\\u0009with.gguf"' "$T/out"
keys=$(tr ',{[' '\n\n\n' < "$T/out" | sed -n 's/^ *"\([a-z_0-9]*\)":.*/\1/p' | tr '\n' ' ')
check "its keys are the promised ones" [ "$keys" = "threads isa context read_gbps int8_gmacs meeting_us models file type weight_bytes \
macs_per_token state_bytes threads load_s first_token_ms decode_tok_s steps width ms_min ms_median ms_max roofline_share width ms_min ms_median ms_max roofline_share \
prefill speculative mode tok_s tokens_per_step mode tok_s tokens_per_step " ]
printf 'Once upon a time\n' > "$T/prompts"
run "$B/specdec-tune" -m "$odd.gguf" -md "$odd.gguf" -t 1 --prompts "$T/prompts" -n 8 --runs 1 --temp 0 -o json
check "specdec-tune -o json is valid, whatever the file is called" valid "$T/out"
run "$B/specdec" -m $TARGET -p a -n 0 --stats "$T/stats.json"
check "--stats of nothing is valid" valid "$T/stats.json"

report test_files.sh
