#include "core/executor.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

struct dt_bucket {
    dt_bucket_t *next;
    dt_operation_t **operations;
    dt_piece_t *pieces;
    int count, capacity;
    int64_t bytes;
    dt_collective_t collective;
    dt_piece_t packed;          /* the one piece, when the bucket is packed */
    dt_fusion_buffer_t *buffer; /* NULL: the tensors are reduced where they are */
    dt_task_t *task;
};

void dt_executor_init(dt_executor_t *executor, dt_backend_t *backend, const int *ranks, int size,
                      const dt_plan_policy_t *policy, dt_done_fn_t done, void *context)
{
    memset(executor, 0, sizeof *executor);
    executor->backend = backend;
    executor->ranks = ranks;
    executor->size = size;
    executor->policy = *policy;
    /* Without a copy to save, nothing speaks against large tensors in a bucket. */
    if (backend->takes_pieces)
        executor->policy.tensor_limit = policy->threshold;
    executor->done = done;
    executor->context = context;
}

static void free_buckets(dt_bucket_t *bucket)
{
    while (bucket) {
        dt_bucket_t *next = bucket->next;
        dt_free(bucket->operations);
        dt_free(bucket->pieces);
        dt_free(bucket);
        bucket = next;
    }
}

void dt_executor_free(dt_executor_t *executor)
{
    dt_executor_abandon(executor);
    free_buckets(executor->spare);
    dt_fusion_pool_free(&executor->pool);
    dt_free(executor->items);
    dt_free(executor->bucket_of);
    dt_free(executor->planned);
}

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the fusion plan");
}

static void recycle(dt_executor_t *executor, dt_bucket_t *bucket)
{
    if (bucket->buffer)
        dt_fusion_release(bucket->buffer);
    bucket->next = executor->spare;
    executor->spare = bucket;
}

static dt_bucket_t *new_bucket(dt_executor_t *executor)
{
    dt_bucket_t *bucket = executor->spare;
    if (bucket)
        executor->spare = bucket->next;
    else
        bucket = dt_calloc(1, sizeof *bucket);
    if (!bucket)
        return NULL;
    bucket->next = NULL;
    bucket->count = 0;
    bucket->bytes = 0;
    bucket->buffer = NULL;
    bucket->task = NULL;
    if (executor->waiting_last)
        executor->waiting_last->next = bucket;
    else
        executor->waiting_first = bucket;
    executor->waiting_last = bucket;
    return bucket;
}

static int put_in(dt_bucket_t *bucket, dt_operation_t *operation)
{
    if (bucket->count == bucket->capacity) {
        int capacity = bucket->capacity ? 2 * bucket->capacity : 4;
        size_t n = (size_t)capacity;
        dt_operation_t **operations =
            dt_realloc(bucket->operations, n * sizeof *bucket->operations);
        if (operations)
            bucket->operations = operations;
        dt_piece_t *pieces = dt_realloc(bucket->pieces, n * sizeof *bucket->pieces);
        if (pieces)
            bucket->pieces = pieces;
        if (!operations || !pieces)
            return -1;
        bucket->capacity = capacity;
    }
    dt_piece_t piece = {.in = operation->in, .out = operation->out, .count = operation->count};
    bucket->pieces[bucket->count] = piece;
    bucket->operations[bucket->count++] = operation;
    bucket->bytes += operation->bytes;
    return 0;
}

static int reserve_scratch(dt_executor_t *executor, int n)
{
    if (n <= executor->scratch_capacity)
        return 0;
    size_t count = (size_t)n * 2;
    dt_free(executor->items);
    dt_free(executor->bucket_of);
    dt_free(executor->planned);
    executor->items = dt_alloc(count * sizeof *executor->items);
    executor->bucket_of = dt_alloc(count * sizeof *executor->bucket_of);
    executor->planned = dt_alloc(count * sizeof *executor->planned);
    int failed = !executor->items || !executor->bucket_of || !executor->planned;
    executor->scratch_capacity = failed ? 0 : (int)count;
    return failed ? -1 : 0;
}

dtrain_status_t dt_executor_add(dt_executor_t *executor, dt_operation_t *const *operations, int n)
{
    if (reserve_scratch(executor, n))
        return no_memory();
    int num_items = 0;
    for (int i = 0; i < n; i++) {
        dt_plan_item_t item = {.signature = &operations[i]->signature,
                               .bytes = operations[i]->bytes,
                               .divisor = operations[i]->divisor};
        executor->items[num_items++] = item;
    }
    int num_buckets =
        dt_fusion_plan(executor->items, num_items, &executor->policy, executor->bucket_of);
    for (int b = 0; b < num_buckets; b++) {
        executor->planned[b] = new_bucket(executor);
        if (!executor->planned[b])
            return no_memory();
    }
    for (int i = 0; i < n; i++) {
        if (put_in(executor->planned[executor->bucket_of[i]], operations[i]))
            return no_memory();
    }
    return DTRAIN_OK;
}

static void finish(dt_executor_t *executor, dt_bucket_t *bucket)
{
    if (bucket->buffer) {
        dt_fusion_unpack(bucket->buffer, bucket->pieces, bucket->count,
                         dt_dtype_size(bucket->collective.reduction.dtype));
    }
    executor->done(executor->context, bucket->operations, bucket->count);
    recycle(executor, bucket);
}

static dt_reduction_t reduction_of(const dt_operation_t *operation)
{
    const dt_signature_t *signature = &operation->signature;
    return (dt_reduction_t){.dtype = (dtrain_dtype_t)signature->dtype,
                            .op = (dtrain_op_t)signature->op,
                            .divisor = signature->op == DTRAIN_OP_AVERAGE ? operation->divisor : 1,
                            .prescale = signature->prescale,
                            .postscale = signature->postscale};
}

/* The same answer on all ranks, for an operation that all know by its id. */
static int is_eager(const dt_executor_t *executor, const dt_operation_t *operation)
{
    return executor->backend->ops->post && operation->id < DT_EAGER_SLOTS &&
           operation->signature.kind == DT_KIND_ALLREDUCE && operation->bytes > 0 &&
           operation->bytes <= DT_EAGER_BYTES;
}

void dt_executor_post(dt_executor_t *executor, const dt_operation_t *operation)
{
    dt_backend_t *backend = executor->backend;
    if (is_eager(executor, operation))
        backend->ops->post(backend, operation->id, operation->in, (size_t)operation->bytes);
}

int dt_executor_take(dt_executor_t *executor, dt_operation_t *operation)
{
    dt_backend_t *backend = executor->backend;
    if (!is_eager(executor, operation))
        return 0;
    dt_reduction_t reduction = reduction_of(operation);
    backend->ops->take(backend, operation->id, &reduction, operation->out,
                       (size_t)operation->count);
    executor->done(executor->context, &operation, 1);
    return 1;
}

/* A rank of the world by its number in the set, which it is in. */
static int place_of(const dt_executor_t *executor, int rank)
{
    int place = 0;
    while (place < executor->size - 1 && executor->ranks[place] != rank)
        place++;
    return place;
}

/* Fills in the collective. 0 when it cannot start yet since all fusion buffers are in use. */
static dtrain_status_t prepare(dt_executor_t *executor, dt_bucket_t *bucket, int *is_ready)
{
    const dt_signature_t *signature = &bucket->operations[0]->signature;
    dtrain_dtype_t dtype = (dtrain_dtype_t)signature->dtype;
    int64_t element = (int64_t)dt_dtype_size(dtype);
    dt_collective_t *collective = &bucket->collective;
    memset(collective, 0, sizeof *collective);
    collective->kind = signature->kind == DT_KIND_BROADCAST ? DT_BROADCAST : DT_ALLREDUCE;
    if (signature->kind == DT_KIND_BROADCAST)
        collective->root = place_of(executor, signature->root);
    collective->reduction = reduction_of(bucket->operations[0]);
    collective->pieces = bucket->pieces;
    collective->num_pieces = bucket->count;
    collective->count = bucket->bytes / element;
    *is_ready = 1;
    if (bucket->count == 1 || executor->backend->takes_pieces)
        return DTRAIN_OK;
    int failed;
    bucket->buffer = dt_fusion_acquire(&executor->pool, bucket->bytes, &failed);
    if (!bucket->buffer) {
        *is_ready = 0;
        return failed ? dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                                "out of memory for a fusion buffer of %lld bytes",
                                (long long)bucket->bytes)
                      : DTRAIN_OK;
    }
    dt_fusion_pack(bucket->buffer, bucket->pieces, bucket->count, (size_t)element);
    bucket->packed.in = bucket->packed.out = bucket->buffer->data;
    bucket->packed.count = collective->count;
    collective->pieces = &bucket->packed;
    collective->num_pieces = 1;
    return DTRAIN_OK;
}

static dtrain_status_t start_waiting(dt_executor_t *executor, int *moved)
{
    while (executor->waiting_first && executor->num_running < DT_BUCKETS_RUNNING_MAX) {
        dt_bucket_t *bucket = executor->waiting_first;
        int is_ready;
        dtrain_status_t status = prepare(executor, bucket, &is_ready);
        if (status != DTRAIN_OK || !is_ready)
            return status;
        int is_empty = bucket->bytes == 0;
        if (!is_empty) {
            bucket->collective.sequence = executor->sequence++;
            status = executor->backend->ops->start(executor->backend, &bucket->collective,
                                                   &bucket->task);
            if (status != DTRAIN_OK)
                return status;
        }
        executor->waiting_first = bucket->next;
        if (!bucket->next)
            executor->waiting_last = NULL;
        *moved = 1;
        if (is_empty)
            finish(executor, bucket);
        else
            executor->running[executor->num_running++] = bucket;
    }
    return DTRAIN_OK;
}

dtrain_status_t dt_executor_progress(dt_executor_t *executor, int *moved)
{
    dtrain_status_t status = start_waiting(executor, moved);
    int i = 0;
    while (status == DTRAIN_OK && i < executor->num_running) {
        dt_bucket_t *bucket = executor->running[i];
        status = executor->backend->ops->progress(executor->backend, bucket->task);
        if (status == DTRAIN_IN_PROGRESS) {
            status = DTRAIN_OK;
            i++;
        } else if (status == DTRAIN_OK) {
            executor->backend->ops->release(executor->backend, bucket->task);
            executor->num_running--;
            memmove(&executor->running[i], &executor->running[i + 1],
                    (size_t)(executor->num_running - i) * sizeof executor->running[0]);
            *moved = 1;
            finish(executor, bucket);
        }
    }
    return status;
}

int dt_executor_is_idle(const dt_executor_t *executor)
{
    return !executor->waiting_first && executor->num_running == 0;
}

void dt_executor_abandon(dt_executor_t *executor)
{
    for (int i = 0; i < executor->num_running; i++) {
        executor->backend->ops->release(executor->backend, executor->running[i]->task);
        recycle(executor, executor->running[i]);
    }
    executor->num_running = 0;
    while (executor->waiting_first) {
        dt_bucket_t *bucket = executor->waiting_first;
        executor->waiting_first = bucket->next;
        recycle(executor, bucket);
    }
    executor->waiting_last = NULL;
}
