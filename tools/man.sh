#!/bin/sh
# man.sh PROGRAM SOURCE - writes a program's manual page on standard output, from its --help and from the first comment of its
# source, which begins "NAME - what it is". Ends with status 1 when either is not as it should be.
name=${1##*/}
about=$(sed -n '1,/\*\//{s/^\/\* *//;s/^   *//;s/ *\*\/.*//;p;}' "$2" | tr '\n' ' ' | sed "s/^$name *[-:] *//;s/\. .*//;s/\.* *$//")
help=$("$1" --help) && [ -n "$about" ] || exit 1
version=$("$1" --version) || exit 1
printf '%s\n' "$help" | awk -v name="$name" -v about="$about" -v version="$version" '
# A text as roff has it.
function plain(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    return text ~ /^[.\x27]/ ? "\\&" text : text
}

# A flag in bold, what its value is called in italics.
function flag(text,    at)
{
    at = index(text, " ")
    return at ? "\\fB" plain(substr(text, 1, at - 1)) "\\fR \\fI" plain(substr(text, at + 1)) "\\fR" : "\\fB" plain(text) "\\fR"
}

NR == 1 {
    sub(/^usage: [^ ]* ?/, "")
    print ".TH " toupper(name) " 1 \"\" \"specdec " version "\" \"User commands\""
    print ".SH NAME\n" plain(name) " \\- " plain(about)
    print ".SH SYNOPSIS\n\\fB" plain(name) "\\fR " plain($0)
    next
}
/^  [^ ]/ { # a row: the flag, and in column 27 what it does, or nothing when it is long
    if (!options++)
        print ".SH OPTIONS"
    left = $0
    text = ""
    if (length($0) > 26 && substr($0, 26, 1) == " " && substr($0, 3, 23) !~ /[^ ] [^ ]+ [^ ]/) {
        left = substr($0, 1, 25)
        text = substr($0, 27)
    }
    gsub(/^ +| +$/, "", left)
    print ".TP\n" flag(left)
    if (text != "")
        print plain(text)
    next
}
/^                          / && options { print plain(substr($0, 27)); next }
/^$/ { if (options) ending = 1; next }
ending && !said++ { print ".SH NOTES" }
{ print plain($0); if (ending) print ".br" }'
