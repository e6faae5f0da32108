/* Which bytes are not zero, as bits; and the events that bits stand for. */

#ifndef NONZERO_H
#define NONZERO_H

#include <stdint.h>

#if defined(__AVX2__)
#include <immintrin.h>
static inline uint32_t nonzero32(const uint8_t *at)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)at);
    return ~(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, _mm256_setzero_si256()));
}
#elif defined(__SSE2__)
#include <emmintrin.h>
static inline uint32_t nonzero32(const uint8_t *at)
{
    uint32_t found = 0;
    for (int i = 0; i < 2; i++) {
        __m128i x = _mm_loadu_si128((const __m128i *)(at + 16 * i));
        int zero = _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_setzero_si128()));
        found |= (uint32_t)(uint16_t)~zero << (16 * i);
    }
    return found;
}
#else
static inline uint32_t nonzero32(const uint8_t *at)
{
    uint32_t found = 0;
    for (int i = 0; i < 32; i++) found |= (uint32_t)(at[i] != 0) << i;
    return found;
}
#endif

static inline uint64_t nonzero(const uint8_t *at)
{
    return nonzero32(at) | (uint64_t)nonzero32(at + 32) << 32;
}

#define AT_ONCE 4 /* events that are written at a time */

/* Writes the columns, from `first` on, that bits stand for, to the places from `n` on, and returns the
   place behind them, unless that is beyond `room`. There is room for AT_ONCE more: so many are written
   at a time, wanted or not, which is faster than to ask for each. */
static inline int64_t write_columns(uint64_t found, int64_t first, int64_t n, int64_t room,
                                    int32_t *columns)
{
    const int64_t next = n + __builtin_popcountll(found);
    for (; found && next <= room; n += AT_ONCE)
        for (int i = 0; i < AT_ONCE; i++, found &= found - 1)
            columns[n + i] = (int32_t)(first + __builtin_ctzll(found | 1ull << 63));
    return next;
}

/* Writes the row of the events from `n` to before `next`, of which there may be more than room. */
static inline void write_row(int64_t row, int64_t n, int64_t next, int64_t room, int32_t *rows)
{
    for (; n < next && n < room; n += AT_ONCE)
        for (int i = 0; i < AT_ONCE; i++) rows[n + i] = (int32_t)row;
}

#endif
