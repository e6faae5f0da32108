/* What the work of a batch takes in C alone: it finds the input's spikes, integrates leaky
   integrate-and-fire neurons, and changes their weights by pair STDP. Nothing of the package is
   used. Weights are [inputs, neurons]; a thread works on all steps of its columns. */

#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 32

typedef struct {
    int64_t steps, batch, inputs, neurons;
    float decay, threshold, rate_post, rate_pre; /* rates of one sample of the batch's mean */
} sizes;

/* Returns the places of a raster's spikes; `starts` receives the first one's of each row. */
static int32_t *search(const uint8_t *x, int64_t rows, int64_t inputs, int32_t *starts)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        int32_t count = 0;
        int64_t i = 0;
        for (; i + 8 <= inputs; i += 8) {
            uint64_t word;
            memcpy(&word, x + r * inputs + i, 8);
            count += __builtin_popcountll(word);
        }
        for (; i < inputs; i++) count += x[r * inputs + i];
        starts[r + 1] = count;
    }
    starts[0] = 0;
    for (int64_t r = 0; r < rows; r++) starts[r + 1] += starts[r];
    int32_t *places = malloc((starts[rows] + 1) * sizeof *places);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *row = x + r * inputs;
        int32_t *at = places + starts[r];
        int64_t i = 0;
        for (; i + 8 <= inputs; i += 8) {
            uint64_t word;
            memcpy(&word, row + i, 8);
            for (; word; word &= word - 1) *at++ = (int32_t)(i + (__builtin_ctzll(word) >> 3));
        }
        for (; i < inputs; i++)
            if (row[i]) *at++ = (int32_t)i;
    }
    return places;
}

/* One batch: spikes [steps, batch, neurons] of x [steps, batch, inputs], then one update. */
void run_batch(const sizes *s, const uint8_t *x, float *weight, uint8_t *spikes)
{
    const int64_t T = s->steps, B = s->batch, I = s->inputs, N = s->neurons, rows = T * B;
    int32_t *starts = malloc((rows + 1) * sizeof *starts);
    int32_t *places = search(x, rows, I, starts);
#pragma omp parallel
    {
        float *change = malloc(rows * COLUMNS * sizeof *change);
#pragma omp for schedule(static)
        for (int64_t c = 0; c < N; c += COLUMNS) {
            const int64_t width = N - c < COLUMNS ? N - c : COLUMNS;
            for (int64_t b = 0; b < B; b++) {
                float v[COLUMNS] = {0}, trace[COLUMNS] = {0};
                for (int64_t t = 0; t < T; t++) {
                    const int64_t r = t * B + b;
                    float current[COLUMNS] = {0};
                    for (int32_t e = starts[r]; e < starts[r + 1]; e++) {
                        const float *w = weight + places[e] * N + c;
                        if (width == COLUMNS)
                            for (int k = 0; k < COLUMNS; k++) current[k] += w[k];
                        else
                            for (int k = 0; k < width; k++) current[k] += w[k];
                    }
                    float *change_t = change + r * COLUMNS;
                    uint8_t fired[COLUMNS];
                    for (int k = 0; k < COLUMNS; k++) {
                        const float u = s->decay * v[k] + current[k];
                        fired[k] = u >= s->threshold;
                        v[k] = fired[k] ? 0.0f : u;
                        trace[k] = s->decay * trace[k] + fired[k];
                        change_t[k] = s->rate_pre * trace[k];
                    }
                    memcpy(spikes + r * N + c, fired, width);
                }
                float behind[COLUMNS] = {0}; /* the trace of later spikes, backwards in time */
                for (int64_t t = T - 1; t >= 0; t--) {
                    const uint8_t *fired = spikes + (t * B + b) * N + c;
                    float *change_t = change + (t * B + b) * COLUMNS;
                    for (int k = 0; k < width; k++) {
                        behind[k] = s->decay * behind[k] + fired[k];
                        change_t[k] += s->rate_post * behind[k];
                    }
                }
            }
            for (int64_t r = 0; r < rows; r++)
                for (int32_t e = starts[r]; e < starts[r + 1]; e++) {
                    float *w = weight + places[e] * N + c;
                    const float *change_r = change + r * COLUMNS;
                    if (width == COLUMNS)
                        for (int k = 0; k < COLUMNS; k++) w[k] += change_r[k];
                    else
                        for (int k = 0; k < width; k++) w[k] += change_r[k];
                }
        }
        free(change);
    }
    free(starts);
    free(places);
}

/* One sample, whose weights change in every step. */
void run_online(const sizes *s, const uint8_t *x, float *weight, uint8_t *spikes)
{
    const int64_t T = s->steps, I = s->inputs, N = s->neurons;
    int32_t *starts = malloc((T + 1) * sizeof *starts);
    float *v = calloc(3 * N + I, sizeof *v), *y = v + N, *current = y + N, *traces = current + N;
    int32_t *fired = malloc(N * sizeof *fired);
    int32_t *places = search(x, T, I, starts);
    for (int64_t t = 0; t < T; t++) {
        memset(current, 0, N * sizeof *current);
        for (int32_t e = starts[t]; e < starts[t + 1]; e++)
            for (int64_t n = 0; n < N; n++) current[n] += weight[places[e] * N + n];
        int64_t count = 0;
        for (int64_t n = 0; n < N; n++) {
            const float u = s->decay * v[n] + current[n];
            const uint8_t spike = u >= s->threshold;
            spikes[t * N + n] = spike;
            fired[count] = (int32_t)n;
            count += spike;
            v[n] = spike ? 0.0f : u;
            y[n] = s->decay * y[n] + spike;
        }
        for (int64_t i = 0; i < I; i++) traces[i] *= s->decay;
        for (int32_t e = starts[t]; e < starts[t + 1]; e++) {
            traces[places[e]] += 1.0f;
            for (int64_t n = 0; n < N; n++) weight[places[e] * N + n] += s->rate_pre * y[n];
        }
        if (count)
            for (int64_t i = 0; i < I; i++)
                for (int64_t k = 0; k < count; k++)
                    weight[i * N + fired[k]] += s->rate_post * traces[i];
    }
    free(starts), free(places), free(v), free(fired);
}
