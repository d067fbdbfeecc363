#!/bin/sh
# private.sh header|source - specdec.h, read from standard input, cut in two for those that use its private functions (tests,
# tools/lab): the header declares what specdec.h makes static, and the source defines it, so that the engine is compiled once
# for all of them. Whoever includes "specdec.h" with SPECDEC_IMPLEMENTATION gets the first where make puts it before the true one.
# Both have all kernels apart and SPECDEC_CLUSTER. Two things may still be replaced by who includes it: SPECDEC__PAUSE, and the
# clock (SPECDEC_NO_CLOCK, or a macro clock_gettime); so the source's are weak.
# It relies on the form of the code: functions and tables begin at the left margin, and so do the braces around their bodies.
cat << 'END'
#ifndef SPECDEC_KERNELS_APART /* this file includes itself */
#define SPECDEC_KERNELS_APART
#ifndef SPECDEC_CLUSTER
#define SPECDEC_CLUSTER
#endif
END
if [ "$1" = source ]; then
    cat << 'END'
#define SPECDEC_IMPLEMENTATION
#if defined(_WIN32) /* no weak functions there; some of its headers have a macro clock_gettime of their own */
#define SPECDEC__REPLACED
#else
#define SPECDEC__REPLACED __attribute__((weak))
#define SPECDEC__PAUSE() specdec__pause()
void specdec__pause(void);
SPECDEC__REPLACED void specdec__pause(void) {}
#endif
#endif
END
else
    cat << 'END'
#ifdef SPECDEC__PAUSE
void specdec__pause(void);
void specdec__pause(void) { SPECDEC__PAUSE(); }
#endif
#endif
END
fi
exec awk -v declare="$([ "$1" = source ] || echo 1)" '
# Prints from line i on to the one that matches; returns its number. Nothing is printed where nothing shall be.
function through(i, last, silent)
{
    for (;; i++) {
        if (!silent)
            print line[i]
        if (line[i] ~ last || i >= NR)
            return i
    }
}

function function_at(i,    signature, clock)
{
    sub(/static /, "", line[i])
    clock = line[i] ~ / specdec__os_monotonic_seconds\(void\)$/
    if (!declare) {
        if (clock)
            line[i] = "SPECDEC__REPLACED " line[i]
        return through(i, "[;{}]( /\\*.*)?$")
    }
    for (signature = line[i]; signature !~ /[{;]/ && line[i + 1] !~ /^[{]/; signature = signature "\n" line[i])
        i++
    if (clock) {
        print "#if !defined(_WIN32) && (defined(SPECDEC_NO_CLOCK) || defined(clock_gettime))\n" signature
        i = through(i + 1, "^[}]")
        print "#else\n" signature ";\n#endif"
        return i
    }
    if (signature ~ /[{]/ ? line[i] !~ /[}]( \/\*.*)?$/ : signature !~ /;/)
        i = through(i + 1, "^[}]", 1)
    sub(/[ ]*[{;].*/, "", signature)
    print signature ";"
    return i
}

function table_at(i)
{
    sub(/static /, "", line[i])
    print "extern " substr(line[i], 1, index(line[i], " =") - 1) ";"
    return through(i, ";( /\\*.*)?$", declare)
}

{ line[NR] = $0 }
END {
    for (i = 1; i <= NR; i++)
        if (line[i] ~ /^(SPECDEC__[A-Z0-9]+ )*static [^=]*\(/ || (declare && line[i] ~ /^[a-z][a-z0-9_ *]* \*?specdec_[a-z0-9_]+\(/))
            i = function_at(i)
        else if (line[i] ~ /^static const .* =/ && line[i] !~ / struct |\[\]/)
            i = table_at(i)
        else {
            print line[i]
            if (declare && line[i] == "#pragma GCC diagnostic push")
                print "#pragma GCC diagnostic ignored \"-Wunused-function\""
        }
}'
