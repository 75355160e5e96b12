/* clock.h - time as the library sees it; tests put their own clock in. */
#ifndef DT_BASE_CLOCK_H
#define DT_BASE_CLOCK_H

#include <stdint.h>

#define DT_NS_PER_US INT64_C(1000)
#define DT_NS_PER_MS INT64_C(1000000)
#define DT_NS_PER_S INT64_C(1000000000)

/* Later than any time: the deadline of what has none. */
#define DT_NEVER INT64_MAX

/* Nanoseconds of a monotonic clock. */
int64_t dt_now_ns(void);

/* A clock that can be replaced: now(context). */
typedef struct dt_clock {
    int64_t (*now)(void *context);
    void *context;
} dt_clock_t;

/* The real one. */
dt_clock_t dt_clock_system(void);

#endif
