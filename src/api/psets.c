/* psets.c - process sets and join: dtrain.h says what each does. */
#include "api/world.h"
#include "base/status.h"

/* Submits, waits, and gives the number that the operation came to. */
static dtrain_status_t run(dt_submission_t *submission, int *result)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    dtrain_handle_t handle = 0;
    submission->will_wait = 1;
    /* Without a place for the result the call is refused, and the other ranks learn of it. */
    status = dt_runtime_submit(runtime, submission, result ? &handle : NULL);
    if (status == DTRAIN_OK) {
        status = dt_runtime_wait(runtime, handle, -1);
        if (status == DTRAIN_OK)
            status = dt_runtime_result(runtime, handle, submission->kind, result);
        dt_runtime_release(runtime, handle);
    }
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_pset_add(const int *ranks, int n, dtrain_pset_t *pset)
{
    dt_submission_t submission = {.kind = DT_KIND_PSET_ADD, .ranks = ranks, .num_ranks = n};
    return run(&submission, pset);
}

dtrain_status_t dtrain_pset_remove(dtrain_pset_t pset)
{
    int result = 0;
    dt_submission_t submission = {.kind = DT_KIND_PSET_REMOVE, .pset = pset};
    return run(&submission, &result);
}

/* `output` is what the caller wants to know. */
static dtrain_status_t describe(dtrain_pset_t pset, const void *output, int *rank, int *size,
                                int *ranks, int cap)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    if (!output || cap < 0 || (cap > 0 && !ranks))
        status =
            dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "process set %d: nowhere to put the answer", pset);
    else
        status = dt_pset_describe(&runtime->psets, pset, rank, size, ranks, cap);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_pset_rank(dtrain_pset_t pset, int *rank)
{
    int own = -1, size = 0;
    dtrain_status_t status = describe(pset, rank, &own, &size, NULL, 0);
    if (status == DTRAIN_OK)
        *rank = own;
    return status;
}

dtrain_status_t dtrain_pset_size(dtrain_pset_t pset, int *size)
{
    int own = -1, count = 0;
    dtrain_status_t status = describe(pset, size, &own, &count, NULL, 0);
    if (status == DTRAIN_OK)
        *size = count;
    return status;
}

dtrain_status_t dtrain_pset_included(dtrain_pset_t pset, int *included)
{
    int own = -1, size = 0;
    dtrain_status_t status = describe(pset, included, &own, &size, NULL, 0);
    if (status == DTRAIN_OK)
        *included = own >= 0;
    return status;
}

dtrain_status_t dtrain_pset_ranks(dtrain_pset_t pset, int *ranks, int cap, int *n)
{
    int own = -1, size = 0;
    dtrain_status_t status = describe(pset, n, &own, &size, ranks, cap);
    if (status == DTRAIN_OK)
        *n = size;
    return status;
}

dtrain_status_t dtrain_join_async(const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    dt_submission_t submission = {.kind = DT_KIND_JOIN, .options = options};
    status = dt_runtime_submit(runtime, &submission, handle);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_join_last_rank(dtrain_handle_t handle, int *last_rank)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = last_rank ? dt_runtime_result(runtime, handle, DT_KIND_JOIN, last_rank)
                       : dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_join_last_rank: last_rank is "
                                                              "NULL");
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_join(int *last_rank)
{
    int last = -1;
    dt_submission_t submission = {.kind = DT_KIND_JOIN};
    dtrain_status_t status = run(&submission, &last);
    if (status == DTRAIN_OK && last_rank)
        *last_rank = last;
    return status;
}
