#include "core/completion.h"

#include "base/memory.h"

/* Takes an operation out of what is pending. */
static void unlist(dt_runtime_t *runtime, dt_operation_t *operation)
{
    dt_operation_remove(&runtime->pending, operation);
    dt_id_table_clear(&runtime->by_id, operation);
}

static void mark_done(dt_operation_t *operation, dtrain_status_t status)
{
    atomic_store_explicit(&operation->status, status, memory_order_relaxed);
    /* Whoever is about to sleep until this is done reads it after saying so: see dt_baton_tell. */
    atomic_store(&operation->done, 1);
}

void dt_complete(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status,
                 const char *text)
{
    unlist(runtime, operation);
    dt_intake_finish(&runtime->intake, &operation, 1);
    atomic_fetch_sub(&runtime->num_pending, 1);
    if (operation->is_refused) {
        dt_handle_release(runtime->handles, operation, atomic_load(&operation->handle));
        return;
    }
    operation->error = text ? dt_strdup(text) : NULL;
    mark_done(operation, status);
    dt_baton_tell(runtime);
}

void dt_complete_well(dt_runtime_t *runtime, dt_operation_t *const *operations, int n)
{
    for (int i = 0; i < n; i++)
        unlist(runtime, operations[i]);
    dt_intake_finish(&runtime->intake, operations, n);
    atomic_fetch_sub(&runtime->num_pending, n);
    for (int i = 0; i < n; i++)
        mark_done(operations[i], DTRAIN_OK);
    dt_baton_tell(runtime);
}

void dt_complete_all(dt_runtime_t *runtime, dtrain_status_t status, const char *text)
{
    dt_intake_close(&runtime->intake, status, text);
    dt_executor_abandon(&runtime->executor);
    /* What ends may free a name for an operation that was held back, which then is queued. */
    do {
        while (runtime->pending.first)
            dt_complete(runtime, runtime->pending.first, status, text);
        atomic_fetch_add(&runtime->num_pending,
                         dt_intake_take(&runtime->intake, &runtime->pending));
    } while (runtime->pending.first);
    runtime->end_status = status;
    runtime->end_text = dt_strdup(text);
    runtime->check_ns = DT_NEVER;
    atomic_store(&runtime->phase, DT_PHASE_GONE);
    dt_baton_tell(runtime);
}
