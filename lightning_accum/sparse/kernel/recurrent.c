/* Simulates populations of integrate-and-fire neurons that are connected by sparse weights with
   delays, and learns by pair STDP after each step.

   sparse/recurrent.py checks every argument; the plain form is Populations in cells/populations.py, step by step.

   Weights are rows of presynaptic neurons, and a row is visited only when a spike arrives there. It
   then takes up the postsynaptic spikes since its last visit. As the presynaptic trace only decays
   between two visits, the sum of their changes is the trace at the last visit times
   `sums(now) - sums(then)`, where the sums of `decay^(time - anchor)` over each neuron's spikes are
   kept as they were after each step. A block of steps has one anchor, so near that nothing cancels.
   A row that waits until its block is to be used again is visited without a spike.

   Each thread has a part of the targets of every row, so that nobody writes what another reads; they
   meet once in the steps of the shortest delay. Processes divide the targets in the same way, and meet
   between calls. A neuron's sum goes by connection and then by source, so that it does not depend on
   their numbers. */

#include "threads.h"

#include <string.h>

typedef struct {
    int64_t size, first;        /* own neurons, and the first of them among those of the process */
    int64_t sources, of, place; /* those of all processes, and the columns where they and the own begin */
    REAL *v, *hold, *theta, *current;
    double decay, drive, threshold, period, decay_theta, theta_plus;
} population;

typedef struct {
    int64_t source, target, delay; /* populations by number, and steps */
    const int64_t *starts;         /* [E + 1] */
    const int32_t *outputs;        /* [synapses], ascending in each row */
    REAL *weight;                  /* [synapses] */
    int64_t *places;               /* [E, parts + 1], where the parts of each row begin */
    int64_t learns, nearest_pre, nearest_post, block, blocks;
    REAL *pre;      /* [parts, E], the presynaptic traces after the step `last` */
    int64_t *last;  /* [parts, E] */
    REAL *post;     /* [N], the postsynaptic traces */
    REAL *sums;     /* [blocks, N] */
    REAL *history;  /* [blocks * block, N], the sums of the own block after each step */
    REAL *change;   /* [N, 2], what a presynaptic spike changes in this step, and what a postsynaptic
                       spike does for a trace of one */
    REAL *powers;   /* [blocks * block + 1], of decay_pre */
    double decay_pre, decay_post, rate_post, rate_pre, low, high;
    int64_t kept; /* where Python keeps the tensors */
} connection;

typedef struct {
    int64_t steps, size, parts, populations, connections, longest;
    int64_t width;     /* neurons of all processes */
    const REAL *input; /* [steps, size] */
    uint8_t *spikes;   /* [longest + steps, width], 0 or 1, of which the first are before the start */
    const population *groups;
    const connection *each;
} network;

typedef struct {
    const network *x;
    int64_t begin, end; /* from 1 */
} steps;

/* The targets of one part. */
typedef struct {
    int64_t part, from, to;
} range;

static range targets(const network *x, const population *p, int64_t part)
{
    return (range){part, p->size * part / x->parts, p->size * (part + 1) / x->parts};
}

/* Part of a row of weights. */
typedef struct {
    const int32_t *restrict outputs;
    REAL *restrict w;
    int64_t n;
} row;

static row row_of(const network *x, const connection *c, int64_t e, const range *r)
{
    const int64_t *places = c->places + e * (x->parts + 1) + r->part;
    return (row){c->outputs + places[0], c->weight + places[0], places[1] - places[0]};
}

static REAL clamped(REAL w, REAL low, REAL high) { return w < low ? low : w > high ? high : w; }

/* Makes the changes of a row by a presynaptic spike, and by postsynaptic spikes in its step. */
static void change_row(row w, REAL trace, const REAL *restrict change, REAL low, REAL high)
{
    for (int64_t k = 0; k < w.n; k++) {
        const REAL *restrict of = change + 2 * w.outputs[k];
        w.w[k] = clamped(w.w[k] + (of[0] + trace * of[1]), low, high);
    }
}

/* Makes the changes of a row by postsynaptic spikes since its last visit, up to a step. */
static void settle(const network *x, const connection *c, int64_t e, const range *r, row w,
                   int64_t until)
{
    const int64_t E = x->groups[c->source].sources, N = x->groups[c->target].size;
    REAL *pre = c->pre + r->part * E + e;
    int64_t *last = c->last + r->part * E + e;
    const int64_t block = *last / c->block, since = *last - block * c->block;
    const REAL *restrict now = c->sums + block % c->blocks * N;
    const REAL *restrict then = c->history + *last % (c->blocks * c->block) * N;
    const REAL rate = (REAL)c->rate_post * *pre / c->powers[since];
    const REAL low = (REAL)c->low, high = (REAL)c->high;
    if (rate != 0)
        for (int64_t k = 0; k < w.n; k++) {
            const int32_t n = w.outputs[k];
            w.w[k] = clamped(w.w[k] + rate * (now[n] - then[n]), low, high);
        }
    *pre *= c->powers[until - *last];
    *last = until;
}

/* Returns whose spikes reach a connection in a step, a byte for each presynaptic neuron. */
static const uint8_t *arriving(const network *x, const connection *c, int64_t t)
{
    return x->spikes + (x->longest + t - 1 - c->delay) * x->width + x->groups[c->source].of;
}

/* Returns where a population's own neurons write their spikes in a step. */
static uint8_t *leaving(const network *x, const population *p, int64_t t)
{
    return x->spikes + (x->longest + t - 1) * x->width + p->place;
}

/* Returns the first neuron from `e` on that has spiked; `size` if there is none. */
static int64_t next(const uint8_t *spikes, int64_t e, int64_t size)
{
    for (uint64_t word; e + 8 <= size; e += 8) {
        memcpy(&word, spikes + e, 8);
        if (word) return e + __builtin_ctzll(word) / 8;
    }
    while (e < size && !spikes[e]) e++;
    return e;
}

static void fetch(const void *at, int64_t bytes)
{
    for (int64_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char *)at + k);
}

/* Adds what arrives to the currents; a row is fetched while the one before is added. */
static void transmit(const network *x, const connection *c, int64_t t, const range *r)
{
    const uint8_t *spikes = arriving(x, c, t);
    const int64_t E = x->groups[c->source].sources;
    REAL *restrict current = x->groups[c->target].current;
    for (int64_t e = next(spikes, 0, E), after; e < E; e = after) {
        row w = row_of(x, c, e, r);
        after = next(spikes, e + 1, E);
        if (after < E) {
            const row other = row_of(x, c, after, r);
            fetch(other.outputs, other.n * sizeof(int32_t));
            fetch(other.w, other.n * sizeof(REAL));
        }
        if (c->learns) settle(x, c, e, r, w, t - 1);
        for (int64_t k = 0; k < w.n; k++) current[w.outputs[k]] += w.w[k];
    }
}

static void integrate(const population *p, const range *r, uint8_t *spikes)
{
    const REAL decay = (REAL)p->decay, threshold = (REAL)p->threshold, period = (REAL)p->period;
    for (int64_t n = r->from; n < r->to; n++) {
        REAL now = p->current[n] + decay * p->v[n];
        now = p->hold[n] > 0 ? 0 : now;
        REAL hold = p->hold[n] - 1;
        int spike = now >= threshold + p->theta[n];
        p->v[n] = spike ? 0 : now;
        p->hold[n] = spike && hold < period ? period : hold;
        p->theta[n] = (REAL)p->decay_theta * p->theta[n] + (REAL)p->theta_plus * spike;
        spikes[n] = (uint8_t)spike;
    }
}

/* Begins a block of steps, in the place of the oldest one. */
static void begin_block(const network *x, const connection *c, int64_t t, const range *r)
{
    const int64_t E = x->groups[c->source].sources, N = x->groups[c->target].size;
    const int64_t kept = t - (c->blocks - 1) * c->block;
    for (int64_t e = 0; e < E; e++)
        if (c->last[r->part * E + e] < kept) settle(x, c, e, r, row_of(x, c, e, r), t - 1);
    REAL *sums = c->sums + t / c->block % c->blocks * N;
    for (int64_t n = r->from; n < r->to; n++) sums[n] = 0;
}

/* Learns from the spikes of both sides in a step. */
static void learn(const network *x, const connection *c, int64_t t, const range *r)
{
    const population *p = &x->groups[c->target];
    const uint8_t *spikes = leaving(x, p, t);
    const int64_t E = x->groups[c->source].sources, N = p->size, block = t / c->block;
    const int64_t first = block < c->blocks ? 0 : block - c->blocks + 1;
    const REAL decay_post = (REAL)c->decay_post, rate_post = (REAL)c->rate_post;
    const REAL rate_pre = (REAL)c->rate_pre, low = (REAL)c->low, high = (REAL)c->high;
    for (int64_t n = r->from; n < r->to; n++) {
        REAL trace = decay_post * c->post[n];
        if (spikes[n]) {
            trace = c->nearest_post ? 1 : trace + 1;
            for (int64_t b = first; b <= block; b++)
                c->sums[b % c->blocks * N + n] += c->powers[t - b * c->block];
        }
        c->post[n] = trace;
        c->change[2 * n] = rate_pre * trace;
        c->change[2 * n + 1] = rate_post * spikes[n];
    }
    memcpy(c->history + t % (c->blocks * c->block) * N + r->from,
           c->sums + block % c->blocks * N + r->from, (size_t)(r->to - r->from) * sizeof(REAL));
    const uint8_t *arrived = arriving(x, c, t);
    for (int64_t e = next(arrived, 0, E); e < E; e = next(arrived, e + 1, E)) {
        REAL *pre = c->pre + r->part * E + e, trace = *pre * c->powers[1] + 1;
        *pre = trace = c->nearest_pre ? 1 : trace;
        c->last[r->part * E + e] = t;
        change_row(row_of(x, c, e, r), trace, c->change, low, high);
    }
}

/* Takes a step for the targets of one part. */
static void take_step(const network *x, int64_t t, int64_t part)
{
    for (int64_t i = 0; i < x->populations; i++) {
        const population *p = &x->groups[i];
        const range r = targets(x, p, part);
        const REAL *input = x->input + (t - 1) * x->size + p->first;
        for (int64_t n = r.from; n < r.to; n++) p->current[n] = (REAL)p->drive + input[n];
    }
    for (int64_t i = 0; i < x->connections; i++) {
        const connection *c = &x->each[i];
        const range r = targets(x, &x->groups[c->target], part);
        if (c->learns && t % c->block == 0) begin_block(x, c, t, &r);
        transmit(x, c, t, &r);
    }
    for (int64_t i = 0; i < x->populations; i++) {
        const population *p = &x->groups[i];
        const range r = targets(x, p, part);
        integrate(p, &r, leaving(x, p, t));
    }
    for (int64_t i = 0; i < x->connections; i++) {
        const connection *c = &x->each[i];
        const range r = targets(x, &x->groups[c->target], part);
        if (c->learns) learn(x, c, t, &r);
    }
}

static void take_steps(const void *task, int64_t begin, int64_t end, void *memory)
{
    const steps *s = task;
    for (int64_t part = begin; part < end; part++)
        for (int64_t t = s->begin; t < s->end; t++) take_step(s->x, t, part);
}

static void settle_all(const void *task, int64_t begin, int64_t end, void *memory)
{
    const network *x = ((const steps *)task)->x;
    for (int64_t part = begin; part < end; part++)
        for (int64_t i = 0; i < x->connections; i++) {
            const connection *c = &x->each[i];
            const range r = targets(x, &x->groups[c->target], part);
            for (int64_t e = 0; c->learns && e < x->groups[c->source].sources; e++)
                settle(x, c, e, &r, row_of(x, c, e, &r), x->steps);
        }
}

/* Finds where the parts of the rows begin. */
static void find_places(const network *x, const connection *c)
{
    const population *p = &x->groups[c->target];
    int64_t *places = c->places;
    for (int64_t e = 0; e < x->groups[c->source].sources; e++)
        for (int64_t part = 0, at = c->starts[e]; part <= x->parts; part++) {
            int64_t end = c->starts[e + 1], from = p->size * part / x->parts;
            while (at < end) {
                int64_t middle = (at + end) / 2;
                if (c->outputs[middle] < from) at = middle + 1;
                else end = middle;
            }
            *places++ = at;
        }
}

/* Takes the steps from `begin` to before `end`, which count from 1 in the first call to all in the last. */
void run_recurrent(const network *x, int64_t begin, int64_t end)
{
    int64_t together = end - begin; /* steps in which nothing arrives that is sent in them */
    for (int64_t i = 0; i < x->connections; i++) {
        if (begin == 1) find_places(x, &x->each[i]);
        if (x->each[i].delay < together) together = x->each[i].delay;
    }
    for (int64_t t = begin; t < end; t += together) {
        const steps s = {x, t, t + together < end ? t + together : end};
        divide(take_steps, &s, x->parts, 0, 0, (int)x->parts);
    }
    const steps all = {x, 1, x->steps + 1};
    if (end > x->steps) divide(settle_all, &all, x->parts, 0, 0, (int)x->parts);
}
