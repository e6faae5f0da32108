/* Threads that divide pieces of work among them. An element is always computed by one thread and in
   one order, so that no result depends on their number.

   They are those of torch, which wait for work by spinning, and from which threads of our own would
   take the cores; there are threads of our own where torch has no OpenMP, and after a fork. */

#ifndef THREADS_H
#define THREADS_H

#include <pthread.h>
#include <stdint.h>

#define MOST_THREADS 64

enum { DONE, OUTSIDE, OTHERS }; /* what functions return; the last for synapses */

typedef void (*work)(const void *task, int64_t begin, int64_t end, void *memory);
typedef struct {
    work run;
    const void *task;
    int64_t begin, end;
    void *memory;
} share;

/* OpenMP's entry to a parallel region, of as many threads as torch's regions have if `members` is 0;
   the library has one for all its builds. */
typedef void (*region)(void (*run)(void *), void *data, unsigned members, unsigned flags);
__attribute__((weak, visibility("hidden"))) region torch_region;

typedef struct {
    share *shares;
    int count, next;
} team;

static void *run_share(void *argument)
{
    share *s = argument;
    s->run(s->task, s->begin, s->end, s->memory);
    return 0;
}

/* Runs shares until none is left, in each thread of a team. */
static void run_shares(void *argument)
{
    team *t = argument;
    for (int i; (i = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < t->count;)
        run_share(&t->shares[i]);
}

/* Divides pieces among threads, each of which has `size` bytes of the memory. */
static void divide(work run, const void *task, int64_t pieces, char *memory, int64_t size,
                   int threads)
{
    share shares[MOST_THREADS];
    pthread_t others[MOST_THREADS];
    int started[MOST_THREADS] = {0};
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    for (int i = 0; i < threads; i++)
        shares[i] = (share){run, task, pieces * i / threads, pieces * (i + 1) / threads,
                            memory + size * i};
    if (threads > 1 && torch_region) {
        team all = {shares, threads, 0};
        torch_region(run_shares, &all, 0, 0);
        return;
    }
    for (int i = 1; i < threads; i++)
        started[i] = !pthread_create(&others[i], 0, run_share, &shares[i]);
    for (int i = 0; i < threads; i++)
        if (!started[i]) run_share(&shares[i]);
    for (int i = 1; i < threads; i++)
        if (started[i]) pthread_join(others[i], 0);
}

#endif
