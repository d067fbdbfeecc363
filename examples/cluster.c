/* cluster - a model whose layers lie on several machines, over MPI: rank 0 drafts, samples and writes, the others verify;
   with --draft-rank another one drafts, and needs nothing but the draft model. The text is that of one machine, byte for
   byte.

       make cluster && mpirun -n 4 build/cluster -m MODEL.gguf -md DRAFT.gguf -p TEXT -n 100 */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#define SPECDEC_CLUSTER
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "tools/program.h"
#include "tools/json.h"
#include "tools/lanes.h"
#include "tools/pretend.h"
#include <sched.h>

enum { MOST_RANKS = 64, PARCELS = 512, STAMP = 8, DEALS = 40, BARS = 1000 };
enum { TAG_NEXT = 1, TAG_URGENT = 2 };

typedef struct options {
    specdec_config config;
    const char *prompt, *split, *stats, *link, *draft_link, *pretend, *timeline;
    float silence, memory; /* memory: MB */
    int limit, spec, policy;
    int drafter; /* the rank that has the draft model alone; 0: there is none */
    struct {
        double seconds, bits; /* of a message; a second */
    } links[2];               /* between ranks; from and to the draft rank */
} options;

/* A message on its way out, in a buffer of its own. */
typedef struct parcel {
    MPI_Request request;
    unsigned char *bytes;
    size_t room;
    int busy;
} parcel;

/* A message that comes or has come, and may be held back as if it had come over a slow link. */
typedef struct arrival {
    MPI_Request request;
    unsigned char *bytes;
    size_t size, room;
    double due;
    int coming, here;
} arrival;

/* What a rank did from one time to another, in seconds since all ranks met: a run of so many nodes through its
   layers (0: something else), to their end if nobody cancelled it. */
typedef struct bar {
    double from, to;
    int nodes, cancelled;
} bar;

/* What a rank knows of its links. */
typedef struct post {
    const options *o;
    parcel parcels[PARCELS];
    arrival arrivals[2][MOST_RANKS]; /* by urgency and sender */
    double free_at[MOST_RANKS];      /* when the link to a rank has sent all bytes before */
    double waiting;                  /* seconds */
    double sent, guided;             /* bytes; those of them that went to the draft rank */
    int lost;                        /* the rank that drafts is */
    int ranks, next;                 /* next: where a parcel is looked for first */
    int gone[MOST_RANKS], come[MOST_RANKS]; /* messages to and from each */
    bar bars[BARS];
    int bar_count;
    specdec_stats stats;
    size_t row;         /* bytes of a row of activations: a run that was cancelled passes on none */
    double zero, since; /* by the clock: of the bars; since when the rank does not wait */
} post;

/* What a rank has done, as rank 0 gets to know it. */
enum { BUSY, WAITING, SENT, GUIDED, RUNS, NODES, CANCELLED, MEMORY, LAYERS, FIGURES };

static specdec_error failure;
static int own_rank;
static pretend_table pretended; /* --pretend */
static double pretended_until;  /* by the clock: since when the layer before computes; 0: there was none in this run */

/* --- what is done when --------------------------------------------------------------------------------------------- */

/* A layer of a run of so many nodes begins. */
static void note_layer(post *p, int nodes)
{
    bar *b = &p->bars[p->bar_count];

    if (!p->o->timeline || p->bar_count == BARS)
        return;
    b->from = b->nodes ? b->from : program_seconds() - p->zero;
    b->nodes = nodes;
}

/* The rank has gone on with something until now: a run, if a layer of it has begun. */
static void note_end(post *p, int cancelled)
{
    bar *b = &p->bars[p->bar_count];
    const double now = program_seconds();
    const int beside = own_rank == 0 && now - p->since > 1e-4; /* what is shorter cannot be seen */

    if (p->o->timeline && p->bar_count < BARS && (b->nodes || beside)) {
        b->from = b->nodes ? b->from : p->since - p->zero;
        b->to = now - p->zero;
        b->cancelled = cancelled;
        p->bar_count++;
    }
    p->since = now;
}

/* The picture: a lane for each rank's layers, and one for what else rank 0 does. bars (ranks, BARS). */
static int save_timeline(const char *path, const bar *bars, const int *counts, int ranks)
{
    static program_output out;
    const int high = 14, apart = 17, first = counts[1] / 2, last = first + 16;
    const bar *busy = bars + BARS;
    const double begin = busy[first].from, span = (last < counts[1] ? busy[last].from : busy[counts[1] - 1].to) - begin;
    int i, k, status = program_output_open(&out, path, NULL);
    FILE *f = out.file;

    if (status)
        return status;
    lanes_begin(f, (ranks + 1) * apart + 36);
    for (i = 0; i < ranks; i++) {
        lanes_name(f, 12 + i * apart, high, "", "rank", i);
        for (k = 0; k < counts[i]; k++) {
            const bar *b = &bars[i * BARS + k];

            lanes_bar(f, 12 + (b->nodes ? i : ranks) * apart, high, begin, span, b->from, b->to, b->nodes,
                      !b->nodes ? LANES_DRAFT : b->cancelled ? LANES_CANCELLED : LANES_TARGET);
        }
    }
    lanes_name(f, 12 + ranks * apart, high, "", "rank 0 beside", -1);
    lanes_end(f, (ranks + 1) * apart + 28, span);
    return program_output_end(&out);
}

/* --- links ---------------------------------------------------------------------------------------------------------- */

/* Makes room for size bytes. Returns 0 when memory ran out. */
static int grow(unsigned char **bytes, size_t *room, size_t size)
{
    unsigned char *grown = size <= *room ? *bytes : (unsigned char *)realloc(*bytes, size + size / 2);

    if (!grown)
        return 0;
    *room = size <= *room ? *room : size + size / 2;
    *bytes = grown;
    return 1;
}

/* Ends all ranks; nobody waits for those that are gone. */
static void end_all(int status)
{
    fprintf(stderr, "cluster: rank %d ends\n", own_rank);
    usleep(300000);
    MPI_Abort(MPI_COMM_WORLD, status);
}

/* Until when a rank waits for another one that may be lost. */
static double latest(const post *p) { return program_seconds() + (p->o->silence > 0 ? (double)p->o->silence : 1e9); }

/* A parcel that nobody uses; waits for one while too much is on its way, but not for ever: then NULL. */
static parcel *find_parcel(post *p)
{
    const double end = latest(p);
    int i, done;

    do {
        for (i = 0; i < PARCELS; i++) {
            parcel *at = &p->parcels[(p->next + i) % PARCELS];

            if (at->busy && !MPI_Test(&at->request, &done, MPI_STATUS_IGNORE) && done)
                at->busy = 0;
            if (!at->busy)
                return p->next = (p->next + i + 1) % PARCELS, at;
        }
        sched_yield();
    } while (program_seconds() < end);
    return NULL;
}

/* Which link a message to a rank goes over. */
static int link_to(const post *p, int to) { return p->o->drafter && (to == p->o->drafter || own_rank == p->o->drafter); }

/* When a message that is sent now arrives. Urgent ones overtake others, but for draft tokens and what these need: all that
   goes to and from the draft rank waits for its turn. */
static double arrives(post *p, int to, int urgent, size_t size, double now)
{
    const int which = link_to(p, to);
    const double bits = p->o->links[which].bits, from = now > p->free_at[to] || (urgent && !which) ? now : p->free_at[to];

    p->free_at[to] = from + (bits > 0 ? 8 * (double)size / bits : 0);
    return p->free_at[to] + p->o->links[which].seconds;
}

/* specdec_cluster.send. With --link or --draft-link a message bears the time at which it arrives. */
static int post_send(void *user_data, int to, int urgent, const void *message, size_t size)
{
    post *p = (post *)user_data;
    parcel *at = find_parcel(p);
    const double due = arrives(p, to, urgent, size, program_seconds());

    if (!urgent && p->bar_count < BARS && p->bars[p->bar_count].nodes) /* what a run has become goes on */
        note_end(p, size < p->row);
    pretended_until = urgent ? pretended_until : 0;
    if (!at || !grow(&at->bytes, &at->room, size + STAMP))
        return 0;
    memcpy(at->bytes, message, size);
    memcpy(at->bytes + size, &due, sizeof due);
    p->sent += (double)size;
    p->guided += to == p->o->drafter && to ? (double)size : 0;
    p->gone[to]++;
    at->busy = 1;
    return !MPI_Isend(at->bytes, (int)(size + STAMP), MPI_BYTE, to, urgent ? TAG_URGENT : TAG_NEXT, MPI_COMM_WORLD,
                      &at->request);
}

/* Whether the next message of a sender has begun to come. */
static int begins(arrival *at, int urgent, int from)
{
    int flag = 0, count = 0;
    MPI_Status status;

    if (MPI_Iprobe(from, urgent ? TAG_URGENT : TAG_NEXT, MPI_COMM_WORLD, &flag, &status) || !flag)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count < STAMP || !grow(&at->bytes, &at->room, (size_t)count))
        return 0;
    at->size = (size_t)count - STAMP;
    return !MPI_Irecv(at->bytes, count, MPI_BYTE, from, status.MPI_TAG, MPI_COMM_WORLD, &at->request);
}

/* Takes the next message of a sender in, as far as it is there, if the one before has been handed on. A large one comes
   in parts, and its sender may be lost between two of them: nobody waits here. */
static void take_in(post *p, int urgent, int from)
{
    arrival *at = &p->arrivals[urgent][from];

    if (!at->here && !at->coming)
        at->coming = begins(at, urgent, from);
    if (!at->coming || MPI_Test(&at->request, &at->here, MPI_STATUS_IGNORE) || !at->here)
        return;
    at->coming = 0;
    p->come[from]++;
    memcpy(&at->due, at->bytes + at->size, sizeof at->due);
}

/* Whether a sender's next message may be handed on. */
static int is_due(post *p, int urgent, int from)
{
    if (from == own_rank)
        return 0;
    take_in(p, urgent, from);
    return p->arrivals[urgent][from].here && (!(p->o->link || p->o->draft_link) ||
                                              p->arrivals[urgent][from].due <= program_seconds());
}

/* specdec_cluster.receive */
static size_t post_receive(void *user_data, int from, void *message, size_t room)
{
    post *p = (post *)user_data;
    const int urgent = from < 0;
    arrival *at;

    for (from = urgent ? 0 : from; urgent && from < p->ranks && !is_due(p, 1, from);)
        from++;
    if (from == p->ranks || !is_due(p, urgent, from))
        return 0;
    at = &p->arrivals[urgent][from];
    memcpy(message, at->bytes, at->size < room ? at->size : room);
    at->here = 0;
    return at->size;
}

static int any_due(post *p)
{
    int i;

    for (i = 0; i < 2 * p->ranks; i++)
        if (is_due(p, i & 1, i / 2))
            return 1;
    return 0;
}

/* specdec_cluster.wait: other processes may want this very core, so the wait sleeps more and more. */
static void post_wait(void *user_data, double seconds)
{
    post *p = (post *)user_data;
    const double start = program_seconds();
    int looks = 0;

    note_end(p, 0);
    while (program_seconds() - start < seconds && !any_due(p))
        if (looks++ < 20)
            sched_yield();
        else
            usleep(looks < 200 ? 50 : 200);
    p->since = program_seconds();
    p->waiting += p->since - start;
}

/* Waits until a request is done, but not for ever. Returns whether it is. */
static int is_done(const post *p, MPI_Request *request)
{
    const double end = latest(p);
    int done = 0;

    while (!MPI_Test(request, &done, MPI_STATUS_IGNORE) && !done && program_seconds() < end)
        usleep(50);
    return done;
}

/* At the end, what is still on its way comes, and nobody reads it: MPI wants that. Returns whether all of it has come. */
static int empty_post(post *p)
{
    static int wanted[MOST_RANKS];
    double end;
    int i;
    MPI_Request request;

    if (MPI_Ialltoall(p->gone, 1, MPI_INT, wanted, 1, MPI_INT, MPI_COMM_WORLD, &request) || !is_done(p, &request))
        return 0;
    for (i = 0, end = latest(p); i < p->ranks; i++)
        while (p->come[i] < wanted[i]) {
            p->arrivals[0][i].here = p->arrivals[1][i].here = 0;
            take_in(p, 0, i);
            take_in(p, 1, i);
            if (program_seconds() > end)
                return 0;
        }
    for (i = 0; i < PARCELS; i++)
        if (p->parcels[i].busy && !is_done(p, &p->parcels[i].request))
            return 0;
    return 1;
}

/* Rank 0 gets size bytes of each rank. Returns whether they came. */
static int gather(const post *p, const void *own, size_t size, void *all)
{
    MPI_Request request;

    return !MPI_Igather(own, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD, &request) &&
           is_done(p, &request);
}

/* Rank 0 gets all bars, and draws them. Returns a status. */
static int gather_timeline(const post *p)
{
    bar *all = own_rank ? NULL : (bar *)calloc((size_t)p->ranks * BARS, sizeof *all);
    static int counts[MOST_RANKS];
    int status = PROGRAM_OK;

    if (!gather(p, &p->bar_count, sizeof p->bar_count, counts) || !gather(p, p->bars, sizeof p->bars, all))
        end_all(PROGRAM_FAILED);
    if (all)
        status = p->ranks > 1 && counts[1] ? save_timeline(p->o->timeline, all, counts, p->ranks)
                                           : program_failed("a timeline needs runs on two ranks or more", "");
    free(all);
    return status;
}

/* --- layers --------------------------------------------------------------------------------------------------------- */

/* Gigabytes a second that this machine reads: what a step is bound by. Takes some milliseconds. */
static double reading_speed(void)
{
    const size_t count = (size_t)4 << 20;
    uint64_t *words = (uint64_t *)malloc(count * sizeof *words), sum = 0;
    double best = 0;
    size_t i;
    int turn;

    for (i = 0; words && i < count; i++)
        words[i] = i;
    for (turn = 0; words && turn < 3; turn++) {
        const double start = program_seconds();
        double speed;

        for (i = 0; i < count; i++)
            sum += words[i];
        speed = 1e-9 * (double)(count * sizeof *words) / (program_seconds() - start);
        best = speed > best && sum ? speed : best;
    }
    free(words);
    return best;
}

/* Work in proportion to speeds: so many layers, at least one for each rank but the first and the one that drafts, and of
   the first rank the output, which is worth so many layers. */
static void deal(const double *speed, int ranks, int drafter, int all, double output, int *layers)
{
    double total = 0, before = 0;
    int i, given = 0, left = ranks - 1 - (drafter > 0);

    for (i = 0; i < ranks; i++)
        total += drafter && i == drafter ? 0 : speed[i];
    for (i = 0; i < ranks; i++) {
        int upto;

        if (drafter && i == drafter) {
            layers[i] = 0;
            continue;
        }
        left -= i > 0;

        before += speed[i];
        upto = (int)((all + output) * before / total - output + 0.5);
        upto = upto < given + (i > 0) ? given + (i > 0) : upto;
        upto = upto > all - left || !left ? all - left : upto;
        layers[i] = upto - given;
        given = upto;
    }
}

/* Layers as in "3,5,8": none for the rank that drafts, if there is one, and for no other but the first. Returns a
   status. */
static int read_split(const char *text, int ranks, int drafter, int *layers)
{
    const char *all = text;
    char *end;
    int i;

    for (i = 0; i < ranks; i++, text = end + 1) {
        layers[i] = (int)strtol(text, &end, 10);
        if (end == text || layers[i] < 0 || *end != (i < ranks - 1 ? ',' : 0))
            return program_misused("--split takes auto or a number for each rank, as in 6,8,8, not ", text);
        if (i && !layers[i] != (i == drafter))
            return program_misused(layers[i] ? "--split leaves the rank of --draft-rank 0 layers, unlike "
                                             : "--split leaves 0 layers to rank 0 and to --draft-rank alone, unlike ", all);
    }
    return PROGRAM_OK;
}

/* Layers of the model, and how many of them its output is worth, by multiply-adds. Returns a status. */
static int count_layers(const options *o, int *layers, double *output)
{
    specdec_config c = o->config;
    specdec_model_info info;
    specdec_model *model;
    size_t bytes;
    void *block;

    c.weights_in_place = 1; /* only to read the sizes */
    c.cluster = NULL;
    if (specdec_model_memory_needed(&c, &bytes, &failure))
        return program_failed("", failure.text);
    block = malloc(bytes);
    if (!block || specdec_model_init(&model, &c, block, bytes, &failure) || specdec_get_model_info(model, &info))
        return program_failed("", block ? failure.text : "out of memory");
    *layers = info.layers;
    *output = (double)info.vocabulary / (2.0 * info.head_size * (info.heads + info.kv_heads) + 3.0 * info.feed_forward);
    specdec_model_deinit(model);
    free(block);
    return PROGRAM_OK;
}

/* Bytes that this rank may use: those that nothing else needs now, or what --memory says. */
static double free_memory(const options *o)
{
    return o->memory > 0 ? 1e6 * (double)o->memory : (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* Deals the layers out by speed, and where a rank's share needs more memory than that has, again with so much less of it.
   Every rank comes to the same numbers. */
static int deal_fitting(const options *o, double *speed, int ranks, int all, double output, int *layers)
{
    double own[2], needs[MOST_RANKS][2];
    size_t bytes;
    int turn, i, over = -1;

    own[1] = free_memory(o);
    for (turn = 0; turn < DEALS; turn++) {
        deal(speed, ranks, o->drafter, all, output, layers);
        if (specdec_memory_needed(&o->config, &bytes, &failure))
            return program_failed("", failure.text);
        own[0] = (double)bytes;
        MPI_Allgather(own, 2, MPI_DOUBLE, needs, 2, MPI_DOUBLE, MPI_COMM_WORLD);
        for (i = ranks - 1, over = -1; i >= 0; i--)
            if (needs[i][0] > needs[i][1]) {
                speed[i] *= 0.9 * needs[i][1] / needs[i][0];
                over = i;
            }
        if (over < 0)
            return PROGRAM_OK;
    }
    snprintf(failure.text, sizeof failure.text, "no split was found that fits: rank %d needs %.1f MB for %d layers and has %.1f",
             over, 1e-6 * needs[over][0], layers[over], 1e-6 * needs[over][1]);
    return program_failed("", failure.text);
}

/* How many layers each rank has. Where there is a draft model, rank 0 has half its share: it drafts meanwhile. */
static int split(const options *o, int ranks, int *layers)
{
    double own = reading_speed(), speed[MOST_RANKS], output = 0;
    int all = 0, status = PROGRAM_OK;

    if (o->drafter >= ranks)
        return program_misused("--draft-rank names one of the ranks behind 0 that mpirun starts", "");
    if (strcmp(o->split, "auto") != 0)
        return read_split(o->split, ranks, o->drafter, layers);
    if (!o->drafter || own_rank != o->drafter) /* which may not have that file */
        status = count_layers(o, &all, &output);
    own *= own_rank == 0 && o->config.draft.path && !o->drafter ? 0.5 : 1;
    if (status)
        return status;
    MPI_Allgather(&own, 1, MPI_DOUBLE, speed, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Bcast(&all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(&output, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (ranks > 1 && all < ranks - 1 - (o->drafter > 0))
        return program_failed("more ranks than layers", "");
    return deal_fitting(o, speed, ranks, all, output, layers);
}

/* --- the work ------------------------------------------------------------------------------------------------------- */

/* Instead of computing for long, a layer of a small model sleeps. What the one before it did compute counts. */
static void pretend(int nodes)
{
    const double now = program_seconds(), seconds = pretend_seconds(&pretended, nodes);
    const double until = (pretended_until > 0 ? pretended_until : now) + seconds;

    if (until > now)
        usleep((unsigned)(1e6 * (until - now)));
    pretended_until = until > now ? until : now;
}

/* specdec_cluster.layer */
static void begin_layer(void *user_data, int nodes)
{
    post *p = (post *)user_data;

    note_layer(p, nodes);
    if (p->o->pretend)
        pretend(nodes);
}

/* What each rank will need, told before anything is made. */
static void tell_memory(const int *layers, int ranks, size_t bytes)
{
    double own = (double)bytes, all[MOST_RANKS];
    int i;

    MPI_Gather(&own, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (i = 0; own_rank == 0 && i < ranks; i++)
        fprintf(stderr, i && !layers[i] ? "rank %d: %d layers, the draft model, %.1f MB\n" : "rank %d: %d layers, %.1f MB\n", i,
                layers[i], 1e-6 * all[i]);
}

/* Rank 0: streams the text. */
static int write_text(specdec *engine, const options *o)
{
    specdec_text piece;
    specdec_result result = specdec_prompt(engine, o->prompt, SPECDEC_WHOLE_STRING);

    if (!result)
        fputs(o->prompt, stdout);
    while (!result) {
        result = specdec_next(engine, &piece);
        if (result <= SPECDEC_DONE)
            fwrite(piece.bytes, 1, piece.length, stdout);
        fflush(stdout);
    }
    return result == SPECDEC_DONE ? program_flush() : program_engine_failed(engine, result);
}

/* Rank 0 writes what all have done. */
static int write_stats(specdec_stats s, const char *path, double (*figures)[FIGURES], int ranks, int drafter)
{
    static program_output out;
    json_writer j;
    int i;

    if (program_output_open(&out, path, NULL))
        return PROGRAM_FAILED;
    json_begin(&j, out.file);
    json_object(&j, NULL);
    json_integer(&j, "tokens", s.tokens);
    json_number(&j, "seconds", "%.6f", s.seconds);
    json_number(&j, "tok_s", "%.3f", s.seconds > 0 ? (double)s.tokens / s.seconds : 0);
    json_number(&j, "ttft_ms", "%.3f", 1000 * s.first_token_seconds);
    json_integer(&j, "steps", s.steps);
    json_number(&j, "tokens_per_step", "%.4f", s.steps ? (double)s.tokens / (double)s.steps : 0);
    json_integer(&j, "drafted", s.drafted);
    json_integer(&j, "accepted", s.accepted);
    json_integer(&j, "steps_beside", s.steps_beside);
    if (drafter && s.tokens) {
        json_number(&j, "to_draft_bytes_per_token", "%.1f", figures[0][GUIDED] / (double)s.tokens);
        json_number(&j, "from_draft_bytes_per_token", "%.1f", figures[drafter][SENT] / (double)s.tokens);
        json_number(&j, "to_draft_bytes_per_step", "%.1f", figures[0][GUIDED] / (double)s.steps);
        json_number(&j, "from_draft_bytes_per_step", "%.1f", figures[drafter][SENT] / (double)s.steps);
    }
    json_array(&j, "ranks");
    for (i = 0; i < ranks; i++) {
        json_object(&j, NULL);
        json_integer(&j, "layers", (int64_t)figures[i][LAYERS]);
        json_integer(&j, "memory_bytes", (int64_t)figures[i][MEMORY]);
        json_number(&j, "busy_s", "%.6f", figures[i][BUSY]);
        json_number(&j, "waiting_s", "%.6f", figures[i][WAITING]);
        json_integer(&j, "sent_bytes", (int64_t)figures[i][SENT]);
        json_integer(&j, "runs", (int64_t)figures[i][RUNS]);
        json_integer(&j, "nodes", (int64_t)figures[i][NODES]);
        json_integer(&j, "cancelled_nodes", (int64_t)figures[i][CANCELLED]);
        json_close(&j);
    }
    json_close(&j);
    json_close(&j);
    fputs("\n", out.file);
    return program_output_end(&out);
}

/* hooks.log of rank 0: the text goes on without a rank that drafts, but MPI does not end without it. */
static void note_line(void *user_data, const char *line)
{
    post *p = (post *)user_data;

    if (!strstr(line, "drafts no more"))
        return;
    p->lost = 1;
    fprintf(stderr, "cluster: %s; the text goes on\n", line);
}

/* Makes a rank's engine, and uses or serves it. Returns a status. */
static int run(const options *o, post *p, const int *layers, double *figures, specdec **made)
{
    specdec *engine;
    specdec_info info;
    specdec_stats *s = &p->stats;
    size_t bytes;
    void *memory;
    double start;
    int status;

    if (specdec_memory_needed(&o->config, &bytes, &failure))
        return program_failed("", failure.text);
    tell_memory(layers, p->ranks, bytes);
    memory = program_memory(bytes, PROGRAM_LESS);
    if (o->timeline)
        MPI_Barrier(MPI_COMM_WORLD);
    p->zero = p->since = program_seconds();
    if (!memory || specdec_init(&engine, &o->config, memory, bytes, &failure))
        return program_failed("", memory ? failure.text : "");
    *made = engine;
    specdec_get_info(engine, &info);
    p->row = 4 * (size_t)info.embedding;
    start = p->since = program_seconds();
    p->waiting = p->sent = p->guided = 0;
    p->bar_count = 0;
    memset(p->bars, 0, sizeof p->bars);
    status = own_rank == 0 ? write_text(engine, o)
             : specdec_serve(engine) == SPECDEC_DONE ? PROGRAM_OK : program_failed("", specdec_error_text(engine));
    specdec_get_stats(engine, s);
    figures[WAITING] = p->waiting;
    figures[BUSY] = own_rank ? s->seconds : program_seconds() - start - p->waiting;
    figures[SENT] = p->sent;
    figures[GUIDED] = p->guided;
    figures[RUNS] = (double)s->steps;
    figures[NODES] = (double)s->drafted;
    figures[CANCELLED] = (double)(s->drafted - s->accepted);
    figures[MEMORY] = (double)bytes;
    figures[LAYERS] = layers[own_rank];
    return status;
}

/* One of o->links, if it is given. Returns 0 when that is not what it says. */
static int read_link(options *o, int which, const char *text)
{
    return !text || pretend_link(text, &o->links[which].seconds, &o->links[which].bits);
}

static int read_options(options *o, int argc, char **argv)
{
    specdec_config *c = &o->config;
    specdec_sampling *s = &c->settings.sampling;
    const program_flag flags[] = {
        {"-m", PROGRAM_TEXT, &c->target.path, "FILE", "the model: a GGUF file, the same on all machines", 0, 0},
        {"-md", PROGRAM_TEXT, &c->draft.path, "FILE", "a small draft model with the same vocabulary, for rank 0", 0, 0},
        {"-p", PROGRAM_TEXT, &o->prompt, "TEXT", "the prompt", 0, 0},
        {"-n", PROGRAM_INTEGER, &o->limit, "N", "tokens to write, at most; -1: until the text ends or the context is full (-1)", -1, 1 << 24},
        {"-t", PROGRAM_INTEGER, &c->threads, "N", "threads of a rank; 0: all processors, fewer for small models (0)", 0, SPECDEC_MAX_THREADS},
        {"-c", PROGRAM_INTEGER, &c->context, "N", "tokens of context; 0: the model's own, at most 4096 (0)", 0, 1 << 24},
        {"-b", PROGRAM_INTEGER, &c->batch, "N", "tokens of the prompt that are read at once; 0: 64 (0)", 0, 512},
        {"--temp", PROGRAM_REAL, &s->temperature, "F", "temperature; 0: greedy, always the most probable token (0)", 0, 1e6},
        {"--top-k", PROGRAM_INTEGER, &s->top_k, "N", "sample among the N best tokens; 0: off (0)", 0, 1 << 24},
        {"--top-p", PROGRAM_REAL, &s->top_p, "F", "sample among the best that hold this probability; 0 or 1: off (1)", 0, 1},
        {"--min-p", PROGRAM_REAL, &s->min_p, "F", "not below this share of the best one's probability; 0: off (0)", 0, 1},
        {"--repeat-penalty", PROGRAM_REAL, &s->repetition_penalty, "F", "against repetition; 0 or 1: off (1)", 0, 1e6},
        {"--seed", PROGRAM_SEED, &s->seed, "S", "the text is a function of prompt, models, flags and seed (0)", 0, 0},
        {"--spec", PROGRAM_CHOICE, &o->spec, PROGRAM_DRAFTING, "where draft tokens come from: whatever pays; nowhere; -md; -mh; MTP layers of the model;\n"
         "a part of a long text, read by the model itself; repetition (auto)", 0, 0},
        {"--policy", PROGRAM_CHOICE, &o->policy, "dynamic|static",
         "dynamic: with -md, runs follow each other through the ranks before they are verified;\n"
         "static: with --spec draft, one run at a time (dynamic)", 0, 0},
        {"--kv", PROGRAM_NAME, &c->kv, "f16|f32|q8_0", "how keys and values are kept (f16)", 0, 0},
        {"--in-place", PROGRAM_SWITCH, &c->weights_in_place, NULL, "weights stay in the file: half the memory, slower", 0, 0},
        {"--draft-rank", PROGRAM_INTEGER, &o->drafter, "N",
         "this rank has -md alone, and no layers: it drafts while the others verify; 0: rank 0 drafts (0)", 0, MOST_RANKS - 1},
        {"--split", PROGRAM_TEXT, &o->split, "auto|A,B,...", "layers of each rank; auto: by how fast each reads memory, as many as fit (auto)", 0, 0},
        {"--memory", PROGRAM_REAL, &o->memory, "MB", "with --split auto: what this rank may use; 0: what is free (0)", 0, 1e9},
        {"--silence", PROGRAM_REAL, &o->silence, "S", "a rank that was not heard of for so many seconds is lost, and all when nothing went on for 8 times as long; 0: none (4)", 0, 1e6},
        {"--link", PROGRAM_TEXT, &o->link, "MS[,MBIT]", "on one machine: messages take so long, and so much goes through a link in a second", 0, 0},
        {"--draft-link", PROGRAM_TEXT, &o->draft_link, "MS[,MBIT]", "the same for the link of --draft-rank alone", 0, 0},
        {"--pretend", PROGRAM_TEXT, &o->pretend, "MS[,MS2,MS4..]",
         "each layer sleeps so long, and so long for 2, 4 .. nodes: a small model behaves like a large one", 0, 0},
        {"--stats", PROGRAM_TEXT, &o->stats, "FILE", "times and counts as JSON", 0, 0},
        {"--timeline", PROGRAM_TEXT, &o->timeline, "FILE", "a picture of who ran what when, as SVG", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    o->limit = -1;
    o->split = "auto";
    o->silence = 4;
    status = program_read(flags, argc, argv, "cluster", "-m MODEL.gguf [-md DRAFT.gguf] -p TEXT [flags]",
                          "To be started by mpirun, on as many machines as shall share the model.\n");
    if (status != PROGRAM_GO_ON)
        return status;
    if (!c->target.path || !o->prompt)
        return program_misused("-m and -p are needed", "");
    if (o->drafter && !c->draft.path)
        return program_misused("--draft-rank needs -md", "");
    if (o->draft_link && !o->drafter)
        return program_misused("--draft-link needs --draft-rank", "");
    if (!read_link(o, 0, o->link) || !read_link(o, 1, o->draft_link ? o->draft_link : o->link))
        return program_misused("--link and --draft-link take milliseconds and megabits, as in 5,100", "");
    c->drafting = (specdec_drafting)o->spec;
    c->policy = o->policy ? SPECDEC_POLICY_STATIC : SPECDEC_POLICY_DYNAMIC;
    c->settings.max_tokens = o->limit > 0 ? o->limit : 0;
    if (o->pretend && !pretend_read(&pretended, o->pretend))
        return program_misused("--pretend takes milliseconds, as in 60 or 60,61,65, not ", o->pretend);
    return PROGRAM_GO_ON;
}

/* All ranks read their flags. They end together if one cannot go on, or if what they would do together, one after the other,
   is not the same. Rank 0 speaks for those that were told as it was. Returns a status. */
static int read_together(options *o, int argc, char **argv, int ranks)
{
    enum { READ, DRAFTER, AUTO, TIMELINE, ALIKE };
    static const char *const names[ALIKE] = {"", "--draft-rank", "--split", "--timeline"};
    int own[ALIKE], all[MOST_RANKS][ALIKE], i, k, status = own_rank ? PROGRAM_GO_ON : read_options(o, argc, argv);

    if (!own_rank && ranks > MOST_RANKS)
        status = program_misused("at most 64 ranks", "");
    MPI_Bcast(&status, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (status != PROGRAM_GO_ON)
        return status;
    own[READ] = own_rank ? read_options(o, argc, argv) : status;
    own[DRAFTER] = o->drafter;
    own[AUTO] = !strcmp(o->split, "auto");
    own[TIMELINE] = o->timeline != NULL;
    MPI_Allgather(own, ALIKE, MPI_INT, all, ALIKE, MPI_INT, MPI_COMM_WORLD);
    for (i = 0; i < ranks; i++)
        if (all[i][READ] != PROGRAM_GO_ON)
            return all[i][READ] == PROGRAM_OK ? PROGRAM_USAGE : all[i][READ];
    for (i = 1; i < ranks; i++)
        for (k = DRAFTER; k < ALIKE; k++)
            if (all[i][k] != all[0][k])
                return own_rank ? PROGRAM_USAGE : program_misused("all ranks take the same ", names[k]);
    return PROGRAM_GO_ON;
}

int main(int argc, char **argv)
{
    static double figures[MOST_RANKS][FIGURES], own[FIGURES];
    static post p;
    static options o;
    static int layers[MOST_RANKS];
    specdec *engine = NULL;
    specdec_cluster cluster;
    int status;

    memset(&cluster, 0, sizeof cluster);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    status = read_together(&o, argc, argv, p.ranks);
    if (status != PROGRAM_GO_ON)
        return MPI_Finalize(), status;
    p.o = &o;
    cluster.rank = own_rank;
    cluster.ranks = p.ranks;
    cluster.layers = layers;
    cluster.silence = (double)o.silence;
    cluster.user_data = &p;
    cluster.send = post_send;
    cluster.receive = post_receive;
    cluster.wait = post_wait;
    cluster.layer = (o.pretend || o.timeline) && !(o.drafter && own_rank == o.drafter) ? begin_layer : NULL;
    o.config.cluster = &cluster;
    o.config.hooks.log = own_rank ? NULL : note_line;
    o.config.hooks.user_data = &p;
    status = split(&o, p.ranks, layers);
    if (!status)
        status = run(&o, &p, layers, own, &engine);
    status = p.lost ? PROGRAM_FAILED : status;
    if (!status)
        specdec_deinit(engine);
    if (status || !empty_post(&p) || !gather(&p, own, sizeof own, figures)) /* others may hang, or be gone */
        end_all(status ? status : PROGRAM_FAILED);
    if (own_rank == 0 && o.stats)
        status = write_stats(p.stats, o.stats, figures, p.ranks, o.drafter);
    if (o.timeline && gather_timeline(&p))
        status = PROGRAM_FAILED;
    MPI_Finalize();
    return own_rank ? status : program_finish(status);
}
