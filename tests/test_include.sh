#!/bin/sh
# specdec.h in other people's projects: it compiles without a warning under their languages, compilers, warnings, file names and
# macros, and leaves nothing of its own behind. Runs in the repository root; compilers that are missing are skipped, and said.
. tests/check.sh
GCC=gcc GXX=g++ CLANG=clang CLANGXX=clang++ MINGW=x86_64-w64-mingw32-gcc
FAST="-fsyntax-only -DSPECDEC_NO_SIMD"
STRICT="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wcast-qual -Wdouble-promotion -Wfloat-equal
    -Wundef -Wredundant-decls -Wswitch-enum -Wformat=2 -Wwrite-strings -Wdate-time -Werror"

cat > "$T/user.c" << 'END'
#include "specdec.h"
int main(void)
{
    static specdec_config config;
    specdec_error error;
    size_t bytes = 0;

    return specdec_memory_needed(&config, &bytes, &error) != SPECDEC_OK || specdec_version()[0] == 0;
}
END
printf '#define SPECDEC_IMPLEMENTATION\n#include "specdec.h"\n' > "$T/whole.c"
for source in user whole; do cp "$T/$source.c" "$T/$source.cc"; done

# quiet PROMISE COMPILER FLAG...: compiles without a word; skipped where there is no such compiler
quiet()
{
    promise=$1
    shift
    if command -v "$1" > /dev/null; then
        run "$@"
        check "$promise" [ $status -eq 0 -a ! -s "$T/err" ]
    else
        skip "$promise: no $1"
    fi
}

# --- other people's warnings: all that clang has, and long lists for gcc
# shellcheck disable=SC2086
for source in user whole; do
    quiet "C99, clang -Weverything, $source" $CLANG -std=c99 $FAST -Weverything -Werror -I. "$T/$source.c"
    quiet "C++20, clang -Weverything, $source" $CLANGXX -std=c++20 $FAST -Weverything -Werror -I. "$T/$source.cc"
    quiet "C99, gcc, $source" $GCC -std=c99 $FAST $STRICT -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
        -Wbad-function-cast -Wlogical-op -Wduplicated-branches -I. "$T/$source.c"
    quiet "C++20, gcc, $source" $GXX -std=c++20 $FAST $STRICT -Wold-style-cast -Wzero-as-null-pointer-constant -Wuseless-cast \
        -Wextra-semi -Wlogical-op -Wduplicated-branches -I. "$T/$source.cc"
    quiet "C++11, gcc, $source" $GXX -std=c++11 $FAST $STRICT -I. "$T/$source.cc"
    quiet "C11, gcc, $source" $GCC -std=gnu11 $FAST $STRICT -I. "$T/$source.c"
    quiet "MinGW, $source" $MINGW -std=c99 $FAST -Wall -Wextra -Wconversion -Wshadow -Werror -I. "$T/$source.c"
done
quiet "C++20, clang -Weverything, with every instruction set" $CLANGXX -std=c++20 -fsyntax-only -Weverything -Werror -I. "$T/whole.cc"

# --- other people's names: of files, of macros
mkdir "$T/mine"
cp specdec.h "$T/mine/my_engine.h"
printf '#define SPECDEC_IMPLEMENTATION\n#include "mine/my_engine.h"\n' > "$T/renamed.c"
quiet "under another file name, gcc" $GCC -std=c99 -fsyntax-only -Wall -Wextra -Werror "$T/renamed.c"
quiet "under another file name, clang" $CLANG -std=c99 -fsyntax-only -Wall -Wextra -Werror "$T/renamed.c"
quiet "under a name that was told" $GCC -std=c99 -fsyntax-only '-DSPECDEC_FILE="my_engine.h"' "$T/renamed.c"

NAMES="A B C D E F G H I J K L M N O P Q R S T U V W X Y Z MIN MAX ABS SWAP COUNT OK ERROR MASK BIT PI EPSILON"
for name in $NAMES; do echo "#define $name ] $name ["; done > "$T/garbage.h"
printf '#define min(a, b) ] min [\n#define max(a, b) ] max [\n' >> "$T/garbage.h"
text='#define TEXT_OF(x) #x\n#define TEXT(x) TEXT_OF(x)\n'
for implementation in '' '#define SPECDEC_IMPLEMENTATION\n'; do
    # shellcheck disable=SC2059
    { printf "#include \"garbage.h\"\n$implementation#include \"specdec.h\"\n$text"
      for name in $NAMES; do # still what they were
          printf '#ifndef %s\n#error %s is gone\n#endif\ntypedef char kept_%s[sizeof TEXT(%s) == sizeof "] %s [" ? 1 : -1];\n' $name $name $name $name $name
      done
      echo 'typedef char nothing_else;'; } > "$T/names.c"
    quiet "macros of one letter and the like are left alone, gcc: $implementation" $GCC -std=c99 -fsyntax-only -Wall -Wextra -I. -I"$T" "$T/names.c"
    quiet "macros of one letter and the like are left alone, clang: $implementation" $CLANG -std=c99 -fsyntax-only -Wall -Wextra -I. -I"$T" "$T/names.c"
done

# --- nothing is left behind: what the user's own lines are warned of and compiled with, after the header as before it
cat > "$T/after.c" <<'END'
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
static int never_called(int unused) { return 0; }
short narrowed(long wide);
short narrowed(long wide) { return wide; }
int equal(double a, double b);
int equal(double a, double b) { return a == b; }
END
warned() # COMPILER: of each of the three lines
{
    command -v "$1" > /dev/null || { skip "warnings after the header: no $1"; return; }
    run "$1" -std=c99 -O0 -DSPECDEC_NO_SIMD -Wall -Wextra -Wconversion -Wfloat-equal -I. -c -o "$T/after.o" "$T/after.c"
    for warning in unused-function unused-parameter onversion float-equal; do
        check "$1 warns of $warning after the header as before it" says "after.c.*$warning"
    done
}
warned $GCC
warned $CLANG
fused() # PROMISE COUNT COMPILER FLAG...: so many multiply-adds are in the user's function
{
    promise=$1 count=$2
    shift 2
    command -v "$1" > /dev/null || { skip "$promise: no $1"; return; }
    [ "$("$1" -dumpmachine | cut -d- -f1)" = x86_64 ] || { skip "$promise: not x86-64"; return; }
    "$@" -std=gnu99 -O2 -mfma -DSPECDEC_NO_SIMD -DSPECDEC_STATIC -I. -S -o "$T/fused.s" "$T/fused.c" 2> "$T/err"
    check "$promise" [ "$(sed -n '/^users:/,/ret/p' "$T/fused.s" | grep -c vfmadd)" -eq $count ]
}
product='double users(double a, double b, double c);\ndouble users(double a, double b, double c) { return a * b + c; }\n'
# shellcheck disable=SC2059
printf "#define SPECDEC_IMPLEMENTATION\n#include \"specdec.h\"\n$product" > "$T/fused.c"
fused "the user's products are fused again behind the header, gcc" 1 $GCC -ffp-contract=fast
fused "the user's products are fused again behind the header, clang" 1 $CLANG -ffp-contract=on
# shellcheck disable=SC2059
printf "#include <stddef.h>\n#pragma STDC FP_CONTRACT OFF\n#define SPECDEC_IMPLEMENTATION\n#include \"specdec.h\"\n$product" > "$T/fused.c"
fused "or are not, if the user has said so, clang" 0 $CLANG -ffp-contract=on
cat > "$T/linkage.cc" <<'END'
extern "C" { /* a system header in here could not declare a template */
#include "specdec.h"
}
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
int main() { return specdec_version()[0] == 0; }
END
awk '/^extern "C" \{/ { inside = 1 } /^}/ && inside { inside = 0 } inside && /#include </ { print FILENAME ":" FNR ": " $0; bad = 1 } END { exit bad }' specdec.h > "$T/err"
check "no system header is included inside of extern \"C\"" [ $? -eq 0 ]
quiet "the header may be read twice, and first without its implementation" $GXX -std=c++11 $FAST -Wall -Wextra -Werror -I. "$T/linkage.cc"
report test_include
