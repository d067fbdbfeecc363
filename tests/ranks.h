/* ranks.h - a cluster in one process, for tests: ranks are threads that talk through memory, over links as slow and as bad
   as a test wants. Include behind skipping_clock.h, specdec.h's implementation with SPECDEC_CLUSTER, and gguf_maker.h. */
#ifndef RANKS_H
#define RANKS_H

enum { RANKS = 6 };

/* --- links ------------------------------------------------------------------------------------------------------------ */

typedef struct letter {
    struct letter *next;
    double due; /* when it arrives */
    size_t size;
    unsigned char *bytes;
} letter;

/* What lies between the ranks. */
typedef struct mesh {
    pthread_mutex_t mutex;
    pthread_cond_t news;
    letter *first[RANKS][RANKS + 1]; /* on the way to a rank, from each other one; from RANKS: urgent ones of all */
    double late;                     /* seconds that a message takes, at most; each takes another time */
    int dead[RANKS];                 /* nothing comes from it, or gets to it, any more */
    uint64_t random, delays;         /* of whoever tests, of the links */
    /* Does something to a message before it is sent, if not NULL; returns how many times it is sent. */
    int (*tamper)(struct mesh *net, int rank, unsigned char *bytes, size_t *size);
    int stray;                       /* of tamper: 1 of so many messages */
    /* Of the message in hand, set by tamper: seconds more that it takes; it is sent behind the next one to that rank. */
    double hold;
    int swap;
    letter *aside[RANKS][RANKS + 1]; /* those */
    int shut[RANKS];                 /* a rank gets nothing but urgent messages */
    int waits[RANKS];                /* of a rank */
    size_t sent;                     /* bytes */
    double until[RANKS];             /* a rank that waits goes on */
} mesh;

static inline int dice(mesh *n, int sides) { return (int)(maker_random(&n->random) % (uint32_t)sides); }

/* A rank, and what its thread runs. */
typedef struct rank {
    mesh *net;
    specdec_cluster cluster;
    specdec_config config;
    specdec_result result;
    specdec_error error;
    double ended; /* by the clock */
    pthread_t thread;
    void *block;
    specdec *text;
    size_t bytes;
} rank;

/* The last place of a queue. *due becomes the time of its last letter, if that is later. */
static inline letter **net_end(letter **at, double *due)
{
    for (; *at; at = &(*at)->next)
        *due = (*at)->due > *due ? (*at)->due : *due;
    return at;
}

static inline int net_send(void *user_data, int to, int urgent, const void *message, size_t size)
{
    rank *from = (rank *)user_data;
    mesh *n = from->net;
    unsigned char *bytes = (unsigned char *)malloc(size + 64);
    int count = 1;

    memcpy(bytes, message, size);
    pthread_mutex_lock(&n->mutex);
    n->hold = n->swap = 0;
    if (n->tamper)
        count = n->tamper(n, from->cluster.rank, bytes, &size);
    n->sent += size;
    for (; count > 0 && !n->dead[to] && !n->dead[from->cluster.rank]; count--) {
        const int queue = urgent ? RANKS : from->cluster.rank;
        double due = specdec__os_monotonic_seconds() + n->late * (double)(maker_random(&n->delays) % 1000) / 1000 + n->hold;
        letter **aside = &n->aside[to][queue], *l = (letter *)malloc(sizeof *l);
        letter **at = n->swap && !*aside ? aside : net_end(&n->first[to][queue], &due);

        l->next = at == aside ? NULL : *aside; /* behind this one comes what it overtakes */
        *aside = at == aside ? *aside : NULL;
        l->due = due;
        l->size = size;
        l->bytes = (unsigned char *)malloc(size + 1);
        memcpy(l->bytes, bytes, size);
        *at = l;
        if (at != aside && (urgent || !n->shut[to]))
            skipping_sooner(&n->until[to], due);
    }
    pthread_cond_broadcast(&n->news);
    pthread_mutex_unlock(&n->mutex);
    free(bytes);
    return 1;
}

static inline size_t net_receive(void *user_data, int from, void *message, size_t room)
{
    rank *own = (rank *)user_data;
    mesh *n = own->net;
    letter **first = &n->first[own->cluster.rank][from < 0 ? RANKS : from], *l;
    size_t size = 0;

    pthread_mutex_lock(&n->mutex);
    l = from >= 0 && n->shut[own->cluster.rank] ? NULL : *first;
    if (l && l->due <= specdec__os_monotonic_seconds()) {
        *first = l->next;
        size = l->size;
        memcpy(message, l->bytes, size < room ? size : room);
        free(l->bytes);
        free(l);
    }
    pthread_mutex_unlock(&n->mutex);
    return size;
}

/* Until a message is due, anything is sent or changed, or that time is over. */
static inline void net_wait(void *user_data, double seconds)
{
    rank *own = (rank *)user_data;
    mesh *n = own->net;
    double *until = &n->until[own->cluster.rank], end = specdec__os_monotonic_seconds() + seconds, left;
    int i, news = 0;

    pthread_mutex_lock(&n->mutex);
    n->waits[own->cluster.rank]++;
    for (i = 0; i <= RANKS; i++) {
        const letter *l = n->first[own->cluster.rank][i];

        if (l && l->due < end && (i == RANKS || !n->shut[own->cluster.rank]))
            end = l->due;
    }
    *until = end;
    skipping_wait(until, 1);
    for (left = skipping_skip(until); left > 0 && !news; left = skipping_skip(until)) {
        struct timespec at;
        double nanoseconds;

        (clock_gettime)(CLOCK_REALTIME, &at); /* the true one */
        nanoseconds = (double)at.tv_nsec + 1e9 * skipping_slice(left);
        at.tv_sec += (time_t)(nanoseconds / 1e9);
        at.tv_nsec = (long)(nanoseconds - 1e9 * (double)(time_t)(nanoseconds / 1e9));
        news = !pthread_cond_timedwait(&n->news, &n->mutex, &at);
    }
    skipping_wait(until, 0);
    pthread_mutex_unlock(&n->mutex);
}

/* --- a cluster in one process ------------------------------------------------------------------------------------------ */

typedef struct party {
    mesh net;
    rank ranks[RANKS];
    int layers[RANKS], count;
} party;

static inline int open_rank(rank *r)
{
    r->result = specdec_memory_needed(&r->config, &r->bytes, &r->error);
    r->block = r->result ? NULL : malloc(r->bytes);
    if (!r->result)
        r->result = specdec_init(&r->text, &r->config, r->block, r->bytes, &r->error);
    return !r->result;
}

static inline void *rank_thread(void *argument)
{
    rank *r = (rank *)argument;

    if (open_rank(r)) {
        r->result = specdec_serve(r->text);
        if (r->result != SPECDEC_DONE)
            snprintf(r->error.text, sizeof r->error.text, "%s", specdec_error_text(r->text));
        r->ended = specdec__os_monotonic_seconds();
    }
    specdec_deinit(r->text);
    free(r->block);
    skipping_count(-1);
    return NULL;
}

/* Random numbers of layers for each rank. */
static inline void deal_layers(party *c, int count, int all)
{
    int i;

    c->count = count;
    for (i = 0; i < count; i++)
        c->layers[i] = i > 0;
    for (all -= count - 1; all > 0; all--)
        c->layers[dice(&c->net, count)]++;
}

/* A rank behind the first has the draft model alone; its layers are the first one's. */
static inline void deal_drafter(party *c, int which)
{
    c->layers[0] += c->layers[which];
    c->layers[which] = 0;
}

/* What a rank knows of the others. */
static inline void join_rank(party *c, int i, double silence)
{
    rank *r = &c->ranks[i];

    r->net = &c->net;
    r->cluster.rank = i;
    r->cluster.ranks = c->count;
    r->cluster.layers = c->layers;
    r->cluster.silence = silence;
    r->cluster.user_data = r;
    r->cluster.send = net_send;
    r->cluster.receive = net_receive;
    r->cluster.wait = net_wait;
}

/* Starts all ranks; that of number 0 in this thread. others: the configuration of the others. */
static inline int start_with(party *c, const specdec_config *config, const specdec_config *others, double silence)
{
    int i;

    pthread_mutex_init(&c->net.mutex, NULL);
    pthread_cond_init(&c->net.news, NULL);
    for (i = c->count - 1; i >= 0; i--) {
        rank *r = &c->ranks[i];

        join_rank(c, i, silence);
        r->config = i ? *others : *config;
        r->config.cluster = &r->cluster;
        if (i)
            skipping_start(&r->thread, rank_thread, r);
        else
            open_rank(r);
    }
    return !c->ranks[0].result;
}

static inline int start_cluster(party *c, const specdec_config *config, double silence)
{
    return start_with(c, config, config, silence);
}

static inline void end_cluster(party *c)
{
    int i, k;

    specdec_deinit(c->ranks[0].text);
    free(c->ranks[0].block);
    for (i = 1; i < c->count; i++)
        skipping_join(c->ranks[i].thread);
    for (i = 0; i < RANKS; i++)
        for (k = 0; k <= RANKS; k++) {
            free(c->net.aside[i][k] ? c->net.aside[i][k]->bytes : NULL);
            free(c->net.aside[i][k]);
            while (c->net.first[i][k]) {
                letter *l = c->net.first[i][k];

                c->net.first[i][k] = l->next;
                free(l->bytes);
                free(l);
            }
        }
    pthread_mutex_destroy(&c->net.mutex);
    pthread_cond_destroy(&c->net.news);
}
#endif
