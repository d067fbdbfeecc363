#!/bin/sh
# What specdec.h weighs in a program: the sizes that its options promise, no frame above 2 KB, and that what is left works.
# Runs in the repository root, on what make has built. Bytes and frames are checked where the compiler is gcc 12 on x86-64.
. tests/check.sh
CC=${CC:-cc}
WARNINGS="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror"
SMALL="-Os -DSPECDEC_NO_SIMD -DSPECDEC_FREESTANDING"
known=no
[ "$($CC -dumpmachine 2> /dev/null)" = x86_64-linux-gnu ] && ! $CC --version 2> /dev/null | grep -q clang &&
    [ "$($CC -dumpversion | cut -d. -f1)" = 12 ] && known=yes
[ $known = yes ] || skip "the sizes are those of gcc 12 on x86-64"

# weighs BYTES OPTION...: the header alone compiles without a warning, and to at most so many bytes of text
weighs()
{
    bytes=$1
    shift
    # shellcheck disable=SC2086
    run $CC -std=c99 $SMALL $WARNINGS -DSPECDEC_IMPLEMENTATION "$@" -x c -c specdec.h -o "$T/part.o"
    check "compiles without a warning: $*" [ $status -eq 0 ]
    [ $known = yes ] || return
    text=$(size "$T/part.o" | awk 'NR == 2 { print $1 }')
    echo "    $text bytes: ${*:-everything}"
    check "$text bytes are at most $bytes: $*" [ "$text" -le "$bytes" ]
}
LEAST="-DSPECDEC_NO_BPE -DSPECDEC_NO_VERIFIERS"
weighs 110000
weighs 104000 -DSPECDEC_NO_BPE
weighs 110000 -DSPECDEC_NO_SPM
weighs 108000 -DSPECDEC_NO_VERIFIERS
weighs 100000 -DSPECDEC_NO_ERROR_TEXTS
weighs 100000 '-DSPECDEC_TYPES(X)='
# shellcheck disable=SC2086
weighs 90000 $LEAST '-DSPECDEC_TYPES(X)='
# shellcheck disable=SC2086
weighs 78000 $LEAST '-DSPECDEC_TYPES(X)=' -DSPECDEC_NO_ERROR_TEXTS

# --- frames
for level in -O0 -O1 -O2 -Os; do
    [ $known = yes ] || continue
    $CC -std=c99 $level -DSPECDEC_NO_SIMD -DSPECDEC_IMPLEMENTATION -Wframe-larger-than=2048 -x c -c specdec.h -o "$T/part.o" 2> "$T/err"
    check "no frame is above 2 KB at $level" silent
done

# --- what is left works
context=256
bytes=$("$B/specdec-info" -m $DRAFT -c $context -t 1 --in-place --memory)
builds() # NAME SOURCE OPTION...: an example with options, $T/NAME
{
    name=$1 source=$2
    shift 2
    run $CC -std=c99 -Os -DSPECDEC_NO_SIMD -I. -pthread "-DMODEL_FILE=\"$DRAFT\"" -DCONTEXT=$context "-DMEMORY_BYTES=$bytes" "$@" \
        -o "$T/$name" "examples/$source.c"
    check "$source compiles: $*" [ $status -eq 0 ]
}
"$B/embedded" > "$T/whole" 2> /dev/null
builds least embedded -DSPECDEC_NO_CHAT -DSPECDEC_NO_ERROR_TEXTS
run "$T/least"
check "with everything left out that can be, it writes the same story" same "$T/whole" "$T/out"
builds no_spm hello -DSPECDEC_NO_SPM
run "$T/no_spm" "$DRAFT"
check "a model whose tokenizer was left out is refused" [ $status -eq 1 ]
check "which names tokenizer and option" says 'llama, which SPECDEC_NO_SPM leaves out'

cat > "$T/rule.c" <<'END'
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>
int main(int argc, char **argv)
{
    specdec_config config;
    specdec_error error;
    size_t bytes;
    int i, bad = argc != 2;

    memset(&config, 0, sizeof config);
    config.target.path = argv[1];
    for (i = SPECDEC_RULE_COUPLED; i < SPECDEC_RULE_GREEDY; i++) {
        config.rule = (specdec_rule)i;
        memset(&error, 0, sizeof error);
        bad |= specdec_memory_needed(&config, &bytes, &error) != (i == SPECDEC_RULE_COUPLED ? SPECDEC_OK : SPECDEC_ERROR_UNSUPPORTED);
        fprintf(stderr, "%s\n", error.text);
    }
    return bad;
}
END
# shellcheck disable=SC2086
run $CC -std=c99 -O1 -DSPECDEC_NO_SIMD -DSPECDEC_NO_VERIFIERS $WARNINGS -I. -pthread -o "$T/rule" "$T/rule.c"
check "a program without verifiers compiles" [ $status -eq 0 ]
run "$T/rule" $TARGET
check "rules that were left out are refused, and coupled is not" [ $status -eq 0 ]
check "which names the option" says 'SPECDEC_NO_VERIFIERS'
report test_sizes
