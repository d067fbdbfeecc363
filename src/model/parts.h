/* =====================================================================================================================
 * >>model/parts: models split into several files, "NAME-00001-of-00003.gguf" and so on, called parts. Each is a GGUF
 *     file; the metadata of the first one counts, all have tensors. In memory they are contiguous.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../base/os.h"
#include "gguf.h"
#include "model.h"

SPECDEC__FOR_SIZE

#define SPECDEC__MAX_PART_PATH_BYTES 1024 /* longest path of a part, in bytes */

/* Returns the bytes that a part (one of the files of a model) takes in memory, a multiple of the page size. */
static size_t specdec__part_bytes(const specdec__gguf *part)
{
    return specdec__size_add(specdec__gguf_used_bytes(part), SPECDEC__OS_MAP_ALIGNMENT - 1) &
           ~(size_t)(SPECDEC__OS_MAP_ALIGNMENT - 1);
}

/* Moves *part from part i of a model, counted from 0, to the next one. Returns 0 if there is none. */
static int specdec__part_move_to_next(const specdec__model *m, int i, specdec__gguf *part)
{
    specdec__bytes file;

    if (i + 1 >= m->file_count)
        return 0;
    file.data = part->file.data + specdec__part_bytes(part);
    file.size = SIZE_MAX / 2; /* the size was checked when the file was mapped */
    return !specdec__gguf_find_sections(part, file, NULL);
}

/* Finds a tensor by name in all parts of a model. Returns 1 when found. */
static int specdec__model_find_tensor(const specdec__model *m, const char *name, specdec__gguf_tensor *out)
{
    specdec__gguf part;
    int i, found = specdec__gguf_find_tensor(&m->gguf, name, out);

    if (found || m->file_count < 2)
        return found;
    part = m->gguf;
    for (i = 0; !found && specdec__part_move_to_next(m, i, &part); i++)
        found = specdec__gguf_find_tensor(&part, name, out);
    return found;
}

/* Writes the end of a part's name, such as "-00002-of-00003.gguf". */
static void specdec__part_write_suffix(specdec__writer *w, int number, int count)
{
    char text[] = "-00000-of-00000.gguf";
    int i;

    for (i = 5; i > 0; i--, number /= 10, count /= 10) {
        text[i] = (char)('0' + number % 10);
        text[i + 9] = (char)('0' + count % 10);
    }
    specdec__write_string(w, text);
}

/* Writes the path of part i, counted from 0, of a model whose first part has this path. Errors: FORMAT (the path lacks
   the ending of a first part), UNSUPPORTED (too long). */
static specdec_result specdec__part_write_path(const char *path, int i, int count, char *out, specdec_error *error)
{
    const size_t length = strlen(path);
    char first[32];
    specdec__writer w = specdec__writer_to(first, sizeof first);
    size_t stem;

    specdec__part_write_suffix(&w, 1, count);
    stem = length > strlen(first) ? length - strlen(first) : 0;
    if (!stem || strcmp(path + stem, first) != 0)
        return specdec__fail(error, SPECDEC_ERROR_FORMAT, "the first of %d parts: its name has to end in %s, so that "
                             "the others are found", count, first);
    if (length >= SPECDEC__MAX_PART_PATH_BYTES)
        return specdec__fail(error, SPECDEC_ERROR_UNSUPPORTED, "the path of a part has more than %d bytes",
                             SPECDEC__MAX_PART_PATH_BYTES - 1);
    w = specdec__writer_to(out, SPECDEC__MAX_PART_PATH_BYTES);
    specdec__write_bytes(&w, path, stem);
    specdec__part_write_suffix(&w, i + 1, count);
    return SPECDEC_OK;
}

/* Reads how many parts a model has (1: it is in one file), and the number of this part, counted from 0. Errors:
   FORMAT. */
static specdec_result specdec__part_read_number(const specdec__gguf *part, int *number, int *count,
                                                specdec_error *error)
{
    int64_t no = 0, files = 1;
    specdec_result result = specdec__gguf_get_integer(part, "split.count", 0, 0, 65535, &files, error);

    if (!result)
        result = specdec__gguf_get_integer(part, "split.no", 0, 0, 65535, &no, error);
    *count = files > 1 ? (int)files : 1;
    *number = (int)no;
    return result;
}

/* Checks part i of a model alone, and adds its tensors and bytes to the model's. Errors: FILE, FORMAT, UNSUPPORTED. */
static specdec_result specdec__part_check_file(specdec__model *m, const char *path, int i, int count, size_t *bytes,
                                               specdec_error *error)
{
    specdec__bytes file = {NULL, 0};
    int number = 0, files = 1;
    specdec__gguf part;
    specdec_result result = specdec__os_map_whole_file(&file, path, error);

    if (result)
        return result;
    result = specdec__gguf_open(&part, file, error);
    if (!result)
        result = specdec__part_read_number(&part, &number, &files, error);
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
    specdec__os_unmap_file(&file);
    return result ? specdec__os_prefix_error(path, result, error) : result;
}

/* Returns an error if two parts of a model have a tensor of the same name; each part was checked alone before. Errors:
   FORMAT. */
static SPECDEC__NOINLINE specdec_result specdec__parts_check_duplicates(const specdec__model *m, specdec_error *error)
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
            specdec__gguf_sort_records(&part, origin, SPECDEC__GGUF_BY_NAME, number, at, &order);
        while (specdec__part_move_to_next(m, i++, &part));
        for (i = 0; i < order.count; i++) {
            specdec_result result = at && number == order.number[i]
                                        ? specdec__gguf_check_duplicate(SPECDEC__GGUF_BY_NAME, origin + at,
                                                                        origin + order.record[i], error)
                                        : SPECDEC_OK;

            if (result)
                return result;
            number = order.number[i];
            at = order.record[i];
        }
    } while (order.count == SPECDEC__GGUF_ORDER_RECORDS);
    return SPECDEC_OK;
}

/* Maps the parts of a model one behind the other at `room`, or, with mapped = 0, reads them into this memory. Errors:
   FILE, FORMAT. */
static SPECDEC__NOINLINE specdec_result specdec__parts_load(specdec__model *m, const char *path, unsigned char *room,
                                                            int mapped, specdec_error *error)
{
    char name[SPECDEC__MAX_PART_PATH_BYTES];
    specdec__gguf part;
    specdec__bytes file;
    specdec_result result;
    unsigned char *at = room;
    int i;

    for (i = 0; i < m->file_count; i++) {
        size_t size, padded;

        (void)specdec__part_write_path(path, i, m->file_count, name, NULL);
        file.data = NULL;
        if ((result = specdec__os_map_whole_file(&file, name, error)) != SPECDEC_OK)
            return result;
        result = specdec__gguf_find_sections(&part, file, error); /* fails only if the file has changed since then */
        size = result ? 0 : specdec__gguf_used_bytes(&part);
        padded = result ? 0 : specdec__part_bytes(&part);
        specdec__os_unmap_file(&file);
        if (!result && padded > m->part_bytes - (size_t)(at - room))
            result = specdec__fail(error, SPECDEC_ERROR_FILE, "it has changed while it was read");
        if (result)
            return specdec__os_prefix_error(name, result, error);
        result = mapped ? specdec__os_map_file_at(at, size, name, error)
                        : specdec__os_read_file_start(at, size, name, error);
        if (result)
            return result;
        at += padded;
    }
    return SPECDEC_OK;
}

SPECDEC__FOR_SPEED
