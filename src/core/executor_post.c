/* What is laid out for the other ranks with the report, in place of a collective. */
#include "core/executor_state.h"
#include "core/sizes.h"

/* The same answer on all ranks, for an operation that all know by its id. */
static int is_eager(const dt_executor_t *executor, const dt_operation_t *operation)
{
    return executor->backend->ops->post && operation->id < DT_EAGER_SLOTS &&
           operation->signature.kind == DT_KIND_ALLREDUCE && !dt_is_adasum(operation) &&
           !dt_is_on_device(operation) && !operation->signature.codec[0] && operation->bytes > 0 &&
           operation->bytes <= DT_EAGER_BYTES;
}

/* Of an operation with an id, bytes that a rank can tell of its sizes with the report; 0: it is not
 * done. The same on all ranks. */
static size_t told_bytes(const dt_executor_t *executor, const dt_operation_t *operation)
{
    if (!executor->backend->ops->collect || operation->id >= DT_EAGER_SLOTS ||
        !dt_kind_traits(operation->signature.kind)->rows_differ || dt_is_on_device(operation))
        return 0;
    size_t bytes = dt_sizes_told_bytes(operation, executor->ranks.size);
    return bytes <= DT_EAGER_BYTES ? bytes : 0;
}

void dt_executor_post(dt_executor_t *executor, const dt_operation_t *operation)
{
    dt_backend_t *backend = executor->backend;
    int64_t words[DT_EAGER_BYTES / sizeof(int64_t)];
    size_t bytes = told_bytes(executor, operation);
    if (is_eager(executor, operation)) {
        backend->ops->post(backend, operation->id, operation->in, (size_t)operation->bytes);
    } else if (bytes > 0) {
        dt_sizes_tell(operation, executor->ranks, words);
        backend->ops->post(backend, operation->id, words, bytes);
    }
}

/* All ranks have told the operation's sizes. */
static dtrain_status_t take_sizes(dt_executor_t *executor, dt_operation_t *operation, size_t bytes)
{
    dt_backend_t *backend = executor->backend;
    void *told;
    operation->sizes = dt_sizes_create_told(operation, executor->ranks, &told);
    if (!operation->sizes)
        return dt_executor_no_memory();
    backend->ops->collect(backend, operation->id, told, bytes);
    return DTRAIN_OK;
}

dtrain_status_t dt_executor_take(dt_executor_t *executor, dt_operation_t *operation, int *is_done)
{
    dt_backend_t *backend = executor->backend;
    size_t bytes = told_bytes(executor, operation);
    *is_done = 0;
    if (bytes > 0)
        return take_sizes(executor, operation, bytes);
    if (!is_eager(executor, operation))
        return DTRAIN_OK;
    dt_reduction_t reduction = dt_collective_reduction(operation);
    backend->ops->take(backend, operation->id, &reduction, operation->out,
                       (size_t)operation->count);
    executor->done(executor->context, &operation, 1);
    *is_done = 1;
    return DTRAIN_OK;
}
