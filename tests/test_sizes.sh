#!/bin/sh
# What specdec.h weighs in a program: the sizes that its options promise, no frame above 3 KB, and that what is left works.
# Runs in the repository root, on what make has built. Bytes and frames are checked where the compiler is gcc 12 on x86-64.
# "sh tests/test_sizes.sh table" needs nothing built: it prints the table of build options in docs/manual.md, some minutes, or
# of the options that are named behind it.
. tests/check.sh
CC=${CC:-cc}
WARNINGS="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror"
SMALL="-Os -DSPECDEC_NO_SIMD -DSPECDEC_FREESTANDING"
known=no
[ "$($CC -dumpmachine 2> /dev/null)" = x86_64-linux-gnu ] && ! $CC --version 2> /dev/null | grep -q clang &&
    [ "$($CC -dumpversion | cut -d. -f1)" = 12 ] && known=yes

# --- the table: what each option saves of a program with everything, in bytes of machine code at -O2
half_bytes() # HALF OPTION...: the bytes of one half of the header, SPECDEC_KERNELS_APART or SPECDEC_KERNELS
{
    half=$1
    shift
    $CC -std=c99 -O2 -DSPECDEC_IMPLEMENTATION "-D$half" "$@" -x c -c specdec.h -o "$T/half.o" && size "$T/half.o" | awk 'NR == 2 { print $1 }'
}
saves() # OPTION: prints a row. An instruction set is compiled into kernels alone, and most options leave kernels as they are
{
    bytes=0
    case "$1" in
    *SSE41 | *AVX*) ;;
    *) bytes=$((without_kernels - $(half_bytes SPECDEC_KERNELS_APART "$1"))) ;;
    esac
    case "$1" in
    *SIMD | *SSE41 | *AVX* | *TYPES*) bytes=$((bytes + kernels - $(half_bytes SPECDEC_KERNELS "$1"))) ;;
    esac
    echo "$bytes ${1#-D}"
}
if [ "${1-}" = table ]; then
    shift
    without_kernels=$(half_bytes SPECDEC_KERNELS_APART)
    kernels=$(half_bytes SPECDEC_KERNELS)
    echo "| option (all without one: $(((without_kernels + kernels + 512) / 1024)) KB; $($CC -dumpmachine), version $($CC -dumpversion), -O2) | KB less |"
    echo '|---|---|'
    # those of the header's list, without the instruction sets of other processors
    # shellcheck disable=SC2046
    [ $# -gt 0 ] || set -- $(sed -n '/ Options: define before/,/SPECDEC_STATIC/p' specdec.h | grep -o 'SPECDEC_NO_[A-Z0-9_]*' | sort -u |
        grep -v 'DOTPROD\|I8MM\|NEON32\|RVV') SPECDEC_FREESTANDING SPECDEC_CLUSTER 'SPECDEC_TYPES(X)='
    for option; do
        saves "-D$option"
    done > "$T/rows"
    sort -rn "$T/rows" | awk '{ kb = $1 / 1024; form = (kb * kb < 99) ? "%.1f" : "%.0f"; $1 = ""
        printf "| `%s` | " form " |\n", substr($0, 2), kb }'
    exit
fi
[ $known = yes ] || skip "the sizes are those of gcc 12 on x86-64"

# weighs BYTES OPTION...: the header alone, or a program that includes it, compiles without a warning with $SMALL, and to at
# most so many bytes of text
weighs() { weighs_as "$SMALL" "$@"; }
weighs_as() # OPTIONS BYTES OPTION...: the same with other options than $SMALL
{
    options=$1
    bytes=$2
    shift 2
    case "$*" in
    *.c) set -- "$@" -c ;;
    *) set -- -DSPECDEC_IMPLEMENTATION "$@" -x c -c specdec.h ;;
    esac
    # shellcheck disable=SC2086
    run $CC -std=c99 $options $WARNINGS -Wframe-larger-than=3072 "$@" -o "$T/part.o"
    check "compiles without a warning: $*" [ $status -eq 0 ]
    [ $known = yes ] || return
    text=$(size "$T/part.o" | awk 'NR == 2 { print $1 }')
    echo "    $text bytes: $*"
    check "$text bytes are at most $bytes: $*" [ "$text" -le "$bytes" ]
}
LEAST="-DSPECDEC_NO_BPE -DSPECDEC_NO_VERIFIERS -DSPECDEC_NO_CHAT -DSPECDEC_NO_HEADS -DSPECDEC_NO_SAVE -DSPECDEC_NO_TRIFORCE
    -DSPECDEC_NO_NGRAM -DSPECDEC_NO_EXPERTS -DSPECDEC_NO_SEQUENCES -DSPECDEC_NO_CONSTRAINTS -DSPECDEC_NO_RECURRENT"
weighs_as -O2 1007000 # every instruction set
weighs 374600
weighs 365500 -DSPECDEC_NO_NGRAM
weighs 370300 -DSPECDEC_NO_SEQUENCES
weighs 367600 -DSPECDEC_NO_SAVE
weighs 369000 -DSPECDEC_NO_TRIFORCE
weighs 354100 -DSPECDEC_NO_HEADS
weighs 368300 -DSPECDEC_NO_EXPERTS
weighs 293600 -DSPECDEC_NO_CONSTRAINTS
weighs 350500 -DSPECDEC_NO_ERROR_TEXTS
# shellcheck disable=SC2086
weighs 195100 $LEAST '-DSPECDEC_TYPES(X)='

# A program of one file, which holds only what it calls: the engine's four calls.
cat > "$T/program.c" <<'END'
#define SPECDEC_STATIC
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
specdec_result start(specdec **engine, const specdec_config *config, void *memory, size_t bytes, specdec_error *error);
specdec_result start(specdec **engine, const specdec_config *config, void *memory, size_t bytes, specdec_error *error)
{
    specdec_result result = specdec_init(engine, config, memory, bytes, error);

    return result ? result : specdec_prompt(*engine, "Once upon a time", SPECDEC_WHOLE_STRING);
}
specdec_result next(specdec *engine, specdec_text *piece);
specdec_result next(specdec *engine, specdec_text *piece) { return specdec_next(engine, piece); }
void end(specdec *engine);
void end(specdec *engine) { specdec_deinit(engine); }
END
# shellcheck disable=SC2086
weighs 140300 $LEAST '-DSPECDEC_TYPES(X)=' -DSPECDEC_NO_ERROR_TEXTS -I. "$T/program.c"

# --- frames
for level in "-O0 -Wframe-larger-than=3072" "-O2 -Wframe-larger-than=3072"; do # -Os: all of the above
    [ $known = yes ] || continue
    $CC -std=c99 $level -DSPECDEC_NO_SIMD -DSPECDEC_IMPLEMENTATION -x c -c specdec.h -o "$T/part.o" 2> "$T/err"
    check "no frame is above 3 KB at $level" silent
done

# --- what is left works
hello() # NAME OPTION...: examples/hello.c with options, $T/NAME
{
    name=$1
    shift
    run $CC -std=c99 -O1 -pthread -DSPECDEC_NO_SIMD -DSPECDEC_STATIC -I. "$@" -o "$T/$name" examples/hello.c
    check "hello compiles: $*" [ $status -eq 0 ]
}
"$B/hello" $TARGET $DRAFT > "$T/whole"
# shellcheck disable=SC2086
hello least $LEAST '-DSPECDEC_TYPES(X)=' -DSPECDEC_NO_ERROR_TEXTS
run "$T/least" $TARGET $DRAFT
check "with everything left out that can be, it writes the same story" same "$T/whole" "$T/out"
hello no_spm -DSPECDEC_NO_SPM
run "$T/no_spm" $TARGET $DRAFT
check "a model whose tokenizer was left out is refused" [ $status -eq 1 ]
check "which names tokenizer and option" says 'llama, which SPECDEC_NO_SPM leaves out'

cat > "$T/rule.c" <<'END'
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    specdec_config config;
    specdec_error error;
    specdec *engine, *text;
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
    config.rule = SPECDEC_RULE_COUPLED;
    if (specdec_memory_needed(&config, &bytes, &error) || specdec_init(&engine, &config, malloc(bytes), bytes, &error))
        return 1;
    bad |= specdec_save(engine, NULL, 0, &bytes) != SPECDEC_ERROR_UNSUPPORTED;
    bad |= specdec_load(engine, &bytes, sizeof bytes) != SPECDEC_ERROR_UNSUPPORTED;
    fprintf(stderr, "%s\n", specdec_error_text(engine));
    bad |= specdec_open(engine, &text) != SPECDEC_ERROR_UNSUPPORTED || text;
    fprintf(stderr, "%s\n", specdec_error_text(engine));
    bad |= specdec_save_history(engine, NULL, 0, &bytes) != SPECDEC_ERROR_ARGUMENT;
    config.drafting = SPECDEC_DRAFT_NGRAM;
    bad |= specdec_memory_needed(&config, &bytes, &error) != SPECDEC_ERROR_UNSUPPORTED;
    fprintf(stderr, "%s\n", error.text);
    config.drafting = SPECDEC_DRAFT_AUTO;
    config.sequences = 2;
    bad |= specdec_memory_needed(&config, &bytes, &error) != SPECDEC_ERROR_UNSUPPORTED;
    fprintf(stderr, "%s\n", error.text);
    return bad;
}
END
# shellcheck disable=SC2086
run $CC -std=c99 -O0 -DSPECDEC_NO_SIMD -DSPECDEC_NO_VERIFIERS -DSPECDEC_NO_SAVE -DSPECDEC_NO_NGRAM -DSPECDEC_NO_SEQUENCES $WARNINGS -I. -pthread -o "$T/rule" "$T/rule.c"
check "a program without verifiers, saved texts, n-grams and further texts compiles" [ $status -eq 0 ]
run "$T/rule" $TARGET
check "rules and calls that were left out are refused, and coupled is not" [ $status -eq 0 ]
check "which names the option" says 'SPECDEC_NO_VERIFIERS'
check "which names that option, too" says 'SPECDEC_NO_SAVE'
check "and that of several texts" says 'SPECDEC_NO_SEQUENCES'
check "and the drafts that are left out" says 'drafting "ngram" is left out of this build'
report test_sizes
