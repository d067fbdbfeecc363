#!/bin/sh
# join.sh - writes on standard output the one header that the parts in src/ make: the frame src/specdec.h, with each part in
# the place of the line that includes it. Parts come in the frame's order, so a part may include only parts above it: anything
# else is an error. What only parts need is left out: #pragma once, lines that include parts, lines that end in
# "parts only */", and the blank line after such lines.
cd "$(dirname "$0")/../src" || exit 1
exec awk '
function fail(text) { print "join.sh: " text > "/dev/stderr"; failed = 1; exit 1 }

# "kernel/../base/os.h" is "base/os.h".
function plain(path)
{
    while (sub(/[^\/.]+\/\.\.\//, "", path))
        ;
    return path
}

function name_of(line) { sub(/^#include "/, "", line); sub(/".*/, "", line); return line }

function print_part(part,    folder, line, dropped, other, status)
{
    folder = part ~ /\// ? part : ""
    sub(/[^\/]*$/, "", folder)
    while ((status = (getline line < part)) > 0) {
        if (line ~ /^#include "/) {
            other = plain(folder name_of(line))
            if (!(other in joined))
                fail("src/" part " includes src/" other ", which is not above it in src/specdec.h")
        }
        if (line ~ /^#pragma once$|^#include "|parts only \*\/$/) {
            dropped = 1
            continue
        }
        if (!(dropped && line == ""))
            print line
        dropped = 0
    }
    if (status < 0)
        fail("src/" part " cannot be read")
    close(part)
    joined[part] = 1
}

/^#include "/ {
    if (after_part)
        print ""
    print_part(name_of($0))
    after_part = 1
    next
}
{ after_part = 0; print }
END { exit failed }' specdec.h
