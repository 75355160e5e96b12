/*
 * pset_change.h - adding and removing process sets: operations without data that all ranks of the
 * world agree on, one at a time, since all have one name. The table changes where the verdict says
 * so, so every rank gives the new set the same id and its backend the same number. After that only
 * memory can be missing for it, which ends the world.
 *
 * A set that is to be removed is closed before that is reported, which is refused while operations
 * are pending on it: when all ranks agree no rank has any, or will have.
 */
#ifndef DT_CORE_PSET_CHANGE_H
#define DT_CORE_PSET_CHANGE_H

#include "core/runtime.h"
#include "core/wire.h"

struct dt_pset_change {
    int32_t closed; /* [const] the set that is to be removed; 0: none */
    int num_ranks;  /* [const] of the set that is to be added */
    int ranks[];    /* [const] */
};

/* At submission, any thread: checks the call, fills in signature and change, closes the set. */
dtrain_status_t dt_pset_change_describe(dt_runtime_t *runtime, const dt_submission_t *submission,
                                        dt_operation_t *operation);

/* Writes the ranks of a set that is to be added, as "0-3, 8": by this the ranks' calls are
 * compared, and equal texts are equal lists. */
void dt_pset_change_define(const dt_operation_t *operation, dt_buffer_t *definition);

/* With the baton, when all ranks agreed and there is room: changes the table. *is_done 0: what is
 * left to do is in the world's queue. An error ends the world. */
dtrain_status_t dt_pset_change_apply(dt_runtime_t *runtime, dt_operation_t *operation,
                                     int *is_done);

/* Opens a set again that stays, and frees the change. Any thread that has the operation to itself.
 */
void dt_pset_change_end(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status);

#endif
