/* Sums over events, for one dtype, REAL. compiled.py checks shapes, dtypes and memory of every
   argument; what an index holds is checked here.

   A sum works on a few columns at a time, so that what it reads in any order stays in the cache. */

#include <stdint.h>
#include <string.h>

#include "threads.h"

#define COLUMNS (128 / (int)sizeof(REAL)) /* of a piece */
#define TILE 16             /* rows that are transposed together */

typedef REAL vec __attribute__((vector_size(64)));
typedef struct {
    vec half[2];
} line; /* the columns of a piece in one row */

/* Bags of places: the bag k has the places from `starts[k]` to before the next bag's. */
typedef struct {
    const int32_t *starts, *places;
    const REAL *shares; /* of each place; one if null */
    int64_t bags, n, rows;
} bag_index;

static int is_inside(const bag_index *x)
{
    int32_t before = 0, wrong = 0;
    for (int64_t i = 0; i < x->bags; i++) {
        wrong |= (x->starts[i] < before) | (x->starts[i] > x->n);
        before = x->starts[i];
    }
    for (int64_t i = 0; i < x->n; i++)
        wrong |= (x->places[i] < 0) | (x->places[i] >= x->rows);
    return !wrong;
}

static inline line sum_of(const bag_index *x, int64_t bag, const line *table)
{
    int64_t end = bag + 1 < x->bags ? x->starts[bag + 1] : x->n;
    vec a = {0}, b = {0};
    if (x->shares)
        for (int64_t i = x->starts[bag]; i < end; i++) {
            a += x->shares[i] * table[x->places[i]].half[0];
            b += x->shares[i] * table[x->places[i]].half[1];
        }
    else
        for (int64_t i = x->starts[bag]; i < end; i++) {
            a += table[x->places[i]].half[0];
            b += table[x->places[i]].half[1];
        }
    return (line){{a, b}};
}

/* Copies `count` numbers at one distance to places at another, or what is left; or adds them. */
static inline void copy_some(const REAL *from, int64_t every, REAL *to, int64_t other, int64_t left,
                             int64_t count, int64_t onto)
{
    if (onto)
        for (int64_t i = 0; i < count && i < left; i++) to[i * other] += from[i * every];
    else if (left >= count)
        for (int64_t i = 0; i < count; i++) to[i * other] = from[i * every];
    else
        for (int64_t i = 0; i < left; i++) to[i * other] = from[i * every];
}

static inline void store(REAL *to, line x, int64_t width)
{
    if (width == COLUMNS) memcpy(to, &x, sizeof(line));
    else memcpy(to, &x, (size_t)width * sizeof(REAL));
}

typedef struct {
    bag_index x;
    int64_t D;
    const REAL *table, *bias;
    REAL *out;
} product;

/* Sums columns of `table` [D, rows], which are copied to lines first. */
static void multiply_columns(const void *task, int64_t begin, int64_t end, void *memory)
{
    const product *p = task;
    const int64_t rows = p->x.rows;
    line *table = memory;
    for (int64_t first = begin * COLUMNS; first < end * COLUMNS && first < p->D; first += COLUMNS) {
        int64_t width = p->D - first < COLUMNS ? p->D - first : COLUMNS;
        line bias = {{{0}}};
        if (p->bias) memcpy(&bias, p->bias + first, (size_t)width * sizeof(REAL));
        if (width < COLUMNS) memset(table, 0, (size_t)rows * sizeof(line));
        for (int64_t e = 0; e < rows; e += TILE)
            for (int64_t d = 0; d < width; d++)
                copy_some(p->table + (first + d) * rows + e, 1, (REAL *)(table + e) + d, COLUMNS,
                          rows - e, TILE, 0);
        for (int64_t bag = 0; bag < p->x.bags; bag++) {
            line sum = sum_of(&p->x, bag, table);
            sum.half[0] += bias.half[0];
            sum.half[1] += bias.half[1];
            store(p->out + bag * p->D + first, sum, width);
        }
    }
}

/* out[k, d] = bias[d] + the sum of table[d, e] over the events (k, e). */
int multiply_events(const int32_t *starts, const int32_t *columns, int64_t n, int64_t K, int64_t E,
                    int64_t D, const REAL *table, const REAL *bias, REAL *out, char *memory,
                    int threads)
{
    product p = {{starts, columns, 0, K, n, E}, D, table, bias, out};
    if (!is_inside(&p.x)) return OUTSIDE;
    divide(multiply_columns, &p, (D + COLUMNS - 1) / COLUMNS, memory, E * (int64_t)sizeof(line),
           threads);
    return DONE;
}

enum { PLAIN, CUMULATIVE, NEAREST, REVERSE };

/* Values [T, B, D], or their trace. */
typedef struct {
    const void *values;
    const REAL *before; /* [B, D] the trace before the first step; may be null */
    REAL *last;         /* [B, D] receives the trace of the step that comes last; may be null */
    double decay, rate;
    int64_t is_bytes, mode;
} source;

typedef struct {
    bag_index x;
    int64_t T, B, D, count, onto, by_event;
    const source *sources;
    REAL *out;
} outer;

static inline line values_at(const source *s, int64_t at, int64_t width)
{
    if (!s->is_bytes) {
        line x = {{{0}}};
        if (width == COLUMNS) memcpy(&x, (const REAL *)s->values + at, sizeof(line));
        else memcpy(&x, (const REAL *)s->values + at, (size_t)width * sizeof(REAL));
        return x;
    }
    uint8_t found[COLUMNS] = {0};
    REAL x[COLUMNS];
    line all;
    if (width == COLUMNS) memcpy(found, (const uint8_t *)s->values + at, COLUMNS);
    else memcpy(found, (const uint8_t *)s->values + at, (size_t)width);
    for (int i = 0; i < COLUMNS; i++) x[i] = (REAL)(int32_t)found[i];
    memcpy(&all, x, sizeof(line));
    return all;
}

/* Asks for values ahead of time: the processor does not foresee rows that lie far apart. */
static inline void fetch(const source *s, int64_t at)
{
    const char *values = (const char *)s->values + at * (s->is_bytes ? 1 : (int64_t)sizeof(REAL));
    __builtin_prefetch(values);
    if (!s->is_bytes) __builtin_prefetch(values + sizeof(vec));
}

/* Adds a source to the rows [T, B] of a piece; `state` [B] is the trace in the step before. */
static inline void add_source(const source *s, int64_t T, int64_t B, int64_t D, int64_t first,
                              int64_t width, line *rows, line *state, int64_t mode)
{
    const REAL decay = (REAL)s->decay, rate = (REAL)s->rate;
    memset(state, 0, (size_t)B * sizeof(line));
    for (int64_t b = 0; s->before && b < B; b++)
        memcpy(state + b, s->before + b * D + first, (size_t)width * sizeof(REAL));
    for (int64_t i = 0; i < T; i++) {
        int64_t k = (mode == REVERSE ? T - 1 - i : i) * B;
        int64_t next = i + 1 < T ? (mode == REVERSE ? k - B : k + B) : k;
        for (int64_t b = 0; b < B; b++) {
            fetch(s, (next + b) * D + first);
            line x = values_at(s, (k + b) * D + first, width);
            for (int h = 0; h < 2; h++) {
                vec now = x.half[h];
                if (mode == CUMULATIVE || mode == REVERSE) now += decay * state[b].half[h];
                if (mode == NEAREST)
                    now += decay * state[b].half[h] * __builtin_convertvector(-(now == 0), vec);
                if (mode != PLAIN) state[b].half[h] = now;
                rows[k + b].half[h] += rate * now;
            }
        }
    }
    for (int64_t b = 0; s->last && b < B; b++)
        memcpy(s->last + b * D + first, state + b, (size_t)width * sizeof(REAL));
}

static void outer_columns(const void *task, int64_t begin, int64_t end, void *memory)
{
    const outer *o = task;
    const int64_t T = o->T, B = o->B, D = o->D, E = o->x.bags;
    line *rows = memory, *state = rows + T * B, tile[TILE];
    for (int64_t first = begin * COLUMNS; first < end * COLUMNS && first < D; first += COLUMNS) {
        int64_t width = D - first < COLUMNS ? D - first : COLUMNS;
        memset(rows, 0, (size_t)(T * B) * sizeof(line));
        for (const source *s = o->sources; s < o->sources + o->count; s++) {
            if (s->mode == PLAIN) add_source(s, T, B, D, first, width, rows, state, PLAIN);
            if (s->mode == CUMULATIVE) add_source(s, T, B, D, first, width, rows, state, CUMULATIVE);
            if (s->mode == NEAREST) add_source(s, T, B, D, first, width, rows, state, NEAREST);
            if (s->mode == REVERSE) add_source(s, T, B, D, first, width, rows, state, REVERSE);
        }
        for (int64_t e = 0; e < E; e += TILE) {
            int64_t height = E - e < TILE ? E - e : TILE;
            for (int64_t i = 0; i < height; i++) tile[i] = sum_of(&o->x, e + i, rows);
            if (o->by_event)
                for (int64_t i = 0; i < height; i++)
                    copy_some((REAL *)(tile + i), 1, o->out + (e + i) * D + first, 1, width,
                              COLUMNS, o->onto);
            else for (int64_t d = 0; d < width; d++)
                copy_some((REAL *)tile + d, COLUMNS, o->out + (first + d) * E + e, 1, height, TILE,
                          o->onto);
        }
    }
}

/* out[d, e] (+)= the sum of share * row[k, d] over the events (k, e), whose rows add up the sources;
   out[e, d] if it is by event. */
int outer_events(const int32_t *starts, const int32_t *rows, const REAL *shares, int64_t n,
                 int64_t T, int64_t B, int64_t E, int64_t D, const source *sources, int64_t count,
                 REAL *out, int64_t onto, int64_t by_event, char *memory, int threads)
{
    outer o = {{starts, rows, shares, E, n, T * B}, T, B, D, count, onto, by_event, sources, out};
    if (!is_inside(&o.x)) return OUTSIDE;
    divide(outer_columns, &o, (D + COLUMNS - 1) / COLUMNS, memory,
           (T * B + B) * (int64_t)sizeof(line), threads);
    return DONE;
}
