#!/bin/sh
# Promises of the programs on Windows, for `make windows`: they stand in $BUILD as .exe files, $RUN starts one. Runs in the
# repository root. What is the same on every system, tests/test_programs.sh asks.
. tests/check.sh
LC_ALL=C.UTF-8 # in which wine reads our arguments
program() { name=$1; shift; run $RUN "$B/$name.exe" "$@"; }

program hello $TARGET
check "hello writes a story" grep -q '^Once upon a time' "$T/out"
program specdec -m $TARGET -t 1 --spec off -p "Once upon a time" -n 100
cp "$T/out" "$T/plain"
check "specdec writes a story" [ $status -eq 0 -a -s "$T/plain" ]
program specdec-info -m $TARGET
isas=$(tr -d '\r' < "$T/out" | sed -n 's/^instruction set.*here: //p' | tr -d ',')
check "instruction sets are found" [ -n "$isas" ]
for isa in $isas; do
    program specdec -m $TARGET -md $DRAFT -t 2 --isa "$isa" -p "Once upon a time" -n 100
    check "two threads, a draft model and $isa: the same text" same "$T/plain" "$T/out"
done
if [ -x build/specdec ]; then
    build/specdec -m $TARGET -t 1 -p "Once upon a time" -n 100 > "$T/here"
    check "the same text as on this system" same "$T/plain" "$T/here"
else
    skip "no build/specdec to compare with"
fi
program specdec -m $TARGET --no-mmap -p "Once upon a time" -n 100
check "a copied model writes the same text" same "$T/plain" "$T/out"

# --- streams of bytes, UTF-8
program specdec-tokens -m $TARGET -p "Grüße, 世界"
check "arguments are UTF-8" [ $status -eq 0 ]
tr ' ' , < "$T/out" | tr -d '\n' > "$T/ids"
program specdec-tokens -m $TARGET --decode "$(cat "$T/ids")"
check "text comes back as it was" grep -q "Grüße, 世界" "$T/out"
printf 'One\r\ntwo\032\n' > "$T/bytes"
program specdec-tokens -m $TARGET --no-bos -f "$T/bytes"
cp "$T/out" "$T/ids"
$RUN "$B/specdec-tokens.exe" -m $TARGET --no-bos -f - < "$T/bytes" > "$T/out" 2> "$T/err"
check "standard input is read byte for byte" same "$T/ids" "$T/out"
program specdec-tokens -m $TARGET --decode "$(tr ' ' , < "$T/ids" | tr -d '\n')"
check "standard output is written byte for byte" grep -q "$(printf 'One\r')" "$T/out"
check "no line ends are added" [ "$(wc -c < "$T/out")" -le $(($(wc -c < "$T/bytes") + 2)) ]

# --- files
cp $DRAFT "$T/Modell-ä.gguf"
program specdec-logits -m "$T/Modell-ä.gguf" --tokens 1,5,9 -o "$T/zeilen-ß.f32"
check "names of files are UTF-8" [ $status -eq 0 -a -s "$T/zeilen-ß.f32" ]
cp "$T/zeilen-ß.f32" "$T/first"
program specdec-logits -m "$T/Modell-ä.gguf" --tokens 1,5,9 -t 2 -o "$T/zeilen-ß.f32"
check "a file is replaced" [ $status -eq 0 ]
check "the same bits" same "$T/first" "$T/zeilen-ß.f32"
check "no unfinished file is left" [ -z "$(find "$T" -name '*.part')" ]
program specdec-quantize "$T/Modell-ä.gguf" "$T/Modell-ä.gguf" F16
check "an input is not overwritten" [ $status -eq 1 ]
check "and that is said" says 'same file'
check "it is whole" same $DRAFT "$T/Modell-ä.gguf"
program specdec -m "$T/none.gguf" -p x
check "a missing file is told" [ $status -eq 1 ]
check "with what the system says" says 'cannot open .*none.gguf: ..'
program specdec -m "$T" -p x
check "a folder is no model" [ $status -eq 1 ]
: > "$T/empty.gguf"
program specdec -m "$T/empty.gguf" -p x
check "an empty file is told" says 'is empty'
program specdec-bench -m $DRAFT -w 1,2 -r 1 --no-prefill
check "specdec-bench runs" [ $status -eq 0 ]
report windows
