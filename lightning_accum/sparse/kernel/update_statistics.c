/* The sums behind the statistics of an update, in one pass over the weights and their change. */

#include <stdint.h>

#define LANES 16
#define PIECE 1024 /* elements whose sums are kept in single precision */

enum { MOVED, BEFORE, AFTER, UP, DOWN, UP_L1, DOWN_L1, SUMS };
enum { ZEROS, NOT_FINITE, AT_LOWER, AT_UPPER, COUNTS };

/* Returns a value, 0 if it is not finite. */
static inline REAL finite_or_0(REAL value) { return value - value == 0 ? value : 0; }

/* Adds the sums over the elements from `begin` to `end`, whose number is a multiple of LANES. */
static void add_piece(const REAL *before, const REAL *after, const REAL *pos, const REAL *neg,
                      int64_t begin, int64_t end, const REAL *limits, double *sums, int64_t *counts)
{
    REAL s[SUMS][LANES] = {{0}};
    int32_t c[COUNTS][LANES] = {{0}};
    REAL lower = limits[0], upper = limits[1];
    for (int64_t i = begin; i < end; i += LANES)
        for (int j = 0; j < LANES; j++) {
            REAL b = before[i + j], a = after[i + j], d = a - b, f = finite_or_0(d);
            b = finite_or_0(b);
            c[ZEROS][j] += d == 0;
            c[NOT_FINITE][j] += d - d != 0;
            c[AT_LOWER][j] += a <= lower;
            c[AT_UPPER][j] += a >= upper;
            a = finite_or_0(a);
            s[MOVED][j] += f * f;
            s[BEFORE][j] += b * b;
            s[AFTER][j] += a * a;
        }
    for (int side = 0; side < 2; side++) {
        const REAL *part = side ? neg : pos;
        if (!part) continue;
        for (int64_t i = begin; i < end; i += LANES)
            for (int j = 0; j < LANES; j++) {
                REAL p = part[i + j], f = finite_or_0(p);
                c[NOT_FINITE][j] += p - p != 0;
                s[UP + side][j] += f * f;
                s[UP_L1 + side][j] += f < 0 ? -f : f;
            }
    }
    for (int j = 0; j < LANES; j++) {
        for (int k = 0; k < SUMS; k++) sums[k] += s[k][j];
        for (int k = 0; k < COUNTS; k++) counts[k] += c[k][j];
    }
}

/* Writes SUMS sums and COUNTS counts over `n` weights to `found`. `pos` and `neg` may be null, and a
   limit NaN, which no weight is at. */
void change_sums(const REAL *before, const REAL *after, const REAL *pos, const REAL *neg, int64_t n,
                 double lower, double upper, double *found)
{
    double sums[SUMS] = {0};
    int64_t counts[COUNTS] = {0}, whole = n - n % LANES, filled = LANES - n % LANES;
    REAL limits[2] = {(REAL)lower, (REAL)upper}, rest[4][LANES] = {{0}};
    for (int64_t at = 0; at < whole; at += PIECE)
        add_piece(before, after, pos, neg, at, at + PIECE < whole ? at + PIECE : whole, limits,
                  sums, counts);
    if (whole < n) { /* zeros fill the lanes, and are taken out of the counts */
        const REAL *from[4] = {before, after, pos, neg};
        for (int k = 0; k < 4; k++)
            for (int64_t i = whole; from[k] && i < n; i++) rest[k][i - whole] = from[k][i];
        add_piece(rest[0], rest[1], rest[2], rest[3], 0, LANES, limits, sums, counts);
        counts[ZEROS] -= filled;
        counts[AT_LOWER] -= 0 <= limits[0] ? filled : 0;
        counts[AT_UPPER] -= 0 >= limits[1] ? filled : 0;
    }
    for (int k = 0; k < SUMS; k++) found[k] = sums[k];
    for (int k = 0; k < COUNTS; k++) found[SUMS + k] = (double)counts[k];
}
