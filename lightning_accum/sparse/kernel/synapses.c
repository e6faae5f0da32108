/* Sums over a fixed set of synapses, which are sorted by the neurons of one side. */

#include <stdint.h>
#include <string.h>

#include "columns.h"
#include "threads.h"

/* The synapses of neurons, and the neuron at the other end of each. */
typedef struct {
    const int64_t *starts; /* the first synapse of each neuron, and the end */
    const int32_t *others; /* [n] */
    int64_t n;
} synapses;

/* Returns whether an index leads to no synapse beyond `n` and to no neuron beyond `ends`. */
int are_synapses(const int64_t *starts, int64_t count, const int32_t *others, int64_t n,
                 int64_t ends)
{
    int64_t wrong = (starts[0] != 0) | (starts[count] != n);
    for (int64_t i = 0; i < count; i++) wrong |= starts[i] > starts[i + 1];
    for (int64_t j = 0; j < n; j++) wrong |= (others[j] < 0) | (others[j] >= ends);
    return !wrong;
}

typedef struct {
    bag_index x; /* the neurons that spike in each row */
    synapses s;
    int64_t D;
    const REAL *from;
    REAL *out;
    int *wrong; /* receives whether a synapse that is visited is none, or leads to no neuron */
} visits;

/* Finds the synapses of a neuron; returns whether they are inside. */
static inline int visit(const visits *v, int64_t e, int64_t *begin, int64_t *end)
{
    *begin = v->s.starts[e];
    *end = v->s.starts[e + 1];
    return 0 <= *begin && *begin <= *end && *end <= v->s.n;
}

static void refuse(const visits *v) { __atomic_store_n(v->wrong, 1, __ATOMIC_RELAXED); }

static void transmit_rows(const void *task, int64_t begin, int64_t end, void *memory)
{
    const visits *v = task;
    const uint32_t ends = (uint32_t)(v->D < INT32_MAX ? v->D : INT32_MAX);
    for (int64_t k = begin; k < end; k++) {
        const int64_t stop = k + 1 < v->x.bags ? v->x.starts[k + 1] : v->x.n;
        const int32_t *restrict others = v->s.others;
        const REAL *restrict from = v->from;
        REAL *restrict to = v->out + k * v->D;
        memset(to, 0, (size_t)v->D * sizeof(REAL));
        for (int64_t i = v->x.starts[k], j, last; i < stop; i++) {
            const REAL share = v->x.shares ? v->x.shares[i] : 1;
            if (!visit(v, v->x.places[i], &j, &last)) return refuse(v);
            for (; j < last; j++) {
                const uint32_t other = (uint32_t)others[j];
                if (other >= ends) return refuse(v);
                to[other] += share * from[j];
            }
        }
    }
}

/* out[k, others[j]] = the sum of share * weight[j] over the events (k, e) and the synapses j of e. */
int transmit_events(const int32_t *starts, const int32_t *columns, const REAL *shares, int64_t n,
                    int64_t K, int64_t E, int64_t D, const int64_t *first, const int32_t *others,
                    int64_t count, const REAL *weight, REAL *out, int threads)
{
    int wrong = 0;
    visits v = {{starts, columns, shares, K, n, E}, {first, others, count}, D, weight, out, &wrong};
    if (!is_inside(&v.x)) return OUTSIDE;
    divide(transmit_rows, &v, K, 0, 0, threads);
    return wrong ? OTHERS : DONE;
}

/* Rows are visited in order, so that the values of each stay in the cache. */
static void sum_neurons(const void *task, int64_t begin, int64_t end, void *memory)
{
    const visits *v = task;
    const uint32_t ends = (uint32_t)(v->D < INT32_MAX ? v->D : INT32_MAX);
    for (int64_t k = 0; k < v->x.bags; k++) {
        const int64_t stop = k + 1 < v->x.bags ? v->x.starts[k + 1] : v->x.n;
        const REAL *row = v->from + k * v->D;
        for (int64_t i = v->x.starts[k], j, last; i < stop; i++) {
            const int64_t e = v->x.places[i];
            if (e < begin || e >= end) continue;
            const REAL share = v->x.shares ? v->x.shares[i] : 1;
            const int32_t *restrict others = v->s.others;
            REAL *restrict out = v->out;
            if (!visit(v, e, &j, &last)) return refuse(v);
            for (; j < last; j++) {
                const uint32_t other = (uint32_t)others[j];
                if (other >= ends) return refuse(v);
                out[j] += share * row[other];
            }
        }
    }
}

/* out[j] += the sum of share * values[k, others[j]] over the events (k, e) of the neuron e of j. */
int sum_events(const int32_t *starts, const int32_t *columns, const REAL *shares, int64_t n,
               int64_t K, int64_t E, int64_t D, const int64_t *first, const int32_t *others,
               int64_t count, const REAL *values, REAL *out, int threads)
{
    int wrong = 0;
    visits v = {{starts, columns, shares, K, n, E}, {first, others, count}, D, values, out, &wrong};
    if (!is_inside(&v.x)) return OUTSIDE;
    divide(sum_neurons, &v, E, 0, 0, threads);
    return wrong ? OTHERS : DONE;
}
