/* The loop over the steps of integrate-and-fire neurons, for one dtype, REAL. */

#include <stdint.h>
#include <string.h>

#include "threads.h"

typedef struct {
    int64_t T, B, N, is_bytes, period;
    double decay, rest, threshold, decay_theta, rise;
    const REAL *current;
    REAL *v, *hold, *theta;
    void *out;
} neurons;

#define BLOCK 1024 /* neurons whose state stays in the cache */

static void copy_to_bytes(const REAL *restrict spikes, uint8_t *restrict bytes, int64_t width)
{
    for (int64_t n = 0; n < width; n++) bytes[n] = spikes[n] != 0;
}

static void integrate_columns(const void *task, int64_t begin, int64_t end, void *memory)
{
    const neurons *p = task;
    const REAL decay = (REAL)p->decay, rest = (REAL)p->rest, period = (REAL)p->period;
    REAL *limit = memory, *spiked = limit + BLOCK, *spikes = spiked + BLOCK;
    for (int64_t first = begin * BLOCK; first < end * BLOCK && first < p->N; first += BLOCK) {
        int64_t width = p->N - first < BLOCK ? p->N - first : BLOCK;
        for (int64_t n = 0; n < width; n++)
            limit[n] = (REAL)((p->theta ? p->theta[first + n] : 0) + p->threshold);
        for (int64_t t = 0; t < p->T; t++) {
            memset(spiked, 0, BLOCK * sizeof(REAL));
            for (int64_t b = 0; b < p->B; b++) {
                int64_t state = b * p->N + first, now = t * p->B * p->N + state;
                REAL *restrict v = p->v + state, *restrict hold = p->hold + state;
                const REAL *restrict current = p->current + now;
                if (t + 1 < p->T) /* which is too far away to be expected */
                    for (int64_t n = 0; n < width; n += 64 / (int64_t)sizeof(REAL))
                        __builtin_prefetch(current + p->B * p->N + n);
                if (p->hold)
                    for (int64_t n = 0; n < width; n++) {
                        REAL x = decay * v[n] + (current[n] + rest);
                        x = hold[n] > 0 ? 0 : x;
                        spikes[n] = x >= limit[n] ? 1 : 0;
                        v[n] = x >= limit[n] ? 0 : x;
                        hold[n] = x >= limit[n] ? period : hold[n] > 1 ? hold[n] - 1 : 0;
                    }
                else
                    for (int64_t n = 0; n < width; n++) {
                        REAL x = decay * v[n] + (current[n] + rest);
                        spikes[n] = x >= limit[n] ? 1 : 0;
                        v[n] = x >= limit[n] ? 0 : x;
                    }
                if (p->theta)
                    for (int64_t n = 0; n < width; n++) spiked[n] += spikes[n];
                if (p->is_bytes) copy_to_bytes(spikes, (uint8_t *)p->out + now, width);
                else memcpy((REAL *)p->out + now, spikes, (size_t)width * sizeof(REAL));
            }
            for (int64_t n = 0; p->theta && n < width; n++) {
                REAL *theta = p->theta + first + n;
                *theta = (REAL)(p->decay_theta * *theta + p->rise * spiked[n] / (double)p->B);
                limit[n] = (REAL)(*theta + p->threshold);
            }
        }
    }
}

/* Integrates a sequence of neurons. */
int integrate(const neurons *p, char *memory, int threads)
{
    neurons task = *p;
    if (!p->theta) { /* samples are neurons like any others */
        task.N *= p->B;
        task.B = 1;
    }
    divide(integrate_columns, &task, (task.N + BLOCK - 1) / BLOCK, memory,
           3 * BLOCK * (int64_t)sizeof(REAL), threads);
    return DONE;
}
