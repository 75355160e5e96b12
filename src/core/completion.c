#include "core/completion.h"

#include <pthread.h>

#include "base/memory.h"
#include "core/pset_change.h"
#include "core/recording.h"
#include "core/stand_in.h"

/* Takes an operation out of what is pending. */
static void unlist(dt_runtime_t *runtime, dt_operation_t *operation)
{
    dt_operation_remove(&runtime->pending, operation);
    dt_id_table_clear(&runtime->by_id, operation);
}

void dt_submission_end(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status)
{
    dt_pset_change_end(runtime, operation, status);
    if (!operation->set)
        return;
    if (operation->signature.kind == DT_KIND_JOIN && !operation->is_refused)
        atomic_store(&operation->set->has_joined, 0);
    dt_pset_leave(operation->set);
    operation->set = NULL;
}

/* What nobody waits for gives its handle back. */
static int ends_alone(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status)
{
    if (!operation->is_refused && !operation->is_bystander && !operation->stand_in)
        return 0;
    if (operation->stand_in) {
        dt_stand_in_free(operation);
        atomic_store_explicit(&operation->status, status, memory_order_relaxed);
    }
    dt_handle_release(runtime->handles, operation, atomic_load(&operation->handle));
    return 1;
}

/* With a callback it is done once that has been called. */
static void mark_done(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status)
{
    atomic_store_explicit(&operation->status, status, memory_order_relaxed);
    if (operation->callback) {
        dt_operation_append(&runtime->called, operation);
        return;
    }
    /* Whoever is about to sleep until this is done reads it after saying so: see dt_baton_tell. */
    atomic_store(&operation->done, DT_DONE);
}

void dt_complete(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status,
                 const char *text)
{
    unlist(runtime, operation);
    dt_recording_finished(runtime, operation, status);
    dt_intake_finish(&runtime->intake, &operation, 1);
    atomic_fetch_sub(&runtime->num_pending, 1);
    dt_submission_end(runtime, operation, status);
    if (ends_alone(runtime, operation, status))
        return;
    operation->error = text ? dt_strdup(text) : NULL;
    mark_done(runtime, operation, status);
    dt_baton_tell(runtime);
}

void dt_complete_well(dt_runtime_t *runtime, dt_operation_t *const *operations, int n)
{
    for (int i = 0; i < n; i++) {
        unlist(runtime, operations[i]);
        dt_recording_finished(runtime, operations[i], DTRAIN_OK);
    }
    dt_intake_finish(&runtime->intake, operations, n);
    atomic_fetch_sub(&runtime->num_pending, n);
    for (int i = 0; i < n; i++) {
        dt_submission_end(runtime, operations[i], DTRAIN_OK);
        if (!ends_alone(runtime, operations[i], DTRAIN_OK))
            mark_done(runtime, operations[i], DTRAIN_OK);
    }
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
        callback(handle, atomic_load(&operation->status), operation->user);
        dt_handle_finish(runtime->handles, operation, handle);
        dt_baton_tell(runtime);
    }
    atomic_store(&runtime->calling, 0);
    return 1;
}

int dt_complete_errands(dt_runtime_t *runtime)
{
    dt_errand_t *errand = dt_errands_take(&runtime->errands);
    if (!errand)
        return 0;
    atomic_store(&runtime->calling, (uintptr_t)pthread_self());
    while (errand) {
        dt_errand_t *next = errand->next;
        errand->run(errand);
        errand = next;
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
    dt_psets_abandon(&runtime->psets);
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
