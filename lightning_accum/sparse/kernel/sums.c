/* Sums over events, for one dtype, REAL. event_sums.py checks shapes, dtypes and memory of every
   argument; what an index holds is checked here. */

#include <stdint.h>
#include <string.h>

#include "columns.h"
#include "neurons.h"
#include "outer_product_operands.h"
#include "threads.h"

#define NARROW 256 /* columns of rows of which threads divide the samples */

/* Sums the first `each` vectors of the rows of a table that a bag has; `each` and `row`, the vectors
   of a row, are constants. */
static inline __attribute__((always_inline)) void sum_of(const bag_index *x, int64_t bag,
                                                         const vec *table, int row, int each,
                                                         vec *sum)
{
    int64_t end = bag + 1 < x->bags ? x->starts[bag + 1] : x->n;
    for (int j = 0; j < each; j++) sum[j] = (vec){0};
    if (x->shares)
        for (int64_t i = x->starts[bag]; i < end; i++)
            for (int j = 0; j < each; j++)
                sum[j] += x->shares[i] * table[(int64_t)x->places[i] * row + j];
    else
        for (int64_t i = x->starts[bag]; i < end; i++)
            for (int j = 0; j < each; j++) sum[j] += table[(int64_t)x->places[i] * row + j];
}

typedef struct {
    bag_index x;
    int64_t T, B, D, by_samples; /* without neurons, all rows are samples of one step */
    const REAL *table, *bias;
    REAL *out;
    const neurons *neurons; /* which take the sums as currents, and nobody else, unless it is null */
} product;

static inline void copy_state(const product *p, REAL *state, int64_t first, int64_t width, line *to,
                              int64_t begin, int64_t end, int back)
{
    const size_t size = (size_t)width * sizeof(REAL);
    for (int64_t b = begin; state && b < end; b++, to++)
        if (back) memcpy(state + b * p->D + first, to, size);
        else memcpy(to, state + b * p->D + first, size);
}

/* Sums `each` vectors of columns of `table` [D, rows], which are copied to rows first, for some
   samples. The states of neurons are copied too, as threads that write to one cache line are slow. */
static inline __attribute__((always_inline)) void multiply_some(const product *p, int64_t first,
                                                                int each, int64_t begin,
                                                                int64_t end, vec *table)
{
    const int64_t rows = p->x.rows, most = each * LANES;
    const int64_t width = p->D - first < most ? p->D - first : most;
    vec bias[PARTS] = {{0}}, sum[PARTS] = {{0}};
    line *v = (line *)(table + rows * PARTS), *hold = v + end - begin;
    line limit = {{{0}}}, spiked = {{{0}}}, spikes, out;
    const neurons *n = p->neurons;
    const int64_t size = n && n->is_bytes ? 1 : sizeof(REAL);
    neurons local;
    if (n) {
        local = *n;
        local.v = (REAL *)v;
        local.hold = n->hold ? (REAL *)hold : 0;
        local.out = &out;
        set_limits(n, first, width, (REAL *)&limit);
        memset(v, 0, (size_t)(2 * (end - begin)) * sizeof(line));
        copy_state(p, n->v, first, width, v, begin, end, 0);
        copy_state(p, n->hold, first, width, hold, begin, end, 0);
    }
    if (p->bias) memcpy(bias, p->bias + first, (size_t)width * sizeof(REAL));
    if (width < most) memset(table, 0, (size_t)(rows * each) * sizeof(vec));
    transpose(p->table + first * rows, rows, (REAL *)table, most, width, rows);
    for (int64_t t = 0; t < p->T; t++) {
        for (int64_t b = begin; b < end; b++) {
            const int64_t bag = t * p->B + b, now = bag * p->D + first;
            sum_of(&p->x, bag, table, each, each, sum);
            for (int j = 0; j < each; j++) sum[j] += bias[j];
            if (n) {
                take_step(&local, 0, (b - begin) * COLUMNS, COLUMNS, (const REAL *)sum,
                          (const REAL *)&limit, (REAL *)&spiked, (REAL *)&spikes);
                memcpy((char *)n->out + now * size, &out, (size_t)(width * size));
            } else if (width == most)
                for (int j = 0; j < each; j++) *(loose *)(p->out + now + j * LANES) = sum[j];
            else memcpy(p->out + now, sum, (size_t)width * sizeof(REAL));
        }
        if (n) adapt(n, first, width, (REAL *)&limit, (REAL *)&spiked);
    }
    if (!n) return;
    copy_state(p, n->v, first, width, v, begin, end, 1);
    copy_state(p, n->hold, first, width, hold, begin, end, 1);
}

static void multiply_part(const void *task, int64_t begin, int64_t end, void *memory)
{
    const product *p = task;
    const int64_t all = (2 * p->D + COLUMNS - 1) / COLUMNS; /* halves of pieces */
    const int64_t last = p->by_samples ? all : end;
    const int64_t from = p->by_samples ? begin : 0, to = p->by_samples ? end : p->B;
    for (int64_t at = p->by_samples ? 0 : begin; from < to && at < last; at += 2)
        if (last - at > 1) multiply_some(p, at * COLUMNS / 2, PARTS, from, to, memory);
        else multiply_some(p, at * COLUMNS / 2, PARTS / 2, from, to, memory);
}

/* out[k, d] = bias[d] + the sum of table[d, e] over the events (k, e); or neurons take that as their
   currents [T, B, N], which are then never written. Threads have parts of the columns, or samples
   where rows are so short that threads would write to the same cache lines. */
int multiply_events(const int32_t *starts, const int32_t *columns, int64_t n, int64_t K, int64_t E,
                    int64_t D, const REAL *table, const REAL *bias, REAL *out,
                    const neurons *neurons, char *memory, int threads)
{
    product p = {{starts, columns, 0, K, n, E}, 1, K, D, 0, table, bias, out, neurons};
    if (!is_inside(&p.x)) return OUTSIDE;
    if (neurons) p.T = neurons->T, p.B = neurons->B;
    p.by_samples = D <= NARROW && p.B >= 4 * threads && n >= 4 * E && !(neurons && neurons->theta);
    const int64_t lines = E + (neurons ? 2 * p.B : 0);
    divide(multiply_part, &p, p.by_samples ? p.B : (2 * D + COLUMNS - 1) / COLUMNS, memory,
           lines * (int64_t)sizeof(line), threads);
    return DONE;
}

typedef struct {
    bag_index x;
    int64_t T, B, D, count, onto, by_event;
    const source *sources;
    REAL *out;
} outer;

static void pack_rows(const void *task, int64_t begin, int64_t end, void *memory)
{
    const outer *o = task;
    const int64_t rows = o->T * o->B, D = o->D;
    for (const source *s = o->sources; s < o->sources + o->count; s++) {
        int known = 0; /* whether an earlier source has packed the same spikes */
        for (const source *before = o->sources; before < s; before++)
            known |= before->bits == s->bits;
        for (int64_t k = begin; s->bits && !known && k < end; k++)
            pack_row((const uint8_t *)s->values + k * D, k, rows, D, s->bits);
    }
}

static inline line values_at(const source *s, int64_t row, int64_t rows, int64_t D, int64_t first,
                             int64_t width)
{
    line x = {{{0}}};
    if (s->bits) {
        const uint32_t bits = s->bits[first / COLUMNS * rows + row];
        for (int h = 0; h < PARTS; h++)
            x.part[h] = (vec)(lanes_of(bits, h) & (whole)((vec){0} + 1));
        return x;
    }
    const REAL *from = (const REAL *)s->values + row * D + first;
    if (width == COLUMNS) memcpy(&x, from, sizeof(line));
    else memcpy(&x, from, (size_t)width * sizeof(REAL));
    return x;
}

/* Adds a source to the rows [T, B] of a piece, or writes it there; `state` [B] is the trace in the
   step before. */
static inline __attribute__((always_inline)) void add_source(
    const source *s, int64_t T, int64_t B, int64_t D, int64_t first, int64_t width, line *rows,
    line *state, int64_t onto, int64_t mode)
{
    const REAL decay = (REAL)s->decay, rate = (REAL)s->rate;
    memset(state, 0, (size_t)B * sizeof(line));
    for (int64_t b = 0; s->before && b < B; b++)
        memcpy(state + b, s->before + b * D + first, (size_t)width * sizeof(REAL));
    for (int64_t i = 0; i < T; i++) {
        int64_t k = (mode == REVERSE ? T - 1 - i : i) * B;
        int64_t next = i + 1 < T ? (mode == REVERSE ? k - B : k + B) : k;
        for (int64_t b = 0; b < B; b++) {
            for (int h = 0; h < PARTS && !s->bits; h++) /* rows are too far apart to be expected */
                __builtin_prefetch((const REAL *)s->values + (next + b) * D + first + h * LANES);
            line x = values_at(s, k + b, T * B, D, first, width);
            const REAL weight = s->weights ? s->weights[k + b] : 1;
            for (int h = 0; h < PARTS; h++) {
                vec now = mode == REVERSE ? weight * x.part[h] : x.part[h];
                if (mode == CUMULATIVE || mode == REVERSE) now += decay * state[b].part[h];
                if (mode == NEAREST)
                    now += (vec)((now == 0) & (whole)(decay * state[b].part[h]));
                if (mode != PLAIN) state[b].part[h] = now;
                now *= mode == REVERSE ? rate : rate * weight;
                rows[k + b].part[h] = onto ? rows[k + b].part[h] + now : now;
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
        for (const source *s = o->sources; s < o->sources + o->count; s++) {
            const int64_t more = s > o->sources;
            if (s->folded && !more) memset(rows, 0, (size_t)(T * B) * sizeof(line));
            if (s->folded) add_folded(s, T, B, D, first, width, rows, state);
#define ADD(MODE) add_source(s, T, B, D, first, width, rows, state, more, MODE)
            else if (s->mode == PLAIN) ADD(PLAIN);
            else if (s->mode == CUMULATIVE) ADD(CUMULATIVE);
            else if (s->mode == NEAREST) ADD(NEAREST);
            else if (s->mode == REVERSE) ADD(REVERSE);
        }
        for (int64_t e = 0; e < E; e += TILE) {
            int64_t height = E - e < TILE ? E - e : TILE;
#define SUM(EACH) for (int64_t i = 0; i < height; i++) \
                sum_of(&o->x, e + i, (const vec *)rows, PARTS, EACH, tile[i].part)
            if (width <= COLUMNS / 4) SUM((PARTS + 3) / 4); /* other vectors have no columns */
            else if (width <= COLUMNS / 2) SUM(PARTS / 2);
            else SUM(PARTS);
            if (o->by_event)
                for (int64_t i = 0; i < height; i++)
                    copy_some((REAL *)(tile + i), 1, o->out + (e + i) * D + first, 1, width,
                              COLUMNS, o->onto);
            else for (int64_t d = 0; d < width; d++)
                copy_some((REAL *)tile + d, COLUMNS, o->out + (first + d) * E + e, 1, height,
                          TILE, o->onto);
        }
    }
}

/* out[d, e] (+)= the sum of share * row[k, d] over the events (k, e), whose rows add up the sources;
   out[e, d] if it is by event. */
int outer_events(const int32_t *starts, const int32_t *rows, const REAL *shares, int64_t n,
                 int64_t T, int64_t B, int64_t E, int64_t D, const source *sources, int64_t count,
                 REAL *out, int64_t onto, int64_t by_event, char *memory, int threads)
{
    int64_t states = B;
    for (const source *s = sources; s < sources + count; s++)
        if (s->folded && 3 * B + s->folded->classes > states) states = 3 * B + s->folded->classes;
    outer o = {{starts, rows, shares, E, n, T * B}, T, B, D, count, onto, by_event, sources, out};
    if (!is_inside(&o.x)) return OUTSIDE;
    divide(pack_rows, &o, T * B, memory, 0, threads);
    divide(outer_columns, &o, (D + COLUMNS - 1) / COLUMNS, memory,
           (T * B + states) * (int64_t)sizeof(line), threads);
    return DONE;
}
