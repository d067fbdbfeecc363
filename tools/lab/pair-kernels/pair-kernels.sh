#!/bin/sh
# pair-kernels.sh OLD [ISA,... [TYPE,... [N,... [MEGABYTES [THREADS [ROUNDS]]]]]]: the kernels of another version of the
# header (a commit, or a folder that has it) against this one's, by turns in one process, so that ratios are worth
# something on a noisy machine. MEGABYTES of weights: .03 (the default) lies in the first cache, 100 does not lie in many
# caches. CC and CFLAGS may be given.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
[ $# -gt 0 ] || {
    sed -n 's/^# //p' "$0" >&2
    exit 2
}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT # a signal alone does not make every shell run what stands above
trap 'exit 143' TERM
old=$1
if [ ! -f "$old/specdec.h" ]; then
    git -C "$root" show "$1:specdec.h" > "$T/specdec.h"
    old=$T
fi
for side in old new; do
    folder=$old
    [ $side = old ] || folder=$root
    # shellcheck disable=SC2086
    ${CC-cc} -std=gnu99 ${CFLAGS--O2} -shared -fPIC -Wl,-Bsymbolic -DSPECDEC_STATIC -I"$folder" -pthread -o "$T/$side.so" \
        "$here/side.c" -lm &
done
wait
${CC-cc} -std=c99 -O2 -pthread -o "$T/pair" "$here/pair.c" -ldl
for isa in $(echo "${2-avx512}" | tr , ' '); do
    for type in $(echo "${3-Q4_0}" | tr , ' '); do
        "$T/pair" "$isa" "$type" "${4-1,2,3,4,6,8,16}" "${5-.03}" "${6-1}" "${7-200}" "$T/old.so" "$T/new.so"
    done
done
