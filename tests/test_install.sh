#!/bin/sh
# make install, CMakeLists.txt and what they bring: headers, programs, manual pages, pkg-config and CMake find what they should, in
# a scratch folder. To be run in the repository root, after make.
. tests/check.sh
CC=${CC:-cc}
MAKE=${MAKE:-make}
PROMPT="Once upon a time"
VERSION=$(sed -n 's/^#define SPECDEC_VERSION "\(.*\)"/\1/p' specdec.h)
FAST="-O0 -DSPECDEC_NO_SIMD"

cat > "$T/user.c" << 'END'
#define SPECDEC_IMPLEMENTATION
#include <specdec.h>
#include <stdio.h>
int main(void) { return puts(specdec_version()) < 0; }
END

# --- make install
run $MAKE BUILD="$B" DESTDIR="$T/stage" PREFIX=/opt/specdec install
check "make install ends well" [ $status -eq 0 ]
P=$T/stage/opt/specdec
check "nothing lies beside the prefix" [ "$(ls "$T/stage") $(ls "$T/stage/opt")" = "opt specdec" ]
check "the header is the header" same specdec.h "$P/include/specdec.h"
for program in specdec many specdec-info specdec-quantize; do
    check "the program is there: $program" [ -x "$P/bin/$program" ]
done
check "no program has a common word as its name" [ ! -e "$P/bin/hello" -a ! -e "$P/bin/fork" -a ! -e "$P/bin/talk" ]
run "$P/bin/specdec" -m $TARGET -p "$PROMPT" -n 5 -t 1
check "an installed program works" [ $status -eq 0 ]
for program in "$P"/bin/*; do
    page=$P/share/man/man1/${program##*/}.1
    check "it has a manual page: ${program##*/}" [ -s "$page" ]
    "$program" --help > "$T/help"
    grep -o '^  -[^ ]*' "$T/help" | sort -u > "$T/flags"
    sed 's/\\-/-/g' "$page" | grep -o '^\\fB-[^ \\]*' | sed 's/\\fB/  /' | sort -u > "$T/paged"
    check "with every flag: ${program##*/}" same "$T/flags" "$T/paged"
    sed 's/\\-/-/g' "$page" | grep -q "^${program##*/} - [a-zA-Z].\{20\}"
    check "and a line that says what it is: ${program##*/}" [ $? -eq 0 ]
    if command -v groff > /dev/null; then
        groff -man -ww -z "$page" > "$T/out" 2> "$T/err"
        check "which groff takes without a word: ${program##*/}" silent
    fi
done
if command -v pkg-config > /dev/null; then
    PKG_CONFIG_PATH=$P/share/pkgconfig
    export PKG_CONFIG_PATH
    check "pkg-config knows the version" [ "$(pkg-config --modversion specdec)" = "$VERSION" ]
    check "and where the header will be" [ "$(pkg-config --variable=includedir specdec)" = /opt/specdec/include ]
    # shellcheck disable=SC2046,SC2086
    run $CC -std=c99 $FAST $(pkg-config --define-variable=prefix="$P" --cflags specdec) "$T/user.c" -o "$T/by_pkg_config" \
        $(pkg-config --define-variable=prefix="$P" --libs specdec)
    check "a program compiles with what it says" [ $status -eq 0 ]
    check "and runs" [ "$("$T/by_pkg_config")" = "$VERSION" ]
else
    skip "no pkg-config"
fi

# --- CMake
# project NAME LINES LANGUAGE OPTION...: a project of one program that gets specdec::specdec by these lines is built
project()
{
    name=$1 lines=$2 language=$3
    shift 3
    ending=cc
    [ "$language" = CXX ] || ending=c
    mkdir "$T/$name"
    cp "$T/user.c" "$T/$name/user.$ending"
    printf 'cmake_minimum_required(VERSION 3.14)\nproject(user LANGUAGES %s)\n%s\nadd_executable(user user.%s)\n%s\n' "$language" "$lines" \
        $ending 'target_link_libraries(user PRIVATE specdec::specdec)' > "$T/$name/CMakeLists.txt"
    run cmake -S "$T/$name" -B "$T/$name/build" -DCMAKE_C_FLAGS="$FAST" -DCMAKE_CXX_FLAGS="$FAST" -DCMAKE_BUILD_TYPE= "$@"
    check "CMake configures: $name" [ $status -eq 0 ]
    run cmake --build "$T/$name/build"
    check "and builds it: $name" [ $status -eq 0 ]
    check "and it runs: $name" [ "$("$T/$name/build/user")" = "$VERSION" ]
}
if command -v cmake > /dev/null; then
    project by_fetching_cmake "include(FetchContent)
        FetchContent_Declare(specdec SOURCE_DIR \"$PWD\")
        FetchContent_MakeAvailable(specdec)" C
    check "nothing but that is built" [ "$(find "$T/by_fetching_cmake/build" -name '*.o' | wc -l)" -eq 1 ]
    run cmake --install "$T/by_fetching_cmake/build" --prefix "$T/fetched"
    check "and nothing of it is installed with the project" [ -z "$(find "$T/fetched" -type f 2> /dev/null)" ]
    run cmake -S . -B "$T/own" -DCMAKE_INSTALL_PREFIX="$T/cmade"
    check "CMake configures it alone" [ $status -eq 0 ]
    run cmake --build "$T/own"
    check "and has nothing to build" [ $status -eq 0 -a -z "$(find "$T/own" -name '*.c.o' -not -path '*/CMakeFiles/*')" ]
    run cmake --install "$T/own"
    check "and installs it" [ $status -eq 0 ]
    check "header, CMake's and pkg-config's files" [ "$(cd "$T/cmade" && find . -type f | sort | tr '\n' ' ')" = \
        "./include/specdec.h ./share/cmake/specdec/specdec-config-version.cmake ./share/cmake/specdec/specdec-config.cmake ./share/pkgconfig/specdec.pc " ]
    check "which are what make installs" same "$P/share/cmake/specdec/specdec-config-version.cmake" \
        "$T/cmade/share/cmake/specdec/specdec-config-version.cmake"
    project by_finding_cmake "find_package(specdec ${VERSION%.*} REQUIRED)" CXX -DCMAKE_PREFIX_PATH="$P"
    mkdir "$T/too_new"
    printf 'cmake_minimum_required(VERSION 3.14)\nproject(user LANGUAGES C)\nfind_package(specdec 99.0 REQUIRED)\n' > "$T/too_new/CMakeLists.txt"
    run cmake -S "$T/too_new" -B "$T/too_new/build" -DCMAKE_PREFIX_PATH="$P"
    check "a version that is not here is refused" [ $status -ne 0 ]
else
    skip "no cmake"
fi

# --- and back
run $MAKE BUILD="$B" DESTDIR="$T/stage" PREFIX=/opt/specdec uninstall
check "make uninstall leaves no file" [ $status -eq 0 -a -z "$(find "$T/stage" -type f)" ]
report test_install
