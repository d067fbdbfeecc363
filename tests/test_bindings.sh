#!/bin/sh
# specdec.h as a shared library: Python's ctypes fills a configuration by names and writes the text that specdec writes; and a
# program that was compiled with another version of the header gets an error in words. To be run in the repository root, after make.
. tests/check.sh
CC=${CC:-cc}

run $CC -std=c99 -O1 -shared -fPIC -pthread -DSPECDEC_NO_SIMD -DSPECDEC_IMPLEMENTATION -x c specdec.h -o "$T/libspecdec.so"
check "a shared library can be made of the header alone" [ $status -eq 0 ]

# --- Python
cat > "$T/use.py" << 'END'
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.specdec_size_of.restype = ctypes.c_size_t
lib.specdec_error_text.restype = ctypes.c_char_p
lib.specdec_error_text.argtypes = [ctypes.c_void_p]
lib.specdec_deinit.argtypes = [ctypes.c_void_p]
lib.specdec_prompt.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]

class Field(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("settings", ctypes.c_int), ("at", ctypes.c_size_t),
                ("size", ctypes.c_size_t), ("low", ctypes.c_double), ("high", ctypes.c_double), ("words", ctypes.c_char_p),
                ("help", ctypes.c_char_p)]

class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 240)]

class Piece(ctypes.Structure):
    _fields_ = [("bytes", ctypes.POINTER(ctypes.c_char)), ("length", ctypes.c_size_t)]

for structure, name in ((Field, b"specdec_field"), (Error, b"specdec_error"), (Piece, b"specdec_text")):
    assert ctypes.sizeof(structure) == lib.specdec_size_of(name), name

lib.specdec_get_field.restype = ctypes.POINTER(Field)
fields = {}
while lib.specdec_get_field(len(fields)):
    field = lib.specdec_get_field(len(fields)).contents
    fields[field.name] = field
assert len(fields) > 50 and fields[b"kv"].words == b"f16|f32|q8_0" and fields[b"top_p"].high == 1

config = ctypes.create_string_buffer(lib.specdec_size_of(b"specdec_config"))
error = Error()
kept = [] # strings stay the caller's

def put(name, text):
    kept.append(ctypes.create_string_buffer(text))
    return lib.specdec_config_set(config, name, kept[-1], ctypes.byref(error))

for name, text in ((b"target", sys.argv[2]), (b"context", "200"), (b"threads", "1"), (b"kv", "f32"), (b"temperature", "0.8"),
                   (b"top_k", "40"), (b"seed", "7"), (b"max_tokens", "60"), (b"drafting", "ngram")):
    assert put(name, text.encode()) == 0, error.text
assert put(b"kv", b"q3") != 0 and error.text == b"kv takes f16|f32|q8_0, not q3", error.text
assert put(b"temprature", b"1") != 0 and b"no field of a configuration named temprature" in error.text

bytes_needed = ctypes.c_size_t()
assert lib.specdec_memory_needed(config, ctypes.byref(bytes_needed), ctypes.byref(error)) == 0, error.text
block = ctypes.create_string_buffer(bytes_needed.value)
engine = ctypes.c_void_p()
assert lib.specdec_init(ctypes.byref(engine), config, block, bytes_needed, ctypes.byref(error)) == 0, error.text
settings = ctypes.create_string_buffer(lib.specdec_size_of(b"specdec_settings"))
lib.specdec_get_settings(engine, settings)
assert lib.specdec_settings_set(settings, b"max_tokens", b"50", ctypes.byref(error)) == 0
assert lib.specdec_settings_set(settings, b"context", b"50", ctypes.byref(error)) != 0 and b"no setting" in error.text
assert lib.specdec_set(engine, settings) == 0
assert lib.specdec_prompt(engine, b"Once upon a time", ctypes.c_size_t(-1).value) == 0, lib.specdec_error_text(engine)
text, piece, result = b"Once upon a time", Piece(), 0
while result == 0:
    result = lib.specdec_next(engine, ctypes.byref(piece))
    assert result <= 1, lib.specdec_error_text(engine)
    text += ctypes.string_at(piece.bytes, piece.length)
lib.specdec_deinit(engine)
sys.stdout.buffer.write(text)
END
if command -v python3 > /dev/null && python3 -c 'import ctypes' 2> /dev/null; then
    "$B/specdec" -m $TARGET -p "Once upon a time" -c 200 -t 1 --kv f32 --temp 0.8 --top-k 40 --seed 7 -n 50 --spec off > "$T/one"
    run python3 "$T/use.py" "$T/libspecdec.so" $TARGET
    check "Python fills a configuration by names, and its text ends well" [ $status -eq 0 ]
    check "and is that of specdec" same "$T/one" "$T/out"
else
    skip "no python3 with ctypes"
fi

run "$B/specdec-info" --fields
check "specdec-info lists the fields" [ $status -eq 0 -a "$(wc -l < "$T/out")" -gt 50 ]
check "with what they take" grep -q '^kv  *f16|f32|q8_0  *how' "$T/out"

# --- headers of other versions
cat > "$T/user.c" << 'END'
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    specdec_config config = {0};
    specdec_error error;
    specdec_model *model;
    specdec *engine;
    size_t bytes = 0;
    int result;
    config.target.path = argv[1];
    config.context = 50;
    result = specdec_memory_needed(&config, &bytes, &error);
    if (argc == 3 && result)
        return puts(error.text), result != SPECDEC_ERROR_MISMATCH || specdec_init(&engine, &config, NULL, 0, NULL) != result ||
               specdec_model_memory_needed(&config, &bytes, NULL) != result ||
               specdec_model_init(&model, &config, NULL, 0, NULL) != result;
    if (result || specdec_init(&engine, &config, malloc(bytes), bytes, &error))
        return puts(error.text), 1;
    return puts("works"), 0;
}
END
# user NAME SED...: a program that was compiled with a header to which something was done
user()
{
    mkdir "$T/$1"
    sed "$2" specdec.h > "$T/$1/specdec.h"
    run $CC -std=c99 -O0 -I"$T/$1" "$T/user.c" "$T/libspecdec.so" -Wl,-rpath,"$T" -o "$T/$1/user"
    check "compiles: $1" [ $status -eq 0 ]
    # shellcheck disable=SC2086
    run "$T/$1/user" $TARGET $3
    check "ends well: $1" [ $status -eq 0 ]
}
user same ''
check "the same header works" grep -qx works "$T/out"
user older 's/^#define SPECDEC_VERSION_NUMBER .*/#define SPECDEC_VERSION_NUMBER 512/' mismatch
check "an older header is refused, and both versions are said" grep -q 'compiled with specdec.h 0.5.12, this is [0-9.]*$' "$T/out"
user longer 's/^    int context;  .*/    int context, further;/' mismatch
check "a configuration with one more member is refused" grep -q 'structures of another layout' "$T/out"
user stats 's/^    double beside_seconds; .*//' mismatch
check "statistics with one less, too" grep -q 'structures of another layout' "$T/out"
user error 's/^#define SPECDEC_ERROR_TEXT_SIZE .*/#define SPECDEC_ERROR_TEXT_SIZE 248/' mismatch
check "and a longer text of errors" grep -q 'structures of another layout' "$T/out"
report test_bindings
