#!/bin/sh
# demo.sh SPECDEC FLAGS...: one story, plainly and speculatively, and how fast each was (the best of five runs).
specdec=$1
shift
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT

# measure MODE: a line "tokens/s tokens-a-step" for each run
measure()
{
    for run in 1 2 3 4 5; do
        "$specdec" "$@" --stats "$T/stats.json" > "$T/text" || exit 1
        sed 's/.*"tok_s":\([0-9.]*\).*"tokens_per_step":\([0-9.]*\).*/\1 \2/' "$T/stats.json"
    done | sort -n | tail -n 1
}

"$specdec" "$@" --spec auto | tee "$T/fast" || exit 1
plain=$(measure "$@" --spec off) || exit 1
mv "$T/text" "$T/off"
fast=$(measure "$@" --spec auto) || exit 1
printf '\n\n'
awk -v plain="$plain" -v fast="$fast" 'BEGIN {
    split(plain, a, " "); split(fast, b, " ")
    printf "plain decoding        %8.0f tokens/s  %.2f tokens a step\n", a[1], a[2]
    printf "with speculation      %8.0f tokens/s  %.2f tokens a step\n", b[1], b[2]
    if (a[1] > 0) printf "                      %8.2f times as fast, in the best of five runs each\n", b[1] / a[1]
}'
if cmp -s "$T/fast" "$T/off" && cmp -s "$T/fast" "$T/text"; then
    echo 'text                      the same, byte for byte'
else
    echo 'text                      DIFFERENT: this is a bug'
    exit 1
fi
