#include "core/completion.h"

#include "base/memory.h"
#include "core/pset_change.h"
#include "core/stand_in.h"

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

static void end_stand_in(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status)
{
    if (status == DTRAIN_OK) {
        dt_stand_in_free(operation->stand_in);
    } else {
        /* Peers may write to it until the world is closed. */
        operation->stand_in->next = runtime->given_up;
        runtime->given_up = operation->stand_in;
    }
    operation->stand_in = NULL;
    dt_handle_release(runtime->handles, operation, atomic_load(&operation->handle));
}

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
    dt_submission_end(runtime, operation, status);
    if (operation->stand_in) {
        end_stand_in(runtime, operation, status);
        return;
    }
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
    for (int i = 0; i < n; i++) {
        dt_submission_end(runtime, operations[i], DTRAIN_OK);
        if (operations[i]->stand_in)
            end_stand_in(runtime, operations[i], DTRAIN_OK);
        else
            mark_done(operations[i], DTRAIN_OK);
    }
    dt_baton_tell(runtime);
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
