/* =====================================================================================================================
 * >>model/parts: a model in several files, "NAME-00001-of-00003.gguf" and so on: each is a GGUF file; the first one's
 *     keys are the model's, the others hold tensors. In memory they lie one behind the other.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "gguf.h"
#include "model.h"

SPECDEC__FOR_SIZE

#define SPECDEC__PART_PATH 1024 /* bytes of a part's path, at most */

/* Bytes that a part takes in memory. */
static size_t specdec__part_bytes(const specdec__gguf *part)
{
    return specdec__size_add(specdec__gguf_extent(part), SPECDEC__OS_MAP_ALIGNMENT - 1) &
           ~(size_t)(SPECDEC__OS_MAP_ALIGNMENT - 1);
}

/* Goes on to the next part of a model. Returns 0 when there is none; i is the number of this one, from 0 on. */
static int specdec__part_next(const specdec__model *m, int i, specdec__gguf *part)
{
    specdec__bytes file;

    if (i + 1 >= m->parts)
        return 0;
    file.data = part->file.data + specdec__part_bytes(part);
    file.size = SIZE_MAX / 2; /* it was checked where it could be measured */
    return !specdec__gguf_lay_out(part, file, NULL);
}

/* Finds a tensor in any part of a model. */
static int specdec__model_find_tensor(const specdec__model *m, const char *name, specdec__gguf_tensor *out)
{
    specdec__gguf part;
    int i, found = specdec__gguf_find_tensor(&m->gguf, name, out);

    if (found || m->parts < 2)
        return found;
    part = m->gguf;
    for (i = 0; !found && specdec__part_next(m, i, &part); i++)
        found = specdec__gguf_find_tensor(&part, name, out);
    return found;
}

/* Writes "-00002-of-00003.gguf". */
static void specdec__part_suffix(specdec__writer *w, int number, int count)
{
    char text[] = "-00000-of-00000.gguf";
    int i;

    for (i = 5; i > 0; i--, number /= 10, count /= 10) {
        text[i] = (char)('0' + number % 10);
        text[i + 9] = (char)('0' + count % 10);
    }
    specdec__write_string(w, text);
}

/* The path of part i, from 0 on, of a model whose first part has this path. Errors: FORMAT (it is not called so),
   UNSUPPORTED (too long). */
static specdec_result specdec__part_path(const char *path, int i, int count, char *out, specdec_error *error)
{
    const size_t length = strlen(path);
    char first[32];
    specdec__writer w = specdec__writer_to(first, sizeof first);
    size_t stem;

    specdec__part_suffix(&w, 1, count);
    stem = length > strlen(first) ? length - strlen(first) : 0;
    if (!stem || strcmp(path + stem, first) != 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the first of %d parts: its name has to end in %s, so that "
                             "the others are found", count, first);
    if (length >= SPECDEC__PART_PATH)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "the path of a part has more than %d bytes",
                             SPECDEC__PART_PATH - 1);
    w = specdec__writer_to(out, SPECDEC__PART_PATH);
    specdec__write_bytes(&w, path, stem);
    specdec__part_suffix(&w, i + 1, count);
    return SPECDEC_OK;
}

/* Reads how many parts a model has, 1: it is in one file, and which one this is, from 0 on. */
static specdec_result specdec__part_number(const specdec__gguf *part, int *number, int *count, specdec_error *error)
{
    int64_t no = 0, files = 1;
    specdec_result result = specdec__gguf_get_integer(part, "split.count", 0, 0, 65535, &files, error);

    if (!result)
        result = specdec__gguf_get_integer(part, "split.no", 0, 0, 65535, &no, error);
    *count = files > 1 ? (int)files : 1;
    *number = (int)no;
    return result;
}

/* Checks part i of a model alone, and counts its tensors and, if there are any, bytes. */
static specdec_result specdec__part_check(specdec__model *m, const char *path, int i, int count, size_t *bytes,
                                          specdec_error *error)
{
    specdec__bytes file = {NULL, 0};
    int number = 0, files = 1;
    specdec__gguf part;
    specdec_result result = specdec__os_map(&file, path, error);

    if (result)
        return result;
    result = specdec__gguf_open(&part, file, error);
    if (!result)
        result = specdec__part_number(&part, &number, &files, error);
    if (!result && (number != i || files != count))
        result = specdec__fail(error, SPECDEC_ERROR_FORMAT, "part %d of %d, by its keys; by its name, %d of %d",
                               number + 1, files, i + 1, count);
    if (!result && part.tensor_count + (uint64_t)m->tensors > SPECDEC__GGUF_MAX_TENSORS)
        result = specdec__fail(error, SPECDEC_ERROR_FORMAT, "all parts together have more than %d tensors",
                               SPECDEC__GGUF_MAX_TENSORS);
    if (!result) {
        m->tensors += (int)part.tensor_count;
        *bytes = specdec__size_add(*bytes, specdec__part_bytes(&part));
    }
    specdec__os_unmap(&file);
    return result ? specdec__os_prefix_error(path, result, error) : result;
}

/* Refuses a tensor that is in two parts; each part was checked alone. */
static SPECDEC__NOINLINE specdec_result specdec__parts_twice(const specdec__model *m, specdec_error *error)
{
    const unsigned char *origin = m->gguf.file.data;
    specdec__gguf_order order;
    specdec__gguf part;
    uint64_t number = 0;
    size_t at = 0;
    int i;

    do {
        order.count = 0;
        part = m->gguf;
        i = 0;
        do
            specdec__gguf_sort(&part, origin, SPECDEC__GGUF_NAMES, number, at, &order);
        while (specdec__part_next(m, i++, &part));
        for (i = 0; i < order.count; i++) {
            specdec_result result = at && number == order.number[i]
                                        ? specdec__gguf_check_twice(SPECDEC__GGUF_NAMES, origin + at,
                                                                    origin + order.at[i], error)
                                        : SPECDEC_OK;

            if (result)
                return result;
            number = order.number[i];
            at = order.at[i];
        }
    } while (order.count == SPECDEC__GGUF_SORTED);
    return SPECDEC_OK;
}

/* Maps the parts of a model one behind the other, or, with room, reads them into it. */
static SPECDEC__NOINLINE specdec_result specdec__parts_bring(specdec__model *m, const char *path, unsigned char *room,
                                                             int mapped, specdec_error *error)
{
    char name[SPECDEC__PART_PATH];
    specdec__gguf part;
    specdec__bytes file;
    specdec_result result;
    unsigned char *at = room;
    int i;

    for (i = 0; i < m->parts; i++) {
        size_t size, padded;

        (void)specdec__part_path(path, i, m->parts, name, NULL);
        file.data = NULL;
        if ((result = specdec__os_map(&file, name, error)) != SPECDEC_OK)
            return result;
        result = specdec__gguf_lay_out(&part, file, error); /* as it was found before */
        size = result ? 0 : specdec__gguf_extent(&part);
        padded = result ? 0 : specdec__part_bytes(&part);
        specdec__os_unmap(&file);
        if (!result && padded > m->part_bytes - (size_t)(at - room))
            result = specdec__fail(error, SPECDEC_ERROR_FILE, "it has changed while it was read");
        if (result)
            return specdec__os_prefix_error(name, result, error);
        result = mapped ? specdec__os_map_at(at, size, name, error) : specdec__os_read(at, size, name, error);
        if (result)
            return result;
        at += padded;
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
