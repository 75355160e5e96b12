/*
 * fault.h - points at which a test lets this process go down, or an allocation fail.
 *
 * They exist in builds with fault points alone (CMake's DTRAIN_FAULT_POINTS); in others a point is
 * nothing, and a rule is an error. A rule is `rank:point:nth:action` with, if wanted, `:file` after
 * it: at the nth time that the rank passes the point, the action happens, and just before it the
 * file gets a line with the time. The rank is the launcher's, or * for all of them.
 */
#ifndef DT_BASE_FAULT_H
#define DT_BASE_FAULT_H

#include "base/status.h"

typedef enum dt_fault {
    DT_FAULT_INIT_MPI = 0,        /* dtrain_init, before MPI is called */
    DT_FAULT_INIT_HELLO = 1,      /* before this rank tells the others what it is */
    DT_FAULT_INIT_CONNECT = 2,    /* before it connects to rank 0, or rank 0 listens */
    DT_FAULT_INIT_SHARE = 3,      /* before it shares memory with its node */
    DT_FAULT_INIT_START = 4,      /* the world is there, and this rank's engine is not */
    DT_FAULT_ENQUEUE = 5,         /* in a call that submits */
    DT_FAULT_NEGOTIATE = 6,       /* before this rank reports what it submitted */
    DT_FAULT_VERDICT = 7,         /* before it carries out what rank 0 decided */
    DT_FAULT_PACK = 8,            /* before a copy into memory of the library */
    DT_FAULT_REDUCE = 9,          /* before a step that combines values */
    DT_FAULT_UNPACK = 10,         /* before a copy out of memory of the library */
    DT_FAULT_BROADCAST = 11,      /* before a step that passes a broadcast on, or takes it */
    DT_FAULT_SHUTDOWN_BYE = 12,   /* in dtrain_shutdown, before this rank says so */
    DT_FAULT_SHUTDOWN_WAIT = 13,  /* after it */
    DT_FAULT_SHUTDOWN_LEAVE = 14, /* after all ranks have */
    DT_FAULT_ALLOC = 15,          /* asking for memory */
    DT_FAULT_COUNT = 16
} dt_fault_t;

#ifdef DT_FAULT_POINTS

/*
 * Puts a rule in force for this process, which is the launcher's `rank`. CONFIG when it cannot be
 * read; the text lists what there is. Armed again with the same text it goes on counting, so that
 * a process may call dtrain_init many times. Not while other threads pass points.
 */
dtrain_status_t dt_fault_arm(const char *text, int rank);

void dt_fault_disarm(void);

/* Any thread. */
void dt_fault_point(dt_fault_t point);

/* A point whose action may be `fail`: 1 when it has to. */
int dt_fault_fails(dt_fault_t point);

#else

static inline dtrain_status_t dt_fault_arm(const char *text, int rank)
{
    return dt_fail(DTRAIN_ERR_CONFIG,
                   "DTRAIN_FAULT='%.64s' on rank %d: this libdtrain was built without fault points "
                   "(CMake: -DDTRAIN_FAULT_POINTS=ON)",
                   text, rank);
}

static inline void dt_fault_point(dt_fault_t point)
{
    (void)point;
}

static inline int dt_fault_fails(dt_fault_t point)
{
    (void)point;
    return 0;
}

#endif

#endif
