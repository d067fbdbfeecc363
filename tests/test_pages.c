/* test_pages.c - what a mapped model leaves in memory: once its weights are repacked, the file's pages are given back; what
   the caller lent, what stays in the file and what lies beside it is untouched.
   cc -O2 -pthread -I. test_pages.c, run from the repository's root. How many pages are there is asked on Linux alone. */
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "check.h"
#include "gguf_maker.h"
#include "machine.h"

static char path[256];

/* Writes a file, and gives it the next free address: memory that follows it belongs to somebody else. */
static void put_file(const file *f)
{
    const char *folder = getenv("TMPDIR");
    FILE *out;

    snprintf(path, sizeof path, "%s/specdec-test-pages-%ld.gguf", folder ? folder : "/tmp", (long)getpid());
    out = fopen(path, "wb");
    if (!out || fwrite(f->data, 1, f->size, out) != f->size || fclose(out))
        abort();
}

/* Kilobytes of a mapped file that this process has in memory; -1: the system does not tell. */
static long resident(const char *name)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    long found = -1, kb;
    int here = 0;

    while (maps && fgets(line, sizeof line, maps)) {
        if (strchr(line, '-') && strstr(line, name))
            here = 1, found = found < 0 ? 0 : found;
        else if (here && sscanf(line, "Rss: %ld", &kb) == 1)
            found += kb, here = 0;
    }
    if (maps)
        fclose(maps);
    return found;
}

/* A model of some megabytes whose last rows do not fill a tile, so that its last tile would end behind the file. */
static file large_model(void)
{
    maker_recipe r;

    memset(&r, 0, sizeof r);
    r.embedding = 256;
    r.feed_forward = 1024;
    r.layers = 4;
    r.vocab = 1501;
    r.output_type = 1;
    r.seed = 3;
    return random_file(&r);
}

static uint64_t write_some(specdec *text)
{
    specdec_text piece;
    uint64_t sum = 7;
    int i;

    CHECK(!specdec_prompt(text, "Once upon", SPECDEC_WHOLE_STRING));
    for (i = 0; i < 8 && !specdec_next(text, &piece); i++)
        sum = specdec__hash(sum, (const unsigned char *)piece.bytes, piece.length);
    return sum;
}

/* Kilobytes of the file in memory once an engine is there; *sum: what it writes. */
static long open_and_ask(specdec_config *c, const file *f, uint64_t *sum)
{
    const specdec__bytes *mapped;
    machine m;
    long kb;

    c->context = 64;
    if (!open_machine(&m, c))
        return -1;
    kb = resident(path);
    *sum = write_some(m.first);
    mapped = &m.first->engine->target_model->gguf.file;
    CHECK_EQUAL_INT(mapped->size, f->size);
    CHECK(!memcmp(mapped->data, f->data, f->size)); /* whoever looks at it finds it again */
    close_machine(&m);
    return kb;
}

int main(void)
{
    file f = large_model(), copy;
    uint64_t sums[5] = {0, 0, 0, 0, 0};
    long kb[4];
    specdec_config c;
    int i;

    put_file(&f);
    for (i = 0; i < 4; i++) { /* repacked by one thread, by three; in place; copied */
        memset(&c, 0, sizeof c);
        c.target.path = path;
        c.threads = i == 1 ? 3 : 1;
        c.weights_in_place = i == 2;
        c.target.copy = i == 3;
        kb[i] = open_and_ask(&c, &f, &sums[i]);
    }
    TEST("after repacking nothing of a mapped file is left in memory, whoever has repacked it");
    if (kb[0] < 0) {
        SKIP("this system does not tell what is in memory");
    } else {
        CHECK(kb[0] < (long)f.size / 1024 / 20);
        CHECK(kb[1] < (long)f.size / 1024 / 20);
        CHECK(kb[3] <= 0);
    }
    TEST("what the caller lent is untouched, and all of them write the same");
    copy.size = f.size;
    copy.data = (unsigned char *)malloc(f.size);
    memcpy(copy.data, f.data, f.size);
    memset(&c, 0, sizeof c);
    c.target = source_of(&copy);
    c.threads = 2;
    open_and_ask(&c, &f, &sums[4]);
    CHECK(!memcmp(copy.data, f.data, f.size));
    for (i = 1; i < 5; i++)
        CHECK(sums[i] == sums[0]);
    TEST("a prepared model gives its file back, too");
    {
        specdec_model *model = NULL;
        size_t bytes = 0;
        void *block;

        memset(&c, 0, sizeof c);
        c.target.path = path;
        c.threads = 2;
        CHECK(!specdec_model_memory_needed(&c, &bytes, &failure));
        block = malloc(bytes);
        CHECK(!specdec_model_init(&model, &c, block, bytes, &failure));
        if (kb[0] >= 0)
            CHECK(resident(path) < (long)f.size / 1024 / 20);
        specdec_model_deinit(model);
        free(block);
    }
    remove(path);
    free(copy.data);
    free(f.data);
    return check_report("test_pages");
}
