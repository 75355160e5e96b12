/* collective.h - what an operation that all ranks agreed on asks of the backend. */
#ifndef DT_CORE_COLLECTIVE_H
#define DT_CORE_COLLECTIVE_H

#include "comm/backend.h"
#include "core/operation.h"

/* The ranks that carry operations out together, a process set, and this one's number among them. */
typedef struct dt_ranks {
    int rank, size;
} dt_ranks_t;

/*
 * Fills in kind, reduction, root and counts, for one operation or several that are fused; pieces
 * and sequence are the caller's. `counts` has room for 2 * size entries, which the collective
 * points to.
 */
void dt_collective_fill(dt_collective_t *collective, const dt_operation_t *operation,
                        dt_ranks_t ranks, int64_t *counts);

/* Of an agreed operation. */
dt_reduction_t dt_collective_reduction(const dt_operation_t *operation);

/* 1 when no rank has anything to move, which all ranks find alike: then it is left out. */
int dt_collective_is_empty(const dt_operation_t *operation, int size);

#endif
