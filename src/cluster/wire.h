/* =====================================================================================================================
 * >>cluster/wire: the messages that ranks send each other: words, checksums, layout. A cluster's ranks share the layers
 *     of the target. Compiled in with SPECDEC_CLUSTER.
 *
 * Rank 0 keeps the tables of the target's cache, whether it has layers or not: the pages of each view, and the reserved
 * slots. Every change of these tables travels from rank to rank as an order, in one sequence with the runs. So the
 * tables of all ranks are equal at each point of this sequence, and each rank can check the orders that it receives. A
 * run's activations are rows of F32, the same numbers that the next layer would get on one machine, so logits have the
 * same bits. The last rank sends the wanted rows to rank 0, which has the output matrix. States of recurrent layers are
 * stored on the ranks of these layers, but every rank has the tables of all states: a run changes the tables in the
 * same way on all ranks when it begins, cancelled or not.
 *
 * A rank may have the draft model alone. Rank 0 sends it the tokens of sequences and their sampling; it answers with
 * draft tokens, each with a share in 8 bits, and rank 0 does not have to wait for them. As noise is a function of seed
 * and position, no distribution is sent; late or wrong draft tokens cost time but do not change the decoded tokens.
 * When the draft rank is lost, the other ranks continue without it.
 *
 * A message consists of words of 32 bits, little-endian: a header of SPECDEC__WIRE_HEADER_WORDS words, the words of
 * orders, then rows of floats. Urgent messages have no rows. The first word of an order holds its kind and, from bit 8
 * on, the number of words that follow.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "../cache/kv.h"
#include "../forward/context.h"
#include "../speculation/sample.h"

SPECDEC__FOR_SIZE

#define SPECDEC__WIRE_MAGIC 0x50445053u /* first word of every message: "SPDP" */
#define SPECDEC__WIRE_VERSION 7         /* version of the messages' format */
#define SPECDEC__WIRE_URGENT_WORDS 96   /* words of an urgent message, at most */
#define SPECDEC__WIRE_MAX_RUNS 32       /* sent runs that are not answered, at most */
#define SPECDEC__WIRE_MAX_RANKS 64      /* ranks of a cluster, at most */
#define SPECDEC__WIRE_WAIT_SECONDS 0.05 /* seconds that a rank waits for a message before it looks at the clock */
#define SPECDEC__WIRE_MAX_TOKENS 64     /* tokens of a sequence in one message to the draft rank, at most */
#define SPECDEC__WIRE_LOAD_SILENCES 8   /* times specdec_cluster.silence: seconds for loading, or without progress */
#define SPECDEC__WIRE_LOADING_FLAG 0x80000000u /* in the first word of ALIVE: the sender still loads its model */
#define SPECDEC__REMOTE_DRAFTS_PER_SEQUENCE 2048 /* draft tokens stored by rank 0, for each of the first 8 sequences */
#define SPECDEC__REMOTE_DRAFT_CHILDREN 15 /* children of a draft token, at most */

/* The words of a message's header, by index. */
enum {
    SPECDEC__WIRE_MAGIC_WORD,  /* SPECDEC__WIRE_MAGIC */
    SPECDEC__WIRE_KIND,        /* version, kind of message << 8, rank of the sender << 16 */
    SPECDEC__WIRE_SERIAL,      /* how many messages the sender has sent the receiver before, without urgent ones */
    SPECDEC__WIRE_ORDER_WORDS, /* number of words of orders */
    SPECDEC__WIRE_ROWS,        /* number of rows */
    SPECDEC__WIRE_ROW_FLOATS,  /* floats of a row */
    SPECDEC__WIRE_RUN,         /* number of the run that the message is about */
    SPECDEC__WIRE_CHECKSUM,    /* checksum of all other words */
    SPECDEC__WIRE_HEADER_WORDS
};

/* Kinds of messages, each with the words that follow the header. */
enum {
    SPECDEC__WIRE_ORDERS, /* from a rank to the next one: orders, with the rows of a run that is not cancelled */
    SPECDEC__WIRE_STATES, /* from the last rank to rank 0: a run's wanted rows; (microseconds on the slowest rank) */
    /* The kinds from here on are urgent. */
    SPECDEC__WIRE_READY,  /* the sender can serve: (fingerprint, 2 words) */
    /* The sender lives: (layers of its run that are done, or, while it loads, LOADING_FLAG | repacked matrices; number
       of messages that it has sent to the receiver, without urgent ones). */
    SPECDEC__WIRE_ALIVE,
    SPECDEC__WIRE_CANCEL, /* from rank 0: the run is cancelled */
    SPECDEC__WIRE_DONE,   /* from rank 1: it has computed its layers of the run: (microseconds) */
    SPECDEC__WIRE_FAILED, /* the sender ends with an error: (bytes of the error's text, the text) */
    /* From the draft rank, draft tokens of a sequence: (view, epoch, count, number). The draft tokens have numbers from
       `number` on. count > 0: they begin a new tree, whose root, draft token number - 1, is the sequence's token count
       - 1; 0: they extend the tree sent before. Then for each parent: (number of its first child minus its own number
       << 4 | number of children, then token | share << 24 of each child). */
    SPECDEC__WIRE_DRAFT_TOKENS,
    SPECDEC__WIRE_KINDS
};

/* Orders: SPECDEC__KV_... (view, other view or -1, a, b, renumbered nodes, path...), and the orders below. */
enum {
    /* Run a batch: (number, cancelled, microseconds of the run on the slowest rank so far, first node, n; for each of
       the n nodes: token, parent, view * 4 + certain * 2 + wanted). */
    SPECDEC__WIRE_ORDER_RUN = SPECDEC__KV_EVENTS,
    SPECDEC__WIRE_ORDER_END, /* end the cluster */
    /* Orders to the draft rank, each in a message of its own. epoch: counts how often the sequence was truncated. */
    SPECDEC__WIRE_ORDER_TOKENS,   /* truncate a sequence to n tokens, append tokens: (view, epoch, n, tokens...) */
    SPECDEC__WIRE_ORDER_SAMPLING, /* set a sequence's sampling: (view, epoch, SPECDEC__WIRE_SAMPLING_WORDS words) */
    SPECDEC__WIRE_ORDER_FORK      /* begin with another sequence's first tokens: (view, epoch, other view, count) */
};

enum { SPECDEC__WIRE_SAMPLING_WORDS = 8 + SPECDEC__SAMPLE_WORDS };

/* A draft token that the draft rank has sent, on rank 0. */
typedef struct specdec__remote_draft {
    uint32_t number;     /* serial number of the draft token; 0: this place of the ring is empty */
    uint32_t first;      /* number of its first child; its other children have the next numbers */
    int32_t token;       /* token id */
    unsigned char share; /* probability among its siblings, in units of 1/255 */
    unsigned char count; /* number of its children, once they have arrived; 0 before */
} specdec__remote_draft;

/* The state of a sequence on the draft rank, as far as rank 0 records it. */
typedef struct specdec__remote_sequence {
    uint32_t epoch;      /* increased when draft tokens of the sequence become invalid */
    int sent_count;      /* tokens of the sequence that were sent to the draft rank */
    int epoch_unsent;    /* 1: the epoch has changed since the last order */
    double sent_at;      /* time in seconds at which the last token was sent to the draft rank */
    uint32_t sampling[SPECDEC__WIRE_SAMPLING_WORDS]; /* the settings of sampling that the draft rank was sent last */
    uint32_t root;       /* number of the draft token that is the root: the last of the first `count` tokens */
    int count;           /* tokens of the sequence up to the root; 0: no draft tokens are stored */
} specdec__remote_sequence;

/* A run that rank 0 has sent to the other ranks, and whose logits were not taken yet. */
typedef struct specdec__wire_run {
    uint32_t number;        /* serial number of the run */
    int rows;               /* number of wanted rows, those whose logits are computed */
    int cancelled;          /* 1: the other ranks were told to end it early */
    int returned;           /* 1: the last rank has answered it */
    int abandoned;          /* 1: its rows are not awaited; it is removed when it returns */
    double slowest_seconds; /* seconds of the run on the slowest rank, once it has returned */
    specdec_result result;  /* of a run that has returned; OK: its rows are the message in link->messages.in */
} specdec__wire_run;

/* Progress of another rank, as its last ALIVE says. */
typedef struct specdec__wire_progress {
    uint32_t run;   /* the run that the rank computes, or computed last */
    uint32_t layer; /* layers of this run that are done; while the rank loads, matrices that are repacked */
    uint32_t sent;  /* messages sent to this rank, without urgent ones */
    int started;    /* 1: the rank has loaded its model */
} specdec__wire_progress;

/* What a rank knows of another one. Written by >>cluster/link. */
typedef struct specdec__link_peer {
    uint32_t sent_count; /* messages sent to the rank, without urgent ones */
    double heard_at;     /* clock, seconds: when the rank's last message was received; 0: none was */
    specdec__wire_progress progress; /* what its last ALIVE says of its run and of its loading */
    int ready;           /* 1: the rank has sent READY */
    uint32_t done_run;   /* on rank 0: number of the last run whose layers the rank has computed, as its DONE says */
    double done_seconds; /* on rank 0: seconds that this run has taken there */
} specdec__link_peer;

/* Messages received and to be sent. `in` is written by >>cluster/link, `out` by >>cluster/orders and >>cluster/rank. */
typedef struct specdec__link_messages {
    unsigned char *in;  /* (bytes) the last message received, unless it was urgent */
    unsigned char *out; /* (bytes) header, then stored orders that are sent with the next run */
    size_t bytes;       /* bytes of a message, at most: the size of `in` and `out` */
    int order_words, order_capacity; /* words of the orders stored in `out`; words that it has room for */
    uint32_t received_count; /* messages received from the previous rank, without urgent ones */
} specdec__link_messages;

/* The times by which a rank notices that others are silent or make no progress. Written by >>cluster/link. */
typedef struct specdec__link_waits {
    double listening_since; /* clock, seconds: when this rank began to receive messages */
    double alive_sent_at;   /* clock, seconds: when ALIVE was sent last; 0: never */
    double ended_at;        /* clock, seconds: end of the last wait */
    double stalled_seconds; /* waiting time since the awaited run made progress */
} specdec__link_waits;

/* The views of the target's cache, by number. Written when the engine is laid out. */
typedef struct specdec__link_views {
    specdec__view **view; /* (count) the views; an order names a view by its index here */
    int **cancel;         /* (count) on rank 0: the cancel flags of the views' sequences */
    int count;            /* number of views */
    int capacity;         /* keys of a view, at most */
} specdec__link_views;

/* The last run of a rank's own layers. Written by >>cluster/orders and >>cluster/ranks on rank 0, by >>cluster/rank on
   other ranks; layer, cancelled_runs and cancel also by >>cluster/link, as messages arrive. */
typedef struct specdec__link_own_run {
    uint32_t run;           /* number of the last run, sent or received */
    uint32_t layer;         /* layers of this run that are done; while loading, matrices that are repacked */
    double seconds;         /* seconds of the run on this rank */
    /* On ranks that serve. */
    double slowest_seconds; /* seconds of the run on the slowest rank so far */
    uint32_t cancelled_runs[SPECDEC__WIRE_MAX_RUNS]; /* a cancelled run's number lies at that number modulo MAX_RUNS */
    int cancel;             /* cancel flag of the run under way */
    int node_count;         /* computed nodes that nodes of the next run may descend from */
    int node_view;          /* number of the view that has the nodes of node_count; -1: several views have */
} specdec__link_own_run;

/* On rank 0: the runs sent to the other ranks. Written by >>cluster/orders and >>cluster/ranks. */
typedef struct specdec__link_sent_runs {
    specdec__wire_run runs[SPECDEC__WIRE_MAX_RUNS]; /* (count) the oldest first */
    int count;                 /* number of sent runs that are not taken or removed yet */
    int overlap;               /* 1: a run is sent without waiting for its answer */
    int renumbered_nodes;      /* nodes that the next commit renumbers; 0: it ends the tree */
    double first_rank_free_at; /* clock, seconds: when rank 1 is expected to have computed all sent runs */
} specdec__link_sent_runs;

/* The draft rank, as other ranks know it, and on rank 0 of a cluster with a draft rank its draft tokens. Written by
   >>cluster/link as they arrive; sequences also by >>cluster/draft_tokens. */
typedef struct specdec__link_drafts {
    int rank;             /* the rank that has the draft model alone; 0: there is none */
    int lost;             /* 1: the draft rank is lost; 2: and it was sent FAILED */
    uint64_t fingerprint; /* hash of the settings that must be equal on rank 0 and the draft rank */
    specdec__remote_sequence *sequences; /* (views.count) what the draft rank was sent of each sequence */
    specdec__remote_draft *tokens; /* (token_count) ring: index is number modulo count */
    int token_count;      /* draft tokens that the ring has room for */
    int arrived;          /* 1: draft tokens have arrived since the pipe looked last */
    uint32_t next_number; /* number behind the draft tokens that have arrived */
    double latency;       /* mean seconds from sending a token to the first draft tokens behind it */
    double interval;      /* mean seconds between two messages of draft tokens */
    double arrived_at;    /* clock, seconds: when draft tokens arrived last */
} specdec__link_drafts;

/* What a rank that serves has computed, for its statistics. */
typedef struct specdec__link_counts {
    double seconds;     /* seconds in which this rank has computed runs */
    int64_t runs;       /* number of runs that this rank has computed */
    int64_t nodes;      /* number of nodes of all runs */
    int64_t kept_nodes; /* number of nodes of the runs that were not cancelled */
} specdec__link_counts;

/* A rank of a cluster, and its connection to the other ranks. */
typedef struct specdec__link {
    specdec_cluster cluster;    /* the caller's configuration of the cluster */
    specdec__context *context;  /* the context that runs the rank's layers */
    const specdec_hooks *hooks; /* the caller's hooks, by which the log is written */
    uint64_t fingerprint;       /* hash of the model and of the settings that must be equal on all ranks with layers */
    /* The state of the cluster. */
    int model_loaded;           /* 1: this rank has loaded its model */
    int ready_count;            /* number of other ranks that have sent READY */
    int connected;              /* rank 0: 1 once all ranks are ready */
    int ended;                  /* 1: rank 0 has ended the cluster */
    specdec_error failed;       /* the error that has ended the cluster */
    /* The cancel flags of callers. */
    int *serving_cancel;        /* on a rank that serves: the flag that specdec_cancel sets; NULL: it does not serve */
    int *caller_cancel;         /* cancel flag of the sequence whose caller waits for the step under way; NULL: none */
    /* State in groups. */
    specdec__link_views views;  /* the views of the target's cache, by number */
    specdec__link_peer peers[SPECDEC__WIRE_MAX_RANKS]; /* what is known of each other rank, by its number */
    specdec__link_messages messages; /* the message received last, and the one to be sent next */
    specdec__link_waits waits;  /* times by which silent and stalled ranks are noticed */
    specdec__link_own_run own;  /* the last run of this rank's own layers */
    specdec__link_sent_runs sent; /* on rank 0: the runs sent to the other ranks */
    specdec__link_drafts drafts; /* the draft rank and, on rank 0, the draft tokens that have arrived from it */
    specdec__link_counts counts; /* what this rank has computed, for its statistics */
    struct specdec__ranks *ranks; /* on rank 0: the lane of pipelined runs */
    struct specdec__draft_rank *draft_rank; /* the state of a rank that only drafts; NULL on all other ranks */
} specdec__link;

/* --- words -------------------------------------------------------------------------------------------------------- */

/* Word i of a message. */
static uint32_t specdec__wire_get_word(const unsigned char *message, int i)
{
    return specdec__load_u32(message + 4 * (size_t)i);
}

/* Sets word i of a message. */
static void specdec__wire_put_word(unsigned char *message, int i, uint32_t word)
{
    specdec__store_u32(message + 4 * (size_t)i, word);
}

/* Returns the checksum of a message, without the word that holds it: changing a single word always changes the
   checksum. */
static uint32_t specdec__wire_message_checksum(const unsigned char *message, size_t words)
{
    uint32_t sum = 1;
    size_t i;

    for (i = 0; i < words; i++)
        if (i != SPECDEC__WIRE_CHECKSUM) {
            sum = (sum ^ specdec__load_u32(message + 4 * i)) * 0x9e3779b1u;
            sum ^= sum >> 15;
        }
    return sum;
}

/* Writes `count` floats as words, bit for bit. */
static void specdec__wire_put_floats(unsigned char *to, const float *from, int count)
{
    int i;

    for (i = 0; i < count; i++)
        specdec__wire_put_word(to, i, specdec__bits_from_float(from[i]));
}

/* Reads `count` floats from words, bit for bit. */
static void specdec__wire_get_floats(float *to, const unsigned char *from, int count)
{
    int i;

    for (i = 0; i < count; i++)
        to[i] = specdec__float_from_bits(specdec__wire_get_word(from, i));
}

/* Whether `size` bytes, which may be at most `room`, form a valid message of a cluster of `ranks` ranks: magic number,
   version, kind, sender, length and checksum. */
static int specdec__wire_check_message(const unsigned char *message, size_t size, size_t room, int ranks)
{
    uint64_t words, rows, floats, kind;

    if (size < 4 * SPECDEC__WIRE_HEADER_WORDS || size > room || size % 4)
        return 0;
    words = specdec__wire_get_word(message, SPECDEC__WIRE_ORDER_WORDS);
    rows = specdec__wire_get_word(message, SPECDEC__WIRE_ROWS);
    floats = specdec__wire_get_word(message, SPECDEC__WIRE_ROW_FLOATS);
    kind = specdec__wire_get_word(message, SPECDEC__WIRE_KIND);
    return specdec__wire_get_word(message, SPECDEC__WIRE_MAGIC_WORD) == SPECDEC__WIRE_MAGIC &&
           (kind & 255) == SPECDEC__WIRE_VERSION && (kind >> 8 & 255) < SPECDEC__WIRE_KINDS &&
           kind >> 16 < (uint64_t)ranks && rows <= 1 << 20 && floats <= 1 << 24 &&
           SPECDEC__WIRE_HEADER_WORDS + words + rows * floats == size / 4 &&
           specdec__wire_message_checksum(message, size / 4) == specdec__wire_get_word(message, SPECDEC__WIRE_CHECKSUM);
}

/* Returns the sender in the header of a message that may be damaged; 0 for a message that is shorter than a header. */
static int specdec__wire_message_sender(const unsigned char *message, size_t size)
{
    return size < 4 * SPECDEC__WIRE_HEADER_WORDS ? 0 : (int)(specdec__wire_get_word(message, SPECDEC__WIRE_KIND) >> 16);
}

/* Reads the words of an order one after the other. */
typedef struct specdec__wire_reader {
    const unsigned char *at; /* address of the next word to be read */
    int left;                /* number of words that were not read yet */
    int bad;                 /* 1: a word was missing, or out of its range */
} specdec__wire_reader;

/* Returns the next word of a message that is read; 0 if there is none. */
static uint32_t specdec__wire_read_word(specdec__wire_reader *in)
{
    uint32_t word = 0;

    if (in->left < 1) {
        in->bad = 1;
    } else {
        word = specdec__wire_get_word(in->at, 0);
        in->at += 4;
        in->left--;
    }
    return word;
}

/* Returns the next word of a message that is read as an integer in [low, high]; low if it is missing or out of
   range. */
static int specdec__wire_read_int(specdec__wire_reader *in, int low, int high)
{
    const int value = (int)specdec__wire_read_word(in);

    in->bad |= value < low || value > high;
    return in->bad ? low : value;
}

SPECDEC__FOR_SPEED
