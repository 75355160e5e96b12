/*
 * pset_change.h - adding and removing process sets: operations without data that all ranks of the
 * world agree on, one at a time, since all have one name. So a rank that reports one has carried
 * out all before it, and the table is the same on all ranks when they make a set for it.
 *
 * A set is made before it is reported, with its backend; what fails there is reported in its place.
 * So when all ranks agree nothing is left that could fail, and when they do not every rank throws
 * its own away. A set that is to be removed is closed before that is reported, which is refused
 * while operations are pending on it: when all ranks agree no rank has any, or will have.
 */
#ifndef DT_CORE_PSET_CHANGE_H
#define DT_CORE_PSET_CHANGE_H

#include "core/runtime.h"
#include "core/wire.h"

struct dt_pset_change {
    dt_pset_t *made; /* [baton] from the report on, until it is in the table */
    int32_t closed;  /* [const] the set that is to be removed; 0: none */
    int num_ranks;   /* [const] */
    int ranks[];     /* [const] */
};

/* At submission, any thread: checks the call, fills in signature and change, closes the set. */
dtrain_status_t dt_pset_change_describe(dt_runtime_t *runtime, const dt_submission_t *submission,
                                        dt_operation_t *operation);

/* The rest is the baton's. Before the report: makes the set. Writes what the other ranks' are
 * compared with, as "0-3, 8". */
dtrain_status_t dt_pset_change_prepare(dt_runtime_t *runtime, dt_operation_t *operation,
                                       dt_buffer_t *definition);

/* All ranks agreed. */
void dt_pset_change_apply(dt_runtime_t *runtime, dt_operation_t *operation);

/* Any thread that has the operation to itself: throws away what was not applied, opens a set again
 * that stays, frees the change. */
void dt_pset_change_end(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status);

#endif
