/* One step of spikes, checked, kept as bytes, and searched for events in one pass. */

#include <stdint.h>
#include <string.h>

#include "nonzero.h"

#define AHEAD 2048 /* bytes that are asked for before they are read */

/* A raster [T, B, E], and the events of its first `steps` steps, of which `room` are written. */
typedef struct {
    uint8_t *raster;
    int32_t *rows, *columns, *starts;
    int64_t B, E, room, count, steps;
} record;

/* Writes 64 values as bytes of 0 and 1, and returns which are one, as bits; sets bits of `other` if
   any value is neither zero nor one. */
#if defined(__AVX512BW__)
#include <immintrin.h>
static inline uint64_t store_64(const REAL *values, uint8_t *to, uint64_t *other)
{
    uint64_t ones = 0, some = 0;
    if (sizeof(REAL) == 4)
        for (int i = 0; i < 4; i++) {
            __m512 x = _mm512_loadu_ps((const float *)values + 16 * i);
            ones |= (uint64_t)_mm512_cmp_ps_mask(x, _mm512_set1_ps(1), _CMP_EQ_OQ) << (16 * i);
            some |= (uint64_t)_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ) << (16 * i);
        }
    else
        for (int i = 0; i < 8; i++) {
            __m512d x = _mm512_loadu_pd((const double *)values + 8 * i);
            ones |= (uint64_t)_mm512_cmp_pd_mask(x, _mm512_set1_pd(1), _CMP_EQ_OQ) << (8 * i);
            some |= (uint64_t)_mm512_cmp_pd_mask(x, _mm512_setzero_pd(), _CMP_NEQ_UQ) << (8 * i);
        }
    *other |= ones ^ some;
    _mm512_storeu_si512(to, _mm512_maskz_set1_epi8(ones, 1));
    return ones;
}
#else
static inline uint64_t store_64(const REAL *values, uint8_t *to, uint64_t *other)
{
    int32_t ones = 0, zeros = 0;
    for (int i = 0; i < 64; i++) {
        ones += values[i] == 1;
        zeros += values[i] == 0;
    }
    for (int i = 0; i < 64; i++) to[i] = values[i] == 1;
    *other |= (uint64_t)(ones + zeros != 64);
    return nonzero(to);
}
#endif

static inline uint64_t store_some(const REAL *values, int64_t length, uint8_t *to, uint64_t *other)
{
    REAL padded[64] = {0};
    uint8_t bytes[64];
    memcpy(padded, values, (size_t)length * sizeof(REAL));
    uint64_t ones = store_64(padded, bytes, other);
    memcpy(to, bytes, (size_t)length);
    return ones;
}

/* Writes a step [B, E] as bytes to the raster, and its events behind those of the steps before it if
   all of these are known. Returns how many values are one; -1 if any is neither zero nor one, in
   which case the step in the raster may hold anything, and the events are as they were. */
int64_t record_step(record *r, const REAL *values, int64_t step)
{
    if (step == 0) r->steps = r->count = 0;
    const int64_t begin = r->count, first = step * r->B, follows = r->steps == step;
    int64_t n = begin;
    uint64_t other = 0;
    for (int64_t b = 0; b < r->B; b++) {
        const REAL *from = values + b * r->E;
        uint8_t *to = r->raster + (first + b) * r->E;
        if (follows) r->starts[first + b] = (int32_t)n;
        for (int64_t e = 0; e < r->E; e += 64) {
            for (int64_t i = 0; i < 64; i += 64 / (int64_t)sizeof(REAL))
                __builtin_prefetch((const char *)(from + e + i) + AHEAD);
            uint64_t found = r->E - e >= 64 ? store_64(from + e, to + e, &other)
                                            : store_some(from + e, r->E - e, to + e, &other);
            n = follows ? write_columns(found, e, n, r->room, r->columns)
                        : n + __builtin_popcountll(found);
        }
        if (follows) write_row(first + b, r->starts[first + b], n, r->room, r->rows);
        if (other) return -1;
    }
    if (follows) {
        r->count = n;
        r->steps = step + 1;
    }
    return n - begin;
}
