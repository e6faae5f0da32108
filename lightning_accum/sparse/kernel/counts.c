/* How often each neuron of a raster has fired. */

#include <stdint.h>
#include <string.h>

#define BLOCK 256 /* neurons that are counted together */
#define ROWS 255  /* rows whose counts fit in bytes */

/* Writes how many bytes of each column of [K, N] are not zero to `counts` [N]. */
void count_neurons(const uint8_t *raster, int64_t K, int64_t N, float *counts)
{
    for (int64_t first = 0; first < N; first += BLOCK) {
        const int64_t width = N - first < BLOCK ? N - first : BLOCK;
        int64_t sums[BLOCK] = {0};
        for (int64_t begin = 0; begin < K; begin += ROWS) {
            const int64_t end = begin + ROWS < K ? begin + ROWS : K;
            uint8_t ones[BLOCK] = {0};
            for (int64_t k = begin; k < end; k++)
                for (int64_t n = 0; n < width; n++) ones[n] += raster[k * N + first + n] != 0;
            for (int64_t n = 0; n < width; n++) sums[n] += ones[n];
        }
        for (int64_t n = 0; n < width; n++) counts[first + n] = (float)sums[n];
    }
}

/* Writes the sum of the counts, and how many of them are zero, to `found`. */
void sum_counts(const float *counts, int64_t N, double *found)
{
    double sum = 0;
    int64_t zeros = 0;
    for (int64_t n = 0; n < N; n++) {
        sum += counts[n];
        zeros += counts[n] == 0;
    }
    found[0] = sum;
    found[1] = (double)zeros;
}
