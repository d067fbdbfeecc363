/* terminal.h - a message typed or pasted on a terminal: of any length, where the system's own line mode ends at 4,095 bytes
   and says nothing; pasted lines are one message, and nothing is shown while the program does not ask. Keys: Enter ends
   the message, and those that the terminal has set for it erase a character, a word or all, and end the input (Ctrl-D).
   Include it behind program.h. Where there is no such terminal (Windows), terminal_begin says so. */
#ifndef TERMINAL_H
#define TERMINAL_H

#ifdef _WIN32
static int terminal_begin(void) { return 0; }

static int terminal_read(char **bytes, size_t *length, size_t *room)
{
    (void)bytes;
    (void)room;
    *length = 0;
    return 0;
}
#else
#include <poll.h>
#include <termios.h>

/* Milliseconds: further keys that come within so many behind a line's end are those of a paste; bytes of one key. */
enum { TERMINAL_PASTE = 60, TERMINAL_KEY = 50, TERMINAL_PROMPT = 2 /* columns before a message: "> " */ };

/* The terminal that standard input is. */
static struct terminal {
    struct termios before, now; /* its modes */
    int screen;                 /* descriptor that it is written by */
    int plain;                  /* it knows no escape sequences */
    volatile sig_atomic_t taken, marks, stopped; /* modes are ours; pastes are marked; it was stopped, and goes on */
    unsigned char keys[4096];
    size_t at, count;           /* keys that were read, and are still to be used: keys[at .. count - 1] */
    char shown[4096];
    size_t shown_count;         /* bytes that are to be shown */
} terminal;

static void terminal_write(const char *bytes, size_t length)
{
    while (length) {
        ssize_t done = write(terminal.screen, bytes, length);

        if (done < 0 && errno != EINTR)
            return;
        bytes += done > 0 ? done : 0;
        length -= done > 0 ? (size_t)done : 0;
    }
}

/* Asks the terminal to mark what is pasted, or no longer. Safe in signal handlers. */
static void terminal_mark_pastes(int on)
{
    if (!terminal.plain && terminal.marks != on)
        terminal_write(on ? "\033[?2004h" : "\033[?2004l", 8);
    terminal.marks = on;
}

/* Gives the terminal its modes back. Safe in signal handlers. */
static void terminal_end(void)
{
    if (!terminal.taken)
        return;
    terminal_mark_pastes(0);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal.before);
    terminal.taken = 0;
}

/* Stops as the system would (Ctrl-Z), but with the terminal as others expect it; and goes on. */
static void terminal_on_stop(int number)
{
    const int marks = terminal.marks, error = errno;
    sigset_t only;

    terminal_end();
    signal(number, SIG_DFL);
    raise(number);
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, NULL); /* here it stops */
    signal(number, terminal_on_stop);
    terminal.taken = tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal.now) == 0;
    terminal_mark_pastes(marks);
    terminal.stopped = 1;
    errno = error;
}

/* Takes over the terminal that standard input is, until the program ends: from now on keys are shown only while a message
   is read. Returns 0 when there is no such terminal. */
static int terminal_begin(void)
{
    const char *kind = getenv("TERM"), *name = ttyname(STDIN_FILENO);

    if (!name || tcgetattr(STDIN_FILENO, &terminal.before))
        return 0;
    terminal.plain = !kind || !*kind || strcmp(kind, "dumb") == 0;
    terminal.screen = isatty(STDERR_FILENO)   ? STDERR_FILENO
                      : isatty(STDOUT_FILENO) ? STDOUT_FILENO
                                              : open(name, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (terminal.screen < 0)
        return 0;
    terminal.now = terminal.before;
    terminal.now.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ECHONL);
    terminal.now.c_cc[VMIN] = 1;
    terminal.now.c_cc[VTIME] = 0;
    program_catch_signals();
    program_at_end = terminal_end;
    atexit(terminal_end);
    if (signal(SIGTSTP, SIG_IGN) != SIG_IGN)
        signal(SIGTSTP, terminal_on_stop);
    terminal.taken = tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal.now) == 0;
    return terminal.taken;
}

/* --- what is shown ------------------------------------------------------------------------------------------------ */

static void terminal_flush(void)
{
    terminal_write(terminal.shown, terminal.shown_count);
    terminal.shown_count = 0;
}

static void terminal_show(const char *bytes, size_t length)
{
    if (length > sizeof terminal.shown - terminal.shown_count)
        terminal_flush();
    if (length > sizeof terminal.shown)
        return;
    memcpy(terminal.shown + terminal.shown_count, bytes, length);
    terminal.shown_count += length;
}

/* Bytes of the character at the beginning of some, at least one: 1 also for what is no UTF-8. */
static size_t terminal_character(const unsigned char *at, size_t length)
{
    const size_t size = at[0] >= 0xF0 ? 4 : at[0] >= 0xE0 ? 3 : at[0] >= 0xC0 ? 2 : 1;
    size_t i = 1;

    while (i < size && i < length && (at[i] & 0xC0) == 0x80)
        i++;
    return i == size ? size : 1;
}

/* Columns that a character of so many bytes takes (East Asian Width, Unicode 15: the large blocks). */
static int terminal_width(const unsigned char *at, size_t size)
{
    static const uint32_t blocks[][3] = { /* first, last, columns */
        {0x300, 0x36F, 0}, {0x200B, 0x200F, 0}, {0xFE00, 0xFE0F, 0}, {0x1100, 0x115F, 2}, {0x2E80, 0x303E, 2},
        {0x3041, 0xA4CF, 2}, {0xAC00, 0xD7A3, 2}, {0xF900, 0xFAFF, 2}, {0xFE30, 0xFE6F, 2}, {0xFF00, 0xFF60, 2},
        {0xFFE0, 0xFFE6, 2}, {0x1F300, 0x1F64F, 2}, {0x1F900, 0x1F9FF, 2}, {0x20000, 0x3FFFD, 2}};
    uint32_t code = size == 1 ? at[0] : at[0] & (0x7Fu >> size);
    size_t i;

    for (i = 1; i < size; i++)
        code = code << 6 | (at[i] & 0x3F);
    for (i = 0; i < PROGRAM_COUNT(blocks); i++)
        if (code >= blocks[i][0] && code <= blocks[i][1])
            return (int)blocks[i][2];
    return code == '\t' ? 4 : 1;
}

/* Where the cursor stands behind a message, seen from the row where it begins: text wraps at the last column. show: shows
   what lies behind its first `known` bytes. */
static void terminal_place(const unsigned char *bytes, size_t length, size_t known, int show, int *row, int *column)
{
    const int columns = program_columns();
    size_t i, size;

    *row = 0;
    *column = TERMINAL_PROMPT;
    for (i = 0; i < length; i += size) {
        const int shown = show && i >= known;

        size = terminal_character(bytes + i, length - i);
        if (bytes[i] == '\n' || *column + terminal_width(bytes + i, size) > columns) {
            ++*row;
            *column = 0;
            if (shown)
                terminal_show("\n", 1);
        }
        if (bytes[i] == '\n')
            continue;
        *column += terminal_width(bytes + i, size);
        if (shown && bytes[i] == '\t')
            terminal_show("    ", 4);
        else if (shown && size == 1 && bytes[i] >= 0x80)
            terminal_show("?", 1);
        else if (shown)
            terminal_show((const char *)bytes + i, size);
    }
}

/* Takes the end of a message, from `length` to `before`, off the screen. */
static void terminal_erase(const char *bytes, size_t before, size_t length)
{
    char move[64];
    int row, column, old_row, old_column;

    terminal_place((const unsigned char *)bytes, before, before, 0, &old_row, &old_column);
    terminal_place((const unsigned char *)bytes, length, length, 0, &row, &column);
    if (!terminal.plain) {
        if (old_row > row)
            terminal_show(move, (size_t)snprintf(move, sizeof move, "\033[%dA", old_row - row));
        terminal_show("\r", 1);
        if (column)
            terminal_show(move, (size_t)snprintf(move, sizeof move, "\033[%dC", column));
        terminal_show("\033[J", 3);
    } else if (old_row == row) {
        for (; old_column > column; old_column--)
            terminal_show("\b \b", 3);
    } else { /* begin anew */
        terminal_show("\n> ", 3);
        terminal_place((const unsigned char *)bytes, length, 0, 1, &row, &column);
    }
}

/* --- what is read ------------------------------------------------------------------------------------------------- */

/* The next key, waiting at most so many milliseconds (-1: as long as it takes). -1: there is none; -2: there will be
   none; -3: the program was stopped meanwhile. */
static int terminal_key(int wait)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    ssize_t count;

    if (terminal.at < terminal.count)
        return terminal.keys[terminal.at++];
    terminal_flush();
    if (terminal.stopped)
        return terminal.stopped = 0, -3;
    switch (poll(&input, 1, wait)) {
    case 0:
        return -1;
    case -1:
        return errno != EINTR ? -2 : terminal.stopped ? (terminal.stopped = 0, -3) : terminal_key(wait);
    default:
        count = read(STDIN_FILENO, terminal.keys, sizeof terminal.keys);
    }
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return terminal_key(wait);
    terminal.at = 0;
    terminal.count = count > 0 ? (size_t)count : 0;
    return count > 0 ? terminal.keys[terminal.at++] : -2;
}

/* Is a line's end the end of the message: does no further key come with it, but one that ends the input? */
static int terminal_is_last(void)
{
    int key = terminal_key(TERMINAL_PASTE);

    if (key < 0)
        return 1;
    terminal.at--;
    return key == terminal.before.c_cc[VEOF];
}

/* What stands behind an escape: 1 when a paste begins, 0 when it ends, else -1: a key that means nothing here. */
static int terminal_escape(void)
{
    char all[16];
    size_t count = 0;
    int key = terminal_key(TERMINAL_KEY);

    if (key != '[' && key != 'O')
        return -1;
    do {
        key = terminal_key(TERMINAL_KEY);
        if (key >= 0 && count < sizeof all - 1)
            all[count++] = (char)key;
    } while (key >= 0x20 && key < 0x40);
    all[count] = 0;
    return strcmp(all, "200~") == 0 ? 1 : strcmp(all, "201~") == 0 ? 0 : -1;
}

/* How much of a message stays when a character, or with `word` a word and the white space behind it, is erased. */
static size_t terminal_shorter(const char *bytes, size_t length, int word)
{
    if (!word) {
        while (length && ((unsigned char)bytes[--length] & 0xC0) == 0x80)
            continue;
        return length;
    }
    while (length && memchr(" \t\n", bytes[length - 1], 3))
        length--;
    while (length && !memchr(" \t\n", bytes[length - 1], 3))
        length--;
    return length;
}

/* Appends a byte; what no context can hold is dropped. Returns 0 when memory ran out. */
static int terminal_append(char **bytes, size_t *length, size_t *room, int key)
{
    if (*length == *room) {
        char *grown = (char *)realloc(*bytes, 2 * *room + 4096);

        if (!grown)
            return 0;
        *bytes = grown;
        *room = 2 * *room + 4096;
    }
    if (*length < PROGRAM_MOST_BYTES)
        (*bytes)[(*length)++] = (char)key;
    return 1;
}

/* What a key erases: the bytes that stay; SIZE_MAX when it erases nothing. */
static size_t terminal_erases(int key, const char *bytes, size_t length)
{
    const cc_t *set = terminal.before.c_cc;

    if (key == set[VERASE] || key == 8 || key == 127)
        return terminal_shorter(bytes, length, 0);
    if (key == set[VKILL])
        return 0;
#ifdef VWERASE
    if (key == set[VWERASE])
        return terminal_shorter(bytes, length, 1);
#endif
    return SIZE_MAX;
}

/* Shows what was appended to a message; `known` bytes are on the screen. Returns how many are now: not the beginning of a
   character. */
static size_t terminal_echo(const char *bytes, size_t length, size_t known)
{
    const unsigned char *text = (const unsigned char *)bytes;
    size_t whole = known;
    int row, column;

    while (whole < length) {
        const size_t size = terminal_character(text + whole, length - whole);

        if (size == 1 && text[whole] >= 0xC0 && length - whole < 4)
            break; /* its other bytes may come */
        whole += size;
    }
    terminal_place(text, whole, known, 1, &row, &column);
    return whole;
}

/* Asks for a message and reads it, without its end, into what may grow. Returns 0 at the end of the input, or when memory
   ran out. */
static int terminal_read(char **bytes, size_t *length, size_t *room)
{
    int pasting = 0, key, mark;
    size_t known = 0, shorter;

    *length = 0;
    terminal_mark_pastes(1);
    terminal_show("> ", TERMINAL_PROMPT);
    for (;;) {
        if (terminal.at == terminal.count)
            known = terminal_echo(*bytes, *length, known);
        key = terminal_key(-1);
        if (key == -3) {
            terminal_show("\n> ", 3);
            known = terminal_echo(*bytes, *length, 0);
        } else if (key == 27) {
            mark = terminal_escape();
            pasting = mark < 0 ? pasting : mark;
        } else if (key < 0 || (key == terminal.before.c_cc[VEOF] && !pasting)) {
            break;
        } else if (!pasting && (shorter = terminal_erases(key, *bytes, *length)) != SIZE_MAX) {
            known = terminal_echo(*bytes, *length, known);
            terminal_erase(*bytes, known, shorter);
            *length = known = shorter;
        } else if ((key == '\n' || key == '\r') && !pasting && terminal_is_last()) {
            break;
        } else if ((key >= ' ' || key == '\t' || key == '\n' || key == '\r') &&
                   !terminal_append(bytes, length, room, key == '\r' ? '\n' : key)) {
            *length = 0;
            key = -2;
            break;
        }
    }
    known = terminal_echo(*bytes, *length, known);
    terminal_show("\n", 1);
    terminal_flush();
    terminal_mark_pastes(0);
    while (*length && (*bytes)[*length - 1] == '\n')
        --*length;
    return *length || key == '\n' || key == '\r';
}
#endif
#endif
