#!/bin/sh
# Builds programs with parts of specdec.h left out: they compile without a warning, they write the same text, and a model of a
# type that was left out is refused by name. To be run in the repository root, after make.
. tests/check.sh
CC=${CC:-cc}
WARNINGS="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"

# build NAME OPTION...: examples/hello.c with options, $T/NAME
build()
{
    name=$1
    shift
    run $CC -std=c99 -O1 -pthread $WARNINGS -I. "$@" -o "$T/$name" examples/hello.c
    check "compiles without a warning: $*" [ $status -eq 0 ]
}
# writes NAME MODEL: the text of the program is that of hello with everything in it
writes()
{
    "$B/hello" "$2" > "$T/whole" 2> "$T/err"
    "$T/$1" "$2" > "$T/text" 2> "$T/err"
    check "$1 writes the same text of ${2##*/}" same "$T/whole" "$T/text"
    check "and it is a text" [ "$(wc -c < "$T/text")" -gt 200 ]
}

q4_0=$T/q4_0.gguf
run "$B/specdec-quantize" $TARGET "$q4_0" Q4_0
check "a model of another type is made" [ $status -eq 0 ]

build sse41 -DSPECDEC_NO_AVX2 -DSPECDEC_NO_AVXVNNI -DSPECDEC_NO_AVX512 -DSPECDEC_NO_DOTPROD -DSPECDEC_NO_I8MM
writes sse41 $TARGET
build avx2 -DSPECDEC_NO_SSE41 -DSPECDEC_NO_AVXVNNI -DSPECDEC_NO_AVX512 -DSPECDEC_NO_I8MM '-DSPECDEC_TYPES(X)=X(Q4_0) X(Q6_K)'
writes avx2 "$q4_0"
writes avx2 $TARGET
build avx512 -DSPECDEC_NO_SSE41 -DSPECDEC_NO_AVX2 -DSPECDEC_NO_AVXVNNI '-DSPECDEC_TYPES(X)=X(Q6_K) X(Q4_0)'
writes avx512 "$q4_0"
build plain -DSPECDEC_NO_SIMD '-DSPECDEC_TYPES(X)=X(Q4_K) X(Q6_K)'
writes plain $TARGET
run "$T/plain" "$q4_0"
check "a type that was left out is an error" [ $status -eq 1 ]
check "which names the type and the option" says 'type Q4_0.*SPECDEC_TYPES'

cat > "$T/left.c" << 'END'
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "tests/gguf_maker.h"
int main(int argc, char **argv)
{
    maker_recipe recipe = {0};
    specdec_config config;
    specdec_error error;
    size_t bytes;

    memset(&config, 0, sizeof config);
    recipe.architecture = argc > 1 ? argv[1] : "llama";
    config.target.data = maker_model(&recipe, &config.target.size);
    if (specdec_memory_needed(&config, &bytes, &error) == SPECDEC_OK)
        return puts("taken"), 0;
    return fputs(error.text, stderr), error.code == SPECDEC_ERROR_UNSUPPORTED ? 1 : 2;
}
END
run $CC -std=c99 -O0 -pthread -DSPECDEC_NO_SIMD -I. -o "$T/left" "$T/left.c" -lm
for architecture in qwen3moe qwen35 lfm2 granitehybrid; do
    run "$T/left" $architecture
    check "$architecture is taken" [ $status -eq 0 ]
done
# left_out OPTION ARCHITECTURE...: models of these are refused, others are not
left_out()
{
    option=$1
    shift
    run $CC -std=c99 -O0 -pthread $WARNINGS -DSPECDEC_NO_SIMD -D$option -I. -o "$T/left" "$T/left.c" -lm
    check "compiles without a warning: -D$option" [ $status -eq 0 ]
    for architecture in "$@"; do
        run "$T/left" $architecture
        check "$architecture, which was left out, is an error" [ $status -eq 1 ]
        check "which names the option" says $option
    done
    run "$T/left" llama
    check "llama is taken" [ $status -eq 0 ]
}
left_out SPECDEC_NO_EXPERTS qwen3moe
left_out SPECDEC_NO_RECURRENT qwen35 lfm2 granitehybrid
build recurrent -DSPECDEC_NO_RECURRENT
writes recurrent $TARGET

# --- what the header leaves behind: nothing
cat > "$T/after.c" << 'END'
#define V 1
#define X 2
#define SPECDEC_STATIC
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
typedef char v_is_kept[V == 1 ? 1 : -1];
typedef char x_is_kept[X == 2 ? 1 : -1];
#ifdef NARROW
int narrow(double d);
int narrow(double d) { return d; }
#endif
#ifdef UNUSED
static int unused(void) { return 0; }
#endif
END
for half in "" -DSPECDEC_KERNELS; do
    run $CC -std=c99 -O0 -c -o "$T/after.o" $WARNINGS -I. $half "$T/after.c"
    check "macros of the user's outlive the header $half" [ $status -eq 0 ]
    for left in NARROW UNUSED; do
        run $CC -std=c99 -O0 -c -o "$T/after.o" $WARNINGS -I. $half -D$left "$T/after.c"
        check "warnings of the user's outlive the header $half: $left" [ $status -ne 0 ]
    done
done
report test_options
