#include "core/completion.h"

#include <pthread.h>

#include "base/memory.h"

void dt_complete(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status,
                 const char *text)
{
    dt_operation_remove(&runtime->pending, operation);
    if (!operation->is_bystander)
        dt_intake_finish(&runtime->intake, operation);
    atomic_fetch_sub(&runtime->num_pending, 1);
    if (operation->is_refused || operation->is_bystander) {
        dt_handle_release(runtime->handles, operation, atomic_load(&operation->handle));
        return;
    }
    operation->status = status;
    operation->error = text ? dt_strdup(text) : NULL;
    if (operation->callback) {
        dt_operation_append(&runtime->called, operation);
        return;
    }
    atomic_store(&operation->done, DT_DONE);
    dt_baton_tell(runtime);
}

int dt_complete_callbacks(dt_runtime_t *runtime)
{
    dt_operation_t *operation = runtime->called.first;
    if (!operation)
        return 0;
    atomic_store(&runtime->calling, (uintptr_t)pthread_self());
    for (; operation; operation = runtime->called.first) {
        dt_operation_remove(&runtime->called, operation);
        /* From here on the callback may give the operation back. */
        dtrain_handle_t handle = atomic_load(&operation->handle);
        dtrain_callback_fn_t callback = operation->callback;
        atomic_store(&operation->done, DT_DONE_IN_CALLBACK);
        callback(handle, operation->status, operation->user);
        dt_handle_finish(runtime->handles, operation, handle);
        dt_baton_tell(runtime);
    }
    atomic_store(&runtime->calling, 0);
    return 1;
}

int dt_is_in_callback(const dt_runtime_t *runtime)
{
    return atomic_load(&runtime->calling) == (uintptr_t)pthread_self();
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
