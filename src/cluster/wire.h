/* =====================================================================================================================
 * >>cluster/wire: what travels between ranks: words, checksums, the layout of messages. The target's layers lie on
 *     several ranks. Compiled in with SPECDEC_CLUSTER.
 *
 * Rank 0 keeps the tables of the target's cache, whether it has layers or not: the pages of each view, and what is
 * reserved. All changes of them travel from rank to rank as orders, in one sequence with the runs. So the tables of all
 * ranks are equal at each point of that sequence, and each rank can check what it receives. A run's activations are
 * rows of F32, the same numbers that the next layer would get on one machine, so logits have the same bits. The last
 * rank sends those of the wanted rows to rank 0, which has the output head. States of recurrent layers are stored on
 * the ranks of these layers, but every rank has the tables of all: a run changes them in the same way on all ranks when
 * it begins, cancelled or not.
 *
 * A rank may have the draft model alone. Rank 0 sends it the tokens of sequences and their sampling; it sends draft
 * tokens when it has them, each with a share in 8 bits, and rank 0 does not have to wait for them. As noise is a
 * function of seed and position, no distribution is sent; late or wrong draft tokens cost time but do not change the
 * decoded tokens. When that rank is lost, the others continue without it.
 *
 * A message consists of words of 32 bits, little-endian: SPECDEC__WIRE_HEAD of them, then words of orders, then rows of
 * floats. Urgent ones have no rows. The first word of an order is its kind and, from bit 8 on, how many words follow.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../speculation/sample.h"

SPECDEC__FOR_SIZE

#define SPECDEC__WIRE_MAGIC 0x50445053u /* "SPDP" */
#define SPECDEC__WIRE_VERSION 7
#define SPECDEC__WIRE_URGENT 96   /* words of an urgent message, at most */
#define SPECDEC__WIRE_FLIGHTS 32  /* runs that are not answered, at most */
#define SPECDEC__WIRE_RANKS 64
#define SPECDEC__WIRE_PAUSE 0.05  /* seconds that a rank waits for a message before it looks at the clock */
#define SPECDEC__WIRE_TOKENS 64   /* tokens of a sequence in one message to the draft rank, at most */
#define SPECDEC__WIRE_PATIENCE 8  /* times specdec_cluster.silence: how long a rank may load, or make no progress */
#define SPECDEC__WIRE_LOADING 0x80000000u /* in the first word of ALIVE */
#define SPECDEC__REMOTE_DRAFTS 2048 /* draft tokens that rank 0 stores, for each of the first few sequences */
#define SPECDEC__REMOTE_DRAFT_CHILDREN 15 /* children of a draft token, at most */

enum {
    SPECDEC__WIRE_SIGN, /* the magic number */
    SPECDEC__WIRE_KIND, /* version, kind << 8, rank of the sender << 16 */
    SPECDEC__WIRE_NUMBER, /* of those that are not urgent: how many this rank has sent before */
    SPECDEC__WIRE_WORDS, /* of orders */
    SPECDEC__WIRE_ROWS,
    SPECDEC__WIRE_FLOATS, /* of a row */
    SPECDEC__WIRE_RUN,  /* the run that the message is about */
    SPECDEC__WIRE_SUM,  /* of all other words */
    SPECDEC__WIRE_HEAD
};

/* Kinds of messages. */
enum {
    SPECDEC__WIRE_ORDERS, /* from a rank to the next one; with the rows of a run, if somebody wants it */
    SPECDEC__WIRE_STATES, /* from the last rank to rank 0, with the rows that are wanted: (longest) */
    /* urgent */
    SPECDEC__WIRE_READY,  /* the rank can serve: (fingerprint, 2 words) */
    /* The rank lives: (layers of the run that are done; while it loads: LOADING | matrices repacked; how many messages
       that are not urgent it has sent to the receiver). */
    SPECDEC__WIRE_ALIVE,
    SPECDEC__WIRE_DOOM,   /* from rank 0: nobody wants the run */
    SPECDEC__WIRE_DONE,   /* from rank 1: it is done with the run: (microseconds) */
    SPECDEC__WIRE_FAILED, /* the rank gives up: (bytes of text, the text) */
    /* From the draft rank: (view, epoch, count, number): guesses behind a text, from that number on; count: the guess
       before them stands for the text's token number count - 1, of which they are the first; 0: they go on. Then for
       each that is gone on from (how far its number lies back << 4 | children, token | share << 24 of each). */
    SPECDEC__WIRE_GUESSES,
    SPECDEC__WIRE_KINDS
};

/* Orders: SPECDEC__KV_... (view, other view or -1, a, b, renumbers, path...), and those below. longest: microseconds of
   the run on the slowest rank so far. */
enum {
    /* A run (number, cancelled, longest, done, n, n of token, parent, view * 4 + certain * 2 + wanted). */
    SPECDEC__WIRE_PLAY = SPECDEC__KV_EVENTS,
    SPECDEC__WIRE_END,
    /* To the draft rank, each in a message of its own. epoch: how often a text was cut. */
    SPECDEC__WIRE_TEXT,   /* Of a text's tokens the first `from` stay, these follow: (view, epoch, from, tokens...) */
    SPECDEC__WIRE_CHOOSE, /* How its tokens are chosen: (view, epoch, SPECDEC__GUESS_SAMPLING words) */
    SPECDEC__WIRE_BRANCH  /* It begins as another one does: (view, epoch, other view, count) */
};

enum { SPECDEC__GUESS_SAMPLING = 8 + SPECDEC__SAMPLE_WORDS };

/* A draft token of the draft rank, on rank 0. */
typedef struct specdec__remote_draft {
    uint32_t number; /* serial number of the draft token; 0: none */
    uint32_t first;  /* number of its first child; the other children have the next numbers */
    int32_t token;
    unsigned char share, count; /* share: of 255, among siblings; count: of children, once they have arrived */
} specdec__remote_draft;

/* What rank 0 has sent the draft rank of a sequence, and the draft tokens that have arrived. */
typedef struct specdec__remote_sequence {
    uint32_t epoch;
    int told, news;      /* tokens that were sent; 1: the epoch was not sent yet */
    double told_at;      /* clock, seconds: when the last token was sent */
    uint32_t sampling[SPECDEC__GUESS_SAMPLING];
    uint32_t root;       /* number of the draft token that is the sequence's token number count - 1 */
    int count;           /* 0: there is none */
} specdec__remote_sequence;

/* A run that rank 0 has sent, and that was not answered or not taken yet. */
typedef struct specdec__wire_flight {
    uint32_t run;
    int rows;              /* wanted */
    int cancelled, back;
    int left;              /* 1: its rows are not awaited; it is removed when it returns */
    double slowest_seconds; /* seconds that the slowest stage took; once it is back */
    specdec_result result; /* once it is back; OK: its rows are the message in link->in */
} specdec__wire_flight;

/* How far another rank is, as it has said in ALIVE. */
typedef struct specdec__wire_progress {
    uint32_t run, layer; /* the run it works at, or its last one, and how many of its layers are done */
    uint32_t sent;       /* messages to this rank, without urgent ones */
    int started;         /* 1: it has loaded its model */
} specdec__wire_progress;

/* A rank and those it talks to. */
typedef struct specdec__link {
    specdec_cluster cluster;
    specdec__context *context; /* of its layers; whose link this is */
    specdec__view **views;     /* (view_count): views by number */
    int view_count, length;    /* length: keys of a view, at most */
    uint64_t fingerprint;      /* of the model and of what all ranks must have in common */
    unsigned char *in, *out;   /* (room) a message each. out: orders that wait for the next run, behind the header */
    size_t room;
    int words, most_words;     /* of orders in out, and at most */
    uint32_t sent[SPECDEC__WIRE_RANKS], received; /* messages that are not urgent: to each rank, from the one before */
    int drafter;               /* the rank that has the draft model alone; 0: there is none */
    int met, lost;             /* 1: rank 0 has found all ranks; 1: the draft rank is lost, 2: and was told so */
    int loaded;                /* 1: this rank has loaded its model */
    const specdec_hooks *hooks; /* for the log */
    uint64_t draft_fingerprint; /* of what it must have in common with rank 0 */
    specdec__remote_sequence *guessed; /* (view_count) on rank 0, if there is one */
    specdec__remote_draft *guesses; /* (guess_count) by the last digits of their numbers */
    int guess_count, fresh;    /* fresh: 1: some have arrived since the last look */
    uint32_t guess_next;       /* number behind those that have arrived */
    double late, pace;         /* seconds from sending a token to the first draft tokens behind it; between arrivals */
    double guessed_at;         /* clock, seconds: of the last arrival */
    uint32_t run;              /* number of the last run */
    uint32_t cancelled[SPECDEC__WIRE_FLIGHTS]; /* runs that are, by the last digits of their numbers */
    int stop;                  /* cancel flag of a run for others */
    int nodes, flown;          /* nodes from which nodes of the next run may descend; number of their view */
    int ended;
    specdec__wire_flight flights[SPECDEC__WIRE_FLIGHTS]; /* (flight_count) on rank 0, the oldest first */
    int flight_count, flying;  /* flying: 1: several runs may be on their way */
    int renumbers;             /* how many nodes the next commit renumbers */
    uint32_t done;             /* runs that rank 1 has computed */
    double stage, own, free_at; /* seconds of a run on rank 1, on rank 0; clock: when rank 1 is expected to be free */
    double slowest_seconds;    /* seconds of the run on the slowest rank so far */
    double heard[SPECDEC__WIRE_RANKS], beaten; /* by the clock; 0: never */
    double begun;              /* clock, seconds: since when messages are received */
    specdec__wire_progress progress[SPECDEC__WIRE_RANKS];
    uint32_t layer;            /* of this rank: see ALIVE */
    double waited, waited_at;  /* seconds without progress of the awaited run; clock: the last wait */
    int *cancel;               /* of a rank that serves: specdec_cancel sets it; NULL: it does not serve */
    int **cancels;             /* (view_count) the same for the sequences of rank 0 */
    int *caller;               /* and for the one that waits for the step under way; NULL: none does */
    int ready;                 /* number of ranks that are ready */
    unsigned char is_ready[SPECDEC__WIRE_RANKS]; /* by rank: 1: it is ready */
    specdec_error failed;      /* the error that has ended the cluster */
    double working;            /* seconds */
    int64_t runs, run_nodes, kept_nodes;
    struct specdec__ranks *ranks;     /* the lane of rank 0 */
    struct specdec__draft_rank *draft_rank; /* the state of a rank that only drafts; NULL: this rank does not */
} specdec__link;

/* --- words -------------------------------------------------------------------------------------------------------- */

static uint32_t specdec__wire_get(const unsigned char *message, int i)
{
    return specdec__load_u32(message + 4 * (size_t)i);
}

static void specdec__wire_put(unsigned char *message, int i, uint32_t word)
{
    specdec__store_u32(message + 4 * (size_t)i, word);
}

/* A sum that no change of a word leaves as it was. */
static uint32_t specdec__wire_sum(const unsigned char *message, size_t words)
{
    uint32_t sum = 1;
    size_t i;

    for (i = 0; i < words; i++)
        if (i != SPECDEC__WIRE_SUM) {
            sum = (sum ^ specdec__load_u32(message + 4 * i)) * 0x9e3779b1u;
            sum ^= sum >> 15;
        }
    return sum;
}

/* Floats to words, and back. */
static void specdec__wire_pack(unsigned char *to, const float *from, int count)
{
    int i;

    for (i = 0; i < count; i++)
        specdec__wire_put(to, i, specdec__bits_from_float(from[i]));
}

static void specdec__wire_unpack(float *to, const unsigned char *from, int count)
{
    int i;

    for (i = 0; i < count; i++)
        to[i] = specdec__float_from_bits(specdec__wire_get(from, i));
}

/* Is this a message, whole and as its header says? */
static int specdec__wire_check(const unsigned char *message, size_t size, size_t room, int ranks)
{
    uint64_t words, rows, floats, kind;

    if (size < 4 * SPECDEC__WIRE_HEAD || size > room || size % 4)
        return 0;
    words = specdec__wire_get(message, SPECDEC__WIRE_WORDS);
    rows = specdec__wire_get(message, SPECDEC__WIRE_ROWS);
    floats = specdec__wire_get(message, SPECDEC__WIRE_FLOATS);
    kind = specdec__wire_get(message, SPECDEC__WIRE_KIND);
    return specdec__wire_get(message, SPECDEC__WIRE_SIGN) == SPECDEC__WIRE_MAGIC &&
           (kind & 255) == SPECDEC__WIRE_VERSION && (kind >> 8 & 255) < SPECDEC__WIRE_KINDS &&
           kind >> 16 < (uint64_t)ranks && rows <= 1 << 20 && floats <= 1 << 24 &&
           SPECDEC__WIRE_HEAD + words + rows * floats == size / 4 &&
           specdec__wire_sum(message, size / 4) == specdec__wire_get(message, SPECDEC__WIRE_SUM);
}

/* The rank that a message says it is from, whole or not; 0 where it does not say. */
static int specdec__wire_sender(const unsigned char *message, size_t size)
{
    return size < 4 * SPECDEC__WIRE_HEAD ? 0 : (int)(specdec__wire_get(message, SPECDEC__WIRE_KIND) >> 16);
}

/* Words of orders that are read one after the other. */
typedef struct specdec__wire_reader {
    const unsigned char *at;
    int left, bad;
} specdec__wire_reader;

static uint32_t specdec__wire_word(specdec__wire_reader *in)
{
    uint32_t word = 0;

    if (in->left < 1) {
        in->bad = 1;
    } else {
        word = specdec__wire_get(in->at, 0);
        in->at += 4;
        in->left--;
    }
    return word;
}

/* An integer in [low, high]. */
static int specdec__wire_int(specdec__wire_reader *in, int low, int high)
{
    const int value = (int)specdec__wire_word(in);

    in->bad |= value < low || value > high;
    return in->bad ? low : value;
}

SPECDEC__FOR_SPEED
