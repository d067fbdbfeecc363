/* fuzz_constraint.c - libFuzzer target for >>constraint: any source, then a walk through what it allows.
 *
 * clang -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz_constraint.c -o build/fuzz_constraint
 * build/fuzz_constraint -max_len=4096 CORPUS_FOLDER
 *
 * Input: a byte for the kind of source, white space and the form of calls, a byte of bytes for the walk, then the source. Grammars, schemas
 * and expressions with two bytes in front make a good corpus. */
#define SPECDEC_NO_SIMD /* no kernels are run: builds in a third of the time */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include <stdlib.h>

#ifdef __cplusplus
extern "C"
#endif
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes chosen by the input among those that may follow: there must be one wherever the text is not whole. */
static void fuzz_walk(const specdec_constraint *c, const uint8_t *data, size_t size)
{
    specdec_constraint_state state;
    uint32_t mask[8], i;
    unsigned char forced[16], next;
    size_t step, count;

    specdec_constraint_begin(c, &state, sizeof state);
    for (step = 0; step < 200; step++) {
        const int complete = specdec_constraint_complete(c, &state);
        int choices = specdec_constraint_next(c, &state, mask), chosen;

        if (!choices && !complete)
            abort();
        if (!choices)
            return;
        count = specdec_constraint_forced(c, &state, forced, sizeof forced);
        if (count && (complete || choices > 1))
            abort();
        for (chosen = size ? (int)(data[step % size] + step) % choices : 0, i = 0;; i++)
            if (mask[i >> 5] >> (i & 31) & 1 && !chosen--)
                break;
        next = (unsigned char)i;
        if (count && next != forced[0])
            abort();
        if (!specdec_constraint_allows(c, &state, &next, 1) || specdec_constraint_advance(c, &state, &next, 1) != 1)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char *room;
    static char *text;
    const size_t bytes = (size_t)4 << 20;
    specdec_constraint_source source;
    const specdec_constraint *c;
    const char *choices[1];
    size_t length, walk;

    if (size < 2)
        return 0;
    if (!room) {
        room = (unsigned char *)malloc(bytes);
        text = (char *)malloc(1 << 16);
    }
    walk = data[1] < size - 2 ? data[1] : size - 2;
    length = size - 2 < (1 << 16) - 1 ? size - 2 : (1 << 16) - 1;
    memcpy(text, data + 2, length);
    text[length] = 0;
    memset(&source, 0, sizeof source);
    source.kind = (specdec_constraint_kind)(data[0] % SPECDEC_CONSTRAINT_KINDS);
    source.compact = data[0] >> 7;
    source.text = text;
    source.length = length;
    choices[0] = text;
    source.choices = choices;
    source.choice_count = source.kind != SPECDEC_CONSTRAINT_TOOLS;
    source.calls = specdec__call_table[(data[0] & 127) / SPECDEC_CONSTRAINT_KINDS % SPECDEC__COUNT(specdec__call_table)].name;
    if (!specdec_constraint_init(&c, &source, room, bytes, NULL))
        fuzz_walk(c, data + 2, walk);
    return 0;
}
