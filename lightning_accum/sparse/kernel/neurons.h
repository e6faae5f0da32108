/* A step of integrate-and-fire neurons, for one dtype, REAL. */

#ifndef NEURONS_H
#define NEURONS_H

#include <stdint.h>
#include <string.h>

/* Keeps GCC from unrolling a loop over few neurons, which it then computes without vectors. */
#define ROLLED _Pragma("GCC unroll 1")

typedef struct {
    int64_t T, B, N, is_bytes, period;
    int64_t losers; /* steps for which they are held; -1: none */
    double decay, rest, threshold, decay_theta, rise;
    double lateral; /* by how much a spike lowers all other potentials */
    const REAL *current;
    REAL *v, *hold, *theta;
    void *out;
} neurons;

static inline void set_limits(const neurons *p, int64_t first, int64_t width, REAL *limit)
{
    for (int64_t n = 0; n < width; n++)
        limit[n] = (REAL)((p->theta ? p->theta[first + n] : 0) + p->threshold);
}

/* Takes a step of `width` neurons of one sample, the first of which is `now` in the output and
   `state` in the state; `spiked` counts the samples that spike. */
static inline __attribute__((always_inline)) void take_step(
    const neurons *p, int64_t now, int64_t state, int64_t width, const REAL *restrict current,
    const REAL *restrict limit, REAL *restrict spiked, REAL *restrict spikes)
{
    const REAL decay = (REAL)p->decay, rest = (REAL)p->rest, period = (REAL)p->period;
    REAL *restrict v = p->v + state, *restrict hold = p->hold + state;
    if (p->hold)
        ROLLED for (int64_t n = 0; n < width; n++) {
            REAL x = decay * v[n] + (current[n] + rest);
            x = hold[n] > 0 ? 0 : x;
            spikes[n] = x >= limit[n] ? 1 : 0;
            v[n] = x >= limit[n] ? 0 : x;
            hold[n] = x >= limit[n] ? period : hold[n] > 1 ? hold[n] - 1 : 0;
        }
    else
        ROLLED for (int64_t n = 0; n < width; n++) {
            REAL x = decay * v[n] + (current[n] + rest);
            spikes[n] = x >= limit[n] ? 1 : 0;
            v[n] = x >= limit[n] ? 0 : x;
        }
    if (p->theta)
        ROLLED for (int64_t n = 0; n < width; n++) spiked[n] += spikes[n];
    if (p->is_bytes)
        ROLLED for (int64_t n = 0; n < width; n++) ((uint8_t *)p->out + now)[n] = spikes[n] != 0;
    else memcpy((REAL *)p->out + now, spikes, (size_t)width * sizeof(REAL));
}

/* Takes a step of all neurons of a sample, where at most one spikes: that which exceeds its limit
   most. It resets the others, and holds them. */
static void take_step_of_one(const neurons *p, int64_t now, int64_t state, int64_t width,
                             const REAL *restrict current, const REAL *restrict limit,
                             REAL *restrict spiked)
{
    const REAL decay = (REAL)p->decay, rest = (REAL)p->rest;
    const REAL period = (REAL)p->period, losers = (REAL)p->losers;
    REAL *restrict v = p->v + state, *restrict hold = p->hold + state;
    const int64_t size = p->is_bytes ? 1 : sizeof(REAL);
    int64_t best = 0;
    int some = 0;
    for (int64_t n = 0; n < width; n++) {
        REAL x = decay * v[n] + (current[n] + rest);
        v[n] = x = hold[n] > 0 ? 0 : x;
        hold[n] = hold[n] > 1 ? hold[n] - 1 : 0;
        some |= x >= limit[n];
    }
    memset((char *)p->out + now * size, 0, (size_t)(width * size));
    if (!some) return;
    for (int64_t n = 1; n < width; n++)
        if (v[n] - limit[n] > v[best] - limit[best]) best = n;
    for (int64_t n = 0; n < width; n++) {
        const REAL steps = n == best ? period : losers;
        v[n] = 0;
        hold[n] = hold[n] > steps ? hold[n] : steps;
    }
    if (p->is_bytes) ((uint8_t *)p->out)[now + best] = 1;
    else ((REAL *)p->out)[now + best] = 1;
    if (p->theta) spiked[best] += 1;
}

/* Lowers the potentials of a sample for the spikes of its other neurons. */
static void inhibit(const neurons *p, int64_t state, int64_t width, const REAL *restrict spikes)
{
    REAL *restrict v = p->v + state, count = 0;
    for (int64_t n = 0; n < width; n++) count += spikes[n];
    for (int64_t n = 0; count && n < width; n++) v[n] -= (REAL)p->lateral * (count - spikes[n]);
}

/* Takes a step of a sample, all of whose neurons these are if they compete. */
static inline __attribute__((always_inline)) void take_step_of_sample(
    const neurons *p, int64_t now, int64_t state, int64_t width, const REAL *restrict current,
    const REAL *restrict limit, REAL *restrict spiked, REAL *restrict spikes)
{
    if (p->losers >= 0) take_step_of_one(p, now, state, width, current, limit, spiked);
    else {
        take_step(p, now, state, width, current, limit, spiked, spikes);
        if (p->lateral != 0) inhibit(p, state, width, spikes);
    }
}

/* Raises thresholds that adapt, after all samples of a step. */
static inline __attribute__((always_inline)) void adapt(const neurons *p, int64_t first,
                                                        int64_t width, REAL *restrict limit,
                                                        REAL *restrict spiked)
{
    for (int64_t n = 0; p->theta && n < width; n++) {
        REAL *theta = p->theta + first + n;
        *theta = (REAL)(p->decay_theta * *theta + p->rise * spiked[n] / (double)p->B);
        limit[n] = (REAL)(*theta + p->threshold);
        spiked[n] = 0;
    }
}

#endif
