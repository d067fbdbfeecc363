/* terminal.h - a message typed or pasted on a terminal: of any length, where the system's own line mode ends at 4,095 bytes
   and says nothing; pasted lines are one message, and nothing is shown while the program does not ask. Keys: Enter ends
   the message, Alt-Enter begins a line in it, and so does Enter behind """ until these come again; arrows, Home, End,
   Ctrl-A, -E, -B, -F, -K and Delete edit, up and down (Ctrl-P, -N) bring earlier messages; those keys that the terminal
   has set for it erase a character, a word or what lies before, and end the input (Ctrl-D). It needs no library for that.
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

/* Keys that are more than a byte, or stand for one that is. */
typedef enum terminal_move {
    TERMINAL_NOTHING, TERMINAL_PASTE_BEGINS, TERMINAL_PASTE_ENDS, TERMINAL_NEW_LINE, TERMINAL_LEFT, TERMINAL_RIGHT,
    TERMINAL_WORD_LEFT, TERMINAL_WORD_RIGHT, TERMINAL_HOME, TERMINAL_END, TERMINAL_UP, TERMINAL_DOWN, TERMINAL_DELETE,
    TERMINAL_CUT
} terminal_move;

/* What stands behind an escape. */
static terminal_move terminal_escape(void)
{
    static const struct {
        const char *keys;
        terminal_move move;
    } known[] = {{"200~", TERMINAL_PASTE_BEGINS}, {"201~", TERMINAL_PASTE_ENDS}, {"D", TERMINAL_LEFT}, {"C", TERMINAL_RIGHT},
                 {"A", TERMINAL_UP}, {"B", TERMINAL_DOWN}, {"H", TERMINAL_HOME}, {"F", TERMINAL_END}, {"1~", TERMINAL_HOME},
                 {"4~", TERMINAL_END}, {"7~", TERMINAL_HOME}, {"8~", TERMINAL_END}, {"3~", TERMINAL_DELETE},
                 {"1;5D", TERMINAL_WORD_LEFT}, {"1;5C", TERMINAL_WORD_RIGHT}, {"1;3D", TERMINAL_WORD_LEFT},
                 {"1;3C", TERMINAL_WORD_RIGHT}};
    char all[16];
    size_t count = 0, i;
    int key = terminal_key(TERMINAL_KEY);

    if (key == '\n' || key == '\r')
        return TERMINAL_NEW_LINE;
    if (key == 'b' || key == 'f')
        return key == 'b' ? TERMINAL_WORD_LEFT : TERMINAL_WORD_RIGHT;
    if (key != '[' && key != 'O')
        return TERMINAL_NOTHING;
    do {
        key = terminal_key(TERMINAL_KEY);
        if (key >= 0 && count < sizeof all - 1)
            all[count++] = (char)key;
    } while (key >= 0x20 && key < 0x40);
    all[count] = 0;
    for (i = 0; i < PROGRAM_COUNT(known); i++)
        if (strcmp(all, known[i].keys) == 0)
            return known[i].move;
    return TERMINAL_NOTHING;
}

/* What a control key stands for. */
static terminal_move terminal_control(int key)
{
    static const struct {
        int key;
        terminal_move move;
    } known[] = {{1, TERMINAL_HOME}, {2, TERMINAL_LEFT}, {5, TERMINAL_END}, {6, TERMINAL_RIGHT}, {11, TERMINAL_CUT},
                 {14, TERMINAL_DOWN}, {16, TERMINAL_UP}};
    size_t i;

    for (i = 0; i < PROGRAM_COUNT(known); i++)
        if (key == known[i].key)
            return known[i].move;
    return TERMINAL_NOTHING;
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

enum { TERMINAL_HISTORY = 100 };

/* A message while it is typed. */
typedef struct terminal_message {
    char *bytes;
    size_t length, room;
    size_t cursor;     /* where keys write */
    size_t known;      /* bytes on the screen, while the cursor is at the end */
    int row;           /* of the cursor, from the one where the message begins */
    int earlier;       /* which of the earlier messages it is; terminal_earlier.count: a new one */
} terminal_message;

/* Messages that were typed before, the oldest first; the last is what was being typed when an earlier one was asked for. */
static struct {
    char *bytes[TERMINAL_HISTORY + 1];
    size_t lengths[TERMINAL_HISTORY + 1];
    int count;
} terminal_earlier;

/* Puts a byte where the cursor is; what no context can hold is dropped. Returns 0 when memory ran out. */
static int terminal_put(terminal_message *m, int key)
{
    if (m->length == m->room) {
        char *grown = (char *)realloc(m->bytes, 2 * m->room + 4096);

        if (!grown)
            return 0;
        m->bytes = grown;
        m->room = 2 * m->room + 4096;
    }
    if (m->length >= PROGRAM_MOST_BYTES)
        return 1;
    memmove(m->bytes + m->cursor + 1, m->bytes + m->cursor, m->length - m->cursor);
    m->bytes[m->cursor++] = (char)key;
    m->length++;
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

/* Shows what was appended to a message, but not the beginning of a character whose end may come. */
static void terminal_echo(terminal_message *m)
{
    const unsigned char *text = (const unsigned char *)m->bytes;
    size_t whole = m->known;
    int column;

    while (whole < m->length) {
        const size_t size = terminal_character(text + whole, m->length - whole);

        if (size == 1 && text[whole] >= 0xC0 && m->length - whole < 4)
            break;
        whole += size;
    }
    terminal_place(text, whole, m->known, 1, &m->row, &column);
    m->known = whole;
}

/* Shows a message anew, with the cursor where it is. */
static void terminal_redraw(terminal_message *m)
{
    const unsigned char *text = (const unsigned char *)m->bytes;
    char move[64];
    int end, row, column;

    if (m->row)
        terminal_show(move, (size_t)snprintf(move, sizeof move, "\033[%dA", m->row));
    terminal_show(move, (size_t)snprintf(move, sizeof move, "\r\033[%dC\033[J", TERMINAL_PROMPT));
    terminal_place(text, m->length, 0, 1, &end, &column);
    terminal_place(text, m->cursor, m->cursor, 0, &row, &column);
    if (m->cursor < m->length) {
        if (end > row)
            terminal_show(move, (size_t)snprintf(move, sizeof move, "\033[%dA", end - row));
        terminal_show(move, (size_t)snprintf(move, sizeof move, column ? "\r\033[%dC" : "\r", column));
    }
    m->row = row;
    m->known = m->length;
}

/* Takes bytes from `from` to the cursor out of a message, and off the screen. */
static void terminal_take_out(terminal_message *m, size_t from)
{
    const size_t count = m->cursor - from;

    if (m->cursor == m->length) {
        terminal_echo(m);
        terminal_erase(m->bytes, m->known, from);
        m->length = m->cursor = m->known = from;
        terminal_echo(m);
        return;
    }
    memmove(m->bytes + from, m->bytes + m->cursor, m->length - m->cursor);
    m->length -= count;
    m->cursor = from;
    terminal_redraw(m);
}

/* Where the character, or the word, before or behind the cursor ends. */
static size_t terminal_target(const terminal_message *m, terminal_move move)
{
    size_t at = m->cursor;

    if (move == TERMINAL_LEFT || move == TERMINAL_WORD_LEFT)
        return terminal_shorter(m->bytes, at, move == TERMINAL_WORD_LEFT);
    if (move == TERMINAL_HOME)
        return 0;
    if (move == TERMINAL_END || at == m->length)
        return m->length;
    if (move != TERMINAL_WORD_RIGHT)
        return at + terminal_character((const unsigned char *)m->bytes + at, m->length - at);
    while (at < m->length && memchr(" \t\n", m->bytes[at], 3))
        at++;
    while (at < m->length && !memchr(" \t\n", m->bytes[at], 3))
        at++;
    return at;
}

/* Keeps a message under a number of the earlier ones. */
static void terminal_keep(int number, const terminal_message *m)
{
    char *copy = (char *)malloc(m->length + 1);

    free(terminal_earlier.bytes[number]);
    if (copy && m->length)
        memcpy(copy, m->bytes, m->length);
    terminal_earlier.bytes[number] = copy;
    terminal_earlier.lengths[number] = copy ? m->length : 0;
}

/* Brings the earlier message before this one (-1), or the one behind it (1). */
static void terminal_recall(terminal_message *m, int step)
{
    const int number = m->earlier + step;
    size_t i;

    if (number < 0 || number > terminal_earlier.count)
        return;
    if (m->earlier == terminal_earlier.count)
        terminal_keep(m->earlier, m);
    m->earlier = number;
    m->length = m->cursor = 0;
    for (i = 0; i < terminal_earlier.lengths[number]; i++)
        if (!terminal_put(m, (unsigned char)terminal_earlier.bytes[number][i]))
            break;
    terminal_redraw(m);
}

/* A message was sent: it is an earlier one now, unless it was the last time. */
static void terminal_remember(const terminal_message *m)
{
    int last = terminal_earlier.count - 1;

    if (!m->length || (last >= 0 && terminal_earlier.lengths[last] == m->length &&
                       memcmp(terminal_earlier.bytes[last], m->bytes, m->length) == 0))
        return;
    if (terminal_earlier.count == TERMINAL_HISTORY) {
        free(terminal_earlier.bytes[0]);
        memmove(terminal_earlier.bytes, terminal_earlier.bytes + 1, TERMINAL_HISTORY * sizeof *terminal_earlier.bytes);
        memmove(terminal_earlier.lengths, terminal_earlier.lengths + 1, TERMINAL_HISTORY * sizeof *terminal_earlier.lengths);
        terminal_earlier.bytes[TERMINAL_HISTORY] = NULL;
        terminal_earlier.count--;
    }
    terminal_keep(terminal_earlier.count++, m);
}

/* Does what a key that moves or edits is for. A terminal without escape sequences has none but new lines. Returns 0 when
   memory ran out. */
static int terminal_edit(terminal_message *m, terminal_move move)
{
    const size_t cursor = m->cursor;

    if (move == TERMINAL_NEW_LINE)
        return terminal_put(m, '\n') && (m->cursor == m->length || (terminal_redraw(m), 1));
    if (terminal.plain || move <= TERMINAL_PASTE_ENDS)
        return 1;
    terminal_echo(m);
    if (move == TERMINAL_UP || move == TERMINAL_DOWN) {
        terminal_recall(m, move == TERMINAL_UP ? -1 : 1);
        return 1;
    }
    m->cursor = move == TERMINAL_CUT ? m->length : terminal_target(m, move);
    if (m->cursor == cursor)
        return 1;
    if (move == TERMINAL_DELETE || move == TERMINAL_CUT) {
        memmove(m->bytes + cursor, m->bytes + m->cursor, m->length - m->cursor);
        m->length -= m->cursor - cursor;
        m->cursor = cursor;
    }
    terminal_redraw(m);
    return 1;
}

/* Was a message begun with """ and not yet ended so? */
static int terminal_quoted(const char *bytes, size_t length)
{
    return length >= 3 && memcmp(bytes, "\"\"\"", 3) == 0 &&
           (length < 6 || memcmp(bytes + length - 3, "\"\"\"", 3) != 0);
}

/* What one key does to a message. Returns 1 while it goes on, 0 at its end, -1 when memory ran out. */
static int terminal_type(terminal_message *m, int key, int *pasting)
{
    size_t shorter;

    if (key == 27) {
        const terminal_move move = terminal_escape();

        *pasting = move == TERMINAL_PASTE_BEGINS || (*pasting && move != TERMINAL_PASTE_ENDS);
        if (*pasting || move <= TERMINAL_PASTE_ENDS)
            return 1;
        return terminal_edit(m, move) ? 1 : -1;
    }
    if (!*pasting && (shorter = terminal_erases(key, m->bytes, m->cursor)) != SIZE_MAX) {
        terminal_take_out(m, shorter);
        return 1;
    }
    if (!*pasting && terminal_control(key) != TERMINAL_NOTHING)
        return terminal_edit(m, terminal_control(key)) ? 1 : -1;
    if ((key == '\n' || key == '\r') && !*pasting && !terminal_quoted(m->bytes, m->length) && terminal_is_last())
        return 0;
    if (key < ' ' && key != '\t' && key != '\n' && key != '\r')
        return 1;
    if (!terminal_put(m, key == '\r' ? '\n' : key))
        return -1;
    if (m->cursor < m->length && terminal.at == terminal.count)
        terminal_redraw(m);
    return 1;
}

/* Types until the message ends. Returns the key that ended it; below 0: the input has ended, or memory ran out. */
static int terminal_type_all(terminal_message *m)
{
    int pasting = 0, key, more = 1;

    do {
        if (terminal.at == terminal.count && m->cursor == m->length)
            terminal_echo(m);
        key = terminal_key(-1);
        if (key == -3) { /* it was stopped, and goes on: the message is shown again */
            terminal_show("\n> ", 3);
            m->row = 0;
            m->known = 0;
            m->cursor = m->length;
        } else if (key < 0 || (key == terminal.before.c_cc[VEOF] && !pasting)) {
            return key;
        } else {
            more = terminal_type(m, key, &pasting);
        }
    } while (more > 0);
    if (more < 0)
        m->length = m->cursor = 0;
    return more < 0 ? -2 : key;
}

/* Drops the marks around a message that was begun with them, and what one of them stands alone on. */
static void terminal_unquote(terminal_message *m)
{
    size_t from = 3;

    if (m->length < 6 || memcmp(m->bytes, "\"\"\"", 3) != 0 || terminal_quoted(m->bytes, m->length))
        return;
    from += m->bytes[from] == '\n';
    m->length -= 3;
    m->length -= m->length > from && m->bytes[m->length - 1] == '\n';
    m->length = m->length > from ? m->length - from : 0;
    memmove(m->bytes, m->bytes + from, m->length);
}

/* Asks for a message and reads it, without its end, into what may grow. Returns 0 at the end of the input, or when memory
   ran out. */
static int terminal_read(char **bytes, size_t *length, size_t *room)
{
    terminal_message m;
    int key;

    memset(&m, 0, sizeof m);
    m.bytes = *bytes;
    m.room = *room;
    m.earlier = terminal_earlier.count;
    terminal_mark_pastes(1);
    terminal_show("> ", TERMINAL_PROMPT);
    key = terminal_type_all(&m);
    if (m.cursor < m.length) {
        m.cursor = m.length;
        terminal_redraw(&m);
    }
    terminal_echo(&m);
    terminal_show("\n", 1);
    terminal_flush();
    terminal_mark_pastes(0);
    while (m.length && m.bytes[m.length - 1] == '\n')
        m.length--;
    terminal_remember(&m);
    terminal_unquote(&m);
    *bytes = m.bytes;
    *length = m.length;
    *room = m.room;
    return m.length || key == '\n' || key == '\r';
}
#endif
#endif
