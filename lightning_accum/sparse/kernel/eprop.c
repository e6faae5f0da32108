/* The fold of eligibility propagation, for one dtype, REAL. */

#include <stdint.h>

#include "eprop_fold.h"
#include "threads.h"

typedef struct {
    int64_t T, N;
    fold_constants constants;
    const REAL *signal, *membrane, *limits; /* [T, N]; the limit is constant if limits are null */
    const REAL *unfiltered;                 /* [N]; may be null */
    REAL *filtered, *adaptation;            /* [N] what the steps behind these left */
    REAL *out;                              /* [T, N]; may be the signal */
} fold;

#define BLOCK 2048

/* Takes one step; what is constant is known where this is called. */
static inline void fold_step(const fold *f, int64_t t, int64_t first, int64_t width, int64_t form,
                             int64_t adapts, int64_t moves, int64_t adds)
{
    const int64_t now = t * f->N + first;
    fold_neurons(&f->constants, width, f->signal + now, f->membrane + now, f->limits + now,
                 f->unfiltered + first, f->filtered + first, f->adaptation + first, f->out + now,
                 form, adapts, moves, adds);
}

static inline void fold_form(const fold *f, int64_t first, int64_t width, int64_t form)
{
    const int64_t adapts = f->constants.beta != 0, moves = f->limits != 0, adds = f->unfiltered != 0;
    for (int64_t t = f->T - 1; t >= 0; t--) {
        if (adds) fold_step(f, t, first, width, form, adapts, moves, 1);
        else if (adapts && moves) fold_step(f, t, first, width, form, 1, 1, 0);
        else if (adapts) fold_step(f, t, first, width, form, 1, 0, 0);
        else if (moves) fold_step(f, t, first, width, form, 0, 1, 0);
        else fold_step(f, t, first, width, form, 0, 0, 0);
    }
}

static void fold_columns(const void *task, int64_t begin, int64_t end, void *memory)
{
    const fold *f = task;
    (void)memory;
    for (int64_t first = begin * BLOCK; first < end * BLOCK && first < f->N; first += BLOCK) {
        int64_t width = f->N - first < BLOCK ? f->N - first : BLOCK;
        if (f->constants.form == TRIANGULAR) fold_form(f, first, width, TRIANGULAR);
        if (f->constants.form == FAST_SIGMOID) fold_form(f, first, width, FAST_SIGMOID);
        if (f->constants.form == ARCTAN) fold_form(f, first, width, ARCTAN);
    }
}

/* Folds some steps, backwards in time. */
int fold_eligibility(const fold *f, int threads)
{
    divide(fold_columns, f, (f->N + BLOCK - 1) / BLOCK, 0, 0, threads);
    return DONE;
}
