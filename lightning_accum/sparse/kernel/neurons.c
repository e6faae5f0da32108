/* The loop over the steps of integrate-and-fire neurons, for one dtype, REAL. */

#include "neurons.h"
#include "threads.h"

#define BLOCK 1024 /* neurons whose state stays in the cache */

static void integrate_columns(const void *task, int64_t begin, int64_t end, void *memory)
{
    const neurons *p = task;
    REAL *limit = memory, *spiked = limit + BLOCK, *spikes = spiked + BLOCK;
    for (int64_t first = begin * BLOCK; first < end * BLOCK && first < p->N; first += BLOCK) {
        int64_t width = p->N - first < BLOCK ? p->N - first : BLOCK;
        set_limits(p, first, width, limit);
        memset(spiked, 0, BLOCK * sizeof(REAL));
        for (int64_t t = 0; t < p->T; t++) {
            for (int64_t b = 0; b < p->B; b++) {
                int64_t state = b * p->N + first, now = t * p->B * p->N + state;
                const REAL *current = p->current + now;
                if (t + 1 < p->T) /* which is too far away to be expected */
                    for (int64_t n = 0; n < width; n += 64 / (int64_t)sizeof(REAL))
                        __builtin_prefetch(current + p->B * p->N + n);
                take_step(p, now, state, width, current, limit, spiked, spikes);
            }
            adapt(p, first, width, limit, spiked);
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
