/*
 * stall.h - the report on what comes no further, which rank 0 logs: each operation that waits, for
 * which ranks, and where ranks stand. Positions of the own node are read off its boards. The others
 * are asked for through the failure detectors, which answer also when an engine is stuck, and are
 * logged as they come.
 */
#ifndef DT_CORE_STALL_H
#define DT_CORE_STALL_H

#include <stdatomic.h>
#include <stdint.h>

#include "comm/detector.h"
#include "core/rank_set.h"

typedef struct dt_runtime dt_runtime_t;

/* Of rank 0. */
typedef struct dt_stall {
    dt_rank_set_t missing;     /* [baton] ranks that are waited for, in this report */
    _Atomic uint8_t *is_shown; /* [atomic] by rank: this report has it */
    _Atomic uint32_t question; /* [atomic] for positions, the last one */
    int64_t warn_ns;           /* [baton] when to warn next of data that does not move; 0: anew */
} dt_stall_t;

/* OUT_OF_MEMORY. */
dtrain_status_t dt_stall_init(dt_stall_t *stall, int size);
void dt_stall_free(dt_stall_t *stall);

/* Reports what has waited for the setting's time, then for twice as long, and so on. Returns when
 * to look again, or DT_NEVER. With the baton, on rank 0. */
int64_t dt_stall_check(dt_runtime_t *runtime, int64_t now_ns);

/* On the detector's thread: answers where a rank stands, or takes such an answer. */
void dt_stall_answer(dt_runtime_t *runtime, int rank, dt_detector_emit_fn_t emit, void *context);
void dt_stall_answered(dt_runtime_t *runtime, int rank, uint32_t question, const char *line);

#endif
