#include "base/futex.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* The operations without FUTEX_PRIVATE_FLAG: the word may lie in memory of several processes. */

void dt_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
    struct timespec limit;
    struct timespec *timeout = NULL;
    if (timeout_ns <= 0)
        return;
    if (timeout_ns != DT_NEVER) {
        limit.tv_sec = (time_t)(timeout_ns / DT_NS_PER_S);
        limit.tv_nsec = (long)(timeout_ns % DT_NS_PER_S);
        timeout = &limit;
    }
    syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout, NULL, 0);
}

void dt_futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}
