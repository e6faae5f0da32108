/* The fold of eligibility propagation, for one dtype, REAL. */

#include <stdint.h>

#include "threads.h"

enum { TRIANGULAR, FAST_SIGMOID, ARCTAN };

typedef struct {
    int64_t T, N, form;
    double a, b; /* constants of the pseudo-derivative */
    double limit, kappa, beta, rho;
    const REAL *signal, *membrane, *limits; /* [T, N]; the limit is constant if limits are null */
    const REAL *unfiltered;                 /* [N]; may be null */
    REAL *filtered, *adaptation;            /* [N] what the steps behind these left */
    REAL *out;                              /* [T, N]; may be the signal */
} fold;

#define BLOCK 2048

static inline REAL derivative(int64_t form, REAL x, REAL a, REAL b)
{
    REAL size = x < 0 ? -x : x;
    if (form == TRIANGULAR) {
        REAL y = a - b * size;
        return y < 0 ? 0 : y;
    }
    if (form == FAST_SIGMOID) {
        REAL y = 1 / (1 + a * size);
        return y * y;
    }
    return b / (1 + a * x * (a * x));
}

/* Takes one step; what is constant is known where this is called. */
static inline void fold_step(const fold *f, int64_t t, int64_t first, int64_t width, int64_t form,
                             int64_t adapts, int64_t moves, int64_t adds)
{
    const REAL a = (REAL)f->a, b = (REAL)f->b, limit = (REAL)f->limit, kappa = (REAL)f->kappa;
    const REAL beta = (REAL)f->beta, rho = (REAL)f->rho;
    const int64_t now = t * f->N + first;
    const REAL *signal = f->signal + now, *restrict membrane = f->membrane + now;
    const REAL *restrict limits = f->limits + now, *restrict more = f->unfiltered + first;
    REAL *restrict filtered = f->filtered + first, *restrict mu = f->adaptation + first;
    REAL *out = f->out + now;
#pragma GCC ivdep
    for (int64_t n = 0; n < width; n++) {
        REAL sum = signal[n] + filtered[n];
        filtered[n] = kappa * sum;
        if (adds) sum += more[n];
        REAL psi = derivative(form, membrane[n] - (moves ? limits[n] : limit), a, b);
        REAL q = psi * (adapts ? sum + mu[n] : sum);
        if (adapts) mu[n] = rho * mu[n] - beta * q;
        out[n] = q;
    }
}

static inline void fold_form(const fold *f, int64_t first, int64_t width, int64_t form)
{
    const int64_t adapts = f->beta != 0, moves = f->limits != 0, adds = f->unfiltered != 0;
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
        if (f->form == TRIANGULAR) fold_form(f, first, width, TRIANGULAR);
        if (f->form == FAST_SIGMOID) fold_form(f, first, width, FAST_SIGMOID);
        if (f->form == ARCTAN) fold_form(f, first, width, ARCTAN);
    }
}

/* Folds some steps, backwards in time. */
int fold_eligibility(const fold *f, int threads)
{
    divide(fold_columns, f, (f->N + BLOCK - 1) / BLOCK, 0, 0, threads);
    return DONE;
}
