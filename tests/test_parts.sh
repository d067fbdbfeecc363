#!/bin/sh
# specdec.h is what the parts in src/ give; its contents name them; only one part knows operating systems. With PARTS=alone, every
# part compiles by itself, as C99 and C++11 (CXX), with what it includes: so it uses nothing that its includes do not name;
# with PARTS=once, as one of the two, by turns from day to day.
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0
check() # PROMISE STATUS
{
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; fi
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

sh tools/join.sh > "$work/specdec.h" && cmp -s "$work/specdec.h" specdec.h
check "specdec.h is what the parts in src/ give (make header joins it)" $?

parts=$(sed -n 's/^#include "\(.*\)\.h"/\1/p' src/specdec.h)
sed -n '/^   CONTENTS/,/\*\//p' src/specdec.h | tr -s ' */' '\n' | sort -u > "$work/contents"
for part in $parts; do
    case $part in interface/* | base/begin | base/end) continue ;; esac
    name=${part#*/}
    grep -qx "$name" "$work/contents"
    check "the contents of specdec.h name $name" $?
    grep -q "^ \* >>$part: " "src/$part.h"
    check "src/$part.h begins with its banner, >>$part" $?
done
for part in src/*/*.h; do
    part=${part#src/}
    echo " $(echo "$parts" | tr '\n' ' ')" | grep -q " ${part%.h} "
    check "src/specdec.h includes $part" $?
done

# What the join must refuse: a copy of the parts in which one includes a part below it.
mkdir "$work/tools" && cp tools/join.sh "$work/tools" && cp -r src "$work/src"
echo '#include "../forward/step.h"' >> "$work/src/cache/kv.h"
! sh "$work/tools/join.sh" > "$work/joined" 2> "$work/error" &&
    grep -q 'src/cache/kv.h includes src/forward/step.h, which is not above it' "$work/error"
check "the join refuses a part that includes one below it" $?
cp src/cache/kv.h "$work/src/cache/kv.h"

systems='__linux|__unix|__ANDROID__|__APPLE__|__FreeBSD__|_WIN(32|64)|__MINGW|_MSC_VER|<(sys/[a-z]+|unistd|fcntl|sched|time|errno|pthread|windows|process|signal)\.h>|(pthread|sched|clock)_[a-z]+\(|(getauxval|sysconf|syscall|mmap|munmap|getenv)\('
! grep -nE "$systems" $(ls src/*/*.h | grep -v src/base/os.h)
check "only src/base/os.h names operating systems" $?

! grep -nE '[ 	]+$' src/*.h src/*/*.h
check "no white space at ends of lines" $?
! awk 'length > 120 { print FILENAME ":" FNR; found = 1 } END { exit !found }' src/*.h src/*/*.h
check "no line is longer than 120 columns" $?
! wc -l src/*/*.h | awk '$1 > 1200 && $2 != "total" { print $2 ": " $1 " lines"; found = 1 } END { exit !found }'
check "no part has more than 1,200 lines" $?

! awk '/^SPECDEC__FOR_SIZE/ { open++ } /^SPECDEC__FOR_SPEED/ { open-- }
    FNR == 1 { if (open) { print last ": what is compiled for size does not end"; found = 1 } open = 0 } { last = FILENAME }
    END { exit !(found || open) }' src/*/*.h
check "what a part has compiled for size ends in the part" $?

if [ "${PARTS-}" = alone ] || [ "${PARTS-}" = once ]; then
    alone() # PART COMPILER: a part that is compiled by itself, in the background
    {
        echo "#include \"src/$1.h\"" | $2 -fsyntax-only -Wall -Wextra -Werror -I. - > "$work/log.$3" 2>&1 && echo > "$work/passed.$3"
    }
    # What the compiler must refuse: code at the end of a part that uses what the part does not include.
    while read -r part code; do
        { cat "src/$part.h" && echo "$code"; } > "$work/src/$part.h"
        (cd "$work" && echo "#include \"src/$part.h\"" | ${CC:-cc} -x c -std=c99 -fsyntax-only -Wall -Werror -I. - 2> error)
        [ $? -ne 0 ] && grep -q 'specdec__' "$work/error"
        check "src/$part.h cannot hold: $code" $?
        cp "src/$part.h" "$work/src/$part.h"
    done << 'END'
cache/kv static int specdec__new(void) { return specdec__forward(0, 0, 0); }
speculation/tree static float specdec__new(void) { return specdec__exp(1); }
text/chat static double specdec__new(void) { return specdec__os_monotonic_seconds(); }
speculation/sample static int specdec__new(specdec__tune *tune) { return !tune; }
END
    started=0
    judge() # two compiles at a time: waits, and counts what has ended
    {
        wait
        while read -r number part; do
            [ -e "$work/passed.$number" ]
            status=$?
            check "src/$part.h compiles by itself" $status
            [ $status = 0 ] || grep -m 3 error "$work/log.$number"
        done < "$work/started"
        : > "$work/started"
    }
    begin() # PART COMPILER
    {
        started=$((started + 1))
        echo "$started $1" >> "$work/started"
        alone "$1" "$2" $started &
        [ $((started % 2)) -ne 0 ] || judge
    }
    : > "$work/started"
    turn=$(date +%j | sed 's/^0*//')
    for part in $parts; do
        case $part in base/end) continue ;; esac
        turn=$((turn + 1))
        [ "$PARTS" = once ] && [ $((turn % 2)) = 0 ] || begin "$part" "${CC:-cc} -x c -std=c99"
        [ "$PARTS" = once ] && [ $((turn % 2)) = 1 ] || begin "$part" "${CXX:-c++} -x c++ -std=c++11"
    done
    judge
fi
echo "test_parts: $passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
