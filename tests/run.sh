#!/bin/sh
# run.sh TEST... [-- TEST...] - runs built tests and .sh ones, adds up what they count, repeats what failed, and ends with "N passed,
# N failed". Those before -- may run side by side: JOBS at a time (1). TEST_WRAPPER goes before every built test: an emulator, for
# instance. WATCH is the process id of make, which tells nobody when it alone is interrupted.
limit="" # a test that hangs is one that fails
timeout 9 true 2> /dev/null && limit="timeout 1200"
timeout --foreground 9 true 2> /dev/null && limit="timeout --foreground 1200" # which Ctrl-C reaches

if [ "$1" = --one ]; then # FOLDER TEST: what it prints and its status go there
    log=$2/$(echo "$3" | tr / _)
    case $3 in
    *.sh) run=sh ;;
    *) run=$TEST_WRAPPER ;;
    esac
    began=$(date +%s)
    $limit $run "$3" > "$log" 2>&1
    status=$?
    if [ $status -ge 124 ] && [ -n "$TEST_WRAPPER" ]; then # emulated threads have been seen to hang and to crash: once more
        first=$status
        $limit $run "$3" > "$log" 2>&1
        status=$?
        echo "TRIED TWICE: $3, the first time it ended with status $first" | tee -a "$log" > "$log.twice"
    fi
    took=$(($(date +%s) - began))
    [ $took -lt 10 ] || echo "($took s)" >> "$log"
    echo $status > "$log.part"
    mv "$log.part" "$log.status"
    exit 0
fi

logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
trap 'end; exit 130' INT TERM

# What this shell has started, by process id, but for the shell that asks ($1).
started()
{
    ps -A -o pid= -o ppid= | awk -v root=$$ -v asks="$1" '{ parent[$1] = $2 }
        END { for (pid in parent) { at = pid; while (at in parent && at != root && at != asks) at = parent[at]
            if (at == root && pid != root) print pid } }'
}
# Ends all of it. $1: the shell that asks, if it is not this one.
end()
{
    for signal in TERM KILL; do
        started "$1" > "$logs/started"
        while read -r pid; do kill -$signal "$pid" 2> /dev/null; done < "$logs/started"
        [ $signal = KILL ] || sleep 1
    done
}
# Has make ended, or does it wait for us alone, its interrupt being handled (and so blocked: the second bit) for a while?
make_ended()
{
    [ -n "$WATCH" ] || return 1
    kill -0 "$WATCH" 2> /dev/null || return 0
    case $(sed -n 's/^SigBlk:.*\(.\)$/\1/p' "/proc/$WATCH/status" 2> /dev/null) in
    [2367abefABEF]) blocked=$((blocked + 1)) ;;
    *) blocked=0 ;;
    esac
    [ $blocked -gt 4 ]
}

# Prints what tests printed, in the order of the list, as soon as it is there, and the sum of all.
tell()
{
    passed=0 failed=0 blocked=0
    for test in "$@"; do
        [ "$test" != -- ] || continue
        log=$logs/$(echo "$test" | tr / _)
        while [ ! -e "$log.status" ]; do
            [ -d "$logs" ] || exit 1
            ! make_ended || { end "$(exec sh -c 'echo $PPID')"; kill -TERM $$; exit 1; }
            [ ! -e "$logs/over" ] || [ -e "$log.status" ] || echo 1 > "$log.status"
            sleep 0.1 2> /dev/null || sleep 1
        done
        read -r status < "$log.status"
        [ -e "$log" ] && cat "$log"
        # every test reports "name: N passed, N failed, N skipped"
        counts=$(sed -n 's/^.*: \([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*$/\1 \2/p' "$log" 2> /dev/null | tail -n 1)
        if [ -z "$counts" ] || { [ "$status" -ne 0 ] && [ "${counts#* }" = 0 ]; }; then
            echo "$test: ended with status $status and without a count"
            failed=$((failed + 1))
            echo "$test: status $status; it ended with: $(tail -n 1 "$log" 2> /dev/null)" >> "$logs/again"
        fi
        if [ -n "$counts" ]; then
            passed=$((passed + ${counts% *}))
            failed=$((failed + ${counts#* }))
            [ "${counts#* }" = 0 ] || grep 'FAILED' "$log" | head -n 10 | sed "s|^|$test: |" >> "$logs/again"
        fi
    done
    cat "$logs"/*.twice 2> /dev/null
    [ ! -e "$logs/again" ] || { echo "What failed, once more:"; cat "$logs/again"; }
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
}
tell "$@" &

# The tests are in the foreground: Ctrl-C ends them.
[ "${JOBS:-1}" = 1 ] || true | xargs -P 2 true 2> /dev/null || JOBS=1
if [ "${JOBS:-1}" != 1 ]; then
    for test in "$@"; do
        [ "$test" != -- ] || break
        echo "$test"
    done | xargs -P "$JOBS" -n 1 sh "$0" --one "$logs"
    while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
fi
for test in "$@"; do
    [ "$test" = -- ] || sh "$0" --one "$logs" "$test"
done
: > "$logs/over"
wait $!
