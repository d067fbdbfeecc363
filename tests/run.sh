#!/bin/sh
# run.sh TEST... - runs built tests and .sh ones, adds up what they count, and ends with "N passed, N failed".
# TEST_WRAPPER goes before every built test: an emulator, for instance.
passed=0 failed=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
limit="" # a test that hangs is one that fails
command -v timeout > /dev/null && limit="timeout 1200"
for test in "$@"; do
    case $test in
    *.sh) $limit sh "$test" > "$log" 2>&1 ;;
    *) $limit $TEST_WRAPPER "$test" > "$log" 2>&1 ;;
    esac
    status=$?
    cat "$log"
    # every test reports "name: N passed, N failed, N skipped"
    counts=$(sed -n 's/^.*: \([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*$/\1 \2/p' "$log" | tail -n 1)
    if [ -z "$counts" ] || { [ $status -ne 0 ] && [ "${counts#* }" = 0 ]; }; then
        echo "$test: ended with status $status and without a count"
        failed=$((failed + 1))
    fi
    if [ -n "$counts" ]; then
        passed=$((passed + ${counts% *}))
        failed=$((failed + ${counts#* }))
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
