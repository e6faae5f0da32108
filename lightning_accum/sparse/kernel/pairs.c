/* Changes by pairs of spikes: by the time from each spike to the latest one of the other side. */

#include <math.h>

#include "columns.h"
#include "threads.h"

/* The change for a difference of time d >= 0, a e^(l d + c d d) - offset, and for d < 0 the same
   with its own a, and l of -d; or a table of changes, which ends with that of no spike. */
typedef struct {
    double a[2], l[2], c, offset;
    const REAL *table;
    int64_t length;
} change;

typedef struct {
    bag_index x;           /* the spikes of one side, in the order of neurons */
    int64_t T, B, D;       /* of the other side */
    const uint8_t *spikes; /* [T, B, D] */
    const REAL *before;    /* [B, D] steps since the latest spike before the first step, or null */
    REAL *last;            /* [B, D] receives the same of the last step */
    uint32_t *bits;        /* [pieces, T, B] has room for spikes */
    const REAL *delays;    /* subtracted from differences of time, of the shape of `up`; or null */
    double dt;             /* what one step adds to a difference of time: a step, or minus a step */
    int64_t least;         /* the least number of steps that makes a pair */
    const change *change;
    int64_t by_spike, onto;
    REAL *up, *down; /* [bags, D] if it is by spike, otherwise [D, bags] */
} pairs;

static inline vec select_of(whole which, vec yes, vec no)
{
    return (vec)((which & (whole)yes) | (~which & (whole)no));
}

/* The exponential of numbers that are not positive. */
static inline vec exponential(vec x)
{
    const int single = sizeof(REAL) == 4, terms = single ? 7 : 13;
    const REAL least = single ? -87 : -708;
    const REAL high = single ? (REAL)0x1.62e4p-1 : (REAL)0x1.62e42feep-1; /* of the logarithm of 2 */
    const REAL low = single ? (REAL)0x1.7f7d1cp-20 : (REAL)0x1.a39ef35793c76p-33;
    const whole small = x > least;
    x = select_of(small, x, (vec){0} + least); /* a number that is not one, too */
    whole n = __builtin_convertvector(x * (REAL)1.4426950408889634 - (REAL)0.5, whole);
    vec times = __builtin_convertvector(n, vec);
    vec r = (x - times * high) - times * low, sum = (vec){0} + 1;
    for (int i = terms; i > 0; i--) sum = 1 + sum * r * (1 / (REAL)i);
    vec power = (vec)((n + (single ? 127 : 1023)) << (single ? 23 : 52));
    return (vec)(small & (whole)(sum * power));
}

static inline vec change_of(const change *by, vec delta)
{
    const whole after = delta >= 0;
    const vec zero = {0}, far = select_of(after, delta, -delta);
    vec a = select_of(after, zero + (REAL)by->a[0], zero + (REAL)by->a[1]);
    vec l = select_of(after, zero + (REAL)by->l[0], zero + (REAL)by->l[1]);
    return a * exponential(far * (l + (REAL)by->c * far)) - (REAL)by->offset;
}

/* What is not a number of steps, such as NaN, is far away. */
static inline vec from_table(const change *by, vec steps)
{
    const REAL end = (REAL)(by->length - 1);
    const whole inside = (steps >= 0) & (steps < end);
    whole at = __builtin_convertvector(select_of(inside, steps, (vec){0} + end), whole);
    vec found;
    for (int i = 0; i < LANES; i++) found[i] = by->table[at[i]];
    return found;
}

static void pack_spikes(const void *task, int64_t begin, int64_t end, void *memory)
{
    const pairs *p = task;
    for (int64_t k = begin; k < end; k++)
        pack_row(p->spikes + k * p->D, k, p->T * p->B, p->D, p->bits);
}

/* Writes rows [T, B] of a piece: changes, or differences of time from which a delay is subtracted.
   `steps` [B] is the number of steps since the latest spike, infinite if there was none. */
static void rows_of(const pairs *p, int64_t first, int64_t width, line *rows, line *steps)
{
    for (int64_t b = 0; b < p->B; b++) {
        for (int h = 0; h < PARTS; h++) steps[b].part[h] = (vec){0} + (REAL)INFINITY;
        if (p->before) memcpy(steps + b, p->before + b * p->D + first, (size_t)width * sizeof(REAL));
    }
    const uint32_t *bits = p->bits + first / COLUMNS * p->T * p->B;
    for (int64_t k = 0, b = 0; k < p->T * p->B; k++, b = b + 1 < p->B ? b + 1 : 0)
        for (int h = 0; h < PARTS; h++) {
            const whole spike = lanes_of(bits[k], h);
            vec now = (vec)(~spike & (whole)(steps[b].part[h] + 1));
            steps[b].part[h] = now;
            if (p->change->table) {
                rows[k].part[h] = from_table(p->change, now);
                continue;
            }
            const whole pair = (now >= (REAL)p->least) & (now < (REAL)INFINITY);
            vec delta = now * (REAL)p->dt;
            if (!p->delays) delta = (vec)(pair & (whole)change_of(p->change, delta));
            else delta = select_of(pair, delta, (vec){0} + (REAL)INFINITY);
            rows[k].part[h] = delta;
        }
    for (int64_t b = 0; b < p->B; b++)
        memcpy(p->last + b * p->D + first, steps + b, (size_t)width * sizeof(REAL));
}

/* Sums what is positive and what is negative of the rows of a bag. */
static inline __attribute__((always_inline)) void sums_of(const pairs *p, int64_t bag,
                                                          const line *rows, const line *delay,
                                                          line *up, line *down)
{
    const bag_index *x = &p->x;
    const int64_t end = bag + 1 < x->bags ? x->starts[bag + 1] : x->n;
    line ups = {{{0}}}, downs = {{{0}}};
    for (int64_t i = x->starts[bag]; i < end; i++)
        for (int h = 0; h < PARTS; h++) {
            vec value = rows[x->places[i]].part[h];
            if (delay) {
                const whole pair = value < (REAL)INFINITY;
                value = (vec)(pair & (whole)change_of(p->change, value - delay->part[h]));
            }
            const whole positive = value > 0;
            ups.part[h] += (vec)(positive & (whole)value);
            downs.part[h] -= (vec)(~positive & (whole)value);
        }
    *up = ups;
    *down = downs;
}

static void pair_columns(const void *task, int64_t begin, int64_t end, void *memory)
{
    const pairs *p = task;
    const int64_t D = p->D, E = p->x.bags;
    line *rows = memory, *steps = rows + p->T * p->B, delay[TILE] = {{{{0}}}}, found[2][TILE];
    for (int64_t first = begin * COLUMNS; first < end * COLUMNS && first < D; first += COLUMNS) {
        const int64_t width = D - first < COLUMNS ? D - first : COLUMNS;
        rows_of(p, first, width, rows, steps);
        for (int64_t e = 0; e < E; e += TILE) {
            const int64_t height = E - e < TILE ? E - e : TILE;
            for (int64_t i = 0; p->delays && p->by_spike && i < height; i++)
                copy_some(p->delays + (e + i) * D + first, 1, (REAL *)(delay + i), 1, width, COLUMNS,
                          0);
            for (int64_t d = 0; p->delays && !p->by_spike && d < width; d++)
                copy_some(p->delays + (first + d) * E + e, 1, (REAL *)delay + d, COLUMNS, height,
                          TILE, 0);
            for (int64_t i = 0; i < height; i++)
                if (p->delays) sums_of(p, e + i, rows, delay + i, found[0] + i, found[1] + i);
                else sums_of(p, e + i, rows, 0, found[0] + i, found[1] + i);
            for (int part = 0; part < 2; part++) {
                REAL *out = part ? p->down : p->up;
                for (int64_t i = 0; p->by_spike && i < height; i++)
                    copy_some((REAL *)(found[part] + i), 1, out + (e + i) * D + first, 1, width,
                              COLUMNS, p->onto);
                for (int64_t d = 0; !p->by_spike && d < width; d++)
                    copy_some((REAL *)found[part] + d, COLUMNS, out + (first + d) * E + e, 1, height,
                              TILE, p->onto);
            }
        }
    }
}

/* Writes to `up` and `down`, or adds, what the pairs of each spike with the latest spikes of the
   other side change: what is positive, and what is negative, with the sign reversed. */
int pair_events(const int32_t *starts, const int32_t *rows, int64_t n, int64_t E, int64_t T,
                int64_t B, int64_t D, const uint8_t *spikes, const REAL *before, REAL *last,
                uint32_t *bits, const REAL *delays, double dt, int64_t least, const change *change,
                int64_t by_spike, int64_t onto, REAL *up, REAL *down, char *memory, int threads)
{
    pairs p = {{starts, rows, 0, E, n, T * B}, T, B, D, spikes, before, last, bits, delays, dt,
               least, change, by_spike, onto, up, down};
    if (!is_inside(&p.x)) return OUTSIDE;
    divide(pack_spikes, &p, T * B, memory, 0, threads);
    divide(pair_columns, &p, (D + COLUMNS - 1) / COLUMNS, memory,
           (T * B + B) * (int64_t)sizeof(line), threads);
    return DONE;
}
