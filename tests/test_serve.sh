#!/bin/sh
# test_serve.sh - examples/serve.c: builds it where libmicrohttpd and jansson are, drives it with Python's own sockets; with PyPI's and npm's
# openai, and its page in a browser (npm: playwright-core, axe-core), where those are. They are none of the project's. For instance:
#   npm install --prefix /tmp/serve openai playwright-core axe-core; python3 -m venv /tmp/serve/py; /tmp/serve/py/bin/pip install openai
#   NODE_PATH=/tmp/serve/node_modules PYTHON=/tmp/serve/py/bin/python sh tests/test_serve.sh
# SERVE_SECONDS and SERVE_CLIENTS: how long, and by how many at a time.
. tests/check.sh
SECONDS_OF_STORM=${SERVE_SECONDS:-60} CLIENTS=${SERVE_CLIENTS:-32}
[ -z "$SPECDEC_QUICK" ] || SECONDS_OF_STORM=${SERVE_SECONDS:-4} CLIENTS=${SERVE_CLIENTS:-12}

# adds what a driver in $T/out has counted
add()
{
    sed '$d' "$T/out"
    counts=$(sed -n 's/^.*: \([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*$/\1 \2/p' "$T/out" | tail -n 1)
    if [ -z "$counts" ]; then
        failed=$((failed + 1))
        echo "FAILED: $1 ended with status $status and without a count" >&2
        tail -n 5 "$T/err" >&2
        return
    fi
    passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
}

run make -n serve
check "make knows serve" [ $status -eq 0 ]
for name in microhttpd jansson; do
    if ! echo "#include <$name.h>" | ${CC:-cc} -x c -fsyntax-only - 2> /dev/null; then
        run make serve
        check "make serve says what is missing" grep -q "libmicrohttpd-dev libjansson-dev" "$T/out"
        skip "$name.h is missing"
        report test_serve
        exit
    fi
done
if ! command -v python3 > /dev/null; then
    skip "python3 is missing"
    report test_serve
    exit
fi
run make -s serve BUILD="$B"
check "make serve builds" [ -x "$B/serve" ]
run "$B/serve"
check "without a model it says what it needs" [ $status -eq 2 ]
run "$B/serve" -m "$T/none.gguf"
check "a model that is not there is an error that names it" says 'none.gguf'
run "$B/serve" -m $TARGET --host 192.0.2.1
check "an address that is not this machine's is an error" [ $status -eq 1 ]
run python3 tests/serve.py "$B/serve" $TARGET "$SECONDS_OF_STORM" "$CLIENTS"
add serve.py

# a server for the others
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$B/serve" -m $TARGET --chat-format zephyr -c 2048 --port "$port" 2> "$T/serve" &
server=$!
python3 - "$port" << 'END'
import socket, sys, time
for i in range(600):
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
        break
    except OSError:
        time.sleep(0.1)
END
url=http://127.0.0.1:$port
if "${PYTHON:-python3}" -c 'import openai' 2> /dev/null; then
    run "${PYTHON:-python3}" tests/serve_openai.py "$url"
    add serve_openai.py
else
    skip "PyPI's openai is missing (PYTHON)"
fi
if node -e 'require("openai")' 2> /dev/null; then
    run node tests/serve_openai.cjs "$url"
    add serve_openai.cjs
else
    skip "npm's openai is missing (NODE_PATH)"
fi
if node -e 'require("playwright-core"); require("axe-core")' 2> /dev/null && [ -x "${CHROMIUM:-/usr/bin/chromium}" ]; then
    run node tests/serve_page.cjs "$url"
    add serve_page.cjs
else
    skip "playwright-core, axe-core or Chromium is missing (NODE_PATH, CHROMIUM)"
fi
kill "$server"
wait "$server"
check "the server ends with 0" [ $? -eq 0 ]
jobs > /dev/null # which forgets it
report test_serve
