/* refuse.c - calls that a layer above the library refuses: dtrain.h says what they are for. */
#include "api/world.h"
#include "base/memory.h"
#include "base/status.h"

/* Tensors that are nothing but names. */
static dtrain_tensor_t *named(const char *const *names, int n)
{
    dtrain_tensor_t *tensors = dt_calloc((size_t)n, sizeof *tensors);
    for (int i = 0; tensors && i < n; i++) {
        tensors[i].struct_size = sizeof *tensors;
        tensors[i].name = names[i];
    }
    return tensors;
}

static dtrain_status_t submit(dt_runtime_t *runtime, const dt_submission_t *submission, int n)
{
    if (n == 1)
        return dt_runtime_submit(runtime, submission, NULL);
    return dt_runtime_submit_group(runtime, submission, n, NULL);
}

dtrain_status_t dtrain_refuse(const char *const *names, int n, dtrain_pset_t pset, const char *why)
{
    dtrain_status_t status = DTRAIN_OK;
    if (!names || n < 1 || !why)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_refuse: %d names%s%s", n,
                       names ? "" : " at NULL", why ? "" : ", and no reason");
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    dtrain_tensor_t *tensors = named(names, n);
    dtrain_options_t options = {.struct_size = sizeof options, .pset = pset};
    /* The kind is of no account: no rank gets to compare it. */
    dt_submission_t submission = {
        .kind = DT_KIND_ALLREDUCE, .tensor = tensors, .options = &options, .refusal = why};
    status = tensors ? submit(runtime, &submission, n)
                     : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for %d names", n);
    dt_free(tensors);
    dt_api_leave();
    return status;
}
