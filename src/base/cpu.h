/* cpu.h - which cores this process may use, and how much of them. */
#ifndef DT_BASE_CPU_H
#define DT_BASE_CPU_H

#include <stdint.h>

#define DT_CPU_WORDS 16 /* of 64 cores each, as in glibc's cpu_set_t */

/* The cores that the calling thread may run on, as bits. */
void dt_cpu_allowed(uint64_t mask[DT_CPU_WORDS]);

int dt_cpu_count(const uint64_t mask[DT_CPU_WORDS]);

/* Cores' worth of time that the cgroup of this process may use, rounded down but at least 1;
 * INT32_MAX where it is not limited or not known. */
int dt_cpu_quota(void);

#endif
