#!/bin/sh
# page.sh FILE.html FILE.css FILE.js - text files as arrays of C strings, a line each: page_html, page_css, page_js.
for file in "$@"; do
    name=${file##*/}
    echo "static const char *const $(echo "$name" | tr . _)[] = {"
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n",/' "$file" || exit 1
    echo '    NULL};'
done
