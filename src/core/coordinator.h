/*
 * coordinator.h - one step of a rank's coordinator: takes in what was submitted, reports it to
 * rank 0, on rank 0 decides, carries out verdicts, watches deadlines. It never blocks and owns no
 * thread; whoever holds the baton calls it.
 */
#ifndef DT_CORE_COORDINATOR_H
#define DT_CORE_COORDINATOR_H

#include "core/runtime.h"

typedef enum dt_step {
    DT_STEP_BUSY = 1, /* something moved: step again at once */
    DT_STEP_POLL = 2, /* data is on its way: step again soon */
    DT_STEP_IDLE = 3  /* nothing to do before an event, a submission or runtime->check_ns */
} dt_step_t;

dt_step_t dt_coord_step(dt_runtime_t *runtime);

/* A caller wants something that the coordinator has not begun: to leave, or to abort. Any thread.
 */
int dt_coord_has_wish(dt_runtime_t *runtime);

#endif
