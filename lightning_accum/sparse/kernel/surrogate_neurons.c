/* The loop over the steps of neurons whose spikes have a surrogate gradient, for one dtype, REAL. */

#include <stdint.h>
#include <string.h>

#include "threads.h"

typedef struct {
    int64_t T, B, N, is_bytes;
    double decay, threshold, beta, decay_adaptation;
    const REAL *current, *weights; /* [N, N] a row for each neuron that spikes; may be null */
    REAL *v, *adaptation, *spikes; /* [B, N] */
    REAL *membrane, *limits;       /* [T, B, N]; the limits are null without adaptation */
    void *raster;                  /* [T + 1, B, N] */
} surrogate_neurons;

#define BLOCK 4096 /* neurons whose state stays in the cache */

/* Adds the rows of the neurons that spiked in the step before. */
static void add_recurrent(const REAL *weights, int64_t N, const REAL *spikes, int32_t *spiking,
                          REAL *restrict sum)
{
    int64_t count = 0, k = 0;
    for (int64_t n = 0; n < N; n += 16) { /* most of 16 neurons are silent */
        int64_t end = n + 16 < N ? n + 16 : N, some = 0;
        for (int64_t i = n; i < end; i++) some |= spikes[i] != 0;
        for (int64_t i = n; some && i < end; i++) {
            spiking[count] = (int32_t)i;
            count += spikes[i] != 0;
        }
    }
    for (; k + 4 <= count; k += 4) {
        const REAL *a = weights + spiking[k] * N, *b = weights + spiking[k + 1] * N;
        const REAL *c = weights + spiking[k + 2] * N, *d = weights + spiking[k + 3] * N;
        REAL za = spikes[spiking[k]], zb = spikes[spiking[k + 1]];
        REAL zc = spikes[spiking[k + 2]], zd = spikes[spiking[k + 3]];
        for (int64_t n = 0; n < N; n++)
            sum[n] += (za * a[n] + zb * b[n]) + (zc * c[n] + zd * d[n]);
    }
    for (; k < count; k++) {
        const REAL *a = weights + spiking[k] * N;
        REAL za = spikes[spiking[k]];
        for (int64_t n = 0; n < N; n++) sum[n] += za * a[n];
    }
}

/* Takes one step of `width` neurons, from the place `first` of a step on. */
static inline void integrate_step(const surrogate_neurons *p, int64_t t, int64_t first,
                                  int64_t width, const REAL *input)
{
    const REAL decay = (REAL)p->decay, threshold = (REAL)p->threshold, beta = (REAL)p->beta;
    const REAL rho = (REAL)p->decay_adaptation;
    const int64_t step = p->B * p->N, now = t * step + first;
    const REAL *before = t ? p->membrane + now - step : p->v + first;
    REAL *restrict potential = p->membrane + now, *restrict z = p->spikes + first;
    if (p->limits) {
        REAL *restrict limits = p->limits + now, *restrict a = p->adaptation + first;
        for (int64_t n = 0; n < width; n++) {
            REAL x = input[n] + decay * before[n] - threshold * z[n];
            REAL limit = threshold + beta * a[n];
            potential[n] = x;
            limits[n] = limit;
            z[n] = x >= limit ? 1 : 0;
            a[n] = rho * a[n] + z[n];
        }
    } else
        for (int64_t n = 0; n < width; n++) {
            REAL x = input[n] + decay * before[n] - threshold * z[n];
            potential[n] = x;
            z[n] = x >= threshold ? 1 : 0;
        }
    if (p->is_bytes) {
        uint8_t *restrict raster = (uint8_t *)p->raster + now + step;
        for (int64_t n = 0; n < width; n++) raster[n] = (uint8_t)(int32_t)z[n];
    } else memcpy((REAL *)p->raster + now + step, z, (size_t)width * sizeof(REAL));
    if (t == p->T - 1) memcpy(p->v + first, potential, (size_t)width * sizeof(REAL));
}

/* Integrates samples of connected neurons. */
static void integrate_samples(const void *task, int64_t begin, int64_t end, void *memory)
{
    const surrogate_neurons *p = task;
    const int64_t N = p->N;
    REAL *input = memory;
    for (int64_t t = 0; t < p->T; t++)
        for (int64_t b = begin; b < end; b++) {
            memcpy(input, p->current + (t * p->B + b) * N, (size_t)N * sizeof(REAL));
            add_recurrent(p->weights, N, p->spikes + b * N, (int32_t *)(input + N), input);
            integrate_step(p, t, b * N, N, input);
        }
}

/* Integrates neurons that are not connected, a block of them at a time. */
static void integrate_blocks(const void *task, int64_t begin, int64_t end, void *memory)
{
    const surrogate_neurons *p = task;
    const int64_t size = p->B * p->N;
    (void)memory;
    for (int64_t first = begin * BLOCK; first < end * BLOCK && first < size; first += BLOCK) {
        int64_t width = size - first < BLOCK ? size - first : BLOCK;
        for (int64_t t = 0; t < p->T; t++)
            integrate_step(p, t, first, width, p->current + t * size + first);
    }
}

/* Integrates a sequence of neurons. The memory has room for an input and the spiking neurons. */
int integrate_surrogate(const surrogate_neurons *p, char *memory, int threads)
{
    int64_t row = p->N * (int64_t)(sizeof(REAL) + sizeof(int32_t));
    if (p->weights) divide(integrate_samples, p, p->B, memory, (row + 63) / 64 * 64, threads);
    else
        divide(integrate_blocks, p, (p->B * p->N + BLOCK - 1) / BLOCK, memory, 0, threads);
    return DONE;
}
