#include "core/completion.h"

#include "base/memory.h"

void dt_complete(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status,
                 const char *text)
{
    dt_operation_remove(&runtime->pending, operation);
    dt_intake_finish(&runtime->intake, operation);
    atomic_fetch_sub(&runtime->num_pending, 1);
    if (operation->is_refused) {
        dt_handle_release(runtime->handles, operation, atomic_load(&operation->handle));
        return;
    }
    operation->status = status;
    operation->error = text ? dt_strdup(text) : NULL;
    atomic_store(&operation->done, 1);
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
