/* gguf_writer.h - the pieces of a GGUF file (ggml/docs/gguf.md), written in order: numbers, texts, pairs, padding.
   Include it behind specdec.h and program.h. */
#ifndef GGUF_WRITER_H
#define GGUF_WRITER_H

typedef struct gguf_writer {
    program_output output;
    uint64_t written;   /* bytes so far */
    uint64_t alignment; /* of tensors */
} gguf_writer;

static void gguf_put(gguf_writer *w, const void *bytes, size_t count)
{
    program_output_write(&w->output, bytes, count);
    w->written += count;
}

static void gguf_put_u32(gguf_writer *w, uint32_t value)
{
    unsigned char bytes[4];

    program_put_u32(bytes, value);
    gguf_put(w, bytes, 4);
}

static void gguf_put_u64(gguf_writer *w, uint64_t value)
{
    gguf_put_u32(w, (uint32_t)value);
    gguf_put_u32(w, (uint32_t)(value >> 32));
}

static void gguf_put_text(gguf_writer *w, const void *text, size_t length)
{
    gguf_put_u64(w, length);
    gguf_put(w, text, length);
}

/* A metadata pair of four bytes: an integer, or the bits of a float. */
static void gguf_put_pair(gguf_writer *w, const char *key, uint32_t type, uint32_t bits)
{
    gguf_put_text(w, key, strlen(key));
    gguf_put_u32(w, type);
    gguf_put_u32(w, bits);
}

/* Zeros up to the next multiple of the alignment. */
static void gguf_put_padding(gguf_writer *w)
{
    while (w->written % w->alignment)
        gguf_put(w, "", 1);
}
#endif
