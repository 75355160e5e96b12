/* completion.h - how operations end. */
#ifndef DT_CORE_COMPLETION_H
#define DT_CORE_COMPLETION_H

#include "core/runtime.h"

/* The operation, which is in `pending`, is over; `text` is its error's, or NULL. After this it may
 * be gone. */
void dt_complete(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status,
                 const char *text);

/* The same for operations that went well, all at once. */
void dt_complete_well(dt_runtime_t *runtime, dt_operation_t *const *operations, int n);

/* Gives back what submitting an operation took hold of: its set. Any thread that has the operation
 * to itself. */
void dt_submission_end(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status);

/* The world is over: gives up running tasks, fails every operation now and to come. */
void dt_complete_all(dt_runtime_t *runtime, dtrain_status_t status, const char *text);

/* Calls the callbacks of operations that have ended since the last time; with the baton, and
 * outside all locks. Returns 1 when there were any. */
int dt_complete_callbacks(dt_runtime_t *runtime);

/* Runs the errands that wait, as callbacks, at the start of a step. Returns 1 when there were any.
 */
int dt_complete_errands(dt_runtime_t *runtime);

/* 1 on a thread that is in a callback: it may not wait, since it holds the baton. */
int dt_is_in_callback(const dt_runtime_t *runtime);

#endif
