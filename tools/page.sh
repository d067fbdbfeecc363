#!/bin/sh
# page.sh page.html page.css page.js - these files as arrays of C strings, a line each, for examples/serve.c.
echo 'extern const char *const page_html[], *const page_css[], *const page_js[];'
for file in "$@"; do
    name=${file##*/}
    echo "const char *const $(echo "$name" | tr . _)[] = {"
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n",/' "$file" || exit 1
    echo '    0};'
done
