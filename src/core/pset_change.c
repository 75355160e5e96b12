#include "core/pset_change.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

dtrain_status_t dt_pset_change_describe(dt_runtime_t *runtime, const dt_submission_t *submission,
                                        dt_operation_t *operation)
{
    int is_add = submission->kind == DT_KIND_PSET_ADD;
    int n = is_add ? submission->num_ranks : 0;
    operation->signature.prescale = operation->signature.postscale = 1;
    operation->signature.pset = submission->pset;
    operation->in = operation->out = NULL;
    operation->count = operation->bytes = 0;
    dtrain_status_t status = DTRAIN_OK;
    if (is_add)
        status = dt_psets_check(&runtime->psets, submission->ranks, n);
    if (status != DTRAIN_OK)
        return status;
    dt_pset_change_t *change = dt_calloc(1, sizeof *change + (size_t)n * sizeof change->ranks[0]);
    if (!change)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a process set");
    change->num_ranks = n;
    if (is_add)
        memcpy(change->ranks, submission->ranks, (size_t)n * sizeof change->ranks[0]);
    else
        status = dt_pset_close(&runtime->psets, submission->pset);
    if (!is_add && status == DTRAIN_OK)
        change->closed = submission->pset;
    operation->change = change;
    return status;
}

void dt_pset_change_define(const dt_operation_t *operation, dt_buffer_t *definition)
{
    const dt_pset_change_t *change = operation->change;
    for (int first = 0, last; first < change->num_ranks; first = last + 1) {
        char run[32];
        const char *separator = first ? ", " : "";
        last = first;
        while (last + 1 < change->num_ranks && change->ranks[last + 1] == change->ranks[last] + 1)
            last++;
        int length = first == last
                         ? snprintf(run, sizeof run, "%s%d", separator, change->ranks[first])
                         : snprintf(run, sizeof run, "%s%d-%d", separator, change->ranks[first],
                                    change->ranks[last]);
        dt_buffer_append(definition, run, (size_t)length);
    }
}

static dtrain_status_t add(dt_runtime_t *runtime, dt_operation_t *operation, int *is_done)
{
    const dt_pset_change_t *change = operation->change;
    int is_taken = 0;
    dtrain_status_t status =
        dt_psets_add(&runtime->psets, change->ranks, change->num_ranks, &operation->result);
    if (status == DTRAIN_OK)
        status = dt_psets_split(&runtime->psets, operation->result, operation, &is_taken);
    *is_done = !is_taken;
    return status;
}

dtrain_status_t dt_pset_change_apply(dt_runtime_t *runtime, dt_operation_t *operation, int *is_done)
{
    const dt_pset_change_t *change = operation->change;
    *is_done = 1;
    if (operation->signature.kind == DT_KIND_PSET_ADD)
        return add(runtime, operation, is_done);
    dt_pset_t *set = dt_psets_find(&runtime->psets, change->closed);
    dt_intake_forget(&runtime->intake, set->id);
    if (runtime->negotiator)
        dt_negotiator_forget(runtime->negotiator, set->id);
    dt_psets_remove(&runtime->psets, set);
    return DTRAIN_OK;
}

void dt_pset_change_end(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status)
{
    dt_pset_change_t *change = operation->change;
    if (!change)
        return;
    if (change->closed && status != DTRAIN_OK)
        dt_pset_reopen(&runtime->psets, change->closed);
    dt_free(change);
    operation->change = NULL;
}
