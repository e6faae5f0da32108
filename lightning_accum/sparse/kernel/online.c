/* Simulates a layer of integrate-and-fire neurons, and learns by a list of terms after each step.

   A term is a spike of one side, times a trace of the other side, or also times a trace of its own
   side from before the step. Terms on postsynaptic spikes that share a presynaptic trace are one
   product with it, and likewise the other way round.

   sparse/online_loop.py checks every argument; the plain form is rules/online_simulation.py.

   A postsynaptic spike changes a weight of every input. These changes wait in a list until the
   input's weights are read, so that a row of weights stays in the cache while its changes are made:
   few inputs spike in a step. Where one sample changes the weights at once, without a reward, the
   spikes of a neuron that wait are one number: totals over a block of steps, of which those of an
   interval are a difference. Threads divide the neurons among them, and no result depends on their
   number. */

#include <stdint.h>
#include <string.h>
#include <tgmath.h>

#include "columns.h"
#include "neurons.h"
#include "threads.h"

typedef struct {
    double limit, range, power, most; /* no range: changes do not depend on the weight */
} room;

typedef struct {
    double decay;
    double up, down;    /* what a spike of the other side multiplies it by, */
    int32_t begin, end; /* to which these terms are added */
    int32_t read;       /* whether there is anything */
    int32_t nearest;    /* a spike of its side sets it to one, instead of adding one */
    int32_t block;      /* steps over which what waits for it is totalled */
} trace_kind;

typedef struct {
    double rate;
    int64_t own; /* a trace by number, of the spike's own side and before the step */
} term;

typedef struct {
    int64_t steps, batch, inputs, neurons;
    int64_t pres, posts; /* traces of both sides */
    const trace_kind *of_pre, *of_post;
    const term *terms;
    const uint8_t *raster; /* [T, B, E] */
    uint8_t *spikes;       /* [T, B, N] */
    REAL *weight;          /* [N, E]; a thread has its own neurons' as [E, width] */
    const REAL *bias;      /* [N], or null */
    REAL *v, *hold;        /* [B, N] */
    REAL *theta;           /* [N], the rise of the threshold */
    REAL *pre;             /* [pres, E, B], the traces at the step `last` of each input */
    REAL *pre_end;         /* [pres, E, B] receives them */
    REAL *post;            /* [posts, B, N] */
    REAL *pos, *neg;       /* [B, N, E], the eligibility, or null; of a thread [E, B, width] */
    const REAL *powers;    /* [pres, T + 1], of the presynaptic decays */
    const REAL *waits;     /* [T + 1], of the eligibility's decay */
    const REAL *reward;    /* [T, B], or null */
    double decay, drive, threshold, period, decay_theta, theta_plus, low, high;
    room rise, fall;
    int32_t bounded, direct; /* direct: changes are added to the weights at once */
    int32_t losers;          /* steps for which they are held; -1: none */
    int32_t kept;            /* steps that have totals; 0: there are none */
    int64_t waits_for, most; /* steps for which spikes may wait, and how many in a thread */
    /* work memory of a thread, and the number of its neurons */
    int64_t width;
    REAL *current, *up, *down, *limit, *fired; /* [width] */
    REAL *raised, *lowered;             /* [pres, most] what waiting postsynaptic spikes multiply */
    REAL *totals;                       /* [pres, kept, width], `raised` since a block began */
    REAL *upward, *downward;            /* [posts, B] what a presynaptic spike multiplies */
    int32_t *samples, *columns, *times; /* [most] where these are */
    int32_t *starts;                    /* [T + 1] the first of them in each step */
    int32_t *last, *rows;               /* [E]; rows: the inputs that spike in a step */
    int32_t *heads, *nexts;             /* [E], [E, B], the samples in which they do; -1: none */
} online;

/* Where the changes of an input's weights are summed, the next sample's `next` further. */
typedef struct {
    REAL *up, *down;
    int64_t next;
} sums;

static sums sums_of(const online *x, int64_t e)
{
    const int64_t row = e * x->width, all = row * x->batch;
    if (x->pos) return (sums){x->pos + all, x->neg + all, x->width};
    if (x->direct) return (sums){x->weight + row, 0, 0};
    return (sums){x->up, x->down, 0};
}

static void clamp(REAL *w, int64_t n, REAL low, REAL high)
{
    for (int64_t i = 0; i < n; i++) w[i] = w[i] < low ? low : w[i] > high ? high : w[i];
}

static void add_row(REAL *restrict sum, REAL factor, const REAL *restrict values, int64_t n)
{
    for (int64_t i = 0; factor && i < n; i++) sum[i] += factor * values[i];
}

static inline REAL share_of(const room *r, REAL distance)
{
    if (r->range == 0) return 1;
    REAL x = distance / (REAL)r->range;
    x = x < 0 ? 0 : x > (REAL)r->most ? (REAL)r->most : x;
    return r->power == 1 ? x : r->power == 0 ? (REAL)(x > 0) : pow(x, (REAL)r->power);
}

/* Changes an input's weights by the sums of some columns, and empties these. */
static inline void apply(const online *x, int64_t e, int64_t begin, int64_t end)
{
    REAL *restrict w = x->weight + e * x->width, *restrict up = x->up, *restrict down = x->down;
    const room rise = x->rise, fall = x->fall;
    for (int64_t n = begin; n < end; n++) {
        w[n] += share_of(&rise, (REAL)rise.limit - w[n]) * up[n] -
                share_of(&fall, w[n] - (REAL)fall.limit) * down[n];
        up[n] = down[n] = 0;
    }
    if (x->bounded) clamp(w + begin, end - begin, (REAL)x->low, (REAL)x->high);
}

/* Finds what a spike multiplies a trace of the other side by, in both parts; `own` is the first trace
   of its own side, and the others are `next` further. */
static inline void amounts(const online *x, const trace_kind *kind, const REAL *own, int64_t next,
                           int64_t at, REAL *up, REAL *down)
{
    const REAL factor = x->reward && !x->pos ? x->reward[at] : 1;
    REAL pos = (REAL)kind->up, neg = (REAL)kind->down;
    for (int32_t i = kind->begin; i < kind->end; i++) {
        const REAL rate = (REAL)x->terms[i].rate * own[x->terms[i].own * next];
        pos += rate > 0 ? rate : 0;
        neg += rate < 0 ? -rate : 0;
    }
    *up = factor < 0 ? -factor * neg : factor * pos;
    *down = factor < 0 ? -factor * pos : factor * neg;
    if (x->direct) *up -= *down;
}

/* Lets a spike count in the traces of its side, of which each is `next` further. */
static inline void count_spike(const trace_kind *of, int64_t count, REAL *value, int64_t next)
{
    for (const trace_kind *r = of; r < of + count; r++, value += next) *value = r->nearest ? 1 : *value + 1;
}

/* Adds the changes of an input's weights in step `t` by the spikes from `begin` to `end`. */
static void add_posts(const online *x, int64_t e, int64_t t, int64_t begin, int64_t end)
{
    const sums s = sums_of(x, e);
    const REAL *waits = x->waits;
    const int32_t *restrict samples = x->samples, *restrict columns = x->columns;
    const int32_t *restrict times = x->times, last = x->last[e];
    REAL *restrict up = s.up, *restrict down = s.down;
    for (int64_t j = 0; j < x->pres; j++) {
        const REAL *restrict trace = x->pre + (j * x->inputs + e) * x->batch;
        const REAL *restrict powers = x->powers + j * (x->steps + 1);
        const REAL *restrict raised = x->raised + j * x->most;
        const REAL *restrict lowered = x->lowered + j * x->most;
        if (!x->of_pre[j].read) continue;
        if (!down) /* then samples have one sum */
            for (int64_t k = begin; k < end; k++)
                up[columns[k]] += raised[k] * powers[times[k] - last] * trace[samples[k]];
        else
            for (int64_t k = begin; k < end; k++) {
                const int64_t at = samples[k] * s.next + columns[k];
                const REAL pre = powers[times[k] - last] * trace[samples[k]] * waits[t - times[k]];
                up[at] += raised[k] * pre;
                down[at] += lowered[k] * pre;
            }
    }
}

/* Adds the spikes of a step to what those of the block's earlier steps total. */
static void total_spikes(const online *x, int64_t t, int64_t begin, int64_t end)
{
    for (int64_t j = 0; j < x->pres; j++) {
        const int64_t at = t % x->kept, place = at % x->of_pre[j].block;
        const REAL power = x->powers[j * (x->steps + 1) + place];
        REAL *total = x->totals + (j * x->kept + at) * x->width;
        if (!x->of_pre[j].read) continue;
        if (place) memcpy(total, total - x->width, (size_t)x->width * sizeof(REAL));
        else memset(total, 0, (size_t)x->width * sizeof(REAL));
        for (int64_t k = begin; k < end; k++)
            total[x->columns[k]] += power * x->raised[j * x->most + k];
    }
}

/* Adds what waits for an input up to a step, block by block of the totals. */
static void add_totals(const online *x, int64_t e, int64_t until)
{
    const int64_t last = x->last[e], width = x->width;
    REAL *restrict w = x->weight + e * width;
    for (int64_t j = 0; j < x->pres; j++) {
        const REAL *powers = x->powers + j * (x->steps + 1), trace = x->pre[j * x->inputs + e];
        for (int64_t t = last + 1, end; x->of_pre[j].read && trace && t <= until; t = end + 1) {
            const int64_t block = x->of_pre[j].block, place = t % x->kept % block;
            end = block - 1 - place < until - t ? t + block - 1 - place : until;
            if (x->starts[t] == x->starts[end + 1]) continue;
            const REAL *restrict now = x->totals + (j * x->kept + end % x->kept) * width;
            const REAL *restrict before = now - (end - t + 1) * width; /* in the step `last` */
            const REAL factor = place ? trace / powers[place - 1] : trace * powers[t - last];
            if (place)
                for (int64_t n = 0; n < width; n++) w[n] += factor * (now[n] - before[n]);
            else add_row(w, factor, now, width);
        }
    }
}

static void decay_row(const online *x, int64_t e, REAL factor)
{
    const sums s = sums_of(x, e);
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t n = b * s.next; n < b * s.next + x->width; n++)
            s.up[n] *= factor, s.down[n] *= factor;
}

/* Changes an input's weights by the rewards of a step, times what is eligible. */
static void reward_row(const online *x, int64_t e, int64_t t)
{
    const sums s = sums_of(x, e);
    int some = 0;
    for (int64_t b = 0; b < x->batch; b++) {
        const REAL reward = x->reward[t * x->batch + b], size = reward < 0 ? -reward : reward;
        const REAL *pos = (reward < 0 ? s.down : s.up) + b * s.next;
        const REAL *neg = (reward < 0 ? s.up : s.down) + b * s.next;
        add_row(x->up, size, pos, x->width);
        add_row(x->down, size, neg, x->width);
        some |= size != 0;
    }
    if (some) apply(x, e, 0, x->width);
}

/* Takes what is eligible of an input through the steps after its `last`, from reward to reward. */
static void settle_eligible(const online *x, int64_t e, int64_t until)
{
    int64_t done = x->last[e];
    for (int64_t t = done + 1; t <= until; t++) {
        int some = t == until;
        for (int64_t b = 0; b < x->batch; b++) some |= x->reward[t * x->batch + b] != 0;
        if (!some) continue;
        decay_row(x, e, x->waits[t - done]);
        add_posts(x, e, t, x->starts[done + 1], x->starts[t + 1]);
        reward_row(x, e, t);
        done = t;
    }
}

/* Makes the changes of the steps `until` one that wait for an input, and brings its traces to the
   step `t`. */
static void settle(const online *x, int64_t e, int64_t t, int64_t until)
{
    const int64_t B = x->batch, last = x->last[e], waiting = x->starts[until + 1];
    int64_t k = x->starts[last + 1];
    if (last == t) return;
    if (x->pos) settle_eligible(x, e, until);
    else if (x->direct && k < waiting) {
        if (x->kept) add_totals(x, e, until);
        else add_posts(x, e, t, k, waiting);
        if (x->bounded) clamp(x->weight + e * x->width, x->width, (REAL)x->low, (REAL)x->high);
    } else
        while (k < waiting) {
            const int64_t end = x->starts[x->times[k] + 1];
            add_posts(x, e, x->times[k], k, end);
            for (; k < end; k++) apply(x, e, x->columns[k], x->columns[k] + 1);
        }
    for (int64_t j = 0; j < x->pres; j++) {
        const REAL power = x->powers[j * (x->steps + 1) + t - last];
        REAL *trace = x->pre + (j * x->inputs + e) * B;
        for (int64_t b = 0; b < B; b++) trace[b] *= power;
    }
    x->last[e] = (int32_t)t;
}

/* Makes the changes of a step in the weights of an input that spikes in it. */
static void learn(const online *x, int64_t e, int64_t t, int64_t waiting)
{
    const int64_t B = x->batch, next = x->inputs * B;
    const int32_t head = x->heads[e], *nexts = x->nexts + e * B;
    const sums s = sums_of(x, e);
    if (x->pos) decay_row(x, e, x->waits[1]);
    for (int32_t b = head; b >= 0; b = nexts[b]) {
        REAL *trace = x->pre + e * B + b;
        for (int64_t j = 0; j < x->posts; j++)
            if (x->of_post[j].read)
                amounts(x, x->of_post + j, trace, next, t * B + b, x->upward + j * B + b,
                        x->downward + j * B + b);
        count_spike(x->of_pre, x->pres, trace, next);
    }
    add_posts(x, e, t, x->starts[t], waiting);
    for (int32_t b = head; b >= 0; b = nexts[b])
        for (int64_t j = 0; j < x->posts; j++) {
            const REAL *post = x->post + (j * B + b) * x->neurons;
            if (!x->of_post[j].read) continue;
            add_row(s.up + b * s.next, x->upward[j * B + b], post, x->width);
            if (s.down) add_row(s.down + b * s.next, x->downward[j * B + b], post, x->width);
        }
    if (x->pos) reward_row(x, e, t);
    else if (!x->direct) apply(x, e, 0, x->width);
    else if (x->bounded)
        clamp(x->weight + e * x->width, x->width, (REAL)x->low, (REAL)x->high);
}

/* Sums the current of a sample; returns how many inputs are known to spike in the step. */
static int64_t sum_current(const online *x, int64_t t, int64_t b, int64_t rows)
{
    const int64_t E = x->inputs;
    const uint8_t *raster = x->raster + (t * x->batch + b) * E;
    const REAL drive = (REAL)x->drive;
    REAL *restrict current = x->current;
    for (int64_t n = 0; n < x->width; n++) current[n] = drive + (x->bias ? x->bias[n] : 0);
    for (int64_t at = 0; at < E; at += 32) {
        uint8_t padded[32] = {0};
        const uint8_t *from = raster + at;
        if (E - at < 32) from = memcpy(padded, from, (size_t)(E - at));
        for (uint32_t some = nonzero32(from); some; some &= some - 1) {
            const int64_t e = at + __builtin_ctz(some);
            const REAL *w = x->weight + e * x->width;
            if (x->last[e] != t) {
                x->rows[rows++] = (int32_t)e;
                x->heads[e] = -1;
                settle(x, e, t, t - 1);
            }
            x->nexts[e * x->batch + b] = x->heads[e];
            x->heads[e] = (int32_t)b;
            for (int64_t n = 0; n < x->width; n++) current[n] += w[n];
        }
    }
    return rows;
}

/* Notes the spikes of a sample, which change the weights of all inputs; returns how many wait. */
static int64_t note_spikes(const online *x, int64_t t, int64_t b, int64_t waiting)
{
    const uint8_t *spikes = x->spikes + (t * x->batch + b) * x->neurons;
    const int64_t next = x->batch * x->neurons;
    for (int64_t n = 0; n < x->width; n++) {
        if (!spikes[n]) continue;
        REAL *trace = x->post + b * x->neurons + n;
        for (int64_t j = 0; j < x->pres; j++)
            if (x->of_pre[j].read)
                amounts(x, x->of_pre + j, trace, next, t * x->batch + b,
                        x->raised + j * x->most + waiting, x->lowered + j * x->most + waiting);
        count_spike(x->of_post, x->posts, trace, next);
        x->samples[waiting] = (int32_t)b;
        x->times[waiting] = (int32_t)t;
        x->columns[waiting++] = (int32_t)n;
    }
    return waiting;
}

static void run_steps(const online *x)
{
    const neurons own = {.is_bytes = 1, .period = (int64_t)x->period, .losers = x->losers,
                         .decay = x->decay, .v = x->v, .hold = x->hold, .out = x->spikes};
    const REAL threshold = (REAL)x->threshold;
    REAL *const limit = x->limit, *const fired = x->fired;
    const int64_t B = x->batch, E = x->inputs, N = x->neurons, width = x->width;
    const REAL decay_theta = (REAL)x->decay_theta;
    const REAL rise = (REAL)(x->theta_plus / (double)(B ? B : 1));
    int64_t waiting = 0;
    for (int64_t e = 0; e < E; e++) x->last[e] = -1;
    for (int64_t t = 0; t < x->steps; t++) {
        int64_t rows = 0;
        if (t % x->waits_for == 0) { /* then all is settled, and the list begins anew */
            for (int64_t e = 0; e < E; e++) settle(x, e, t - 1, t - 1);
            waiting = 0;
        }
        const int64_t first = x->starts[t] = (int32_t)waiting;
        for (int64_t n = 0; n < width; n++) limit[n] = threshold + x->theta[n];
        for (int64_t b = 0; b < B; b++) {
            for (int64_t j = 0; j < x->posts; j++) {
                const REAL decay = (REAL)x->of_post[j].decay;
                REAL *trace = x->post + (j * B + b) * N;
                for (int64_t n = 0; n < width; n++) trace[n] *= decay;
            }
            rows = sum_current(x, t, b, rows);
            const int64_t state = b * N, now = (t * B + b) * N;
            take_step_of_sample(&own, now, state, width, x->current, limit, 0, fired);
            waiting = note_spikes(x, t, b, waiting);
        }
        if (x->kept) total_spikes(x, t, first, waiting);
        for (int64_t n = 0; n < width; n++) x->theta[n] *= decay_theta;
        for (int64_t k = first; k < waiting; k++) x->theta[x->columns[k]] += rise;
        for (int64_t k = 0; k < rows; k++) learn(x, x->rows[k], t, waiting);
        x->starts[t + 1] = (int32_t)waiting;
    }
    for (int64_t e = 0; e < E; e++) settle(x, e, x->steps - 1, x->steps - 1);
}

static void *lend(char **memory, int64_t count, size_t size)
{
    void *lent = *memory;
    *memory += (count * (int64_t)size + 63) / 64 * 64;
    return lent;
}

#define BLOCK 16 /* neurons that one thread has together */

/* Copies a thread's neurons of [count, N, E] to rows [E, count, width], or back from them. */
static void turn(const online *x, int64_t count, REAL *layer, REAL *rows, int back)
{
    const int64_t E = x->inputs, width = x->width, next = count * width;
    for (int64_t b = 0; b < count; b++, layer += x->neurons * E, rows += width)
        if (back) transpose(rows, next, layer, E, E, width);
        else transpose(layer, E, rows, next, width, E);
}

static void run_columns(const void *task, int64_t begin, int64_t end, void *memory)
{
    online x = *(const online *)task;
    const int64_t first = begin * BLOCK, all = x.pres * x.inputs * x.batch;
    char *free = memory;
    x.width = (end * BLOCK < x.neurons ? end * BLOCK : x.neurons) - first;
    REAL **own[] = {&x.v, &x.hold, &x.theta, &x.post}, **turned[] = {&x.weight, &x.pos, &x.neg};
    const int64_t counts[] = {1, x.batch, x.batch};
    REAL *given[3];
    for (int i = 0; i < 4; i++) *own[i] += first;
    for (int i = 0; i < 3; i++) {
        given[i] = *turned[i] ? *turned[i] + first * x.inputs : 0;
        if (!given[i]) continue;
        *turned[i] = lend(&free, x.inputs * counts[i] * x.width, sizeof(REAL));
        turn(&x, counts[i], given[i], *turned[i], 0);
    }
    x.spikes += first;
    if (x.bias) x.bias += first;
    x.pre = memcpy(lend(&free, all, sizeof(REAL)), x.pre, (size_t)all * sizeof(REAL));
    REAL **values[] = {&x.current, &x.up, &x.down, &x.limit, &x.fired};
    for (int i = 0; i < 5; i++)
        *values[i] = memset(lend(&free, x.width, sizeof(REAL)), 0, (size_t)x.width * sizeof(REAL));
    REAL **waiting[] = {&x.raised, &x.lowered}, **of_one[] = {&x.upward, &x.downward};
    for (int i = 0; i < 2; i++) *waiting[i] = lend(&free, x.pres * x.most, sizeof(REAL));
    x.totals = lend(&free, x.pres * x.kept * x.width, sizeof(REAL));
    for (int i = 0; i < 2; i++) *of_one[i] = lend(&free, x.posts * x.batch, sizeof(REAL));
    int32_t **places[] = {&x.samples, &x.columns, &x.times};
    for (int i = 0; i < 3; i++) *places[i] = lend(&free, x.most, sizeof(int32_t));
    int32_t **inputs[] = {&x.last, &x.rows, &x.heads};
    for (int i = 0; i < 3; i++) *inputs[i] = lend(&free, x.inputs, sizeof(int32_t));
    x.nexts = lend(&free, x.inputs * x.batch, sizeof(int32_t));
    x.starts = lend(&free, x.steps + 1, sizeof(int32_t));
    x.starts[0] = 0;
    run_steps(&x);
    for (int i = 0; i < 3; i++)
        if (given[i]) turn(&x, counts[i], given[i], *turned[i], 1);
    if (!begin) memcpy(x.pre_end, x.pre, (size_t)all * sizeof(REAL));
}

int run_online(const online *x, char *memory, int64_t size, int threads)
{
    divide(run_columns, x, (x->neurons + BLOCK - 1) / BLOCK, memory, size, threads);
    return DONE;
}
