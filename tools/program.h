/* program.h - what the command-line programs share: flags read by a table, memory, output files, a progress bar.
   Include it behind specdec.h with its implementation. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PROGRAM_OK = 0, PROGRAM_FAILED = 1, PROGRAM_USAGE = 2, PROGRAM_GO_ON = -1 };

#if defined(__GNUC__)
#define PROGRAM_UNUSED __attribute__((unused))
#else
#define PROGRAM_UNUSED
#endif

static const char *program_name = "";

/* Says what went wrong. Returns PROGRAM_FAILED. */
static PROGRAM_UNUSED int program_failed(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s%s\n", program_name, what, why);
    return PROGRAM_FAILED;
}

/* Says what is wrong with the command line. Returns PROGRAM_USAGE. */
static PROGRAM_UNUSED int program_misused(const char *what, const char *argument)
{
    fprintf(stderr, "%s: %s%s\nTry '%s --help'.\n", program_name, what, argument, program_name);
    return PROGRAM_USAGE;
}

/* --- flags ---------------------------------------------------------------------------------------------------------- */

typedef enum program_kind {
    PROGRAM_SWITCH,   /* int: 1 when given */
    PROGRAM_NO,       /* int: 0 when given */
    PROGRAM_TEXT,     /* const char * */
    PROGRAM_TEXTS,    /* const char *[high]: may be repeated */
    PROGRAM_INTEGER,  /* int in [low, high] */
    PROGRAM_REAL,     /* float in [low, high] */
    PROGRAM_SEED,     /* uint64_t */
    PROGRAM_CHOICE    /* int: which of the words in `value`, "off|auto|draft" */
} program_kind;

/* One flag: a table of them, ended by {0}, is all a program says about its command line. */
typedef struct program_flag {
    const char *name;
    program_kind kind;
    void *out;
    const char *value; /* what the help calls its value */
    const char *help;  /* one line; further ones behind "\n" */
    double low, high;
} program_flag;

static int program_whole(const char *text, char *end)
{
    return end != text && !*end && errno != ERANGE;
}

/* The place of a word in "off|auto|draft", or -1. */
static int program_choice(const char *words, const char *word)
{
    size_t length = strlen(word);
    int i;

    for (i = 0;; i++) {
        size_t size = strcspn(words, "|");

        if (size == length && memcmp(words, word, size) == 0)
            return i;
        if (!words[size])
            return -1;
        words += size + 1;
    }
}

/* Stores the value of a flag. Returns 0 when the flag does not take such a value. */
static int program_store(const program_flag *flag, const char *text)
{
    char *end;
    long integer;
    double real;
    int i;

    errno = 0;
    switch (flag->kind) {
    case PROGRAM_TEXT:
        *(const char **)flag->out = text;
        return 1;
    case PROGRAM_TEXTS:
        for (i = 0; i < (int)flag->high; i++)
            if (!((const char **)flag->out)[i]) {
                ((const char **)flag->out)[i] = text;
                return 1;
            }
        return 0;
    case PROGRAM_INTEGER:
        integer = strtol(text, &end, 10);
        *(int *)flag->out = (int)integer;
        return program_whole(text, end) && (double)integer >= flag->low && (double)integer <= flag->high;
    case PROGRAM_REAL:
        real = strtod(text, &end);
        *(float *)flag->out = (float)real;
        return program_whole(text, end) && real >= flag->low && real <= flag->high;
    case PROGRAM_SEED:
        *(uint64_t *)flag->out = strtoull(text, &end, 10);
        return program_whole(text, end) && *text >= '0' && *text <= '9';
    case PROGRAM_CHOICE:
        *(int *)flag->out = program_choice(flag->value, text);
        return *(int *)flag->out >= 0;
    default:
        return 0;
    }
}

/* Prints the usage line, the flags and an ending. */
static void program_help(const program_flag *flags, const char *usage, const char *ending)
{
    printf("usage: %s %s\n\n", program_name, usage);
    for (; flags->name; flags++) {
        char left[64];
        const char *line = flags->help;
        int size;

        snprintf(left, sizeof left, "%s %s", flags->name, flags->value ? flags->value : "");
        if (strlen(left) > 23) {
            printf("  %s\n", left);
            left[0] = 0;
        }
        for (size = (int)strcspn(line, "\n"); ; size = (int)strcspn(line, "\n")) {
            printf("  %-23s %.*s\n", line == flags->help ? left : "", size, line);
            if (!line[size])
                break;
            line += size + 1;
        }
    }
    printf("  %-23s %s\n  %-23s %s\n", "--help", "this text", "--version", "version of specdec.h");
    printf("\n%sExit status: 0 done, 1 failed, 2 wrong usage.\n", ending);
}

/* Standard streams that were closed must not be lent to the files that the program opens: writing to them fails instead. */
static void program_guard_streams(void)
{
    int file;

    do
        file = open("/dev/null", O_RDONLY);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

/* Reads the command line. Returns PROGRAM_GO_ON, or the exit status of a program that is done. */
static PROGRAM_UNUSED int program_read(const program_flag *flags, int argc, char **argv, const char *name, const char *usage,
                                       const char *ending)
{
    const program_flag *flag;
    char what[160];
    int i;

    program_name = name;
    program_guard_streams();
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return program_help(flags, usage, ending), fflush(stdout) ? PROGRAM_FAILED : PROGRAM_OK;
        if (strcmp(argv[i], "--version") == 0)
            return printf("%s\n", specdec_version()), fflush(stdout) ? PROGRAM_FAILED : PROGRAM_OK;
        for (flag = flags; flag->name && strcmp(flag->name, argv[i]) != 0; flag++)
            continue;
        if (!flag->name)
            return program_misused(argv[i][0] == '-' ? "unknown flag " : "what is this for? ", argv[i]);
        if (flag->kind == PROGRAM_SWITCH || flag->kind == PROGRAM_NO) {
            *(int *)flag->out = flag->kind == PROGRAM_SWITCH;
            continue;
        }
        if (++i == argc)
            return program_misused("a value is missing behind ", flag->name);
        if (program_store(flag, argv[i]))
            continue;
        if (flag->kind == PROGRAM_INTEGER || flag->kind == PROGRAM_REAL)
            snprintf(what, sizeof what, "%s takes a number from %g to %g, not ", flag->name, flag->low, flag->high);
        else if (flag->kind == PROGRAM_CHOICE)
            snprintf(what, sizeof what, "%s takes %s, not ", flag->name, flag->value);
        else if (flag->kind == PROGRAM_TEXTS)
            snprintf(what, sizeof what, "%s can be given %d times; too much: ", flag->name, (int)flag->high);
        else
            snprintf(what, sizeof what, "%s takes a whole number, not ", flag->name);
        return program_misused(what, argv[i]);
    }
    return PROGRAM_GO_ON;
}

/* --- memory --------------------------------------------------------------------------------------------------------- */

/* Exactly the bytes an engine asked for; in huge pages where the system has them. NULL, and a message, when there are not
   as many. Never freed: the program ends. */
static PROGRAM_UNUSED void *program_memory(size_t bytes)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (block == MAP_FAILED) {
        fprintf(stderr, "%s: %zu bytes are needed: %s\n", program_name, bytes, strerror(errno));
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    madvise(block, bytes, MADV_HUGEPAGE);
#endif
    return block;
}

/* Reads a whole stream, with a terminating zero that *length does not count; NULL when that fails. The caller frees it. */
static PROGRAM_UNUSED char *program_read_all(FILE *file, size_t *length)
{
    size_t room = 1 << 16, got;
    char *data = (char *)malloc(room);

    *length = 0;
    while (data && (got = fread(data + *length, 1, room - 1 - *length, file)) > 0) {
        char *grown;

        *length += got;
        if (*length + 1 < room)
            continue;
        grown = room > SIZE_MAX / 2 ? NULL : (char *)realloc(data, room *= 2);
        if (!grown)
            free(data);
        data = grown;
    }
    if (data && ferror(file)) {
        free(data);
        data = NULL;
    }
    if (data)
        data[*length] = 0;
    return data;
}

/* The text of a file, or of standard input when it is called "-"; NULL, and a message, when that fails. */
static PROGRAM_UNUSED char *program_read_file(const char *path, size_t *length)
{
    int standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    char *text = file ? program_read_all(file, length) : NULL;

    if (!text)
        fprintf(stderr, "%s: cannot read %s: %s\n", program_name, path, strerror(errno));
    if (file && !standard)
        fclose(file);
    return text;
}

/* --- output files --------------------------------------------------------------------------------------------------- */

/* A file that appears under its name when it is complete: until then it is NAME.part. What is no regular file (a device, a
   pipe) is written straight, "-" is standard output. */
typedef struct program_output {
    FILE *file;
    const char *path;
    char *part; /* NULL: written straight */
} program_output;

/* Forgets a file that will not be complete. */
static PROGRAM_UNUSED void program_output_drop(program_output *out)
{
    if (out->file && out->file != stdout)
        fclose(out->file);
    if (out->part)
        remove(out->part);
    free(out->part);
    out->part = NULL;
    out->file = NULL;
}

static PROGRAM_UNUSED int program_output_failed(program_output *out)
{
    fprintf(stderr, "%s: cannot write %s: %s\n", program_name, out->path, strerror(errno));
    program_output_drop(out);
    return PROGRAM_FAILED;
}

static PROGRAM_UNUSED int program_output_open(program_output *out, const char *path)
{
    struct stat about;

    out->path = path;
    out->part = NULL;
    if (strcmp(path, "-") == 0) {
        out->file = stdout;
        return PROGRAM_OK;
    }
    if (stat(path, &about) != 0 || S_ISREG(about.st_mode)) {
        size_t size = strlen(path) + 6;

        out->file = NULL;
        out->part = (char *)malloc(size);
        if (!out->part)
            return program_output_failed(out);
        snprintf(out->part, size, "%s.part", path);
    }
    out->file = fopen(out->part ? out->part : path, "wb");
    return out->file ? PROGRAM_OK : program_output_failed(out);
}

/* Closes the file and gives it its name; a write that failed before is noticed here. */
static PROGRAM_UNUSED int program_output_close(program_output *out)
{
    int bad = fflush(out->file) != 0 || ferror(out->file);

    if (!bad && out->file != stdout) {
        FILE *file = out->file;

        out->file = NULL;
        bad = fclose(file) != 0;
    }
    if (bad || (out->part && rename(out->part, out->path) != 0))
        return program_output_failed(out);
    free(out->part);
    out->part = NULL;
    return PROGRAM_OK;
}

/* --- clock ---------------------------------------------------------------------------------------------------------- */

static PROGRAM_UNUSED double program_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- energy --------------------------------------------------------------------------------------------------------- */

#define PROGRAM_ENERGY "/sys/class/powercap/intel-rapl:0" /* Linux: the first processor package */
#define PROGRAM_ENERGY_SECONDS 30 /* between two looks at the counter, which starts over after minutes under load */

/* Joules that the processor used, where the platform counts them. */
typedef struct program_energy {
    const char *folder;
    double range, last; /* of the counter; what it showed: microjoules */
    double looked;      /* when */
    double joules;      /* so far */
    int known;
} program_energy;

/* The number in a file of a folder; -1 when there is none. */
static double program_read_number(const char *folder, const char *name)
{
    char path[512];
    double value = -1;
    FILE *file;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return -1;
    file = fopen(path, "r");
    if (!file)
        return -1;
    if (fscanf(file, "%lf", &value) != 1 || !(value >= 0))
        value = -1;
    fclose(file);
    return value;
}

/* Begins to count. Nothing is known where there is no such counter, or where it may not be read. */
static PROGRAM_UNUSED void program_energy_begin(program_energy *energy, const char *folder)
{
    memset(energy, 0, sizeof *energy);
    energy->folder = folder;
    energy->range = program_read_number(folder, "max_energy_range_uj");
    energy->last = program_read_number(folder, "energy_uj");
    energy->looked = program_seconds();
    energy->known = energy->range > 0 && energy->last >= 0;
}

/* Leaves out what was used since the last look: somebody thought about what to type. */
static PROGRAM_UNUSED void program_energy_skip(program_energy *energy)
{
    energy->last = energy->known ? program_read_number(energy->folder, "energy_uj") : -1;
    energy->looked = program_seconds();
    energy->known = energy->last >= 0;
}

/* Adds what was used since the last look. */
static PROGRAM_UNUSED void program_energy_look(program_energy *energy)
{
    double before = energy->last;

    program_energy_skip(energy);
    if (energy->known)
        energy->joules += 1e-6 * (energy->last - before + (energy->last < before ? energy->range : 0));
}

/* The same, when it is time for it: cheap enough to be called for every token. */
static PROGRAM_UNUSED void program_energy_poll(program_energy *energy)
{
    if (energy->known && program_seconds() - energy->looked > PROGRAM_ENERGY_SECONDS)
        program_energy_look(energy);
}

/* --- progress ------------------------------------------------------------------------------------------------------- */

/* specdec_hooks.progress: a bar on a terminal, for whatever takes more than a moment; nothing elsewhere. */
static PROGRAM_UNUSED void program_progress(void *user_data, const char *what, int done, int total)
{
    static const char *doing;
    static double since, shown;
    static int visible;
    double now = program_seconds();
    int filled;

    (void)user_data;
    if (!isatty(STDERR_FILENO))
        return;
    if (what != doing) {
        doing = what;
        since = now;
    }
    if (done >= total) {
        if (visible)
            fputs("\r\033[K", stderr);
        visible = 0;
        doing = NULL;
    } else if (now - since > 0.3 && now - shown > 0.1) {
        filled = (int)(30.0 * done / total);
        fprintf(stderr, "\r%s [%.*s%*s] %d%%", what, filled, "##############################", 30 - filled, "",
                (int)(100.0 * done / total));
        visible = 1;
        shown = now;
    }
    fflush(stderr);
}
#endif
