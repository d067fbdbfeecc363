# check.sh - what the tests in shell share: counting checks, running programs. To be read with "." in the repository root.
LC_ALL=C
export LC_ALL
B=${BUILD:-build}
TARGET=examples/models/tiny-stories-target-q8_0.gguf
DRAFT=examples/models/tiny-stories-draft-q8_0.gguf
passed=0 failed=0 skipped=0
T=$(mktemp -d) || exit 1
trap 'jobs -p > "$T/jobs" && while read -r job; do kill "$job"; done < "$T/jobs"; rm -rf "$T"' EXIT 2> /dev/null
trap 'exit 130' INT
trap 'exit 143' TERM

# check PROMISE TEST...: the test command holds
check()
{
    promise=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $promise: $*" >&2
        [ -s "$T/err" ] && sed 's/^/    /' "$T/err" | head -n 5 >&2
    fi
}
skip()
{
    skipped=$((skipped + 1))
    echo "skipped: $1"
}
# run COMMAND...: leaves $T/out, $T/err and $status
run()
{
    "$@" > "$T/out" 2> "$T/err" < /dev/null
    status=$?
}
says() { grep -q -e "$1" "$T/err"; }
silent() { [ ! -s "$T/err" ]; }
same() { cmp -s "$1" "$2"; }
balanced() { awk '{ gsub(/"[^"]*"/, ""); for (i = 1; i <= length; i++) { c = substr($0, i, 1)
    if (c ~ /[][{}]/) deep += c ~ /[[{]/ ? 1 : -1; if (deep < 0) bad = 1 } } END { exit bad || deep || !NR }' "$1"; }
# valid FILE: is it JSON? Asks Python where there is one.
valid() { if command -v python3 > /dev/null; then python3 -m json.tool "$1" > /dev/null; else balanced "$1"; fi; }
# report NAME: what was counted, as the last line of a test; its status
report()
{
    echo "$1: $passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
}
# listening COMMAND...: runs it, to be put into the background, with SIGINT as at a terminal: what a shell puts there ignores it
listening()
{
    [ -x "$T/listening" ] || printf '%s\n' '#include <signal.h>' '#include <unistd.h>' \
        'int main(int c, char **v) { signal(SIGINT, SIG_DFL); return c < 2 || execvp(v[1], v + 1); }' |
        ${CC:-cc} -D_DEFAULT_SOURCE -x c -o "$T/listening" - || return 1
    exec "$T/listening" "$@"
}
