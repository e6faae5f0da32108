/* The search for the spikes of a raster. */

#include <stdint.h>
#include <string.h>

#include "nonzero.h"
#include "threads.h"

/* Which of the next bytes of a row, at most 64, are not zero; `before` bytes are in front of them. */
static inline uint64_t nonzero_of(const uint8_t *at, int64_t length, int64_t before)
{
    if (length >= 64) return nonzero(at);
    if (before) return nonzero(at + length - 64) >> (64 - length);
    uint8_t padded[64] = {0};
    memcpy(padded, at, (size_t)length);
    return nonzero(padded);
}

/* Counts the values that are one; -1 if any is neither zero nor one. */
int64_t count_ones(const REAL *values, int64_t length)
{
    int64_t count = 0;
    for (int64_t at = 0; at < length; at += 1 << 12) {
        int64_t end = at + (1 << 12) < length ? at + (1 << 12) : length;
        int32_t ones = 0, zeros = 0;
        for (int64_t i = at; i < end; i++) {
            ones += values[i] == 1;
            zeros += values[i] == 0;
        }
        if (ones + zeros != end - at) return -1;
        count += ones;
    }
    return count;
}

typedef struct {
    const uint8_t *raster;
    int64_t K, E, parts, share; /* each part of the rows has a share of the room */
    int32_t *rows, *columns, *starts;
    int64_t *counts;
} search;

static int64_t find_between(const search *s, int64_t begin, int64_t end, int64_t from, int64_t room)
{
    int32_t *rows = s->rows + from, *columns = s->columns + from;
    int64_t n = 0;
    for (int64_t k = begin; k < end; k++) {
        s->starts[k] = (int32_t)n;
        for (int64_t e = 0; e < s->E; e += 64) {
            uint64_t found = nonzero_of(s->raster + k * s->E + e, s->E - e, e);
            n = write_columns(found, e, n, room, columns);
        }
        write_row(k, s->starts[k], n, room, rows);
    }
    return n;
}

static void find_parts(const void *task, int64_t begin, int64_t end, void *memory)
{
    const search *s = task;
    for (int64_t p = begin; p < end; p++)
        s->counts[p] = find_between(s, s->K * p / s->parts, s->K * (p + 1) / s->parts,
                                    p * s->share, s->share - AT_ONCE);
}

/* Writes the row and the column of each non-zero byte of [K, E] and the place of each row's first
   one to `starts` [K], and returns their number. Those from `room` on are only counted; there is
   room for AT_ONCE more. Threads search parts of the rows, whose events are then put together. */
int64_t find_events(const uint8_t *raster, int64_t K, int64_t E, int32_t *rows, int32_t *columns,
                    int32_t *starts, int64_t room, int64_t threads)
{
    int64_t counts[MOST_THREADS], n = 0, fits = threads > 1;
    const search s = {raster, K, E, threads, room / threads, rows, columns, starts, counts};
    if (fits) divide(find_parts, &s, threads, 0, 0, (int)threads);
    for (int64_t p = 0; fits && p < threads; p++) fits = counts[p] <= s.share - AT_ONCE;
    if (!fits) return find_between(&s, 0, K, 0, room);
    for (int64_t p = 0; p < threads; n += counts[p++]) {
        const size_t bytes = (size_t)counts[p] * sizeof(int32_t);
        memmove(rows + n, rows + p * s.share, bytes);
        memmove(columns + n, columns + p * s.share, bytes);
        for (int64_t k = K * p / threads; k < K * (p + 1) / threads; k++) starts[k] += (int32_t)n;
    }
    return n;
}

/* Sorts events by column, and keeps the order within a column. `starts` [E] receives each column's
   first place, and `order`, unless it is null, what was at each place before. */
int order_events(const int32_t *rows, const int32_t *columns, int64_t n, int64_t E,
                 int32_t *rows_of, int32_t *starts, int32_t *order)
{
    memset(starts, 0, (size_t)E * sizeof(int32_t));
    for (int64_t i = 0; i < n; i++) {
        if (columns[i] < 0 || columns[i] >= E) return OUTSIDE;
        starts[columns[i]]++;
    }
    for (int64_t e = 0, sum = 0; e < E; e++) {
        sum += starts[e];
        starts[e] = (int32_t)(sum - starts[e]);
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t place = starts[columns[i]]++;
        rows_of[place] = rows[i];
        if (order) order[place] = (int32_t)i;
    }
    for (int64_t e = E - 1; e > 0; e--) starts[e] = starts[e - 1];
    if (E) starts[0] = 0;
    return DONE;
}

/* Adds the traces that the events leave after the last step to `x` [B, E]: `left` [T] of an event in
   each step. The latest event of a nearest trace replaces what was there. */
int last_trace(const int32_t *rows, const int32_t *columns, int64_t n, int64_t T, int64_t B,
               int64_t E, const REAL *left, int64_t nearest, REAL *x)
{
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= T * B || columns[i] < 0 || columns[i] >= E) return OUTSIDE;
    for (int64_t i = 0, t = 0; i < n; i++) {
        while (rows[i] >= (t + 1) * B) t++;
        while (rows[i] < t * B) t--; /* never, if rows are in order */
        REAL *to = x + (rows[i] - t * B) * E + columns[i];
        *to = nearest ? left[t] : *to + left[t];
    }
    return DONE;
}
