/* What takes several collectives, or goes through the host's memory on its way. */
#include "core/adasum.h"
#include "core/coded.h"
#include "core/executor_state.h"
#include "core/rounded.h"
#include "core/sparse.h"

/* A codec that only rounds is packing, which the devices' backend does too. */
static int is_packing(const dt_executor_t *executor, const dt_bucket_t *bucket)
{
    return dt_coded_cast(bucket->operations[0]) &&
           (!bucket->is_on_device || dt_device_path_backend(executor->device_path));
}

int dt_executor_needs_stages(const dt_executor_t *executor, const dt_bucket_t *bucket)
{
    const dt_operation_t *operation = bucket->operations[0];
    return dt_is_adasum(operation) || operation->signature.kind == DT_KIND_SPARSE ||
           (operation->signature.codec[0] && !is_packing(executor, bucket));
}

/* What the host does. */
static dt_staged_t *make_for_host(dt_executor_t *executor, const dt_bucket_t *bucket)
{
    dt_operation_t *first = bucket->operations[0];
    if (dt_is_adasum(first))
        return dt_adasum_create(first, executor->ranks);
    if (first->signature.kind == DT_KIND_SPARSE)
        return dt_sparse_create(first, executor->ranks);
    dtrain_dtype_t cast = dt_coded_cast(first);
    if (cast)
        return dt_rounded_create(bucket->operations, bucket->count, cast);
    return dt_coded_create(&executor->coding, bucket->operations, bucket->count, executor->ranks);
}

dtrain_status_t dt_executor_make_stages(dt_executor_t *executor, dt_bucket_t *bucket)
{
    for (int i = 0; i < bucket->count; i++) {
        bucket->operations[i]->host_in = bucket->operations[i]->in;
        bucket->operations[i]->host_out = bucket->operations[i]->out;
    }
    dt_staged_t *staged = make_for_host(executor, bucket);
    if (!staged)
        return dt_executor_no_memory();
    if (!bucket->is_on_device) {
        bucket->staged = staged;
        return DTRAIN_OK;
    }
    return dt_device_path_through_host(executor->device_path, bucket->operations, bucket->count,
                                       staged, &bucket->staged);
}
