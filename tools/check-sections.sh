#!/bin/sh
# Checks that what the banners of specdec.h promise is what the code does: a section uses names of sections above it only, and
# of those only that its "May call" lists. Only >>os knows operating systems by name. Prints a line per violation and a
# summary; exit 1 if there are any.
#
#     sh tools/check-sections.sh [specdec.h]
#
# A name is a function, macro, type, variable or constant that begins with specdec_ or SPECDEC__. It belongs to the section that
# defines it at column 0. What stands above the first banner, the public part, belongs to all. What >>lanes defines belongs to
# >>kernel: the header includes it there, once per instruction set, and X(name) in it is specdec__ISA_name. Members of structs
# and calls through pointers are not seen.

exec awk '
function define(name,    at)
{
    at = section == "lanes" ? "kernel" : section
    if (!(name in home))
        home[name] = at
    else if (!index(" " home[name] " ", " " at " "))
        home[name] = home[name] " " at
}

function use(name)
{
    if (section != "api" && name !~ /^SPECDEC_[A-Z]|_$/ && !((section, name) in line_of)) {
        line_of[section, name] = FNR
        uses[++use_count] = section " " name
    }
}

# The line without comments and without what strings and character constants hold.
function code_of(line,    out, mark)
{
    out = ""
    for (;;) {
        if (in_comment) {
            if (!(mark = index(line, "*/")))
                return out
            line = substr(line, mark + 2)
            in_comment = 0
        }
        if (!match(line, /\/\*|\/\/|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047/))
            return out line
        out = out substr(line, 1, RSTART - 1)
        mark = substr(line, RSTART, 2)
        line = substr(line, RSTART + RLENGTH)
        if (mark == "//")
            return out
        if (mark == "/*")
            in_comment = 1
        else
            out = out "0"
    }
}

# A banner opens a section. Its text, up to the end of the comment, says what the section may call.
function read_banner(line)
{
    if (line ~ /^ \* >>[a-z0-9]+ \(private\)/) {
        section = line
        sub(/^ \* >>/, "", section)
        sub(/ .*/, "", section)
        sections[++section_count] = section
        order[section] = section == "lanes" ? order["kernel"] : section_count
        banner_line[section] = FNR
        banner = may = ""
        in_banner = 1
    }
    if (in_banner) {
        banner = banner " " line
        if (line ~ /\*\//) {
            in_banner = 0
            may = banner
            if (!sub(/.*May call: /, " ", may))
                complain(FNR, ">>" section " does not say what it may call")
            gsub(/[^a-z0-9>]+/, " ", may)
            may_call[section] = may " "
        }
    }
}

# Names that a macro puts together, such as specdec__##isa##_dot: one pattern for all that it may make.
function read_pasted(text,    name)
{
    while (match(text, /(SPECDEC|specdec)_[A-Za-z0-9_]*##[A-Za-z0-9_#]+/)) {
        name = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        gsub(/##[A-Za-z0-9_]+##|##[A-Za-z0-9_]+$/, "[A-Za-z0-9_]+", name)
        name = "^" name "$"
        if (name !~ /__\[.*\]\+_\[/ && !(name in made)) # some part of it must be written out; the first macro defines it
            made[name] = section
    }
}

# A whole preprocessor line: what #define defines, all other names are used. ## stands for a part that the call fills in.
function read_directive(text,    name)
{
    if (text ~ /^#[ ]*define/) {
        sub(/^#[ ]*define[ ]+/, "", text)
        match(text, /^[A-Za-z0-9_]+/)
        name = substr(text, 1, RLENGTH)
        text = substr(text, RLENGTH + 1)
        if (name ~ /^(SPECDEC|specdec)_/)
            define(name)
        if (name == "SPECDEC__ISA" && match(text, /[a-z0-9]+/))
            isas[substr(text, RSTART, RLENGTH)] = 1
        read_pasted(text)
    } else if (text ~ /^#[ ]*undef/)
        return
    while (match(text, /(SPECDEC|specdec)_[A-Za-z0-9_]*/)) {
        use(substr(text, RSTART, RLENGTH))
        text = substr(text, RSTART + RLENGTH)
    }
}

# Outside of braces: what a declaration defines. `called` is the name before its first parenthesis.
function read_token(token)
{
    if (token == "(") {
        if (!parens && last ~ /^specdec_/ && called == "")
            called = last
        parens++
    } else if (token == ")")
        parens--
    else if (last2 == "(" && last == "*" && is_typedef && token ~ /^specdec_/)
        define(token)
    else if (last2 ~ /^SPECDEC__/ && last == "(" && parens == 1 && called == "" && token ~ /^specdec__/)
        define(token) # a macro that defines functions: SPECDEC__HEAP(specdec__sample_sink, ...)
    else if (section == "lanes" && last2 == "X" && last == "(" && called == "" && token ~ /^[a-z]/)
        lane[called = token] = 1
    else if (!parens && token ~ /^[;,=[]$/) {
        if (last ~ /^specdec_/)
            define(last)
        else if (token == ";" && is_typedef && called != "")
            define(called)
        if (token == ";")
            called = is_typedef = is_enum = ""
        if (token == "=")
            called = "="
    } else if (token == "__attribute__" && is_typedef && last ~ /^specdec_/)
        define(last)
    else if (token == "typedef")
        is_typedef = 1
    else if (token == "enum")
        is_enum = 1
    last2 = last
    last = token
}

function read_brace(token)
{
    if (token == "{" && !depth++) {
        if (called ~ /^specdec_/)
            define(called)
        else if (last ~ /^specdec_/ && last2 ~ /^(struct|union|enum)$/)
            define(last)
        in_enum = is_enum && called == ""
        last = last2 = ""
        parens = 0
    } else if (token == "}" && depth && !--depth) {
        if (in_enum && last ~ /^(SPECDEC|specdec)_/)
            define(last)
        if (called != "" && called != "=")
            called = is_typedef = ""
        is_enum = in_enum = last = last2 = ""
    }
}

function read_code(text,    token)
{
    while (match(text, /[A-Za-z_][A-Za-z0-9_]*|[^ \t]/)) {
        token = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (token ~ /^(SPECDEC|specdec)_/)
            use(token)
        if (token == "{" || token == "}")
            read_brace(token)
        else if (!depth)
            read_token(token)
        else if (in_enum) { # constants: names before = , }
            if ((token == "," || token == "=") && last ~ /^SPECDEC_/)
                define(last)
            last = token
        }
    }
}

# What only >>os may name: macros, headers and calls of systems.
function check_system(text)
{
    if (section != "os" && match(text, SYSTEM))
        complain(FNR, ">>" section " names a system: " substr(text, RSTART, RLENGTH))
}

function complain(line, text) { printf "%s:%d: %s\n", FILENAME, line, text; violations++ }

# Whether one of the sections that define a name may be used by `user`; if not, `why` says why.
function allowed(user, homes,    list, count, i)
{
    count = split(homes, list, " ")
    for (i = 1; i <= count; i++) {
        if (list[i] == user || list[i] == "api")
            return 1
        called_on[user, list[i]] = 1
        if (order[list[i]] > order[user])
            why = "of >>" list[i] ", which is below it"
        else if (index(may_call[user], " >>" list[i] " ") || index(may_call[user], " every section above "))
            return 1
        else
            why = "of >>" list[i] ", which its banner does not name"
    }
    return 0
}

# The section of the macro whose pattern fits a name best.
function maker(name,    pattern, best)
{
    for (pattern in made)
        if (name ~ pattern && length(pattern) > length(best))
            best = pattern
    return best == "" ? "" : made[best]
}

function check_uses(    i, part, name)
{
    for (i = 1; i <= use_count; i++) {
        split(uses[i], part, " ")
        name = part[2]
        if (!(name in home))
            home[name] = maker(name)
        if (home[name] == "")
            complain(line_of[part[1], name], ">>" part[1] " uses " name ", which is defined nowhere")
        else if (!allowed(part[1], home[name]))
            complain(line_of[part[1], name], ">>" part[1] " uses " name " " why)
    }
}

# A banner that names a section of which nothing is used is out of date.
function check_banners(    i, k, count, list, name)
{
    for (i = 1; i <= section_count; i++) {
        count = split(may_call[sections[i]], list, " ")
        for (k = 1; k <= count; k++)
            if (sub(/^>>/, "", list[k]) && !((sections[i], list[k]) in called_on))
                complain(banner_line[sections[i]], ">>" sections[i] " names >>" list[k] ", of which it uses nothing")
    }
}

BEGIN {
    section = "api"
    SYSTEM = "__linux|__unix|__ANDROID__|__APPLE__|__FreeBSD__|_WIN(32|64)|__MINGW|_MSC_VER|_WIN32_WINNT" \
        "|<(sys/[a-z]+|unistd|fcntl|sched|time|errno|pthread|windows|process|signal)\\.h>" \
        "|(pthread|sched|clock)_[a-z]+|(getauxval|sysconf|syscall|mmap|munmap|getenv)[ ]*[(]|[^_]errno"
}
{
    if (in_banner || $0 ~ /^ \* >>/)
        read_banner($0)
    text = code_of($0)
    check_system(text)
    if (text ~ /^[ ]*#/ || continued != "") {
        continued = continued text
        if (text ~ /\\$/)
            sub(/\\$/, " ", continued)
        else {
            sub(/^[ ]*/, "", continued)
            read_directive(continued)
            continued = ""
        }
    } else if (text !~ /^extern 0 \{/) {
        read_code(text)
        if (text ~ /^}/) # both sides of an #if may open one brace
            depth = 0
    }
}
END {
    for (name in lane)
        for (isa in isas)
            home["specdec__" isa "_" name] = "kernel"
    check_uses()
    check_banners()
    for (name in home) if (home[name] != "")
        names++
    printf "%d sections, %d names, %d violations\n", section_count, names, violations
    exit violations > 0
}' "${1:-specdec.h}"
