/* The fold of eligibility propagation in one step of some neurons, for one dtype, REAL. */

#ifndef EPROP_FOLD_H
#define EPROP_FOLD_H

#include <stdint.h>

enum { TRIANGULAR, FAST_SIGMOID, ARCTAN };

typedef struct {
    int64_t form;
    double a, b; /* constants of the pseudo-derivative */
    double limit, kappa, beta, rho;
} fold_constants;

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

/* Writes the folded signal of `width` neurons. What they left in the step behind is replaced.
   `limits` and `more` may be null; what is constant is known where this is called. */
static inline __attribute__((always_inline)) void fold_neurons(
    const fold_constants *f, int64_t width, const REAL *signal, const REAL *restrict membrane,
    const REAL *restrict limits, const REAL *restrict more, REAL *restrict filtered,
    REAL *restrict mu, REAL *out, int64_t form, int64_t adapts, int64_t moves, int64_t adds)
{
    const REAL a = (REAL)f->a, b = (REAL)f->b, limit = (REAL)f->limit, kappa = (REAL)f->kappa;
    const REAL beta = (REAL)f->beta, rho = (REAL)f->rho;
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

#endif
