#include "base/clock.h"

#include <stddef.h>
#include <time.h>

int64_t dt_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * DT_NS_PER_S + now.tv_nsec;
}

static int64_t system_now(void *context)
{
    (void)context;
    return dt_now_ns();
}

dt_clock_t dt_clock_system(void)
{
    return (dt_clock_t){.now = system_now, .context = NULL};
}
