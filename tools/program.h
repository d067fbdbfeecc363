/* program.h - what the command-line programs share: flags read by a table, how programs end, memory, files, a
   progress bar. Include it behind specdec.h. Written for POSIX; what Windows does otherwise is in program_windows.h. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifndef _WIN32
#include <sys/ioctl.h>
#include <sys/mman.h>
#endif

enum { PROGRAM_OK = 0, PROGRAM_FAILED = 1, PROGRAM_USAGE = 2, PROGRAM_GO_ON = -1 };

#if defined(__GNUC__)
#define PROGRAM_UNUSED __attribute__((unused))
#else
#define PROGRAM_UNUSED
#endif

static const char *program_name = "";

#define PROGRAM_OUTPUTS 4 /* files that are written at a time */

static volatile sig_atomic_t program_bar; /* a progress bar stands in the terminal's last line */

static void (*volatile program_at_end)(void); /* NULL, or what a signal that ends the program does first */

/* Erases the progress bar, if there is one. Safe in signal handlers. */
static PROGRAM_UNUSED void program_erase_bar(void)
{
    if (program_bar && write(STDERR_FILENO, "\r\033[K", 4) == 4)
        program_bar = 0;
}

/* Says what went wrong. Returns PROGRAM_FAILED. */
static PROGRAM_UNUSED int program_failed(const char *what, const char *why)
{
    program_erase_bar();
    fprintf(stderr, "%s: %s%s\n", program_name, what, why);
    return PROGRAM_FAILED;
}

/* Says what is wrong with a file. Returns PROGRAM_FAILED. */
static PROGRAM_UNUSED int program_refused(const char *path, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_name, path, why);
    return PROGRAM_FAILED;
}

/* Says why a call on a text failed, and which flag sets a limit that it met. Returns PROGRAM_FAILED. */
static PROGRAM_UNUSED int program_engine_failed(const specdec *text, specdec_result result)
{
    return program_failed(specdec_error_text(text), result == SPECDEC_ERROR_CONTEXT ? " (-c sets the context)" : "");
}

/* specdec_hooks.log: passes warnings on. */
static PROGRAM_UNUSED void program_warn(void *user_data, const char *line)
{
    (void)user_data;
    if (strncmp(line, "warning: ", 9))
        return;
    program_erase_bar();
    fprintf(stderr, "%s: %s\n", program_name, line);
}

/* Says what is wrong with the command line: what, and behind a space which argument. Returns PROGRAM_USAGE. */
static PROGRAM_UNUSED int program_misused(const char *what, const char *argument)
{
    const size_t size = strlen(what);

    if (!*argument && size && what[size - 1] == ' ')
        argument = "an empty text";
    fprintf(stderr, "%s: %s%s\nTry '%s --help'.\n", program_name, what, argument, program_name);
    return PROGRAM_USAGE;
}

/* Sends what was printed on its way. Returns a status, after saying what went wrong. */
static PROGRAM_UNUSED int program_flush(void)
{
    int bad = fflush(stdout) != 0, why = errno;

    if (!bad && !ferror(stdout))
        return PROGRAM_OK;
    return program_failed("cannot write to standard output: ", strerror(bad ? why : EIO));
}

#ifdef _WIN32
#include "program_windows.h"
#else
#define PROGRAM_BACKSLASH 0 /* whether it ends the name of a folder */
#define program_unlink unlink
#define program_rename rename

/* Opens a file to read its bytes. */
static PROGRAM_UNUSED FILE *program_open(const char *path) { return fopen(path, "rb"); }

/* A new file. Returns its descriptor, or -1 and errno. */
static PROGRAM_UNUSED int program_create(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

/* What is done before the command line is read. Standard streams that were closed must not be lent to the files that
   the program opens: writing to them fails instead. */
static void program_prepare(int argc, char **argv)
{
    int file;

    (void)argc;
    (void)argv;
    do
        file = open("/dev/null", O_RDONLY);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

/* Room for so many bytes, in huge pages where the system has them; NULL and errno when there is none. */
static PROGRAM_UNUSED void *program_map(size_t bytes)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (block == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(block, bytes, MADV_HUGEPAGE);
#endif
    return block;
}

/* Why the last call of the system failed. */
static PROGRAM_UNUSED const char *program_why(void) { return strerror(errno); }

/* Opens a file to be mapped. Returns what to close, or -1; *size becomes -1 when it is no regular file. */
static PROGRAM_UNUSED int program_open_view(const char *path, int64_t *size)
{
    /* a pipe without a writer must not hold us up */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;

    if (file >= 0)
        *size = fstat(file, &about) == 0 && S_ISREG(about.st_mode) ? (int64_t)about.st_size : -1;
    return file;
}

/* So many bytes of it, read-only until the program ends; NULL when that fails. */
static PROGRAM_UNUSED const void *program_view(int file, size_t size)
{
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);

    return data == MAP_FAILED ? NULL : data;
}

/* Columns of the terminal that messages go to; 80 where that is not known. */
static PROGRAM_UNUSED int program_columns(void)
{
    struct winsize size;

    memset(&size, 0, sizeof size);
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

static PROGRAM_UNUSED double program_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
#endif

/* --- how programs end --------------------------------------------------------------------------------------------- */

static char *volatile program_parts[PROGRAM_OUTPUTS]; /* names of unfinished files; NULL: none */

/* Removes the unfinished files. Safe in signal handlers. */
static void program_remove_parts(void)
{
    int i;

    for (i = 0; i < PROGRAM_OUTPUTS; i++) {
        const char *part = program_parts[i];

        if (part)
            program_unlink(part);
    }
}

#ifdef _WIN32
/* Ends the program, without its unfinished files. Safe in signal handlers. */
static PROGRAM_UNUSED void program_die(int number)
{
    program_remove_parts();
    program_erase_bar();
    _exit(128 + number);
}

/* A program that handles the signal itself keeps it. */
static PROGRAM_UNUSED void program_catch_signals(void)
{
    void (*before)(int) = signal(SIGINT, program_die);

    if (before != SIG_DFL)
        signal(SIGINT, before);
}

static PROGRAM_UNUSED void program_hold_signals(int hold) { (void)hold; }
static void program_catch_bus(void) {} /* nobody can shorten a file that is mapped */
#else
/* Ends the program by a signal, without its unfinished files. Safe in signal handlers. */
static PROGRAM_UNUSED void program_die(int number)
{
    sigset_t only;

    program_remove_parts();
    program_erase_bar();
    if (program_at_end)
        program_at_end();
    signal(number, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
}

/* Signals that end a program. */
static const int program_signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGPIPE, SIGXCPU,
                                      SIGXFSZ, SIGABRT, SIGALRM, SIGUSR1, SIGUSR2};

#define PROGRAM_SIGNALS ((int)(sizeof program_signals / sizeof *program_signals))

/* Makes these signals remove unfinished files first. One that the program handles itself stays as it is, and so does
   one that it was started to ignore. */
static void program_catch_signals(void)
{
    struct sigaction now, ours;
    int i;

    memset(&ours, 0, sizeof ours);
    ours.sa_handler = program_die;
    for (i = 0; i < PROGRAM_SIGNALS; i++)
        if (sigaction(program_signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(program_signals[i], &ours, NULL);
}

/* Holds these signals back, or lets them through again. */
static void program_hold_signals(int hold)
{
    sigset_t set;
    int i;

    sigemptyset(&set);
    for (i = 0; i < PROGRAM_SIGNALS; i++)
        sigaddset(&set, program_signals[i]);
    sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

static char program_bus_text[256]; /* what to say when a model file cannot be read any more */
static volatile int program_bus_seen;

/* SIGBUS: a mapped file has no such page any more. Several threads may find out at the same time. */
static void program_on_bus(int number, siginfo_t *about, void *context)
{
    (void)context;
    if (about->si_code <= 0) /* sent by somebody */
        program_die(number);
    while (__atomic_exchange_n(&program_bus_seen, 1, __ATOMIC_ACQ_REL))
        pause();
    program_remove_parts();
    if (program_at_end)
        program_at_end();
    if (write(STDERR_FILENO, program_bus_text, strlen(program_bus_text)) < 0)
        _exit(PROGRAM_FAILED); /* nobody listens */
    _exit(PROGRAM_FAILED);
}

static void program_catch_bus(void)
{
    struct sigaction ours;

    snprintf(program_bus_text, sizeof program_bus_text,
             "%s: a model file became shorter, or cannot be read any more, while it was in use\n",
             program_name);
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = program_on_bus;
    ours.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &ours, NULL);
}
#endif

/* Hands Ctrl-C to the program. Where it is ignored, as for a script's "program &", it stays so. */
static PROGRAM_UNUSED void program_on_interrupt(void (*handler)(int))
{
    if (signal(SIGINT, SIG_IGN) != SIG_IGN)
        signal(SIGINT, handler);
}

/* --- flags -------------------------------------------------------------------------------------------------------- */

typedef enum program_kind {
    PROGRAM_SWITCH,   /* int: 1 when given */
    PROGRAM_NO,       /* int: 0 when given */
    PROGRAM_TEXT,     /* const char * */
    PROGRAM_TEXTS,    /* const char *[high] of 1 to low bytes: may be repeated */
    PROGRAM_NAME,     /* const char *: one of the words in `value` */
    PROGRAM_ISA,      /* const char *: an instruction set that this machine has */
    PROGRAM_INTEGER,  /* int in [low, high] */
    PROGRAM_REAL,     /* float in [low, high] */
    PROGRAM_SEED,     /* uint64_t; -1: from the clock */
    PROGRAM_CHOICE,   /* int: which of the words in `value`, "off|auto|draft" */
    PROGRAM_FIELD,    /* specdec_config: the field that `value` names, which also has the help, unless there is one */
    PROGRAM_WORD      /* const char *: no flag but a word of its own; words fill their rows in order */
} program_kind;

/* One flag: a table of them, ended by {0}, is all a program says about its command line. Flags and words may be mixed;
   everything behind "--" is a word. */
typedef struct program_flag {
    const char *name;
    program_kind kind;
    void *out;
    const char *value; /* what the help calls its value */
    const char *help;  /* one line; further ones behind "\n" */
    double low, high;
} program_flag;

/* The words behind --chat-format, and those behind --spec. */
#define PROGRAM_CHAT_FORMATS SPECDEC_CHAT_FORMATS
#define PROGRAM_DRAFTING SPECDEC_DRAFTINGS

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

/* Is that the name of an instruction set of this machine? */
static int program_has_isa(const char *name)
{
    int i;

    for (i = 0; specdec_isa_name(i); i++)
        if (strcmp(specdec_isa_name(i), name) == 0)
            return 1;
    return 0;
}

/* A seed that no other start of a program has, of 32 bits: so that others can read it as a number, too. */
static PROGRAM_UNUSED uint64_t program_clock_seed(void)
{
    uint64_t seed = (uint64_t)time(NULL) * 1000003u + (uint64_t)(1e9 * program_seconds()) + (uint64_t)getpid() * 7919u;

    return (seed ^ seed >> 32) * 0x9e3779b97f4a7c15u >> 32;
}

/* The field of a configuration that a flag sets; NULL: it sets something else. */
static const specdec_field *program_field(const program_flag *flag)
{
    int i = 0;

    if (flag->kind != PROGRAM_FIELD)
        return NULL;
    while (specdec_get_field(i) && strcmp(specdec_get_field(i)->name, flag->value) != 0)
        i++;
    return specdec_get_field(i);
}

/* What the help calls the value of a flag; NULL: it takes none. */
static const char *program_value(const program_flag *flag)
{
    const specdec_field *field = program_field(flag);

    if (!field)
        return flag->value;
    return field->words                            ? field->words
           : field->kind == SPECDEC_FIELD_SWITCH   ? NULL
           : field->kind == SPECDEC_FIELD_REAL     ? "F"
           : field->kind == SPECDEC_FIELD_SEED     ? "S"
           : field->kind == SPECDEC_FIELD_INTEGER  ? "N"
           : field->kind == SPECDEC_FIELD_FILE     ? "FILE"
                                                   : "TEXT";
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
    case PROGRAM_NAME:
    case PROGRAM_ISA:
        *(const char **)flag->out = text;
        return flag->kind == PROGRAM_TEXT ||
               (flag->kind == PROGRAM_NAME ? program_choice(flag->value, text) >= 0 : program_has_isa(text));
    case PROGRAM_TEXTS:
        for (i = 0; i < (int)flag->high && *text && strlen(text) <= (size_t)flag->low; i++)
            if (!((const char **)flag->out)[i]) {
                ((const char **)flag->out)[i] = text;
                return 1;
            }
        return 0;
    case PROGRAM_INTEGER:
        integer = strtol(text, &end, 10);
        if (!program_whole(text, end) || integer < INT_MIN || integer > INT_MAX || (double)integer < flag->low ||
            (double)integer > flag->high)
            return 0;
        *(int *)flag->out = (int)integer;
        return 1;
    case PROGRAM_REAL:
        real = strtod(text, &end);
        if (!program_whole(text, end) || !(real >= flag->low && real <= flag->high))
            return 0;
        *(float *)flag->out = (float)real;
        return real == 0 || (float)real != 0; /* so small a number would be what 0 means */
    case PROGRAM_SEED:
        if (strcmp(text, "-1") == 0) {
            *(uint64_t *)flag->out = program_clock_seed();
            fprintf(stderr, "%s: %s %llu\n", program_name, flag->name, (unsigned long long)*(uint64_t *)flag->out);
            return 1;
        }
        *(uint64_t *)flag->out = strtoull(text, &end, 10);
        return program_whole(text, end) && *text >= '0' && *text <= '9';
    case PROGRAM_FIELD: return !specdec_config_set((specdec_config *)flag->out, flag->value, text, NULL);
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
    static char all[1 << 14]; /* written at once, so that program_flush knows why it fails */

    setvbuf(stdout, all, _IOFBF, sizeof all);
    printf("usage: %s %s\n\n", program_name, usage);
    for (; flags->name; flags++) {
        char left[192];
        const char *value = program_value(flags), *help = flags->help ? flags->help : program_field(flags)->help, *line = help;
        int size;

        snprintf(left, sizeof left, "%s %s", flags->name, value ? value : "");
        if (strlen(left) > 23) {
            printf("  %s\n", left);
            left[0] = 0;
        }
        for (size = (int)strcspn(line, "\n"); ; size = (int)strcspn(line, "\n")) {
            printf("  %-23s %.*s\n", line == help ? left : "", size, line);
            if (!line[size])
                break;
            line += size + 1;
        }
    }
    printf("  %-23s %s\n  %-23s %s\n", "--help", "this text", "--version", "version of specdec.h");
    printf("\n%sExit status: 0 done, 1 failed, 2 wrong usage.\n", ending);
}

/* Says why one more of the texts of a flag is not taken. Returns PROGRAM_USAGE. */
static int program_refuse_text(const program_flag *flag, const char *value)
{
    char what[240];

    if (!*value)
        snprintf(what, sizeof what, "%s takes 1 to %d bytes, and this is empty", flag->name, (int)flag->low);
    else if (strlen(value) > (size_t)flag->low)
        snprintf(what, sizeof what, "%s takes 1 to %d bytes, and this has %zu", flag->name, (int)flag->low,
                 strlen(value));
    else
        snprintf(what, sizeof what, "%s may be given %d times, and this is one more: %.99s", flag->name,
                 (int)flag->high, value);
    return program_misused(what, "");
}

/* Says why a flag does not take a value. Returns PROGRAM_USAGE. */
static int program_refuse(const program_flag *flag, const char *value)
{
    char what[SPECDEC_ERROR_TEXT_SIZE + 80];
    specdec_error error;

    if (flag->kind == PROGRAM_TEXTS)
        return program_refuse_text(flag, value);

    if (flag->kind == PROGRAM_FIELD && specdec_config_set((specdec_config *)flag->out, flag->value, value, &error)) {
        snprintf(what, sizeof what, "%s%s", flag->name, error.text + strlen(flag->value));
        return program_misused(what, "");
    }
    if (flag->kind == PROGRAM_INTEGER)
        snprintf(what, sizeof what, "%s takes a whole number from %.0f to %.0f, not ", flag->name, flag->low,
                 flag->high);
    else if (flag->kind == PROGRAM_REAL)
        snprintf(what, sizeof what, "%s takes a number from %g to %g, not ", flag->name, flag->low, flag->high);
    else if (flag->kind == PROGRAM_CHOICE || flag->kind == PROGRAM_NAME)
        snprintf(what, sizeof what, "%s takes %s, not ", flag->name, flag->value);
    else if (flag->kind == PROGRAM_ISA)
        snprintf(what, sizeof what, "%s takes an instruction set of this machine (see specdec-info), not ",
                 flag->name);
    else
        snprintf(what, sizeof what, "%s takes a whole number, or -1, not ", flag->name);
    return program_misused(what, value);
}

/* The row of a flag, or with NULL the row that the next word fills; the table's end when there is none. */
static const program_flag *program_find(const program_flag *flag, const char *name)
{
    for (; flag->name; flag++)
        if (name ? flag->kind != PROGRAM_WORD && strcmp(flag->name, name) == 0
                 : flag->kind == PROGRAM_WORD && !*(const char **)flag->out)
            break;
    return flag;
}

#define PROGRAM_FLAGS 64 /* rows of a table, at most */

static unsigned char program_was_given[PROGRAM_FLAGS]; /* by the row of a flag: it stood on the command line */

/* Did the command line have this flag of the table that was read? */
static PROGRAM_UNUSED int program_given(const program_flag *flags, const char *name)
{
    const program_flag *flag = program_find(flags, name);

    return flag->name && program_was_given[flag - flags];
}

/* Reads the command line. Returns PROGRAM_GO_ON, or the exit status of a program that is done. */
static PROGRAM_UNUSED int program_read(const program_flag *flags, int argc, char **argv, const char *name, const char *usage,
                                       const char *ending)
{
    int i, plain = 0;

    program_name = name;
    program_prepare(argc, argv);
    program_catch_bus();
    for (i = 1; i < argc; i++) {
        int word = plain || argv[i][0] != '-' || !argv[i][1];
        const program_flag *flag = program_find(flags, word ? NULL : argv[i]);

        program_was_given[flag - flags] = 1;
        if (!word && strcmp(argv[i], "--") == 0) {
            plain = 1;
        } else if (!word && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            return program_help(flags, usage, ending), program_flush();
        } else if (!word && strcmp(argv[i], "--version") == 0) {
            return printf("%s\n", specdec_version()), program_flush();
        } else if (!flag->name) {
            return program_misused(word ? "what is this for? " : "unknown flag ", argv[i]);
        } else if (word) {
            *(const char **)flag->out = argv[i];
        } else if (flag->kind == PROGRAM_SWITCH || flag->kind == PROGRAM_NO) {
            *(int *)flag->out = flag->kind == PROGRAM_SWITCH;
        } else if (flag->kind == PROGRAM_FIELD && !program_value(flag)) {
            program_store(flag, "on");
        } else if (++i == argc) {
            return program_misused("a value is missing behind ", flag->name);
        } else if (!program_store(flag, argv[i])) {
            return program_refuse(flag, argv[i]);
        }
    }
    return PROGRAM_GO_ON;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

#define PROGRAM_LESS " (a shorter context, -c, needs less)"

/* Exactly the bytes an engine asked for. NULL, and a message that ends with hint, when there are not
   as many. Never freed: the program ends. */
static PROGRAM_UNUSED void *program_memory(size_t bytes, const char *hint)
{
    void *block = program_map(bytes);

    if (!block)
        fprintf(stderr, "%s: %zu bytes are needed: %s%s\n", program_name, bytes, strerror(errno), hint);
    return block;
}

/* An engine in memory of its own; hint: as for program_memory. NULL after saying what went wrong. */
static PROGRAM_UNUSED specdec *program_engine(const specdec_config *config, const char *hint)
{
    specdec *engine = NULL;
    specdec_error error;
    size_t bytes;
    void *memory;

    if (specdec_memory_needed(config, &bytes, &error))
        return program_failed("", error.text), (specdec *)NULL;
    memory = program_memory(bytes, hint);
    if (memory && specdec_init(&engine, config, memory, bytes, &error))
        program_failed("", error.text);
    return engine;
}

/* --- input files -------------------------------------------------------------------------------------------------- */

/* Bytes of a text that is read, at most: 16 for each token of the longest context. */
#define PROGRAM_MOST_BYTES ((size_t)16 << 24)

/* Bytes of the byte-order mark that a text begins with, which is no part of it: 3 or 0. */
static PROGRAM_UNUSED size_t program_mark(const char *text, size_t length)
{
    return length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

/* Reads a whole stream, with a terminating zero that *length does not count; NULL and errno when that fails (EFBIG:
   it is too long). The caller frees it. */
static PROGRAM_UNUSED char *program_read_all(FILE *file, size_t *length)
{
    size_t room = 1 << 16, got;
    char *data = (char *)malloc(room);
    int error = 0;

    *length = 0;
    while (data && !error && (got = fread(data + *length, 1, room - 1 - *length, file)) > 0) {
        char *grown;

        *length += got;
        if (*length > PROGRAM_MOST_BYTES)
            error = EFBIG;
        if (error || *length + 1 < room)
            continue;
        grown = (char *)realloc(data, room *= 2);
        if (!grown)
            free(data);
        data = grown;
    }
    if (!data || error || ferror(file)) {
        error = error ? error : data ? errno : ENOMEM;
        free(data);
        errno = error;
        return NULL;
    }
    data[*length] = 0;
    return data;
}

#define PROGRAM_TYPED 4095 /* bytes of a line that a terminal hands over, at most */

/* Says which line of what was typed on a terminal may have been cut by it. */
static void program_note_cut(const char *text, size_t length)
{
    const char *end = text + length, *line, *stop;
    int number = 1;

    for (line = text; line < end; line = stop + 1, number++) {
        stop = (const char *)memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        if (stop - line >= PROGRAM_TYPED)
            fprintf(stderr, "%s: line %d has %d bytes: if it was longer, the terminal has cut it (a file has no such limit)\n",
                    program_name, number, (int)(stop - line));
    }
}

/* The text of a file, or of standard input when it is called "-", without a byte-order mark; NULL, and a message, when
   that fails. */
static PROGRAM_UNUSED char *program_read_file(const char *path, size_t *length)
{
    int standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : program_open(path);
    char *text = file ? program_read_all(file, length) : NULL;

    if (!text && errno == EFBIG)
        fprintf(stderr, "%s: cannot read %s: it holds more than %zu bytes\n", program_name, path, PROGRAM_MOST_BYTES);
    else if (!text)
        fprintf(stderr, "%s: cannot read %s: %s\n", program_name, path, strerror(errno));
    if (file && !standard)
        fclose(file);
    if (text && standard && isatty(STDIN_FILENO))
        program_note_cut(text, *length);
    if (text && program_mark(text, *length)) {
        *length -= 3;
        memmove(text, text + 3, *length + 1);
    }
    return text;
}

/* The bytes of a regular file; a pipe, whose writer might never come, and a device are refused. NULL, and a message, when
   that fails; absent, if not NULL, becomes 1, without a message, when there is no such file. */
static PROGRAM_UNUSED char *program_read_regular(const char *path, size_t *length, int *absent)
{
    int64_t size = 0;
    int opened = program_open_view(path, &size);
    FILE *file = opened >= 0 && size >= 0 ? fdopen(opened, "rb") : NULL;
    char *data = file ? program_read_all(file, length) : NULL;

    if (absent)
        *absent = opened < 0 && errno == ENOENT;
    if (opened >= 0 && size < 0)
        program_failed(path, " is not a regular file");
    else if (!data && !(absent && *absent))
        fprintf(stderr, "%s: cannot read %s: %s\n", program_name, path, strerror(errno));
    if (file)
        fclose(file);
    else if (opened >= 0)
        close(opened);
    return data;
}

/* Bytes that were read, as a string; NULL, and a message, when there is a zero byte in it. */
static PROGRAM_UNUSED char *program_as_text(char *text, size_t length, const char *path)
{
    if (text && strlen(text) != length) {
        program_failed(path, " holds a zero byte, so it is no text");
        free(text);
        return NULL;
    }
    return text;
}

/* The same as program_read_file, as a string. */
static PROGRAM_UNUSED char *program_read_text(const char *path)
{
    size_t length = 0;
    char *text = program_read_file(path, &length);

    return program_as_text(text, length, path);
}

/* A regular file, mapped read-only until the program ends. Returns a status, after saying what went wrong. */
static PROGRAM_UNUSED int program_map_file(specdec_bytes *out, const char *path)
{
    int64_t size = 0;
    int file = program_open_view(path, &size), status = PROGRAM_FAILED;

    if (file < 0) {
        fprintf(stderr, "%s: cannot open %s: %s\n", program_name, path, program_why());
        return PROGRAM_FAILED;
    }
    out->size = (size_t)size;
    out->data = NULL;
    if (size > 0 && (uint64_t)size <= SIZE_MAX / 2)
        out->data = (const unsigned char *)program_view(file, out->size);
    if (size < 0)
        program_failed(path, " is not a regular file");
    else if (!size)
        program_failed(path, " is empty");
    else if (!out->data)
        fprintf(stderr, "%s: cannot map %s: %s\n", program_name, path, program_why());
    else
        status = PROGRAM_OK;
    close(file);
    return status;
}

/* Notes on standard error, once, that a prompt which is read as plain text spells control tokens; where: behind whose
   name, "" or "line 7: ". */
static PROGRAM_UNUSED void program_note_control(const specdec_model *model, const char *text, size_t length, const char *where)
{
    static int said;
    const size_t bytes = length > PROGRAM_MOST_BYTES ? 0 : specdec_tokenize_memory(model, length);
    void *memory = bytes && !said ? malloc(bytes) : NULL;
    int flags[2] = {0, SPECDEC_TOKENIZE_SPECIAL}, count[2] = {0, 0}, i;
    int32_t *tokens[2] = {NULL, NULL};

    for (i = 0; memory && i < 2; i++) {
        specdec_tokenize(model, text, length, flags[i], NULL, 0, &count[i], memory, bytes, NULL);
        tokens[i] = (int32_t *)malloc(((size_t)count[i] + 1) * sizeof **tokens);
        if (tokens[i])
            specdec_tokenize(model, text, length, flags[i], tokens[i], count[i], &count[i], memory, bytes, NULL);
    }
    if (tokens[0] && tokens[1] && (count[0] != count[1] || memcmp(tokens[0], tokens[1], (size_t)count[0] * sizeof **tokens))) {
        said = 1;
        program_erase_bar();
        fprintf(stderr, "%s: %sthe prompt spells control tokens, which are read as plain text (--parse-special reads them)\n",
                program_name, where);
    }
    free(tokens[0]);
    free(tokens[1]);
    free(memory);
}

/* --- bytes and numbers -------------------------------------------------------------------------------------------- */

/* Four bytes, little-endian, of an integer; and back. */
static PROGRAM_UNUSED void program_put_u32(unsigned char *at, uint32_t value)
{
    int i;

    for (i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static PROGRAM_UNUSED uint32_t program_get_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The 32 bits of a float. */
static PROGRAM_UNUSED uint32_t program_float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static PROGRAM_UNUSED int program_least(int a, int b) { return a < b ? a : b; }

/* Is a name exactly this text? */
static PROGRAM_UNUSED int program_is(specdec_bytes name, const char *text)
{
    return name.size == strlen(text) && memcmp(name.data, text, name.size) == 0;
}

#define PROGRAM_COUNT(array) (sizeof(array) / sizeof *(array))

/* --- output files ------------------------------------------------------------------------------------------------- */

/* A file that appears under its name when the program has done its work (program_finish): until then it is one with a
   name of its own in the same folder, which goes away when the program fails or is ended by a signal. Links are
   followed: what they name is written. What is no regular file (a device, a pipe) is written straight, "-" is standard
   output. Start with PROGRAM_NO_OUTPUT; it must stay where it is until program_finish. */
typedef struct program_output {
    FILE *file;
    const char *path;
    char *real; /* the file that path leads to; NULL: written straight */
    char *part; /* the unfinished one */
    int error;    /* errno of the first write that failed */
    int standard; /* it is standard output, by whatever name */
} program_output;

#define PROGRAM_NO_OUTPUT {NULL, NULL, NULL, NULL, 0, 0}

#define PROGRAM_LINKS 40 /* links in a row that are followed */

/* Gives a signal a file to remove (from NULL), or takes it away (to NULL). Returns 0 when there are too many. */
static int program_note_part(const char *from, char *to)
{
    int i;

    for (i = 0; i < PROGRAM_OUTPUTS; i++)
        if (program_parts[i] == from) {
            program_parts[i] = to;
            return 1;
        }
    return 0;
}

static program_output *program_outputs[PROGRAM_OUTPUTS]; /* that are open, or wait for their names */

/* Notes an output (from NULL), or forgets it (to NULL). Returns 0 when there are too many. */
static int program_note_output(const program_output *from, program_output *to)
{
    int i;

    for (i = 0; i < PROGRAM_OUTPUTS; i++)
        if (program_outputs[i] == from) {
            program_outputs[i] = to;
            return 1;
        }
    return 0;
}

/* Forgets a file that will not be complete. Keeps errno. */
static PROGRAM_UNUSED void program_output_drop(program_output *out)
{
    int error = errno;

    program_note_output(out, NULL);

    if (out->file && out->file != stdout)
        fclose(out->file);
    if (out->part) {
        program_unlink(out->part);
        program_note_part(out->part, NULL);
    }
    free(out->part);
    free(out->real);
    out->part = out->real = NULL;
    out->file = NULL;
    errno = error;
}

static PROGRAM_UNUSED int program_output_failed(program_output *out)
{
    fprintf(stderr, "%s: cannot write %s: %s\n", program_name, out->path, strerror(errno));
    program_output_drop(out);
    return PROGRAM_FAILED;
}

/* The last part of a path. */
static PROGRAM_UNUSED const char *program_last_name(const char *path)
{
    const char *at, *name = path;

    for (at = path; *at; at++)
        if (*at == '/' || (*at == '\\' && PROGRAM_BACKSLASH))
            name = at + 1;
    return name;
}

/* A new file beside the one that out leads to, under a name that was free. Returns its descriptor, or -1 and errno. */
static int program_create_part(program_output *out)
{
    const char *name = program_last_name(out->real);
    int folder = (int)(name - out->real), i, file = -1;
    size_t size = strlen(out->real) + 40;

    out->part = (char *)malloc(size);
    if (!out->part || !*name || !program_note_part(NULL, NULL)) {
        free(out->part);
        out->part = NULL;
        errno = *name ? ENOMEM : ENOENT;
        return -1;
    }
    program_catch_signals();
    program_hold_signals(1);
    for (i = 0; i < 1000 && file < 0 && (i == 0 || errno == EEXIST); i++) {
        snprintf(out->part, size, "%.*s%.200s.%ld-%d.part", folder, out->real, name, (long)getpid(), i);
        file = program_create(out->part);
    }
    if (file >= 0) {
        program_note_part(NULL, out->part);
    } else {
        free(out->part);
        out->part = NULL;
    }
    program_hold_signals(0);
    return file;
}

#ifdef _WIN32
/* Opens an output's file. inputs: see program_output_open. Returns a status. */
static int program_output_begin(program_output *out, const char *path, const char *const *inputs)
{
    int standard = strcmp(path, "-") == 0, file;

    memset(out, 0, sizeof *out);
    out->path = standard ? "standard output" : path;
    for (; !standard && inputs && *inputs; inputs++)
        if (program_same_file(path, *inputs))
            return program_failed("input and output are the same file: ", path);
    out->standard = standard;
    out->file = standard ? stdout : NULL;
    if (standard)
        return PROGRAM_OK;
    out->real = strdup(path);
    file = out->real ? program_create_part(out) : -1;
    out->file = file >= 0 ? fdopen(file, "wb") : NULL;
    return out->file ? PROGRAM_OK : program_output_failed(out);
}
#else
/* Where a link leads, seen from its folder. NULL and errno when that fails. The caller frees it. */
static char *program_read_link(const char *path)
{
    char to[4096], *next;
    ssize_t length = readlink(path, to, sizeof to);
    const char *slash = strrchr(path, '/');
    size_t folder = length > 0 && to[0] != '/' && slash ? (size_t)(slash - path) + 1 : 0;

    if (length < 0)
        return NULL;
    if ((size_t)length == sizeof to) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    next = (char *)malloc(folder + (size_t)length + 1);
    if (next) {
        memcpy(next, path, folder);
        memcpy(next + folder, to, (size_t)length);
        next[folder + (size_t)length] = 0;
    }
    return next;
}

/* The file that a path leads to, which need not exist. *straight: it is a descriptor of a process, which a name
   cannot stand for. NULL and errno when that fails. The caller frees it. */
static char *program_follow(const char *path, int *straight)
{
    struct stat about, processes;
    int links, known = stat("/proc", &processes) == 0;
    char *at = strdup(path);

    *straight = 0;
    memset(&about, 0, sizeof about);
    for (links = 0; at && links <= PROGRAM_LINKS; links++) {
        char *next = NULL;

        if (lstat(at, &about) == 0 ? !S_ISLNK(about.st_mode) : errno == ENOENT)
            return at;
        if (S_ISLNK(about.st_mode)) {
            *straight |= known && about.st_dev == processes.st_dev;
            next = program_read_link(at);
        }
        free(at);
        at = next;
    }
    if (at)
        errno = ELOOP;
    free(at);
    return NULL;
}

/* Gives a file the owner, where that is allowed, and the permissions of the one that it will replace. */
static void program_take_after(int file, const struct stat *before)
{
    if (fchown(file, before->st_uid, before->st_gid) != 0 || fchmod(file, before->st_mode & 0777) != 0)
        (void)fchmod(file, before->st_mode & 0777);
}

/* A descriptor for what will replace a regular file, or become one; -1 and errno when that fails. */
static int program_open_part(program_output *out)
{
    struct stat before;
    int straight, file, exists;

    out->real = program_follow(out->path, &straight);
    if (!out->real)
        return -1;
    if (straight) {
        free(out->real);
        out->real = NULL;
        return open(out->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    }
    exists = stat(out->real, &before) == 0;
    if (exists && access(out->real, W_OK) != 0)
        return -1;
    file = program_create_part(out);
    if (file >= 0 && exists)
        program_take_after(file, &before);
    return file;
}

/* Is this the file behind a standard stream that can be written? */
static int program_is_stream(const struct stat *about, int stream)
{
    struct stat other;
    int flags = fcntl(stream, F_GETFL);

    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstat(stream, &other) == 0 &&
           other.st_dev == about->st_dev && other.st_ino == about->st_ino;
}

/* Is this regular file among the inputs ("-": standard input; the list ends with NULL)? */
static int program_is_input(const struct stat *about, const char *const *inputs)
{
    struct stat other;

    for (; S_ISREG(about->st_mode) && inputs && *inputs; inputs++)
        if ((strcmp(*inputs, "-") == 0 ? fstat(STDIN_FILENO, &other) : stat(*inputs, &other)) == 0 &&
            other.st_dev == about->st_dev && other.st_ino == about->st_ino)
            return 1;
    return 0;
}

/* Opens an output's file. inputs: see program_output_open. Returns a status. */
static int program_output_begin(program_output *out, const char *path, const char *const *inputs)
{
    struct stat about;
    int standard = strcmp(path, "-") == 0, file;
    int known = (standard ? fstat(STDOUT_FILENO, &about) : stat(path, &about)) == 0;

    memset(out, 0, sizeof *out);
    out->path = standard ? "standard output" : path;
    if (known && program_is_input(&about, inputs))
        return program_failed("input and output are the same file: ", path);
    if (standard || (known && program_is_stream(&about, STDOUT_FILENO))) {
        out->file = stdout;
        out->standard = 1;
        return PROGRAM_OK;
    }
    if (known && program_is_stream(&about, STDERR_FILENO))
        file = dup(STDERR_FILENO);
    else if (known && !S_ISREG(about.st_mode))
        file = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    else
        file = program_open_part(out);
    out->file = file >= 0 ? fdopen(file, "wb") : NULL;
    return out->file ? PROGRAM_OK : program_output_failed(out);
}
#endif

/* Opens an output. inputs: files that must not be overwritten, NULL at their end; NULL: none. Returns a status. */
static PROGRAM_UNUSED int program_output_open(program_output *out, const char *path, const char *const *inputs)
{
    int status = program_output_begin(out, path, inputs);

    if (!status)
        program_note_output(NULL, out); /* as many as there are unfinished files find room */
    return status;
}

/* Writes bytes. A failure is noticed by the end, and by ferror before. */
static PROGRAM_UNUSED void program_output_write(program_output *out, const void *bytes, size_t count)
{
    if (fwrite(bytes, 1, count, out->file) != count && !out->error)
        out->error = errno;
}

/* All is written: closes the file, which gets its name by program_finish. A write that failed before is noticed here.
   Returns a status. */
static PROGRAM_UNUSED int program_output_end(program_output *out)
{
    FILE *file = out->file;
    int error;

    if (!file) /* that was done */
        return PROGRAM_OK;
    error = fflush(file) != 0 ? errno : ferror(file) ? EIO : 0;
    out->file = NULL;
    if (file != stdout && fclose(file) != 0 && !error)
        error = errno;
    errno = out->error ? out->error : error;
    return error || out->error ? program_output_failed(out) : PROGRAM_OK;
}

/* Gives a file that is closed its name. Returns a status. */
static int program_output_name(program_output *out)
{
    if (out->part && program_rename(out->part, out->real) != 0)
        return program_output_failed(out);
    if (out->part)
        program_note_part(out->part, NULL);
    free(out->part);
    out->part = NULL;
    program_output_drop(out);
    return PROGRAM_OK;
}

/* How every program ends that writes: all files and standard output are written out, and only when nothing has failed,
   the program's status included, do files take the places of old ones; else they are dropped. Returns a status. */
static PROGRAM_UNUSED int program_finish(int status)
{
    int i;

    for (i = 0; i < PROGRAM_OUTPUTS; i++)
        if (program_outputs[i] && status != PROGRAM_FAILED && program_output_end(program_outputs[i]))
            status = PROGRAM_FAILED;
    if (status == PROGRAM_OK)
        status = program_flush();
    else
        fflush(stdout);
    for (i = 0; i < PROGRAM_OUTPUTS; i++)
        if (program_outputs[i] && status == PROGRAM_FAILED)
            program_output_drop(program_outputs[i]);
        else if (program_outputs[i] && program_output_name(program_outputs[i]))
            status = PROGRAM_FAILED;
    return status;
}

/* --- energy ------------------------------------------------------------------------------------------------------- */

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

/* --- progress ----------------------------------------------------------------------------------------------------- */

/* What the engine calls its work, and how people would. */
static const struct program_work {
    const char *name, *words;
} program_works[] = {{"repack", "loading the model"}, {"prefill", "reading the prompt"}, {"ranks", "waiting for the others"}};

/* Draws a bar of done of total units of work, as wide as the terminal allows. */
static void program_draw_bar(const char *what, int done, int total)
{
    const int columns = program_columns() - 1, percent = (int)(100.0 * done / total); /* the last one stays free */
    const char *words = what;
    int width, filled;
    size_t i;

    for (i = 0; i < PROGRAM_COUNT(program_works); i++)
        words = strcmp(what, program_works[i].name) == 0 ? program_works[i].words : words;
    width = program_least(30, columns - (int)strlen(words) - (int)sizeof " [] 100%" + 1);
    filled = (int)((double)width * done / total);
    if (width >= 5)
        fprintf(stderr, "\r%s [%.*s%*s] %d%%", words, filled, "##############################", width - filled, "", percent);
    else
        fprintf(stderr, "\r%.*s %3d%%", columns > 5 ? columns - 5 : 0, words, percent);
    program_bar = 1;
}

static int program_prompt_done, program_prompt_total; /* tokens of the prompt that is being read; 0: none is */

/* Says how far the reading of a prompt was that Ctrl-C ended. */
static PROGRAM_UNUSED void program_say_how_far(void)
{
    program_erase_bar();
    if (program_prompt_total)
        fprintf(stderr, "%s: stopped: %d of %d tokens of the prompt were read\n", program_name, program_prompt_done,
                program_prompt_total);
    else
        fprintf(stderr, "%s: stopped before any of the prompt was read\n", program_name);
    program_prompt_done = program_prompt_total = 0;
}

/* specdec_hooks.progress: a bar on a terminal, for whatever takes more than a moment; nothing elsewhere. */
static PROGRAM_UNUSED int program_progress(void *user_data, const char *what, int done, int total)
{
    static const char *doing;
    static double since, shown;
    double now = program_seconds();

    (void)user_data;
    if (strcmp(what, "prefill") == 0) {
        program_prompt_done = done < total ? done : 0;
        program_prompt_total = done < total ? total : 0;
    }
    if (!isatty(STDERR_FILENO))
        return 0;
    if (what != doing) {
        doing = what;
        since = now;
    }
    if (done >= total) {
        program_erase_bar();
        doing = NULL;
    } else if (now - since > 0.3 && now - shown > 0.1) {
        program_draw_bar(what, done, total);
        shown = now;
    }
    fflush(stderr);
    return 0;
}
#endif
