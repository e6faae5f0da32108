/* Threads that divide pieces of work among them. An element is always computed by one thread and in
   one order, so that no result depends on their number. */

#ifndef THREADS_H
#define THREADS_H

#include <pthread.h>
#include <stdint.h>

#define MOST_THREADS 64

enum { DONE, OUTSIDE }; /* what functions return */

typedef void (*work)(const void *task, int64_t begin, int64_t end, void *memory);
typedef struct {
    work run;
    const void *task;
    int64_t begin, end;
    void *memory;
} share;

static void *run_share(void *argument)
{
    share *s = argument;
    s->run(s->task, s->begin, s->end, s->memory);
    return 0;
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
    for (int i = 1; i < threads; i++)
        started[i] = !pthread_create(&others[i], 0, run_share, &shares[i]);
    for (int i = 0; i < threads; i++)
        if (!started[i]) run_share(&shares[i]);
    for (int i = 1; i < threads; i++)
        if (started[i]) pthread_join(others[i], 0);
}

#endif
