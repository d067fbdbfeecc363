#!/bin/sh
# demo.sh SPECDEC FLAGS...: one story, plainly and speculatively, and how fast each was: the best of five runs, in turns.
specdec=$1
shift
T=
trap 'rm -rf "$T"' EXIT # before there is anything to remove: a signal may come at once
trap 'exit 130' INT # a signal alone does not make every shell run what stands above
trap 'exit 143' TERM
T=$(mktemp -d) || exit 1

# measure MODE FLAGS...: one run; its text into $T/MODE, a line "tokens/s tokens-a-step" behind those in $T/MODE.speeds
measure()
{
    mode=$1
    shift
    "$specdec" "$@" --spec "$mode" --stats "$T/stats.json" > "$T/$mode" || exit 1
    sed 's/.*"tok_s":\([0-9.]*\).*"tokens_per_step":\([0-9.]*\).*/\1 \2/' "$T/stats.json" >> "$T/$mode.speeds"
}

"$specdec" "$@" --spec auto | tee "$T/shown" || exit 1
for run in 1 2 3 4 5; do
    measure off "$@"
    measure auto "$@"
    cmp -s "$T/off" "$T/auto" && cmp -s "$T/off" "$T/shown" || { printf '\n\nthe texts are DIFFERENT: this is a bug\n'; exit 1; }
done
printf '\n\n'
awk -v plain="$(sort -n "$T/off.speeds" | tail -n 1)" -v fast="$(sort -n "$T/auto.speeds" | tail -n 1)" 'BEGIN {
    split(plain, a, " "); split(fast, b, " ")
    printf "plain decoding        %8.0f tokens/s  %.2f tokens a step\n", a[1], a[2]
    printf "with speculation      %8.0f tokens/s  %.2f tokens a step\n", b[1], b[2]
    if (a[1] > 0) printf "                      %8.2f times as fast, in the best of five runs each\n", b[1] / a[1]
}'
echo 'text                      the same, byte for byte'
