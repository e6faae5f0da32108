/* One step of spikes, checked, counted and kept as bytes in one pass. */

#include <stdint.h>

#define PIECE 256 /* values whose counts are kept in lanes */

/* Writes the values as bytes of 0 and 1 to `row`, and returns how many are one; -1 if any is neither
   zero nor one, in which case the row may hold anything. */
int64_t store_ones(const REAL *values, uint8_t *row, int64_t n)
{
    int64_t count = 0;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t end = at + PIECE < n ? at + PIECE : n;
        int32_t ones = 0, zeros = 0;
        for (int64_t i = at; i < end; i++) {
            ones += values[i] == 1;
            zeros += values[i] == 0;
        }
        for (int64_t i = at; i < end; i++) row[i] = values[i] == 1;
        if (ones + zeros != end - at) return -1;
        count += ones;
    }
    return count;
}
