/* The loop over the steps of integrate-and-fire neurons, for one dtype, REAL. */

#include "neurons.h"
#include "threads.h"

#define BLOCK 1024 /* neurons whose state stays in the cache, unless they compete */

static int compete(const neurons *p) { return p->losers >= 0 || p->lateral != 0; }

static int64_t block_of(const neurons *p)
{
    return !compete(p) || p->N < BLOCK ? BLOCK : p->N;
}

static void integrate_columns(const void *task, int64_t begin, int64_t end, void *memory)
{
    const neurons *p = task;
    const int64_t block = block_of(p), last = end * block < p->N ? end * block : p->N;
    REAL *limit = memory, *spiked = limit + block, *spikes = spiked + block;
    for (int64_t first = begin * block; first < last; first += block) {
        int64_t width = last - first < block ? last - first : block;
        set_limits(p, first, width, limit);
        memset(spiked, 0, (size_t)width * sizeof(REAL));
        for (int64_t t = 0; t < p->T; t++) {
            for (int64_t b = 0; b < p->B; b++) {
                int64_t state = b * p->N + first, now = t * p->B * p->N + state;
                const REAL *current = p->current + now;
                if (t + 1 < p->T) /* which is too far away to be expected */
                    for (int64_t n = 0; n < width; n += 64 / (int64_t)sizeof(REAL))
                        __builtin_prefetch(current + p->B * p->N + n);
                take_step_of_sample(p, now, state, width, current, limit, spiked, spikes);
            }
            adapt(p, first, width, limit, spiked);
        }
    }
}

/* Integrates a sequence of neurons. */
int integrate(const neurons *p, char *memory, int threads)
{
    neurons task = *p;
    if (!p->theta && !compete(p)) { /* samples are neurons like any others */
        task.N *= p->B;
        task.B = 1;
    }
    const int64_t block = block_of(&task);
    divide(integrate_columns, &task, (task.N + block - 1) / block, memory,
           3 * block * (int64_t)sizeof(REAL), threads);
    return DONE;
}
