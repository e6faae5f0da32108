/* Which bytes are not zero, as bits. */

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

#endif
