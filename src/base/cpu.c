#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

void dt_cpu_allowed(uint64_t mask[DT_CPU_WORDS])
{
    cpu_set_t set;
    memset(mask, 0, DT_CPU_WORDS * sizeof *mask);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int core = 0; core < 64 * DT_CPU_WORDS; core++) {
        if (CPU_ISSET(core, &set))
            mask[core / 64] |= UINT64_C(1) << (core % 64);
    }
}

int dt_cpu_count(const uint64_t mask[DT_CPU_WORDS])
{
    int count = 0;
    for (int word = 0; word < DT_CPU_WORDS; word++)
        count += __builtin_popcountll(mask[word]);
    return count;
}

/* Reads "quota period" (cgroup 2: one file) or a number each (cgroup 1). */
static int read_quota(const char *path, const char *format, long *quota, long *period)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    int found = fscanf(file, format, quota, period);
    fclose(file);
    return found;
}

int dt_cpu_quota(void)
{
    long quota = 0, period = 0;
    if (read_quota("/sys/fs/cgroup/cpu.max", "%ld %ld", &quota, &period) != 2) {
        long unused;
        if (read_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "%ld", &quota, &unused) != 1 ||
            read_quota("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "%ld", &period, &unused) != 1)
            return INT32_MAX;
    }
    if (quota <= 0 || period <= 0 || quota / period >= INT32_MAX)
        return INT32_MAX;
    return quota < period ? 1 : (int)(quota / period);
}
