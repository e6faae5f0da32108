/* Simulates a layer of integrate-and-fire neurons, and learns by pair STDP after each step.

   sparse/neurons.py checks every argument; the plain form is rules/online.py.

   A postsynaptic spike changes a weight of every input. These changes wait in a list until the
   input's weights are read, so that a row of weights stays in the cache while its changes are made:
   few inputs spike in a step. */

#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t steps, batch, inputs, neurons, room;
    const uint8_t *raster; /* [T, B, E], 0 or 1 */
    uint8_t *spikes;       /* [T, B, N] */
    REAL *weight;          /* [E, N], the transposed weight */
    const REAL *bias;      /* [N], or null */
    REAL *v, *hold;        /* [B, N] */
    REAL *theta;           /* [N], the rise of the threshold */
    REAL *pre;             /* [E, B], the presynaptic traces at the step `last` of each input */
    REAL *post;            /* [B, N], the postsynaptic traces */
    const REAL *powers;    /* [T + 1], powers of decay_pre */
    /* work memory */
    REAL *current;         /* [N] */
    int32_t *last;         /* [E] */
    int32_t *samples, *columns, *times; /* [room] the waiting postsynaptic spikes */
    int32_t *starts;       /* [T + 1] the first of them in each step */
    int32_t *ins;          /* [B * E] the presynaptic spikes of a step */
    uint8_t *read;         /* [E] whether an input spikes in this step */
    double decay, drive, threshold, period, decay_theta, theta_plus;
    double decay_post, rate_post, rate_pre, low, high;
    int32_t nearest, bounded, losers; /* losers: steps for which they are held; -1: none */
} online;

static void clamp(REAL *w, int64_t n, REAL low, REAL high)
{
    for (int64_t i = 0; i < n; i++) w[i] = w[i] < low ? low : w[i] > high ? high : w[i];
}

static void integrate(const online *x, REAL *v, REAL *hold, uint8_t *spikes)
{
    const int64_t N = x->neurons;
    const REAL *theta = x->theta, *current = x->current;
    const REAL decay = (REAL)x->decay, threshold = (REAL)x->threshold;
    const REAL period = (REAL)x->period, losers = (REAL)x->losers;
    for (int64_t n = 0; n < N; n++) {
        REAL now = current[n] + decay * v[n];
        v[n] = hold[n] > 0 ? 0 : now;
        hold[n] -= 1;
        spikes[n] = v[n] >= threshold + theta[n];
    }
    if (losers >= 0 && N) {
        int64_t best = 0;
        REAL most = v[0] - (threshold + theta[0]);
        for (int64_t n = 1; n < N; n++) {
            REAL excess = v[n] - (threshold + theta[n]);
            if (excess > most) best = n, most = excess;
        }
        memset(spikes, 0, (size_t)N);
        if (most >= 0) {
            spikes[best] = 1;
            for (int64_t n = 0; n < N; n++) {
                if (n == best) continue;
                v[n] = 0;
                hold[n] = hold[n] > losers ? hold[n] : losers;
            }
        }
    }
    for (int64_t n = 0; n < N; n++) {
        if (!spikes[n]) continue;
        v[n] = 0;
        hold[n] = hold[n] > period ? hold[n] : period;
    }
}

/* Makes the changes of an input's weights by the postsynaptic spikes from `begin` to `end`. */
static void change(const online *x, int64_t e, int64_t begin, int64_t end)
{
    REAL *w = x->weight + e * x->neurons;
    const REAL *trace = x->pre + e * x->batch;
    const int32_t last = x->last[e];
    const REAL rate = (REAL)x->rate_post;
    for (int64_t k = begin; k < end; k++)
        w[x->columns[k]] += rate * x->powers[x->times[k] - last] * trace[x->samples[k]];
}

/* Makes the changes that wait for an input, and brings its traces to the step `t`. */
static void settle(const online *x, int64_t e, int64_t t, int64_t waiting)
{
    if (x->last[e] == t) return;
    int64_t begin = x->last[e] < 0 ? 0 : x->starts[x->last[e] + 1];
    if (begin < waiting) {
        change(x, e, begin, waiting);
        if (x->bounded) clamp(x->weight + e * x->neurons, x->neurons, (REAL)x->low, (REAL)x->high);
    }
    REAL power = x->powers[t - x->last[e]];
    for (int64_t b = 0; b < x->batch; b++) x->pre[e * x->batch + b] *= power;
    x->last[e] = (int32_t)t;
}

void run_online(const online *x)
{
    const int64_t B = x->batch, E = x->inputs, N = x->neurons;
    const REAL drive = (REAL)x->drive, decay_post = (REAL)x->decay_post;
    const REAL rate_pre = (REAL)x->rate_pre, decay_theta = (REAL)x->decay_theta;
    const REAL rise = (REAL)(x->theta_plus / (double)(x->batch ? x->batch : 1));
    int64_t waiting = 0;
    for (int64_t e = 0; e < E; e++) x->last[e] = -1;
    for (int64_t t = 0; t < x->steps; t++) {
        const uint8_t *raster = x->raster + t * B * E;
        uint8_t *spikes = x->spikes + t * B * N;
        int64_t n_in = 0;
        if (waiting + B * N > x->room) { /* then everything is settled, and the list begins anew */
            for (int64_t e = 0; e < E; e++) settle(x, e, t - 1, waiting);
            waiting = 0;
        }
        x->starts[t] = (int32_t)waiting;
        const int64_t first = waiting;
        memset(x->read, 0, (size_t)E);
        for (int64_t i = 0; i < B * N; i++) x->post[i] *= decay_post;
        for (int64_t b = 0; b < B; b++) {
            REAL *current = x->current;
            for (int64_t n = 0; n < N; n++) current[n] = drive + (x->bias ? x->bias[n] : 0);
            for (int64_t at = 0; at < E; at += 8) {
                uint64_t word = 0;
                memcpy(&word, raster + b * E + at, (size_t)(E - at < 8 ? E - at : 8));
                for (; word; word &= word - 1) {
                    const int64_t e = at + __builtin_ctzll(word) / 8;
                    settle(x, e, t, first);
                    const REAL *w = x->weight + e * N;
                    for (int64_t n = 0; n < N; n++) current[n] += w[n];
                    x->ins[n_in++] = (int32_t)(b * E + e);
                    x->read[e] = 1;
                }
            }
            integrate(x, x->v + b * N, x->hold + b * N, spikes + b * N);
            for (int64_t n = 0; n < N; n++) {
                if (!spikes[b * N + n]) continue;
                REAL *trace = x->post + b * N + n;
                *trace = x->nearest ? 1 : *trace + 1;
                x->samples[waiting] = (int32_t)b;
                x->times[waiting] = (int32_t)t;
                x->columns[waiting++] = (int32_t)n;
            }
        }
        for (int64_t k = 0; k < n_in; k++) {
            REAL *trace = x->pre + x->ins[k] % E * B + x->ins[k] / E;
            *trace = x->nearest ? 1 : *trace + 1;
        }
        for (int64_t n = 0; n < N; n++) x->theta[n] *= decay_theta;
        for (int64_t k = first; k < waiting; k++) x->theta[x->columns[k]] += rise;
        for (int64_t e = 0; e < E; e++)
            if (x->read[e]) change(x, e, first, waiting);
        for (int64_t k = 0; k < n_in; k++) {
            REAL *w = x->weight + x->ins[k] % E * N;
            const REAL *trace = x->post + x->ins[k] / E * N;
            for (int64_t n = 0; n < N; n++) w[n] += rate_pre * trace[n];
        }
        x->starts[t + 1] = (int32_t)waiting;
        if (x->bounded)
            for (int64_t e = 0; e < E; e++)
                if (x->read[e]) clamp(x->weight + e * N, N, (REAL)x->low, (REAL)x->high);
    }
    for (int64_t e = 0; e < E; e++) settle(x, e, x->steps - 1, waiting);
}
