/* specdec-sim - what drafting while verifying brings on machines one does not own. What a target wrote and a draft
   model offered is recorded once (--record); then it is replayed through the real scheduler, on lanes whose steps take
   what a table says, by a clock that is made here. It includes the header's implementation, as tests do: the scheduler
   is not public.
   A trace is a text: a line for each token, "rank share share ...": which of the draft's offers came (0: none of them),
   and the shares of the 8 offers; an empty line ends an answer. */
#define _DEFAULT_SOURCE 1 /* POSIX, also under -std=c99 */
#include <time.h>
static int (*const real_clock)(clockid_t, struct timespec *) = clock_gettime;
static int made_clock(clockid_t kind, struct timespec *now);
#define clock_gettime(kind, now) made_clock(kind, now)
#define SPECDEC__PIPE 1
#define SPECDEC_IMPLEMENTATION
#include "specdec.h"
#include "tools/program.h"
#include "tools/json.h"
#include "tools/lanes.h"
#include "tools/pretend.h"
#include "tools/lab/tiny_model.h"

#include <math.h>

enum { OFFERS = SPECDEC__GROWN_CHILDREN, FIRST = 5, PERIOD = 200, WRONG = 220, NOTHING = 240, VOCABULARY = 301,
       MODES = 5 };
enum { STAGES = 16, MOST_NODES = 600 };

enum { WIDTHS = 7 }; /* steps of 1, 2, 4 .. 64 nodes */

/* What steps took where a trace was recorded: lines of it that begin with #. [1]: without the lane's thread. */
static struct measured {
    int threads;
    double target[2][WIDTHS]; /* 0: not known */
    double draft, beside;     /* a level, on all threads and on one */
} measured;

/* The next 32 bits of a stream of random numbers (splitmix64: Steele, Lea and Flood 2014). */
static uint32_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}

static int is_time(double seconds)
{
    return seconds > 0 && seconds < 1e3;
}

/* A line of a trace that begins with #: "# times threads draft beside", "# step 0 width seconds", "# step 1 width seconds"
   or a remark. Returns 0 when it has other numbers than a recorded one. */
static int read_measured(const char *line)
{
    double a, b, c;
    int width = 0;

    if (sscanf(line, "# times %lf %lf %lf", &a, &b, &c) == 3) {
        measured.threads = a >= 1 && a <= SPECDEC_MAX_THREADS ? (int)a : 0;
        measured.draft = b;
        measured.beside = c;
        return measured.threads && is_time(b) && is_time(c);
    }
    if (sscanf(line, "# step %lf %lf %lf", &a, &b, &c) != 3)
        return 1;
    if (!(b >= 1 && b <= 64))
        return 0;
    while (1 << width < (int)b)
        width++;
    measured.target[a > 0][width] = c;
    return is_time(c);
}

/* --- traces ------------------------------------------------------------------------------------------------------- */

typedef struct place {
    int rank;            /* which of the offers the target chose; 0: none */
    float share[OFFERS]; /* falling */
} place;

typedef struct trace {
    place *at;           /* (count) */
    int count, room;
    int *ends;           /* (answers) where each of them ends */
    int answers, ends_room;
} trace;

static place *trace_more(trace *t)
{
    if (t->count == t->room) {
        t->room = 2 * t->room + 1024;
        t->at = (place *)realloc(t->at, (size_t)t->room * sizeof *t->at);
        if (!t->at)
            exit(program_failed("out of memory", ""));
    }
    memset(&t->at[t->count], 0, sizeof *t->at);
    return &t->at[t->count++];
}

static void trace_end(trace *t)
{
    if (t->answers == t->ends_room) {
        t->ends_room = 2 * t->ends_room + 64;
        t->ends = (int *)realloc(t->ends, (size_t)t->ends_room * sizeof *t->ends);
        if (!t->ends)
            exit(program_failed("out of memory", ""));
    }
    if (t->count > (t->answers ? t->ends[t->answers - 1] : 0))
        t->ends[t->answers++] = t->count;
}

/* Reads the lines of a file. Returns 0 when one of them is wrong. */
static int trace_parse(trace *t, char *text)
{
    char *line = text, *end;
    int i;

    while (*line) {
        char *next = line + strcspn(line, "\n");
        const int last = !*next;

        *next = 0;
        if (*line == '#') {
            if (!read_measured(line))
                return 0;
        } else if (!*line || *line == '\r') {
            trace_end(t);
        } else {
            place *p = trace_more(t);

            p->rank = (int)strtol(line, &end, 10);
            if (end == line || p->rank < 0 || p->rank > OFFERS)
                return 0;
            for (i = 0, line = end; i < OFFERS && *line; i++, line = end) {
                p->share[i] = strtof(line, &end);
                if (end == line || !(p->share[i] >= 0 && p->share[i] <= 1) || (i && p->share[i] > p->share[i - 1]))
                    return 0;
            }
        }
        if (last)
            break;
        line = next + 1;
    }
    trace_end(t);
    return t->answers > 0;
}

/* A made trace: the first offer comes with the probability `aligned` on average, the second with half of what is left,
   and so on; what the draft thinks of them is what they are. */
static void trace_make(trace *t, double aligned, uint64_t seed, int tokens)
{
    uint64_t random = 1 + seed;
    int i, k;

    for (i = 0; i < tokens; i++) {
        place *p = trace_more(t);
        const double u = (double)(next_random(&random) % 10007) / 10007, first = pow(u, 1 / aligned - 1);
        double draw = (double)(next_random(&random) % 10007) / 10007, left = 1 - first;

        for (k = 0; k < OFFERS; k++) {
            p->share[k] = (float)(k ? left / 2 < p->share[k - 1] ? left / 2 : (double)p->share[k - 1] : first);
            left -= k ? (double)p->share[k] : 0;
            if (!p->rank && draw < (double)p->share[k])
                p->rank = k + 1;
            draw -= (double)p->share[k];
        }
        if (i % 256 == 255)
            trace_end(t);
    }
    trace_end(t);
}

/* --- machines ----------------------------------------------------------------------------------------------------- */

/* A table of what a step costs. Cycles: of a block of 512 weights in Q4_0 for n columns, as tools/lab/count-arm counts;
   bandwidths: as published measurements of streaming reads have it. */
typedef struct machine_table {
    const char *name;
    int cores;
    double hertz, bandwidth, core_bandwidth; /* a second; bytes a second of all cores, of one */
    double cycles[5];                        /* n = 1, 2, 4, 8, 16 */
    const char *source;
    int stages;                              /* machines that share the layers of the target; 0: one has them all */
    double latency, link;                    /* between them: seconds a message, bytes a second */
    double target_mb, draft_mb, node_bytes;  /* of what is simulated unless said otherwise; sent for a node */
} machine_table;

static const machine_table machines[] = {
    {"pi5", 4, 2.4e9, 10e9, 7e9, {64, 91, 137, 266, 471},
     "Raspberry Pi 5: 4 Cortex-A76 at 2.4 GHz (product brief); about 10 GB/s read by two cores or more; cycles "
     "counted", 0, 0, 0, 606, 16, 0},
    {"pi4", 4, 1.8e9, 4e9, 3e9, {170, 235, 420, 800, 1560},
     "Raspberry Pi 4: 4 Cortex-A72 at 1.8 GHz (product brief); about 4 GB/s; cycles: those that the A72 may take", 0, 0,
     0, 606, 16, 0},
    {"phone", 4, 2.8e9, 25e9, 14e9, {64, 91, 137, 266, 471},
     "a phone: 4 cores as an A76 at 2.8 GHz, LPDDR5 of which about 25 GB/s are read", 0, 0, 0, 606, 16, 0},
    {"8pi5", 4, 2.4e9, 10e9, 7e9, {64, 91, 137, 266, 471},
     "Raspberry Pi 5 as stages, and one that drafts and samples: each as pi5; gigabit Ethernet (product brief), of "
     "which 941 Mbit/s are data of TCP in frames of 1,500 bytes, and .2 ms a message, a guess; a target of 70 billion "
     "weights in Q4_0, rows of 8,192 floats between stages, and a draft of 1.1 billion",
     8, 0.2e-3, 941e6 / 8, 38900, 606, 32768},
};
enum { MACHINES = (int)(sizeof machines / sizeof *machines) };

static struct {
    machine_table table;
    int cores, here;                  /* here: what was measured counts, not the table */
    int stages;                       /* of the target; 0: it is not divided */
    int layers[STAGES];               /* of each stage; 0: each is a like part of target_bytes */
    pretend_table layer;              /* what they take */
    double level;                     /* seconds of a level of the draft; 0: by draft_bytes */
    double target_bytes, draft_bytes; /* of weights a step */
    double noise;                     /* steps take so much longer on average, by chance */
    uint64_t seed;
} simulated;

/* The measured seconds of a step of n nodes. */
static double measured_seconds(const double *table, int n)
{
    int i = 0;

    while (i < WIDTHS - 2 && n >= 2 << i && table[i + 2] > 0)
        i++;
    return table[i] + (table[i + 1] - table[i]) * (n - (1 << i)) / (1 << i);
}

/* Seconds of n columns of so many bytes of weights on some cores; share: of the bandwidth. Whichever is longer: the
   memory or the cores. */
static double step_seconds(double bytes, int n, int cores, double share)
{
    const double *cycles = simulated.table.cycles, weights = bytes / 0.5625, blocks = weights / 512;
    double memory = simulated.table.bandwidth * share, own = simulated.table.core_bandwidth * cores;
    double each = cycles[4] * n / 16;
    int i;

    for (i = 0; i < 4; i++)
        if (n >= 1 << i && n < 2 << i)
            each = cycles[i] + (cycles[i + 1] - cycles[i]) * (n - (1 << i)) / (1 << i);
    each *= blocks / (cores * simulated.table.hertz);
    memory = bytes / (own < memory ? own : memory);
    return each > memory ? each : memory;
}

/* --- the clock, the lanes ----------------------------------------------------------------------------------------- */

typedef struct event {
    int lane, nodes, kept; /* lane: the target, or its stages, then the draft; kept: 0: cancelled */
    double from, to;
} event;

static struct {
    int made;              /* 0: the real clock */
    int in_lane;           /* the lane's job runs: its clock is shown */
    double now, lane_now, lane_end; /* seconds; a job may begin runs until the last */
    int ran;               /* the job was run */
    event events[4096];
    int count;
    const trace *replayed;
    int from, base;        /* the answer's first place, and the text's token that it is */
    double verifying, lane; /* seconds of the target, of the lane */
    double busy;           /* the share of the last step of the target during which the lane ran */
    double target_from, lane_before; /* when that step began, and world.lane then */
    int64_t runs, cancelled;
} world;

static int made_clock(clockid_t kind, struct timespec *now)
{
    const double seconds = world.in_lane ? world.lane_now : world.now;

    if (!world.made)
        return real_clock(kind, now);
    now->tv_sec = (time_t)seconds;
    now->tv_nsec = (long)(1e9 * (seconds - floor(seconds)));
    return 0;
}

/* A number of the exponential distribution of mean 1, drawn by what it is for. */
static double exponential(uint64_t what)
{
    uint64_t random = (simulated.seed << 40) + what;

    return -log((1 + (double)(next_random(&random) % 10007)) / 10008);
}

/* What something takes from a time on, on a machine that does other things, too: all is slower for a while, and each
   thing a bit. */
static double noisy(double seconds, double from)
{
    if (!(simulated.noise > 0))
        return seconds;
    return seconds * (1 + simulated.noise * exponential((uint64_t)(2 * from) * 2) +
                      simulated.noise / 4 * exponential((uint64_t)(1e7 * from) * 2 + 1));
}

static void note(int lane, int nodes, double from, double to)
{
    event *e = &world.events[world.count];

    if (world.count == (int)(sizeof world.events / sizeof *world.events))
        return;
    e->lane = lane;
    e->nodes = nodes;
    e->kept = 1;
    e->from = from;
    e->to = to;
    world.count++;
}

static int draft_lane(void) { return simulated.stages ? simulated.stages : 1; }

/* The lane's job is run when it is looked at: its runs begin until then. */
static void lane_work(specdec__lane *lane, double end)
{
    if (world.ran)
        return;
    world.ran = 1;
    world.in_lane = 1;
    world.lane_end = end;
    lane->job(lane->argument);
    world.in_lane = 0;
}

static void lane_submit(specdec__lane *lane)
{
    (void)lane;
    world.lane_now = world.now;
    world.ran = 0;
}

static int lane_goes_on(specdec__lane *lane)
{
    (void)lane;
    return world.lane_now < world.lane_end;
}

static void lane_stop(specdec__lane *lane) { lane_work(lane, world.now); }

static int lane_runs(specdec__lane *lane)
{
    lane_work(lane, INFINITY);
    return world.lane_now > world.now;
}

/* A run that was cancelled takes no more time: a barrier is a few microseconds. */
static void lane_wait(specdec__lane *lane)
{
    const double target = world.now - world.target_from, ran = world.lane - world.lane_before;

    lane_work(lane, world.now);
    world.busy = !(target > 0) || ran > target ? 1 : ran / target;
    if (world.lane_now > world.now && lane->cancel) {
        world.cancelled++;
        if (world.count && world.events[world.count - 1].lane == 1) {
            world.events[world.count - 1].to = world.now;
            world.events[world.count - 1].kept = 0;
        }
    } else if (world.lane_now > world.now) {
        world.now = world.lane_now;
    }
}

static const specdec__lane_kind virtual_lane = {lane_submit, lane_goes_on, lane_stop, lane_runs, lane_wait};

/* The token that the target writes as number `at` of the text; -1: behind the trace. */
static int token_at(int at) { return FIRST + at % PERIOD; }

/* What the draft offers behind token number `at`. */
static const place *offers_behind(int at)
{
    const int i = world.from + at + 1 - world.base;

    return &world.replayed->at[i < world.replayed->count ? i : world.replayed->count - 1];
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

/* Seconds that a stage takes for a run of n nodes. */
static double stage_seconds(int stage, int n)
{
    return simulated.layers[stage] ? simulated.layers[stage] * pretend_seconds(&simulated.layer, n)
                                   : step_seconds(simulated.target_bytes / simulated.stages, n, simulated.cores, 1);
}

/* And the slowest one. */
static double longest_seconds(int n)
{
    double longest = 0;
    int i;

    for (i = 0; i < simulated.stages; i++)
        longest = fmax(longest, stage_seconds(i, n));
    return longest;
}

static double link_seconds(int n)
{
    return simulated.table.latency + n * simulated.table.node_bytes / simulated.table.link;
}

/* A run on its way through the stages. */
typedef struct passing {
    int n;
    int right[SPECDEC__PIPE_NODES], depth[SPECDEC__PIPE_NODES]; /* whether the target goes there; place in the text */
    double sent, cancelled;                                        /* cancelled: when it was cancelled; INFINITY: not */
    double begun[STAGES], done[STAGES], back;
} passing;

/* The target's lane: its stages, and what they know. What is to come is worked out whenever something changes. */
static struct {
    specdec__pipe pipe;
    specdec *text;
    int cancels;                  /* 0: runs that nobody wants are made to their end */
    passing runs[SPECDEC__PIPE_RUNS];
    int count;
    double taken[STAGES];         /* when stages were done with the last run that was taken */
    int right[MOST_NODES], depth[MOST_NODES]; /* of nodes, by their numbers */
} stages;

/* When runs pass which stage. A stage that hears that a run is cancelled ends it; where such a run comes later it takes
   no time. */
static void stages_work_out(void)
{
    double ready[STAGES];
    int i, s;

    memcpy(ready, stages.taken, sizeof ready);
    for (i = 0; i < stages.count; i++) {
        passing *r = &stages.runs[i];
        const double heard = stages.cancels ? r->cancelled + simulated.table.latency : INFINITY;
        double at = r->sent + link_seconds(r->n);

        for (s = 0; s < simulated.stages; s++) {
            r->begun[s] = at > ready[s] ? at : ready[s];
            r->done[s] = r->begun[s] + stage_seconds(s, r->n);
            if (heard < r->done[s])
                r->done[s] = heard > r->begun[s] ? heard : r->begun[s];
            ready[s] = r->done[s];
            at = r->done[s] + link_seconds(heard > r->done[s] ? r->n : 0);
        }
        r->back = at;
    }
}

static void stages_submit(specdec__pipe *pipe, const specdec__order *order)
{
    passing *r = &stages.runs[stages.count];
    int i;

    for (i = 0; order->kind == SPECDEC__ORDER_KEEP && i < order->first; i++) {
        const int now = specdec__pipe_new_node_number(order, i);

        if (now >= 0) {
            stages.right[now] = stages.right[i];
            stages.depth[now] = stages.depth[i];
        }
    }
    if (order->kind != SPECDEC__ORDER_RUN)
        return;
    memset(r, 0, sizeof *r);
    r->n = order->n;
    r->sent = world.now;
    r->cancelled = INFINITY;
    for (i = 0; i < order->n; i++) {
        const int at = order->first + i, parent = order->parents[i];

        stages.depth[at] = r->depth[i] = parent < 0 ? pipe->sequence->count - 1 : stages.depth[parent] + 1;
        stages.right[at] = r->right[i] =
            parent < 0 || (stages.right[parent] && order->tokens[i] == token_at(r->depth[i]));
    }
    stages.count++;
    world.runs++;
    stages_work_out();
}

/* The clock goes on to the first thing that is waited for. */
static int stages_look(specdec__pipe *pipe, int until)
{
    const passing *last = &stages.runs[stages.count - 1];
    const double back = stages.count ? stages.runs[0].back : INFINITY;
    const double ready = stages.count ? last->done[0] : stages.taken[0];
    const double takes = ready - link_seconds(1);
    double end = INFINITY;

    pipe->free_at = takes;
    if (until & SPECDEC__PIPE_RETURNED)
        end = back;
    if (until & SPECDEC__PIPE_FREE && takes < end)
        end = takes;
    if (until && pipe->wake_at > 0 && pipe->wake_at < end)
        end = pipe->wake_at + 2e-9; /* the clock shows whole nanoseconds */
    if (end < INFINITY && end > world.now)
        world.now = end;
    return (back <= world.now ? SPECDEC__PIPE_RETURNED : 0) | (takes <= world.now ? SPECDEC__PIPE_FREE : 0) |
           SPECDEC__PIPE_IDLE;
}

static specdec_result stages_take(specdec__pipe *pipe, specdec_error *error)
{
    specdec__context *c = &pipe->sequence->engine->target;
    const passing r = stages.runs[0];
    int i;

    (void)error;
    for (i = 0; i < r.n; i++) {
        float *row = c->logits + (size_t)i * (size_t)c->output->rows;

        memset(row, 0, (size_t)c->output->rows * sizeof *row);
        row[r.right[i] ? token_at(r.depth[i] + 1) : NOTHING] = 10;
    }
    for (i = 0; i < simulated.stages; i++) {
        stages.taken[i] = r.done[i];
        world.verifying += (r.done[i] - r.begun[i]) / simulated.stages;
        if (r.done[i] > r.begun[i]) {
            note(i, r.n, r.begun[i], r.done[i]);
            if (r.cancelled < INFINITY && world.count)
                world.events[world.count - 1].kept = 0;
        }
    }
    pipe->stage_seconds = longest_seconds(r.n);
    memmove(&stages.runs[0], &stages.runs[1], (size_t)--stages.count * sizeof stages.runs[0]);
    return SPECDEC_OK;
}

static void stages_cancel(specdec__pipe *pipe, int at)
{
    (void)pipe;
    stages.runs[at].cancelled = world.now;
    world.cancelled++;
    stages_work_out();
}

/* The target of an engine gets these stages for a lane. */
static void stages_attach(specdec__engine *e, int cancels)
{
    static const specdec__pipe_kind kind = {stages_submit, stages_look, stages_take, stages_cancel};
    const int candidates = e->drafters[0].proposals[0].drafts.tree.capacity;

    memset(&stages, 0, sizeof stages);
    stages.cancels = cancels;
    stages.pipe.kind = &kind;
    stages.pipe.depth = specdec__min_int(simulated.stages + 1, SPECDEC__PIPE_RUNS); /* one more: on the links */
    stages.pipe.node = (int32_t *)malloc((size_t)candidates * sizeof *stages.pipe.node);
    if (!stages.pipe.node || e->target.max_nodes > MOST_NODES)
        exit(program_failed("out of memory", ""));
    e->pipe = &stages.pipe;
}

/* A step that passes all stages while nothing else does, from some time on. Returns when it is back. */
static double stages_step(int n, double from, int noted)
{
    int i;

    for (i = 0, from += link_seconds(n); i < simulated.stages; i++) {
        if (noted)
            note(i, n, from, from + stage_seconds(i, n));
        from += stage_seconds(i, n) + link_seconds(n);
    }
    return from;
}

/* The target's step: the clock moves on, and each row says what the trace has. */
static specdec_result virtual_verify(specdec__context *c, const specdec__batch *batch, specdec_error *error)
{
    const specdec *t = (const specdec *)(const void *)((const char *)c->views[0] - offsetof(specdec, view));
    const int beside = t->engine->async_drafting->active;
    const double share = beside ? 1 - world.busy * (simulated.cores - c->threads) / simulated.cores : 1;
    const double from = world.now;
    int right[SPECDEC__MAX_TREE_NODES + 1], depth[SPECDEC__MAX_TREE_NODES + 1], i;

    (void)error;
    world.busy = beside ? world.busy : 1; /* so it is thought to be in the first step beside */
    for (i = 0; i < batch->n; i++) {
        const int parent = batch->parents[i];
        float *row = c->logits + (size_t)i * (size_t)c->output->rows;

        depth[i] = parent < 0 ? t->count - 1 : depth[parent] + 1;
        right[i] = parent < 0 || (right[parent] && batch->tokens[i] == token_at(depth[i]));
        memset(row, 0, (size_t)c->output->rows * sizeof *row);
        row[right[i] ? token_at(depth[i] + 1) : NOTHING] = 10;
    }
    world.target_from = from;
    world.lane_before = world.lane;
    if (simulated.stages) {
        world.now = stages_step(batch->n, from, 1);
        world.verifying += (world.now - from) / simulated.stages;
        return SPECDEC_OK;
    }
    world.now += noisy(simulated.here ? measured_seconds(measured.target[c->threads < simulated.cores], batch->n)
                                      : step_seconds(simulated.target_bytes, batch->n, c->threads, share), from);
    world.verifying += world.now - from;
    note(0, batch->n, from, world.now);
    return SPECDEC_OK;
}

/* --- the draft model of a trace ----------------------------------------------------------------------------------- */

static int drafted; /* tokens of the text that it has read */

/* A forward of n nodes, by whoever calls. */
static void draft_takes(int n)
{
    double *clock = world.in_lane ? &world.lane_now : &world.now, from = *clock;
    const int cores = world.in_lane ? 1 : simulated.cores;

    *clock += noisy(simulated.level > 0 ? simulated.level
                    : simulated.here    ? world.in_lane ? measured.beside : measured.draft
                                        : step_seconds(simulated.draft_bytes, n, cores,
                                                       world.in_lane ? 1.0 / simulated.cores : 1), from);
    note(draft_lane(), n, from, *clock);
    world.runs += world.in_lane;
    world.lane += *clock - from;
}

/* Whether a candidate lies on the way that the target takes. */
static int candidate_right(const specdec__draft_request *request, const specdec__draft_tree *drafts, int at)
{
    for (; at > 0; at = drafts->tree.parents[at])
        if (drafts->tokens[at] != token_at(request->count - 1 + drafts->depth[at]))
            return 0;
    return 1;
}

static int offer(const specdec__draft_request *request, const specdec__draft_tree *drafts, int parent, int rank)
{
    const int at = request->count - 1 + drafts->depth[parent];

    return candidate_right(request, drafts, parent) && offers_behind(at)->rank == rank ? token_at(at + 1) : WRONG + rank;
}

static specdec_result trace_extend(specdec__drafter *d, const specdec__draft_request *request, specdec__draft_tree *drafts,
                                   const specdec__draft_frontier *frontier, specdec_error *error)
{
    const int32_t *chosen = frontier->chosen;
    int i, k;

    (void)d, (void)error;
    draft_takes(chosen[0] ? frontier->count : specdec__max_int(1, request->count - drafted));
    if (!chosen[0])
        drafted = request->count;
    for (i = 0; i < frontier->count; i++) {
        const int parent = chosen[i];
        const place *offers = offers_behind(request->count - 1 + drafts->depth[parent]);

        drafts->extended[parent] = 1;
        for (k = 0; k < OFFERS && drafts->tree.n < drafts->tree.capacity; k++) {
            const int at = drafts->tree.n++;

            specdec__tree_put_node(&drafts->tree, at, parent, k + 1);
            drafts->tokens[at] = offer(request, drafts, parent, k + 1);
            drafts->depth[at] = drafts->depth[parent] + 1;
            drafts->share[at] = offers->share[k];
            drafts->extended[at] = 0;
        }
    }
    drafts->extended_count += chosen[0] ? frontier->count : 0;
    return SPECDEC_OK;
}

static specdec_result trace_fill(specdec__drafter *d, const specdec__draft_request *request, specdec__draft_tree *drafts, specdec_error *error)
{
    int i, k, n;

    (void)d, (void)error;
    draft_takes(specdec__max_int(1, request->count - drafted));
    drafted = request->count;
    for (i = 1; i < drafts->tree.n; i = k) {
        for (k = i, n = 0; k < drafts->tree.n && drafts->depth[k] == drafts->depth[i]; k++) {
            drafts->tokens[k] = offer(request, drafts, drafts->tree.parents[k], drafts->tree.ranks[k]);
            n += specdec__tree_next_child(&drafts->tree, k, k + 1) < drafts->tree.n;
        }
        if (n)
            draft_takes(n);
    }
    return SPECDEC_OK;
}

static void trace_commit(specdec__drafter *d, int at, const int32_t *path, int count)
{
    int i;

    for (i = 0; i < count && d->proposals[at].drafts.extended[path[i]]; i++)
        drafted++;
}

static void trace_keep(specdec__drafter *d, int at, specdec__draft_tree *drafts, int root)
{
    int i;

    (void)d, (void)at;
    drafted += drafts->depth[root];
    specdec__draft_reroot_tree(drafts, root);
    for (drafts->extended_count = 0, i = 1; i < drafts->tree.n; i++)
        drafts->extended_count += drafts->extended[i];
}

static void trace_truncate(specdec__drafter *d, int at, const int32_t *text, int length)
{
    (void)d, (void)at, (void)text;
    drafted = drafted < length ? drafted : length;
}

static double trace_cost(const specdec__drafter *d, const specdec__model *target)
{
    (void)d, (void)target;
    return simulated.level > 0 && simulated.stages ? simulated.level / stages_step(1, 0, 0)
                                                   : simulated.draft_bytes / simulated.target_bytes;
}

static int trace_behind(const specdec__drafter *d, int at, int count)
{
    (void)d, (void)at;
    return count - drafted;
}

static specdec_result trace_read(specdec__drafter *d, const specdec__draft_request *request, int count, specdec_error *error)
{
    (void)d, (void)request, (void)error;
    draft_takes(specdec__max_int(1, count - drafted));
    drafted = count;
    return SPECDEC_OK;
}

static void trace_move(specdec__drafter *d, specdec__pool *pool, int threads) { (void)d, (void)pool, (void)threads; }

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* How the engine works: on one machine, and on stages. told: it need not find out what wider steps take; several: runs
   are on their way. */
static const struct {
    const char *name;
    int drafts, async, told, several, cancels;
} modes[2][MODES] = {{{"off", 0, 0, 0, 0, 0},
                      {"turns", 1, -1, 0, 0, 0},
                      {"ahead", 1, 1, 0, 0, 0},
                      {"auto", 1, 0, 0, 0, 0},
                      {NULL, 0, 0, 0, 0, 0}},
                     {{"off", 0, 0, 0, 0, 0},
                      {"turns", 1, -1, 0, 0, 0},
                      {"several", 1, 1, 0, 1, 1},
                      {"uncancelled", 1, 1, 0, 1, 0},
                      {"turns, told", 1, -1, 1, 0, 0}}};

static const char *mode_name(int mode) { return modes[simulated.stages > 0][mode].name; }

static int mode_count(void) { return simulated.stages ? MODES : MODES - 1; }

typedef struct outcome {
    double tokens, seconds, steps, verifying, lane;
    int64_t beside, runs, cancelled;
    event events[sizeof world.events / sizeof *world.events];
    int count;
} outcome;

/* An engine of models that are never asked, on lanes that take what the tables say. Returns its block. */
static void *virtual_engine(specdec **t, int mode, const specdec_bytes *model)
{
    specdec_config c;
    specdec_error error;
    specdec__drafter_kind *trace_kind;
    specdec__engine *e;
    void *block;
    size_t bytes;
    int i;

    memset(&c, 0, sizeof c);
    c.target.data = c.draft.data = model->data;
    c.target.size = c.draft.size = model->size;
    c.context = 4096;
    c.threads = simulated.cores;
    c.drafting = modes[simulated.stages > 0][mode].drafts ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_OFF;
    c.async = modes[simulated.stages > 0][mode].async;
    c.batch = simulated.stages ? 512 : 0; /* room for the nodes of several runs */
    world.made = 1;
    world.now = 0;
    snprintf(error.text, sizeof error.text, "out of memory");
    if (specdec_memory_needed(&c, &bytes, &error) || !(block = malloc(bytes)) ||
        specdec_init(t, &c, block, bytes, &error))
        exit(program_failed(error.text, ""));
    e = (*t)->engine;
    e->run_target = virtual_verify;
    e->async_drafting->lane.kind = &virtual_lane;
    if (mode) { /* the draft model alone: the traces' texts are made, n-grams would know them by heart */
        e->drafter_count = e->tune->count = 1;
        trace_kind = &e->drafters[0].kind; /* a draft model's, but for what it does */
        trace_kind->fill_tree = trace_fill;
        trace_kind->extend_tree = trace_extend;
        trace_kind->commit_path = trace_commit;
        trace_kind->keep_subtree = trace_keep;
        trace_kind->truncate_sequence = trace_truncate;
        trace_kind->level_cost = trace_cost;
        trace_kind->count_unprefilled = trace_behind;
        trace_kind->prefill = trace_read;
        trace_kind->set_threads = trace_move;
        e->tune->drafters[0].cost = trace_cost(NULL, NULL);
    }
    for (i = 1; modes[simulated.stages > 0][mode].told && i <= 32; i *= 2)
        specdec__tune_add_step_time(e->tune, i, stages_step(i, 0, 0), 0);
    if (modes[simulated.stages > 0][mode].several)
        stages_attach(e, modes[1][mode].cancels);
    return block;
}

/* Writes all answers of a trace. */
static void run_mode(outcome *o, const trace *t, int mode, const specdec_bytes *model)
{
    static const int32_t first = FIRST;
    specdec_settings settings;
    const int32_t *tokens;
    specdec_stats stats;
    specdec *text;
    void *block = virtual_engine(&text, mode, model);
    int i, count;

    memset(&settings, 0, sizeof settings);
    world.now = 1;
    world.replayed = t;
    world.verifying = world.lane = 0;
    world.runs = world.cancelled = 0;
    world.count = 0;
    o->tokens = 0;
    for (i = 0; i < t->answers; i++) {
        world.from = i ? t->ends[i - 1] : 0;
        world.base = 2;
        drafted = 0;
        settings.max_tokens = specdec__min_int(t->ends[i] - world.from + 1, 4000);
        if (specdec_rewind(text, 0) || specdec_set(text, &settings) || specdec_prompt_tokens(text, &first, 1))
            exit(program_failed(specdec_error_text(text), ""));
        while (specdec_step(text, &tokens, &count) == SPECDEC_OK)
            o->tokens += count;
    }
    specdec_get_stats(text, &stats);
    o->seconds = world.now - 1;
    o->steps = (double)stats.steps;
    o->beside = stats.steps_beside;
    o->verifying = world.verifying;
    o->lane = world.lane;
    o->runs = world.runs;
    o->cancelled = world.cancelled;
    o->count = world.count;
    memcpy(o->events, world.events, sizeof o->events);
    specdec_deinit(text);
    free(block);
    free(stages.pipe.node);
    stages.pipe.node = NULL;
    world.made = 0;
}

/* --- what is shown ------------------------------------------------------------------------------------------------ */

static void show_table(const outcome *o)
{
    int i;

    printf("| | tok/s | over off | tokens a step | target busy | draft busy | %s | cancelled |\n"
           "|---|---|---|---|---|---|---|---|\n", simulated.stages ? "runs" : "runs ahead");
    for (i = 0; i < mode_count(); i++)
        printf("| %s | %.2f | %.2f | %.2f | %.0f %% | %.0f %% | %lld | %lld |\n", mode_name(i),
               o[i].tokens / o[i].seconds, o[i].tokens / o[i].seconds * o[0].seconds / o[0].tokens,
               o[i].tokens / o[i].steps, 100 * o[i].verifying / o[i].seconds, 100 * o[i].lane / o[i].seconds,
               (long long)o[i].runs, (long long)o[i].cancelled);
}

static int save_json(const char *path, const outcome *o, const char *const *inputs)
{
    static program_output out;
    json_writer j;
    int i;

    if (program_output_open(&out, path, inputs))
        return PROGRAM_FAILED;
    json_begin(&j, out.file);
    json_object(&j, NULL);
    for (i = 0; i < mode_count(); i++) {
        json_object(&j, mode_name(i));
        json_number(&j, "tok_s", "%.4f", o[i].tokens / o[i].seconds);
        json_number(&j, "tokens_per_step", "%.4f", o[i].tokens / o[i].steps);
        json_number(&j, "target_busy", "%.4f", o[i].verifying / o[i].seconds);
        json_number(&j, "draft_busy", "%.4f", o[i].lane / o[i].seconds);
        json_integer(&j, "steps_beside", o[i].beside);
        json_integer(&j, "runs_cancelled", o[i].cancelled);
        json_close(&j);
    }
    json_close(&j);
    return program_output_end(&out);
}

/* The lanes of one way to work, from `top` on, over `span` seconds: who ran so many nodes when. */
static void draw_lanes(FILE *f, const outcome *o, int mode, int top, double span)
{
    const int lanes = draft_lane() + 1, high = simulated.stages ? 14 : 24, apart = high + (simulated.stages ? 3 : 10);
    const double begin = o->count > 40 ? o->events[40].from : 1;
    int i;

    for (i = 0; i < lanes; i++) {
        const int draft = i == lanes - 1;

        lanes_name(f, top + i * apart, high, mode_name(mode), draft ? "draft" : simulated.stages ? "stage" : "target",
                   draft || !simulated.stages ? -1 : i + 1);
    }
    for (i = 0; i < o->count; i++) {
        const event *e = &o->events[i];

        lanes_bar(f, top + apart * e->lane, high, begin, span, e->from, e->to, e->nodes,
                  !e->kept ? LANES_CANCELLED : e->lane == lanes - 1 ? LANES_DRAFT : LANES_TARGET);
    }
}

/* Who did what when, in turns and otherwise: a row for the target or each of its stages, and one for the draft. */
static int save_svg(const char *path, const outcome *o, const char *const *inputs)
{
    const int high = (draft_lane() + 1) * (simulated.stages ? 17 : 34) + 12;
    static program_output out;
    double span = 0;
    int mode, i;
    FILE *f;

    if (program_output_open(&out, path, inputs))
        return PROGRAM_FAILED;
    f = out.file;
    for (i = 0; i < o[0].count && i < 10 * draft_lane(); i++)
        span += (o[0].events[i].to - o[0].events[i].from) / (simulated.stages ? 2 : 1);
    lanes_begin(f, 2 * high + 30);
    for (mode = 1; mode <= 2; mode++)
        draw_lanes(f, &o[mode], mode, 12 + (mode - 1) * high, span);
    lanes_end(f, 2 * high + 22, span);
    return program_output_end(&out);
}

/* --- recording ---------------------------------------------------------------------------------------------------- */

typedef struct options {
    specdec_config config;
    const char *trace, *out, *prompts, *svg, *json;
    const char *split, *pretend, *link;
    float temperature, aligned, target_mb, draft_mb, noise, level;
    int limit, machine, cores, stages, row, runs, tokens;
    uint64_t seed;
} options;

/* What the draft model offers behind each token of an answer. */
static int record_answer(specdec *t, FILE *out)
{
    specdec__drafter *d = &t->engine->drafters[0];
    specdec__proposal *p = &d->proposals[t->at];
    const int from = t->answer_from, end = t->count;
    int at, i, rank;

    for (at = from; at < end; at++) {
        specdec__draft_begin_proposal(p, t->tokens, at, &t->settings.sampling, SPECDEC_RULE_COUPLED);
        {
            const int32_t next = t->tokens[at]; /* offers are written behind the text: onto it */

            if (d->kind.extend_tree(d, &p->request, &p->drafts, &p->frontier, &t->error))
                return program_failed(specdec_error_text(t), "");
            t->tokens[at] = next;
        }
        for (i = 1, rank = 0; i < p->drafts.tree.n; i++)
            rank = p->drafts.tokens[i] == t->tokens[at] ? i : rank;
        fprintf(out, "%d", rank);
        for (i = 1; i < p->drafts.tree.n; i++)
            fprintf(out, " %.4f", (double)p->drafts.share[i]);
        fprintf(out, "\n");
    }
    d->kind.truncate_sequence(d, t->at, t->tokens, 0);
    fprintf(out, "\n");
    return PROGRAM_OK;
}

/* What steps take here, on all threads and without one of them. */
static void record_times(specdec *t, FILE *out)
{
    specdec__engine *e = t->engine;
    specdec__drafter *d = &e->drafters[0];
    double draft = specdec__engine_time_trial_run(e, d, 0, INFINITY), beside, mean[2][WIDTHS];
    int less, i, round;
    enum { ROUNDS = 4 };


    d->kind.set_threads(d, &e->pool, 1);
    beside = specdec__engine_time_trial_run(e, d, 0, INFINITY);
    d->kind.set_threads(d, &e->pool, e->config.threads);
    fprintf(out, "# times %d %.7f %.7f\n", e->config.threads, draft, beside);
    memset(mean, 0, sizeof mean);
    for (round = 0; round < ROUNDS; round++) /* now and then the machine does other things, too: for answers as for these */
        for (less = 0; less < 2 && less < e->config.threads; less++) {
            e->target.threads = e->config.threads - less;
            for (i = 0; i < WIDTHS - 1; i++)
                mean[less][i] += specdec__engine_time_trial_run(e, NULL, 1 << i, INFINITY) / ROUNDS;
        }
    e->target.threads = e->config.threads;
    for (less = 0; less < 2 && less < e->config.threads; less++)
        for (i = 0; i < WIDTHS - 1; i++)
            fprintf(out, "# step %d %d %.7f\n", less, 1 << i, mean[less][i]);
}

/* Writes a trace to out, which has its name when the program is done. Returns a status. */
static int record(options *o, program_output *out)
{
    const char *const inputs[] = {o->config.target.path, o->config.draft.path, o->prompts, NULL};
    char *prompts, *line, *next;
    const int32_t *tokens;
    specdec *t;
    int status = PROGRAM_OK, count;

    o->config.drafting = SPECDEC_DRAFT_MODEL;
    o->config.policy = SPECDEC_POLICY_DYNAMIC;
    o->config.settings.max_tokens = o->limit;
    o->config.settings.sampling.temperature = o->temperature;
    o->config.settings.sampling.seed = o->seed;
    prompts = program_read_text(o->prompts);
    if (!prompts)
        return PROGRAM_FAILED;
    if (!prompts[strspn(prompts, "\n")])
        return program_failed(o->prompts, " holds no prompts");
    t = program_engine(&o->config, "");
    if (!t)
        return PROGRAM_FAILED;
    status = program_output_open(out, o->out, inputs);
    if (!status)
        record_times(t, out->file);
    for (line = prompts; !status && *line; line = next) {
        next = line + strcspn(line, "\n");
        if (next > line && (specdec_rewind(t, 0) || specdec_prompt(t, line, (size_t)(next - line))))
            status = program_failed(specdec_error_text(t), "");
        while (!status && next > line && specdec_step(t, &tokens, &count) == SPECDEC_OK)
            continue;
        if (!status && next > line)
            status = record_answer(t, out->file);
        next += *next == '\n';
    }
    specdec_deinit(t);
    return status ? status : program_output_end(out);
}

/* --- beside real runs --------------------------------------------------------------------------------------------- */

/* A way to work, by the clock of this machine: what all answers took, once for each run. */
typedef struct measurement {
    specdec *text;
    double tokens, steps;
    double *seconds, *first; /* (runs) of writing; of all answers' first tokens */
} measurement;

/* An engine of the real models that works in that way, as virtual_engine makes one. Returns 0 after saying why not. */
static int real_engine(measurement *m, const options *o, int mode)
{
    specdec_config c = o->config;

    c.drafting = modes[0][mode].drafts ? SPECDEC_DRAFT_AUTO : SPECDEC_DRAFT_OFF;
    c.policy = SPECDEC_POLICY_STATIC;
    c.async = modes[0][mode].async;
    m->text = program_engine(&c, "");
    if (!m->text)
        return 0;
    if (mode) /* the draft model alone, as in the simulation */
        m->text->engine->drafter_count = m->text->engine->tune->count = 1;
    m->seconds = (double *)calloc((size_t)o->runs * 2, sizeof *m->seconds);
    m->first = m->seconds ? m->seconds + o->runs : NULL;
    return m->seconds ? 1 : (program_failed("out of memory", ""), 0);
}

/* Writes the answer to a prompt. Returns 0 after saying why that failed. */
static int real_answer(measurement *m, const char *prompt, size_t length, int run)
{
    specdec_stats before, after;
    const int32_t *tokens;
    int count;

    specdec_get_stats(m->text, &before);
    if (specdec_rewind(m->text, 0) || specdec_prompt(m->text, prompt, length))
        return program_failed(specdec_error_text(m->text), ""), 0;
    while (specdec_step(m->text, &tokens, &count) == SPECDEC_OK)
        continue;
    specdec_get_stats(m->text, &after);
    m->tokens += (double)(after.tokens - before.tokens);
    m->steps += (double)(after.steps - before.steps);
    m->seconds[run] += after.seconds - before.seconds;
    m->first[run] += after.first_token_seconds;
    return 1;
}

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* The median of what every run took, over what it took without drafts if that is given. Changes nothing. */
static double median(const double *each, const double *over, int runs)
{
    double *sorted = (double *)malloc((size_t)runs * sizeof *sorted), middle;
    int i;

    if (!sorted)
        exit(program_failed("out of memory", ""));
    for (i = 0; i < runs; i++)
        sorted[i] = over ? each[i] / over[i] : each[i];
    qsort(sorted, (size_t)runs, sizeof *sorted, falling);
    middle = (sorted[runs / 2] + sorted[(runs - 1) / 2]) / 2;
    free(sorted);
    return middle;
}

static void show_beside(const measurement *m, const outcome *simulated_outcomes, int runs)
{
    const outcome *o = simulated_outcomes;
    int i;

    printf("\nRuns on this machine, medians of %d, in alternation.\n\n"
           "| | tok/s | simulated | over it | over off | first token over off | tokens a step |\n|---|---|---|---|---|---|---|\n",
           runs);
    for (i = 0; i < mode_count(); i++) {
        const double rate = m[i].tokens / runs / median(m[i].seconds, NULL, runs);

        printf("| %s | %.2f | %.2f | %.2f | %.2f | %.3f | %.2f |\n", mode_name(i), rate, o[i].tokens / o[i].seconds,
               rate / (o[i].tokens / o[i].seconds), 1 / median(m[i].seconds, m[0].seconds, runs),
               median(m[i].first, m[0].first, runs), m[i].tokens / m[i].steps);
    }
}

/* Writes all answers in every way, and shows what that took beside what was simulated. */
static int measure(const options *o, const outcome *outcomes)
{
    measurement m[MODES];
    char *prompts, *line, *next;
    int run, i, mode, status = PROGRAM_OK, turn = 0;

    memset(m, 0, sizeof m);
    prompts = program_read_text(o->prompts);
    if (!prompts)
        return PROGRAM_FAILED;
    for (i = 0; i < mode_count() && !status; i++)
        status = real_engine(&m[i], o, i) ? PROGRAM_OK : PROGRAM_FAILED;
    for (run = 0; run < o->runs && !status; run++)
        for (line = prompts; *line && !status; line = next + (*next == '\n'), turn++) {
            next = line + strcspn(line, "\n");
            for (i = 0; i < mode_count() && next > line && !status; i++) {
                mode = (i + turn) % mode_count();
                status = real_answer(&m[mode], line, (size_t)(next - line), run) ? PROGRAM_OK : PROGRAM_FAILED;
            }
        }
    if (!status)
        show_beside(m, outcomes, o->runs);
    for (i = 0; i < mode_count(); i++) {
        specdec_deinit(m[i].text);
        free(m[i].seconds);
    }
    free(prompts);
    return status;
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static int read_options(options *o, int argc, char **argv)
{
    const program_flag flags[] = {
        {"--trace", PROGRAM_TEXT, &o->trace, "FILE", "what was recorded", 0, 0},
        {"--aligned", PROGRAM_REAL, &o->aligned, "P", "or a made trace: the draft's first offer comes so often (0.79)",
         0.05, 0.99},
        {"--tokens", PROGRAM_INTEGER, &o->tokens, "N", "of a made trace (8192)", 1, 1 << 20},
        {"--machine", PROGRAM_CHOICE, &o->machine, "pi5|pi4|phone|8pi5|here",
         "whose table counts; 8pi5: a target in 8 stages, over gigabit Ethernet; here: what was measured while "
         "recording (pi5)", 0, 0},
        {"--stages", PROGRAM_INTEGER, &o->stages, "N", "of 8pi5 (8)", 1, STAGES},
        {"--split", PROGRAM_TEXT, &o->split, "A,B,...", "or stages of so many layers; rank 0 has none, it drafts and samples", 0, 0},
        {"--pretend", PROGRAM_TEXT, &o->pretend, "MS[,MS2,MS4..]", "which take so long each, and so long for 2, 4 .. nodes, as in cluster", 0, 0},
        {"--draft-ms", PROGRAM_REAL, &o->level, "F", "what a level of the draft takes; 0: as it follows from the machine (0)", 0, 1e5},
        {"--link", PROGRAM_TEXT, &o->link, "MS[,MBIT]", "what messages between stages take, instead of gigabit Ethernet", 0, 0},
        {"--row", PROGRAM_INTEGER, &o->row, "N", "floats that a node is between stages (8192)", 1, 1 << 20},
        {"--cores", PROGRAM_INTEGER, &o->cores, "N", "of them (4)", 2, SPECDEC_MAX_THREADS},
        {"--target-mb", PROGRAM_REAL, &o->target_mb, "F",
         "megabytes of weights of a step of the target (606: TinyLlama Q4_0; of 8pi5: 38900)", 1, 1e6},
        {"--draft-mb", PROGRAM_REAL, &o->draft_mb, "F", "and of the draft model (16: stories15m; of 8pi5: 606)", 0.1,
         1e6},
        {"--noise", PROGRAM_REAL, &o->noise, "F", "steps take longer by chance, on average by so much of what they take (0)",
         0, 10},
        {"--svg", PROGRAM_TEXT, &o->svg, "FILE", "who did what when", 0, 0},
        {"--json", PROGRAM_TEXT, &o->json, "FILE", "the table", 0, 0},
        {"--record", PROGRAM_TEXT, &o->out, "FILE",
         "writes a trace: what -m writes behind each line of -f, and what -md offers there", 0, 0},
        {"-m", PROGRAM_TEXT, &o->config.target.path, "FILE", "the model", 0, 0},
        {"-md", PROGRAM_TEXT, &o->config.draft.path, "FILE", "its draft model", 0, 0},
        {"-f", PROGRAM_TEXT, &o->prompts, "FILE", "prompts, one a line", 0, 0},
        {"--runs", PROGRAM_INTEGER, &o->runs, "N",
         "with --record: also writes the answers here, N times in each way, and shows that beside what is simulated", 1,
         1000},
        {"-n", PROGRAM_INTEGER, &o->limit, "N", "tokens of an answer (128)", 1, 4000},
        {"-t", PROGRAM_INTEGER, &o->config.threads, "N", "threads; 0: all processors, fewer for small models (0)", 0, SPECDEC_MAX_THREADS},
        {"--temp", PROGRAM_REAL, &o->temperature, "F", "temperature (0)", 0, 1e6},
        {"--seed", PROGRAM_SEED, &o->seed, "S", "seed (0)", 0, 0},
        {NULL, PROGRAM_SWITCH, NULL, NULL, NULL, 0, 0}};
    int status;

    memset(o, 0, sizeof *o);
    o->aligned = 0.79f;
    o->tokens = 8192;
    o->limit = 128;
    status = program_read(flags, argc, argv, "specdec-sim",
                          "[--trace FILE] [--machine NAME] | --record FILE -m MODEL -md DRAFT -f PROMPTS [--runs N]",
                          "Replays a trace through the scheduler, on a machine that a table describes: no drafts,\n"
                          "drafting in turns with the target, ahead of it, and as auto chooses. On stages: in turns;\n"
                          "with several runs on their way; the same, but runs that nobody wants are made to the end;\n"
                          "and in turns by an engine that was told what steps of each width take. What comes out is\n"
                          "simulated, not measured.\n");
    if (status == PROGRAM_GO_ON && o->out && (!o->config.target.path || !o->config.draft.path || !o->prompts))
        return program_misused("--record needs -m, -md and -f", "");
    if (status == PROGRAM_GO_ON && o->runs && !o->out)
        return program_misused("--runs needs --record", "");
    if (status == PROGRAM_GO_ON && o->svg && o->json && strcmp(o->svg, o->json) == 0)
        return program_misused("--svg and --json are the same file: ", o->svg);
    if (status == PROGRAM_GO_ON && o->out && !o->runs && (o->svg || o->json))
        return program_misused("--record writes no --svg and no --json without --runs", "");
    if (status == PROGRAM_GO_ON && o->split && (o->runs || o->machine == MACHINES))
        return program_misused("--split goes without --machine here and --runs", "");
    if (status == PROGRAM_GO_ON && !o->out && (o->config.target.path || o->config.draft.path || o->prompts))
        return program_misused("-m, -md and -f need --record", "");
    return status;
}

/* Stages as --split, --pretend and --link say. Returns a status. */
static int read_stages(const options *o)
{
    static char source[200];
    const char *at = o->split;
    double bits;
    char *end;

    simulated.level = 1e-3 * (double)o->level;
    if (o->link) {
        if (!pretend_link(o->link, &simulated.table.latency, &bits))
            return program_misused("--link takes milliseconds and megabits, as in 5,100, not ", o->link);
        simulated.table.link = bits > 0 ? bits / 8 : INFINITY;
    }
    if (o->link && !o->split && !simulated.table.stages)
        return program_misused("--link needs --machine 8pi5 or --split", "");
    if (o->stages && (o->split || !simulated.table.stages))
        return program_misused("--stages needs --machine 8pi5", "");
    if (o->row)
        simulated.table.node_bytes = 4.0 * o->row;
    if (!o->split)
        return o->pretend ? program_misused("--pretend needs --split", "") : PROGRAM_OK;
    if (!o->pretend || !pretend_read(&simulated.layer, o->pretend))
        return program_misused("--split needs --pretend with milliseconds, as in 60 or 60,61,65", "");
    for (simulated.stages = 0; simulated.stages < STAGES; at = end + 1) {
        const long count = strtol(at, &end, 10);

        if (end == at || count < 1 || count > 1000 || (*end && *end != ','))
            return program_misused("--split takes a number of layers for each stage, as in 6,8,8, not ", o->split);
        simulated.layers[simulated.stages++] = (int)count;
        if (!*end)
            break;
    }
    if (*end)
        return program_misused("--split has more stages than are known here: ", o->split);
    snprintf(source, sizeof source, "stages of %s layers, each %s ms for 1, 2, 4 .. nodes", o->split, o->pretend);
    simulated.table.source = source;
    return PROGRAM_OK;
}

/* Files that no output may overwrite; NULL behind the last. */
static void list_inputs(const options *o, const char **inputs)
{
    const char *const all[] = {o->trace, o->config.target.path, o->config.draft.path, o->prompts};
    size_t i;

    for (i = 0; i < PROGRAM_COUNT(all); i++)
        if (all[i])
            *inputs++ = all[i];
}

/* What the options ask for. Returns a status. */
static int run(options o)
{
    static outcome outcomes[MODES];
    static trace t;
    static program_output recorded;
    const char *inputs[5] = {NULL, NULL, NULL, NULL, NULL};
    int status, i;
    specdec_bytes model;
    unsigned char *data;
    char *text;

    simulated.here = o.machine == MACHINES || o.runs;
    simulated.table = machines[simulated.here ? 0 : o.split ? MACHINES - 1 : o.machine];
    simulated.stages = simulated.table.stages && o.stages ? o.stages : simulated.table.stages;
    if ((status = read_stages(&o)) != PROGRAM_OK)
        return status;
    if (o.out) {
        status = record(&o, &recorded);
        if (status || !o.runs)
            return status;
        o.trace = o.out;
    }
    list_inputs(&o, inputs);
    text = o.trace ? program_read_text(recorded.part ? recorded.part : o.trace) : NULL;
    if (o.trace && (!text || !trace_parse(&t, text)))
        return text ? program_failed(o.trace, " is no trace: lines of a rank and falling shares") : PROGRAM_FAILED;
    if (!o.trace)
        trace_make(&t, (double)o.aligned, o.seed, o.tokens);
    if (simulated.here && !(measured.threads && is_time(measured.target[0][0]) && is_time(measured.target[1][0])))
        return program_failed("--machine here", " needs a trace that was recorded with two threads or more");
    simulated.cores = simulated.here ? measured.threads : o.cores ? o.cores : simulated.table.cores;
    simulated.target_bytes = 1e6 * (o.target_mb > 0 ? (double)o.target_mb : simulated.table.target_mb);
    simulated.draft_bytes = 1e6 * (o.draft_mb > 0 ? (double)o.draft_mb : simulated.table.draft_mb);
    simulated.noise = (double)o.noise;
    simulated.seed = o.seed;
    data = tiny_model_make(VOCABULARY, 4096, &model.size);
    if (!data)
        return program_failed("the model that stands for all", ": out of memory");
    model.data = data;
    for (i = 0; i < mode_count(); i++)
        run_mode(&outcomes[i], &t, i, &model);
    if (simulated.stages)
        printf("%d x ", simulated.stages);
    printf("%s, %d cores; %d tokens, %d answers. Simulated.\n\n",
           simulated.here ? "the machine of the trace" : simulated.table.source, simulated.cores, t.count, t.answers);
    show_table(outcomes);
    free(data);
    if (o.runs && (status = measure(&o, outcomes)) != PROGRAM_OK)
        return status;
    if (o.json && (status = save_json(o.json, outcomes, inputs)) != PROGRAM_OK)
        return status;
    return o.svg ? save_svg(o.svg, outcomes, inputs) : PROGRAM_OK;
}

int main(int argc, char **argv)
{
    static options o;
    int status = read_options(&o, argc, argv);

    return status == PROGRAM_GO_ON ? program_finish(run(o)) : status;
}
