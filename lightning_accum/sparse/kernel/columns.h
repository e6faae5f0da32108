/* Sums work on a few columns at a time, so that what they read in any order stays in the cache. */

#ifndef COLUMNS_H
#define COLUMNS_H

#include <stdint.h>
#include <string.h>

#include "nonzero.h"

/* Bytes of a vector: of larger ones than a register, GCC compares lane by lane. */
#if defined(__AVX512F__)
#define VECTOR 64
#elif defined(__AVX2__)
#define VECTOR 32
#else
#define VECTOR 16
#endif
/* Rows, and columns, that are transposed in registers; and how the halves of two interleave. */
#if VECTOR == 16
#define SQUARE 4
#define FIRST_HALVES 0, 4, 1, 5
#define LAST_HALVES 2, 6, 3, 7
#else
#define SQUARE 8
#define FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define LAST_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#endif
#define LANES (VECTOR / (int)sizeof(REAL)) /* of a vector */
#define COLUMNS (128 / (int)sizeof(REAL))  /* of a piece */
#define PARTS (COLUMNS / LANES)            /* vectors of a piece */
#define TILE 16                            /* rows that are transposed together */

typedef REAL square_row __attribute__((vector_size(SQUARE * sizeof(REAL))));
typedef REAL vec __attribute__((vector_size(VECTOR)));
typedef REAL loose __attribute__((vector_size(VECTOR), aligned(sizeof(REAL))));
typedef __typeof__((vec){0} == (vec){0}) whole; /* integers of the size of REAL */
typedef struct {
    vec part[PARTS];
} line; /* the columns of a piece in one row */

/* Bags of places: the bag k has the places from `starts[k]` to before the next bag's. */
typedef struct {
    const int32_t *starts, *places;
    const REAL *shares; /* of each place; one if null */
    int64_t bags, n, rows;
} bag_index;

static inline int is_inside(const bag_index *x)
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

/* Packs the spikes of one of `rows` rows to bits, so that all of a piece are near each other. */
static inline void pack_row(const uint8_t *row, int64_t k, int64_t rows, int64_t D, uint32_t *bits)
{
    for (int64_t d = 0; d < D; d += COLUMNS) {
        const uint8_t *from = row + d;
        uint8_t padded[32] = {0};
        if (D - d < COLUMNS || COLUMNS < 32)
            from = memcpy(padded, from, (size_t)(D - d < COLUMNS ? D - d : COLUMNS));
        bits[d / COLUMNS * rows + k] = nonzero32(from);
    }
}

/* Tells which lanes of one part of a piece have a spike: all bits are set, or none. */
static inline whole lanes_of(uint32_t bits, int part)
{
    whole lane;
    for (int i = 0; i < LANES; i++) lane[i] = 1 << i;
    return (((int)bits >> part * LANES) & lane) != 0;
}

#if defined(__clang__) /* GCC has this name from version 12 only */
#define SHUFFLE __builtin_shufflevector
#else
typedef __typeof__(__builtin_choose_expr(sizeof(REAL) == 4, (int32_t)0, (int64_t)0)) place;
typedef place places __attribute__((vector_size(SQUARE * sizeof(REAL))));
#define SHUFFLE(x, y, ...) __builtin_shuffle(x, y, (places){__VA_ARGS__})
#endif

/* Writes the columns of a square as rows: each time, both halves of its rows interleave. */
static inline void transpose_square(const REAL *from, int64_t row, REAL *to, int64_t next)
{
    square_row a[SQUARE], b[SQUARE];
    for (int i = 0; i < SQUARE; i++) memcpy(a + i, from + i * row, sizeof *a);
    for (int size = SQUARE; size > 1; size /= 2) {
        for (int i = 0; i < SQUARE / 2; i++) {
            const square_row x = a[i], y = a[i + SQUARE / 2];
            b[2 * i] = SHUFFLE(x, y, FIRST_HALVES);
            b[2 * i + 1] = SHUFFLE(x, y, LAST_HALVES);
        }
        memcpy(a, b, sizeof a);
    }
    for (int i = 0; i < SQUARE; i++) memcpy(to + i * next, a + i, sizeof *a);
}

/* Writes `columns` of some rows, `row` apart, as rows that are `next` apart. */
static inline void transpose(const REAL *from, int64_t row, REAL *to, int64_t next, int64_t rows,
                             int64_t columns)
{
    for (int64_t r = 0; r < rows; r += SQUARE)
        for (int64_t c = 0; c < columns; c += SQUARE)
            if (r + SQUARE <= rows && c + SQUARE <= columns)
                transpose_square(from + r * row + c, row, to + c * next + r, next);
            else
                for (int64_t i = r; i < r + SQUARE && i < rows; i++)
                    for (int64_t j = c; j < c + SQUARE && j < columns; j++)
                        to[j * next + i] = from[i * row + j];
}

#endif
