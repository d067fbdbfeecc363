#!/bin/sh
# count-arm.sh [ISA [TYPE,TYPE,... [N,N,...]]]: cycles that multiplying a block (16 rows x 32 weights) by N columns
# takes on ARM cores, counted without one: the instructions that really run (qemu), through a model of the core and,
# where it is installed, llvm-mca. Counts, not times: memory is as fast as the first cache. CC and CFLAGS may be given.
# ISA: neon (a Cortex-A72), dotprod (a Cortex-A76, the default) or i8mm (a Neoverse V2); neon32 (a Cortex-A72 running
# 32-bit code: llvm-mca and instructions only); rvv and, in plain C, riscv (instructions only).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
prefix=aarch64-linux-gnu-
emulator=qemu-aarch64
compiler=aarch64-linux-gnu-gcc
case ${1-dotprod} in
neon32)
    packages="gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"
    prefix=arm-linux-gnueabihf-
    emulator=qemu-arm
    compiler="arm-linux-gnueabihf-gcc -marm -march=armv7-a -mfpu=neon-vfpv4"
    ;;
rvv | riscv)
    packages="clang-19 gcc-riscv64-linux-gnu libc6-dev-riscv64-cross"
    prefix=riscv64-linux-gnu-
    emulator=qemu-riscv64
    compiler="clang-19 --target=riscv64-linux-gnu -march=rv64gcv"
    [ "$1" = rvv ] || compiler="riscv64-linux-gnu-gcc"
    ;;
esac
CC=${CC-$compiler}
for tool in "${CC%% *}" ${prefix}objdump $emulator gcc python3; do
    command -v "$tool" > /dev/null || {
        echo "count-arm: $tool is missing (Debian: apt-get install gcc $packages" \
            "qemu-user python3; llvm-19 for llvm-mca)" >&2
        exit 1
    }
done
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT # a signal alone does not make every shell run what stands above
trap 'exit 143' TERM
gcc -O2 -shared -fPIC -o "$T/plugin.so" "$here/plugin.c"
# shellcheck disable=SC2086
$CC -std=gnu99 ${CFLAGS--O2} -DSPECDEC_STATIC -I"$root" -pthread -static -o "$T/multiply" "$here/multiply.c" -lm
python3 "$here/count.py" "$T" "${1-dotprod}" "${2-Q4_0,Q8_0,Q4_K,Q6_K}" "${3-1,2,4,8,16}"
