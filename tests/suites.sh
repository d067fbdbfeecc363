#!/bin/sh
# suites.sh NAME... - what make test leaves out, each by its name; ends with "N passed, N failed". What a suite needs and is not
# there is said, and counts as nothing.
#   compilers  the header with every option, by gcc and clang, as C99 and C++11, without warnings
#   options    sizes of machine code, parts left out, the header included in every way
#   full       all tests, not shortened (DEPTH=2..5: longer random ones; SEED)
#   asan       kernels and the engine under the address sanitizer
#   ubsan      everything without kernels under both sanitizers
#   fence      many sequences, pipelines and random calls under both, with gaps between arrays
#   tsan       threads under the thread sanitizer
#   arm arm32 bigendian riscv windows    cross-built, run in an emulator: see make help
#   cluster    several processes over MPI
cd "$(dirname "$0")/.." || exit 1
LC_ALL=C
export LC_ALL
passed=0 failed=0
again=$(mktemp) && log=$(mktemp) || exit 1
trap 'rm -f "$again" "$log"' EXIT
trap 'exit 130' INT TERM

# suite NAME COMMAND...: runs what ends with a line "N passed, N failed", and adds that up
suite()
{
    name=$1 began=$(date +%s)
    shift
    printf '\n== %s\n' "$name"
    "$@" > "$log" 2>&1 || true
    grep -v '^cc \|^gcc \|^clang \|^[a-z0-9_-]*-gcc ' "$log"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    echo "== $name: ${line:-no summary} ($(($(date +%s) - began)) s)"
    if [ -z "$line" ]; then
        failed=$((failed + 1))
        { echo "$name: no summary; it ended with:"; tail -n 3 "$log"; } >> "$again"
        return
    fi
    passed=$((passed + ${line%% *}))
    line=${line#*, }
    line=${line%% *}
    failed=$((failed + line))
    [ "$line" = 0 ] || grep 'FAILED\|ended with status' "$log" | head -n 10 | sed "s|^|$name: |" >> "$again"
}

# needs TOOL...: whether all of them are there; says which one is not
needs()
{
    for tool; do
        command -v "$tool" > /dev/null || { echo "skipped: $name_of_suite: no $tool"; return 1; }
    done
}

# sanitized FOLDER CC FLAGS TEST[:PART]...: builds tests, or programs that scripts need, with these flags, and runs the tests, parts
# of them (an argument after each =) and scripts
sanitized()
{
    folder=build/$1 cc=$2 flags=$3 made="" run=""
    shift 3
    mkdir -p "$folder"
    for test; do
        case $test in
        *.sh) run="$run $test" ;;
        test_*:*)
            script=$folder/$(echo "$test" | tr ':=' '__').sh
            echo "$still $folder/${test%%:*} $(echo "${test#*:}" | tr = ' ')" > "$script"
            made="$made $folder/${test%%:*}" run="$run $script" ;;
        test_*) made="$made $folder/$test" run="$run $folder/$test" ;;
        *) made="$made $folder/$test" ;;
        esac
    done
    # shellcheck disable=SC2086
    make -s BUILD="$folder" CC="$cc" CFLAGS="-O1 -g1 $flags" $made && TEST_BEFORE=$still JOBS=${JOBS:-2} sh tests/run.sh $run
}

# Sanitizers cost minutes a file where they meet the unrolled kernels: kernels are built with the address sanitizer alone, everything
# else, without kernels, with both. The kernels' integers are exact by the tests of same bits.
both="-DSPECDEC_NO_SIMD= -fsanitize=address,undefined -fno-sanitize-recover=all"
still="" # what comes before a program

quickly() { SPECDEC_QUICK=1 ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=halt_on_error=1 "$@"; }

of_threads()
{
    setarch "$(uname -m)" -R true 2> /dev/null && still="setarch $(uname -m) -R" # it dislikes randomised addresses
    mkdir -p build/tsan
    cat > build/tsan/story.sh << 'END'
model=examples/models/tiny-stories
build/tsan/specdec -m $model-target-q8_0.gguf -md $model-draft-q8_0.gguf -t 2 -p "A dog" -n 60 > build/tsan/story &&
    build/specdec -m $model-target-q8_0.gguf -t 1 -p "A dog" -n 60 | cmp - build/tsan/story && echo "story: 1 passed, 0 failed"
END
    make -s build/specdec
    sanitized tsan clang "-DSPECDEC_NO_SIMD= -fsanitize=thread" specdec test_pool test_engine:cancel test_texts:schedules=4 \
        test_texts:beside=12 test_async:ahead test_pipe test_compose:ranks build/tsan/story.sh
    still=""
}

for name_of_suite; do
    case $name_of_suite in
    compilers) needs g++ clang && suite compilers bash .ci/compilers ;;
    options) make -s all && suite options env JOBS=2 sh tests/run.sh tests/test_sizes.sh tests/test_options.sh tests/test_include.sh \
        tests/test_bindings.sh tests/test_install.sh ;;
    full) suite full make -s check-full ;;
    asan) suite asan quickly sanitized asan gcc "-fsanitize=address -DSPECDEC_SANITIZE_KERNELS" test_conformance test_engine test_pool ;;
    ubsan) suite ubsan quickly sanitized ubsan gcc "$both" test_model test_text test_quant test_quant_wide test_sample test_tree \
        test_tree_tables test_verify test_ngram test_ops_scalar test_program test_convert test_draft test_files_types test_save \
        test_compose:ranks ;;
    fence) JOBS=1 suite fence quickly sanitized fence gcc "$both -DSPECDEC_FENCE=256" test_texts test_pipe test_api ;;
    tsan) needs clang && suite tsan quickly of_threads ;;
    arm) needs aarch64-linux-gnu-gcc qemu-aarch64 && suite arm make -s arm ;;
    arm32) needs arm-linux-gnueabihf-gcc qemu-arm && suite arm32 make -s arm32 ;;
    bigendian) needs powerpc64-linux-gnu-gcc qemu-ppc64 && suite bigendian make -s bigendian ;;
    riscv) needs riscv64-linux-gnu-gcc qemu-riscv64 && suite riscv make -s riscv ;;
    windows) needs x86_64-w64-mingw32-gcc wine && suite windows make -s windows ;;
    cluster) make -s build/specdec && suite cluster sh tests/run.sh tests/test_cluster.sh ;;
    *) echo "suites.sh: no suite is called $name_of_suite; names: $(sed -n 's/^#   \([a-z0-9 ]*[a-z0-9]\)  .*/\1/p' "$0" | tr '\n' ' ')" >&2; exit 2 ;;
    esac
done
[ ! -s "$again" ] || { echo "What failed, once more:"; cat "$again"; }
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
