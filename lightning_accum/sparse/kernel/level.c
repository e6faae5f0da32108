/* Which of the builds in the library this processor can run, and on whose threads. */

#include "threads.h"

/* Divides work among torch's threads from now on; null for threads of our own. */
void use_region(region entry)
{
    torch_region = entry;
}

/* Returns the index of the last one; scripts/build_kernel.py has their names and flags. */
int64_t level(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
        !__builtin_cpu_supports("popcnt"))
        return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl")
               ? 2
               : 1;
#else
    return 0;
#endif
}
