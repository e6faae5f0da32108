/* A step of learning: its activity as numbers, its traces, and both sides of its products, for one
   dtype, REAL. */

#include <math.h>
#include <stdint.h>

enum { BYTES, NUMBERS, SCALED, CUMULATIVE, NEAREST }; /* what `to` is made of `from` */

typedef struct {
    int64_t kind, size, of; /* the change that writes `from`, unless it is recorded activity */
    double factor, most;    /* no element of `to` is larger; NaN if one may be NaN */
    const void *from;
    REAL *to;
} change;

/* Returns the largest magnitude, NaN if an element is NaN. */
static double largest(const REAL *values, int64_t size)
{
    double most = 0;
    for (int64_t i = 0; i < size; i++) {
        double magnitude = fabs((double)values[i]);
        if (!(magnitude <= most)) most = magnitude;
        if (isnan(most)) break;
    }
    return most;
}

/* Makes all changes, in order. Returns a bound of the elements of a sum of products, each of `rows`
   rows, whose sides are written by the changes that `sides` has in pairs. */
double make_step(change *changes, int64_t count, const int64_t *sides, int64_t products,
                 int64_t rows)
{
    double bound = 0;
    for (change *c = changes; c < changes + count; c++) {
        const REAL factor = (REAL)c->factor, *restrict from = c->from;
        const uint8_t *restrict bytes = c->from;
        const double given = c->of < 0 ? 1 : changes[c->of].most, left = fabs(c->factor) * c->most;
        REAL *restrict to = c->to;
        switch (c->kind) {
        case BYTES:
            for (int64_t i = 0; i < c->size; i++) to[i] = bytes[i];
            c->most = 1;
            break;
        case NUMBERS:
            for (int64_t i = 0; i < c->size; i++) to[i] = from[i];
            c->most = largest(from, c->size);
            break;
        case SCALED:
            for (int64_t i = 0; i < c->size; i++) to[i] = factor * from[i];
            c->most = fabs(c->factor) * given;
            break;
        case CUMULATIVE:
            for (int64_t i = 0; i < c->size; i++) to[i] = factor * to[i] + from[i];
            c->most = left + given;
            break;
        case NEAREST:
            for (int64_t i = 0; i < c->size; i++) to[i] = from[i] != 0 ? from[i] : factor * to[i];
            c->most = given <= left || isnan(left) ? left : given;
        }
    }
    for (const int64_t *pair = sides; pair < sides + 2 * products; pair += 2)
        bound += (double)rows * changes[pair[0]].most * changes[pair[1]].most;
    return bound;
}
