/* The step of optimizers that keep a first and a second moment, for one dtype, REAL. */

#include <stdint.h>
#include <tgmath.h>

#include "threads.h"

typedef struct {
    int64_t tensors, elements, is_belief;
    double sign, decay, penalty, beta1, beta2, inner, size, root, floor;
    const int64_t *bytes;
    REAL *const *param, *const *grad, *const *mean, *const *square, *const *most;
} moments;

#define BLOCK 4096 /* elements of a piece */

/* Steps some elements of one tensor; `most` is null without AMSGrad. */
static inline void step_elements(const moments *p, REAL *restrict param, const REAL *restrict grad,
                                 REAL *restrict mean, REAL *restrict square, REAL *restrict most,
                                 int64_t size, const int is_belief, const int is_plain)
{
    const REAL sign = (REAL)p->sign, decay = (REAL)p->decay, penalty = (REAL)p->penalty;
    const REAL keep = (REAL)p->beta2, inner = (REAL)p->inner, length = (REAL)p->size;
    const REAL keep1 = (REAL)p->beta1;
    const REAL new1 = (REAL)(1 - p->beta1), new2 = (REAL)(1 - p->beta2);
    const REAL root = (REAL)p->root, floor = (REAL)p->floor;
    for (int64_t i = 0; i < size; i++) {
        REAL g = is_plain ? grad[i] : sign * grad[i] + penalty * param[i];
        REAL m = keep1 * mean[i] + new1 * g;
        REAL seen = is_belief ? keep1 * (g - mean[i]) : g; /* g - m without its rounding error */
        REAL v = keep * square[i] + new2 * seen * seen + inner;
        mean[i] = m;
        square[i] = v;
        if (most) most[i] = v = v > most[i] || v != v ? v : most[i];
        param[i] = decay * param[i] - length * m / (root ? root * sqrt(v) + floor : floor);
    }
}

static void step_pieces(const void *task, int64_t begin, int64_t end, void *memory)
{
    const moments *p = task;
    const int is_plain = p->sign == 1 && p->penalty == 0;
    int64_t start = 0, from = begin * BLOCK, to = end * BLOCK;
    for (int64_t i = 0; i < p->tensors && start < to; i++) {
        int64_t size = p->bytes[i] / (int64_t)sizeof(REAL);
        int64_t first = from > start ? from - start : 0, last = to - start < size ? to - start : size;
        if (first < last) {
            REAL *most = p->most ? p->most[i] + first : 0;
#define STEP(belief, most, plain)                                                                  \
    step_elements(p, p->param[i] + first, p->grad[i] + first, p->mean[i] + first,                  \
                  p->square[i] + first, most, last - first, belief, plain)
            if (most) STEP((int)p->is_belief, most, 0);
            else if (p->is_belief) STEP(1, 0, 0);
            else if (is_plain) STEP(0, 0, 1);
            else STEP(0, 0, 0);
        }
        start += size;
    }
}

/* Steps tensors of one dtype. */
int step_moments(const moments *p, int threads)
{
    divide(step_pieces, p, (p->elements + BLOCK - 1) / BLOCK, 0, 0, threads);
    return DONE;
}
