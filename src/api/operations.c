/* operations.c - collectives: dtrain.h says what each does. */
#include <stddef.h>

#include "api/world.h"
#include "base/status.h"
#include "core/operand.h"

static dtrain_status_t submit(const dt_submission_t *submission, dtrain_handle_t *handle)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_submit(runtime, submission, handle);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_allreduce_async(const dtrain_tensor_t *tensor,
                                       const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {.kind = DT_KIND_ALLREDUCE, .tensor = tensor, .options = options};
    return submit(&submission, handle);
}

dtrain_status_t dtrain_broadcast_async(const dtrain_tensor_t *tensor, int root,
                                       const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {
        .kind = DT_KIND_BROADCAST, .tensor = tensor, .options = options, .root = root};
    return submit(&submission, handle);
}

dtrain_status_t dtrain_sparse_allreduce_async(const dtrain_sparse_t *sparse,
                                              const dtrain_options_t *options,
                                              dtrain_handle_t *handle)
{
    if (!sparse || sparse->struct_size < offsetof(dtrain_sparse_t, stream)) /* as it was at first */
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_sparse_t: struct_size is %u, not %zu: set it to sizeof",
                       sparse ? sparse->struct_size : 0, sizeof *sparse);
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = sparse->ndim,
                              .name = sparse->name,
                              .in = sparse->values,
                              .shape = sparse->shape,
                              .dtype = sparse->dtype,
                              .device = sparse->device};
    if (sparse->struct_size >= sizeof *sparse)
        tensor.stream = sparse->stream;
    dt_submission_t submission = {.kind = DT_KIND_SPARSE,
                                  .tensor = &tensor,
                                  .options = options,
                                  .indices = sparse->indices,
                                  .nnz = sparse->nnz};
    return submit(&submission, handle);
}

dtrain_status_t dtrain_barrier_async(const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {.kind = DT_KIND_BARRIER, .options = options};
    return submit(&submission, handle);
}

static dtrain_status_t submit_plain(dt_kind_t kind, const dtrain_tensor_t *tensor, int root,
                                    const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {.kind = kind, .tensor = tensor, .options = options, .root = root};
    return submit(&submission, handle);
}

dtrain_status_t dtrain_reduce_async(const dtrain_tensor_t *tensor, int root,
                                    const dtrain_options_t *options, dtrain_handle_t *handle)
{
    return submit_plain(DT_KIND_REDUCE, tensor, root, options, handle);
}

dtrain_status_t dtrain_reducescatter_async(const dtrain_tensor_t *tensor,
                                           const dtrain_options_t *options, dtrain_handle_t *handle)
{
    return submit_plain(DT_KIND_REDUCESCATTER, tensor, 0, options, handle);
}

dtrain_status_t dtrain_allgather_async(const dtrain_tensor_t *tensor,
                                       const dtrain_options_t *options, dtrain_handle_t *handle)
{
    return submit_plain(DT_KIND_ALLGATHER, tensor, 0, options, handle);
}

dtrain_status_t dtrain_gather_async(const dtrain_tensor_t *tensor, int root,
                                    const dtrain_options_t *options, dtrain_handle_t *handle)
{
    return submit_plain(DT_KIND_GATHER, tensor, root, options, handle);
}

dtrain_status_t dtrain_scatter_async(const dtrain_tensor_t *tensor, int root,
                                     const dtrain_options_t *options, dtrain_handle_t *handle)
{
    return submit_plain(DT_KIND_SCATTER, tensor, root, options, handle);
}

dtrain_status_t dtrain_alltoall_async(const dtrain_tensor_t *tensor, const int64_t *splits, int n,
                                      const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {.kind = DT_KIND_ALLTOALL,
                                  .tensor = tensor,
                                  .options = options,
                                  .splits = splits,
                                  .num_splits = n};
    return submit(&submission, handle);
}

dtrain_status_t dtrain_send_async(const dtrain_tensor_t *tensor, int peer,
                                  const dtrain_options_t *options, dtrain_handle_t *handle)
{
    return submit_plain(DT_KIND_TRANSFER, tensor, peer, options, handle);
}

dtrain_status_t dtrain_recv_async(const dtrain_tensor_t *tensor, int peer,
                                  const dtrain_options_t *options, dtrain_handle_t *handle)
{
    dt_submission_t submission = {.kind = DT_KIND_TRANSFER,
                                  .tensor = tensor,
                                  .options = options,
                                  .root = peer,
                                  .is_receiver = 1};
    return submit(&submission, handle);
}

static dtrain_status_t submit_group(dt_kind_t kind, const dtrain_tensor_t *tensors, int n,
                                    const dtrain_options_t *options, dtrain_handle_t *handles)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    dt_submission_t submission = {.kind = kind, .tensor = tensors, .options = options};
    status = dt_runtime_submit_group(runtime, &submission, n, handles);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_grouped_allreduce_async(const dtrain_tensor_t *tensors, int n,
                                               const dtrain_options_t *options,
                                               dtrain_handle_t *handles)
{
    return submit_group(DT_KIND_ALLREDUCE, tensors, n, options, handles);
}

dtrain_status_t dtrain_grouped_allgather_async(const dtrain_tensor_t *tensors, int n,
                                               const dtrain_options_t *options,
                                               dtrain_handle_t *handles)
{
    return submit_group(DT_KIND_ALLGATHER, tensors, n, options, handles);
}

dtrain_status_t dtrain_grouped_reducescatter_async(const dtrain_tensor_t *tensors, int n,
                                                   const dtrain_options_t *options,
                                                   dtrain_handle_t *handles)
{
    return submit_group(DT_KIND_REDUCESCATTER, tensors, n, options, handles);
}

/* These calls do not say where their vectors lie. */
static int is_on_gpu(dt_runtime_t *runtime, const dtrain_tensor_t *tensor)
{
    return tensor && dt_gpu_has(&runtime->gpu, tensor->in ? tensor->in : tensor->out);
}

static dtrain_status_t do_on_gpu(dt_runtime_t *runtime, const dt_submission_t *submission,
                                 const char *call)
{
    dt_submission_t placed = *submission;
    dtrain_tensor_t tensor = *submission->tensor;
    tensor.device = DTRAIN_DEVICE_CUDA;
    placed.tensor = &tensor;
    return dt_runtime_do(runtime, &placed, call);
}

/* Submit, wait, release. `call` is for the text. */
static dtrain_status_t run(const dt_submission_t *submission, const char *call)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = is_on_gpu(runtime, submission->tensor) ? do_on_gpu(runtime, submission, call)
                                                    : dt_runtime_do(runtime, submission, call);
    dt_api_leave();
    return status;
}

/* A blocking call's vector. `shape` outlives it. */
static dtrain_tensor_t vector(const char *name, const void *in, void *out, const int64_t *shape,
                              dtrain_dtype_t dtype)
{
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = name,
                              .in = in,
                              .out = out,
                              .shape = shape,
                              .dtype = dtype};
    return tensor;
}

static dtrain_status_t run_reduction(dt_kind_t kind, const dtrain_tensor_t *tensor, dtrain_op_t op,
                                     int root, const char *call)
{
    dtrain_options_t options = {.struct_size = sizeof options, .op = op};
    dt_submission_t submission = {
        .kind = kind, .tensor = tensor, .options = &options, .root = root};
    return run(&submission, call);
}

dtrain_status_t dtrain_allreduce(const char *name, const void *in, void *out, int64_t count,
                                 dtrain_dtype_t dtype, dtrain_op_t op)
{
    dtrain_tensor_t tensor = vector(name, in, out, &count, dtype);
    return run_reduction(DT_KIND_ALLREDUCE, &tensor, op, 0, "dtrain_allreduce");
}

dtrain_status_t dtrain_reduce(const char *name, const void *in, void *out, int64_t count,
                              dtrain_dtype_t dtype, dtrain_op_t op, int root)
{
    dtrain_tensor_t tensor = vector(name, in, out, &count, dtype);
    return run_reduction(DT_KIND_REDUCE, &tensor, op, root, "dtrain_reduce");
}

/* A vector's bytes. What cannot be counted is refused later, for its shape. */
static int64_t bytes_of(int64_t count, int64_t times, dtrain_dtype_t dtype)
{
    int64_t bytes;
    if (count < 0 || __builtin_mul_overflow(count, times, &bytes) ||
        __builtin_mul_overflow(bytes, (int64_t)dtrain_dtype_size(dtype), &bytes))
        return 0;
    return bytes;
}

/* Of the share that this rank gets of so many elements. */
static int64_t share_bytes(int64_t count, dtrain_dtype_t dtype)
{
    int size = dtrain_size();
    return size > 0 ? bytes_of(dt_rows_of(count, size, dtrain_rank()), 1, dtype) : 0;
}

dtrain_status_t dtrain_reducescatter(const char *name, const void *in, void *out, int64_t count,
                                     dtrain_dtype_t dtype, dtrain_op_t op)
{
    dtrain_tensor_t tensor = vector(name, in, out, &count, dtype);
    tensor.out_bytes = share_bytes(count, dtype);
    return run_reduction(DT_KIND_REDUCESCATTER, &tensor, op, 0, "dtrain_reducescatter");
}

dtrain_status_t dtrain_broadcast(const char *name, void *buffer, int64_t count,
                                 dtrain_dtype_t dtype, int root)
{
    dtrain_tensor_t tensor = vector(name, buffer, buffer, &count, dtype);
    dt_submission_t submission = {.kind = DT_KIND_BROADCAST, .tensor = &tensor, .root = root};
    return run(&submission, "dtrain_broadcast");
}

dtrain_status_t dtrain_allgather(const char *name, const void *in, void *out, int64_t count,
                                 dtrain_dtype_t dtype)
{
    dtrain_tensor_t tensor = vector(name, in, out, &count, dtype);
    tensor.out_bytes = bytes_of(count, dtrain_size(), dtype);
    dt_submission_t submission = {.kind = DT_KIND_ALLGATHER, .tensor = &tensor};
    return run(&submission, "dtrain_allgather");
}

dtrain_status_t dtrain_alltoall(const char *name, const void *in, void *out, int64_t count,
                                dtrain_dtype_t dtype)
{
    dtrain_tensor_t tensor = vector(name, in, out, &count, dtype);
    tensor.out_bytes = bytes_of(count, 1, dtype);
    dt_submission_t submission = {.kind = DT_KIND_ALLTOALL, .tensor = &tensor};
    return run(&submission, "dtrain_alltoall");
}

dtrain_status_t dtrain_gather(const char *name, const void *in, void *out, int64_t count,
                              dtrain_dtype_t dtype, int root)
{
    dtrain_tensor_t tensor = vector(name, in, out, &count, dtype);
    tensor.out_bytes = bytes_of(count, dtrain_size(), dtype);
    dt_submission_t submission = {.kind = DT_KIND_GATHER, .tensor = &tensor, .root = root};
    return run(&submission, "dtrain_gather");
}

dtrain_status_t dtrain_scatter(const char *name, const void *in, void *out, int64_t count,
                               dtrain_dtype_t dtype, int root)
{
    dtrain_tensor_t tensor = vector(name, in, out, &count, dtype);
    tensor.out_bytes = share_bytes(count, dtype);
    dt_submission_t submission = {.kind = DT_KIND_SCATTER, .tensor = &tensor, .root = root};
    return run(&submission, "dtrain_scatter");
}

dtrain_status_t dtrain_send(const char *name, const void *buffer, int64_t count,
                            dtrain_dtype_t dtype, int peer)
{
    dtrain_tensor_t tensor = vector(name, buffer, NULL, &count, dtype);
    dt_submission_t submission = {.kind = DT_KIND_TRANSFER, .tensor = &tensor, .root = peer};
    return run(&submission, "dtrain_send");
}

dtrain_status_t dtrain_recv(const char *name, void *buffer, int64_t count, dtrain_dtype_t dtype,
                            int peer)
{
    dtrain_tensor_t tensor = vector(name, NULL, buffer, &count, dtype);
    dt_submission_t submission = {
        .kind = DT_KIND_TRANSFER, .tensor = &tensor, .root = peer, .is_receiver = 1};
    return run(&submission, "dtrain_recv");
}

dtrain_status_t dtrain_barrier(void)
{
    dt_submission_t submission = {.kind = DT_KIND_BARRIER};
    return run(&submission, "dtrain_barrier");
}
