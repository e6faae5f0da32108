/* What the rows of a sum of outer products are made of, for one dtype, REAL. */

#ifndef OUTER_PRODUCT_OPERANDS_H
#define OUTER_PRODUCT_OPERANDS_H

#include <string.h>

#include "columns.h"
#include "eprop_fold.h"

enum { PLAIN, CUMULATIVE, NEAREST, REVERSE };

/* The signal of eligibility propagation, folded backwards in time; its values are membranes. */
typedef struct {
    fold_constants constants;
    int64_t classes, every_step;
    const REAL *errors, *feedback;      /* [T, B, classes] or [B, classes]; [classes, D] */
    const REAL *limits, *unfiltered;    /* [T, B, D] and [D]; may be null */
    const REAL *filtered, *adaptation;  /* [B, D] what the steps behind these left; may be null */
} folding;

/* Values [T, B, D], or their trace. */
typedef struct {
    const void *values;
    const REAL *weights; /* [T, B] factors of the rows of values, or of the trace; may be null */
    const REAL *before;  /* [B, D] the trace before the first step; may be null */
    REAL *last;          /* [B, D] receives the trace of the step that comes last; may be null */
    uint32_t *bits;      /* [pieces, T, B] has room for spikes, a bit for each, which sources
                            of the same values share; else null */
    const folding *folded; /* values are the reverse trace of these; may be null */
    double decay, rate;
    int64_t mode;
} source;

static inline void load(line *to, const REAL *from, int64_t width)
{
    if (width == COLUMNS) memcpy(to, from, sizeof(line));
    else {
        memset(to, 0, sizeof(line));
        memcpy(to, from, (size_t)width * sizeof(REAL));
    }
}

static __attribute__((noinline)) void fold_line(const fold_constants *f, const REAL *signal,
                                                const REAL *membrane, const REAL *limits,
                                                const REAL *more, REAL *filtered, REAL *mu,
                                                REAL *out)
{
    const int64_t adapts = f->beta != 0;
#define FOLD(F, A) \
    if (f->form == F && adapts == A) \
        fold_neurons(f, COLUMNS, signal, membrane, limits, more, filtered, mu, out, F, A, 1, 1)
    FOLD(TRIANGULAR, 0);
    FOLD(TRIANGULAR, 1);
    FOLD(FAST_SIGMOID, 0);
    FOLD(FAST_SIGMOID, 1);
    FOLD(ARCTAN, 0);
    FOLD(ARCTAN, 1);
}

/* Adds the reverse trace of a folded signal to the rows of a piece. The memory has room for three
   states of each sample and the feedback of each class. */
static void add_folded(const source *s, int64_t T, int64_t B, int64_t D, int64_t first,
                       int64_t width, line *rows, line *memory)
{
    const folding *f = s->folded;
    const REAL decay = (REAL)s->decay, rate = (REAL)s->rate;
    const int64_t moves = f->limits != 0, classes = f->classes;
    line *trace = memory, *filtered = trace + B, *mu = filtered + B, *feedback = mu + B;
    line signal, membrane, limit, more = {{{0}}}, q;
    memset(memory, 0, (size_t)(3 * B) * sizeof(line));
    for (int64_t b = 0; b < B; b++) {
        if (f->filtered) load(filtered + b, f->filtered + b * D + first, width);
        if (f->adaptation) load(mu + b, f->adaptation + b * D + first, width);
    }
    for (int64_t c = 0; c < classes; c++) load(feedback + c, f->feedback + c * D + first, width);
    if (f->unfiltered) load(&more, f->unfiltered + first, width);
    for (int64_t n = 0; n < COLUMNS; n++) ((REAL *)&limit)[n] = (REAL)f->constants.limit;
    for (int64_t k = T * B - 1; k >= 0; k--) {
        const int64_t b = k % B, before = k >= B ? k - B : k, at = k * D + first;
        const REAL *error = f->errors + (f->every_step ? k : b) * classes;
        for (int h = 0; h < PARTS; h++) {
            __builtin_prefetch((const REAL *)s->values + before * D + first + h * LANES);
            if (moves) __builtin_prefetch(f->limits + before * D + first + h * LANES);
        }
        load(&membrane, (const REAL *)s->values + at, width);
        if (moves) load(&limit, f->limits + at, width);
        memset(&signal, 0, sizeof(line));
        for (int64_t c = 0; c < classes; c++)
            for (int h = 0; h < PARTS; h++) signal.part[h] += error[c] * feedback[c].part[h];
        fold_line(&f->constants, (REAL *)&signal, (REAL *)&membrane, (REAL *)&limit,
                  (REAL *)&more, (REAL *)(filtered + b), (REAL *)(mu + b), (REAL *)&q);
        for (int h = 0; h < PARTS; h++) {
            trace[b].part[h] = q.part[h] + decay * trace[b].part[h];
            rows[k].part[h] += rate * trace[b].part[h];
        }
    }
    for (int64_t b = 0; s->last && b < B; b++)
        memcpy(s->last + b * D + first, trace + b, (size_t)width * sizeof(REAL));
}

#endif
