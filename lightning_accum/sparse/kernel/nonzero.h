/* Which bytes are not zero, as bits; and the events that bits stand for. */

#ifndef NONZERO_H
#define NONZERO_H

#include <stdint.h>

#if defined(__SSE2__)
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

/* Writes the events of a row whose columns from `first` on are given as bits, to the places `n` to
   before `next`, unless `next` is beyond `room`. There is room for AT_ONCE more: so many are written
   at a time, wanted or not, which is faster than to ask for each. */
static inline void write_events(uint64_t found, int64_t row, int64_t first, int64_t n, int64_t next,
                                int64_t room, int32_t *rows, int32_t *columns)
{
    for (; n < next && next <= room; n += AT_ONCE)
        for (int i = 0; i < AT_ONCE; i++, found &= found - 1) {
            rows[n + i] = (int32_t)row;
            columns[n + i] = (int32_t)(first + (found ? __builtin_ctzll(found) : 0));
        }
}

#endif
