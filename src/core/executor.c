#include "core/executor.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/adasum.h"
#include "core/sizes.h"
#include "core/sparse.h"

struct dt_bucket {
    dt_bucket_t *next;
    dt_operation_t **operations; /* none while sizes are being told */
    dt_piece_t *pieces;
    int count, capacity;
    int64_t bytes;
    dt_collective_t collective;
    dt_piece_t packed;          /* the one piece, when the bucket is packed */
    dt_fusion_buffer_t *buffer; /* NULL: the tensors are reduced where they are */
    int64_t *counts;            /* 2 * size, made when first needed */
    dt_staged_t *staged;        /* what takes several collectives; else NULL */
    int has_more;               /* of them, after the one under way */
    dt_task_t *task;            /* under way; else NULL */
    dt_backend_t *backend;      /* the task's */

    int64_t copied; /* bytes, into memory of the library's and out of it */
    int is_on_device;
    int is_agreement;  /* nothing but `staged`: how tensors on devices travel (device_path.h) */
    int is_enqueued;   /* its operations have been told so */
    dt_mark_t **ready; /* capacity; of its operations */
};

void dt_executor_init(dt_executor_t *executor, dt_backend_t *backend, dt_ranks_t ranks,
                      const dt_plan_policy_t *policy, dt_started_fn_t started, dt_done_fn_t done,
                      dt_failed_fn_t failed, void *context)
{
    memset(executor, 0, sizeof *executor);
    executor->backend = backend;
    executor->ranks = ranks;
    executor->policy = *policy;
    /* Without a copy to save, nothing speaks against large tensors in a bucket. */
    if (backend->takes_pieces)
        executor->policy.tensor_limit = policy->threshold;
    executor->started = started;
    executor->done = done;
    executor->failed = failed;
    executor->context = context;
}

static void free_buckets(dt_bucket_t *bucket)
{
    while (bucket) {
        dt_bucket_t *next = bucket->next;
        dt_free(bucket->operations);
        dt_free(bucket->pieces);
        dt_free(bucket->counts);
        dt_free(bucket->ready);
        if (bucket->staged)
            bucket->staged->free(bucket->staged);
        dt_free(bucket);
        bucket = next;
    }
}

static void free_scratch(dt_executor_t *executor)
{
    dt_free(executor->items);
    dt_free(executor->fixed);
    dt_free(executor->sized);
    dt_free(executor->bucket_of);
    dt_free(executor->planned);
}

void dt_executor_free(dt_executor_t *executor)
{
    dt_executor_abandon(executor);
    free_buckets(executor->spare);
    dt_coding_free(&executor->coding);
    dt_device_path_free(executor->device_path);
    dt_fusion_pool_free(&executor->pool);
    free_scratch(executor);
}

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the fusion plan");
}

/* What was given up keeps its memory, since a peer may still be writing to it. */
static void recycle(dt_executor_t *executor, dt_bucket_t *bucket)
{
    if (bucket->buffer)
        dt_fusion_release(bucket->buffer);
    bucket->next = executor->spare;
    executor->spare = bucket;
}

/* A bucket behind `after`; NULL: at the head. */
static dt_bucket_t *new_bucket(dt_executor_t *executor, dt_bucket_t *after)
{
    dt_bucket_t *bucket = executor->spare;
    if (bucket)
        executor->spare = bucket->next;
    else
        bucket = dt_calloc(1, sizeof *bucket);
    if (!bucket)
        return NULL;
    bucket->count = 0;
    bucket->bytes = 0;
    bucket->copied = 0;
    bucket->buffer = NULL;
    bucket->staged = NULL;
    bucket->has_more = 0;
    bucket->task = NULL;
    bucket->is_on_device = bucket->is_agreement = bucket->is_enqueued = 0;
    dt_bucket_t **link = after ? &after->next : &executor->waiting_first;
    bucket->next = *link;
    *link = bucket;
    if (executor->waiting_last == after)
        executor->waiting_last = bucket;
    return bucket;
}

static int is_on_device(const dt_operation_t *operation)
{
    return operation->signature.device != DTRAIN_DEVICE_CPU;
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
        dt_mark_t **ready = dt_realloc(bucket->ready, n * sizeof *bucket->ready);
        if (ready)
            bucket->ready = ready;
        if (!operations || !pieces || !ready)
            return -1;
        bucket->capacity = capacity;
    }
    dt_piece_t piece = {.in = operation->in, .out = operation->out, .count = operation->count};
    bucket->pieces[bucket->count] = piece;
    bucket->ready[bucket->count] = operation->ready;
    bucket->is_on_device = is_on_device(operation);
    bucket->operations[bucket->count++] = operation;
    bucket->bytes += operation->bytes;
    return 0;
}

static int reserve_scratch(dt_executor_t *executor, int n)
{
    if (n <= executor->scratch_capacity)
        return 0;
    size_t count = (size_t)n * 2;
    free_scratch(executor);
    executor->fixed = dt_alloc(count * sizeof *executor->fixed);
    executor->sized = dt_alloc(count * sizeof *executor->sized);
    executor->items = dt_alloc(count * sizeof *executor->items);
    executor->bucket_of = dt_alloc(count * sizeof *executor->bucket_of);
    executor->planned = dt_alloc(count * sizeof *executor->planned);
    int failed = !executor->items || !executor->fixed || !executor->sized || !executor->bucket_of ||
                 !executor->planned;
    executor->scratch_capacity = failed ? 0 : (int)count;
    return failed ? -1 : 0;
}

/* Plans the operations whose sizes are known. */
static dtrain_status_t add_fixed(dt_executor_t *executor, dt_operation_t *const *operations, int n)
{
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
        executor->planned[b] = new_bucket(executor, executor->waiting_last);
        if (!executor->planned[b])
            return no_memory();
    }
    for (int i = 0; i < n; i++) {
        if (put_in(executor->planned[executor->bucket_of[i]], operations[i]))
            return no_memory();
    }
    return DTRAIN_OK;
}

/* Before the first tensors on devices it is agreed on how they travel. Nothing is begun until then,
 * since it takes collectives. */
static dtrain_status_t add_agreement(dt_executor_t *executor, dt_operation_t *const *operations,
                                     int n)
{
    int i = 0;
    while (i < n && !is_on_device(operations[i]))
        i++;
    if (i == n || executor->device_path)
        return DTRAIN_OK;
    executor->device_path =
        dt_device_path_create(executor->gpu, executor->ranks, executor->members);
    dt_bucket_t *bucket = new_bucket(executor, executor->waiting_last);
    if (!bucket || !executor->device_path)
        return no_memory();
    bucket->is_agreement = 1;
    bucket->staged = dt_device_path_agree(executor->device_path);
    return bucket->staged ? DTRAIN_OK : no_memory();
}

/* A bucket for the sizes of operations, which then follow; `sizes` is taken over, and NULL when
 * memory ran out. */
static dtrain_status_t add_sizes(dt_executor_t *executor, dt_staged_t *sizes)
{
    dt_bucket_t *bucket = sizes ? new_bucket(executor, executor->waiting_last) : NULL;
    if (bucket)
        bucket->staged = sizes;
    else if (sizes)
        sizes->free(sizes);
    return bucket ? DTRAIN_OK : no_memory();
}

/* Operations whose ranks bring rows of their own: those of which they have told, and the others,
 * of which they tell together. */
static dtrain_status_t add_unsized(dt_executor_t *executor, dt_operation_t **operations, int n)
{
    dtrain_status_t status = DTRAIN_OK;
    int num_left = 0;
    for (int i = 0; i < n && status == DTRAIN_OK; i++) {
        dt_staged_t *sizes = operations[i]->sizes;
        operations[i]->sizes = NULL;
        if (sizes)
            status = add_sizes(executor, sizes);
        else
            operations[num_left++] = operations[i];
    }
    if (status != DTRAIN_OK || num_left == 0)
        return status;
    return add_sizes(executor, dt_sizes_create(operations, num_left, executor->ranks));
}

dtrain_status_t dt_executor_add(dt_executor_t *executor, dt_operation_t *const *operations, int n)
{
    if (reserve_scratch(executor, n))
        return no_memory();
    dtrain_status_t agreed = add_agreement(executor, operations, n);
    if (agreed != DTRAIN_OK)
        return agreed;
    int num_fixed = 0, num_sized = 0;
    for (int i = 0; i < n; i++) {
        if (dt_kind_traits(operations[i]->signature.kind)->is_sized)
            executor->sized[num_sized++] = operations[i];
        else
            executor->fixed[num_fixed++] = operations[i];
    }
    dtrain_status_t status = add_fixed(executor, executor->fixed, num_fixed);
    return status == DTRAIN_OK ? add_unsized(executor, executor->sized, num_sized) : status;
}

/* The sizes are known on all ranks: what can be done follows at once, each by itself. */
static dtrain_status_t add_sized(dt_executor_t *executor, const dt_staged_t *sizes)
{
    dt_bucket_t *last = NULL;
    for (int i = 0; i < dt_sizes_count(sizes); i++) {
        dt_operation_t *operation = dt_sizes_operation(sizes, i);
        char text[DT_ERROR_MAX];
        dtrain_status_t status = dt_sizes_result(sizes, i, text, sizeof text);
        if (status != DTRAIN_OK) {
            dt_output_free(operation->owned);
            operation->owned = NULL;
            executor->failed(executor->context, operation, status, text);
            continue;
        }
        last = new_bucket(executor, last);
        if (!last || put_in(last, operation))
            return no_memory();
    }
    return DTRAIN_OK;
}

static dt_packing_t packing_of(const dt_bucket_t *bucket)
{
    dt_packing_t packing = {.dtype = (dtrain_dtype_t)bucket->operations[0]->signature.dtype,
                            .packed = bucket->collective.reduction.dtype};
    return packing;
}

/* Each operation's part of what was copied goes by its length. */
static void share_copied(const dt_bucket_t *bucket)
{
    for (int i = 0; i < bucket->count; i++) {
        double part = (double)bucket->operations[i]->bytes / (double)bucket->bytes;
        bucket->operations[i]->copied = (int64_t)((double)bucket->copied * part + 0.5);
    }
}

static dtrain_status_t finish(dt_executor_t *executor, dt_bucket_t *bucket)
{
    dtrain_status_t status = DTRAIN_OK;
    if (bucket->buffer) {
        dt_fusion_unpack(bucket->buffer, bucket->pieces, bucket->count, packing_of(bucket));
        bucket->copied += bucket->bytes;
    }
    if (bucket->copied > 0)
        share_copied(bucket);
    if (bucket->staged && bucket->staged->finish)
        status = bucket->staged->finish(bucket->staged);
    if (status == DTRAIN_OK && bucket->count > 0)
        executor->done(executor->context, bucket->operations, bucket->count);
    if (bucket->staged)
        bucket->staged->free(bucket->staged);
    bucket->staged = NULL;
    recycle(executor, bucket);
    return status;
}

static int is_adasum(const dt_operation_t *operation)
{
    return operation->signature.kind == DT_KIND_ALLREDUCE &&
           operation->signature.op == DTRAIN_OP_ADASUM;
}

/* The same answer on all ranks, for an operation that all know by its id. */
static int is_eager(const dt_executor_t *executor, const dt_operation_t *operation)
{
    return executor->backend->ops->post && operation->id < DT_EAGER_SLOTS &&
           operation->signature.kind == DT_KIND_ALLREDUCE && !is_adasum(operation) &&
           !is_on_device(operation) && !operation->signature.codec[0] && operation->bytes > 0 &&
           operation->bytes <= DT_EAGER_BYTES;
}

/* Of an operation with an id, bytes that a rank can tell of its sizes with the report; 0: it is not
 * done. The same on all ranks. */
static size_t told_bytes(const dt_executor_t *executor, const dt_operation_t *operation)
{
    uint8_t kind = operation->signature.kind;
    int is_sized = kind == DT_KIND_ALLGATHER || kind == DT_KIND_GATHER || kind == DT_KIND_ALLTOALL;
    if (!executor->backend->ops->collect || operation->id >= DT_EAGER_SLOTS || !is_sized ||
        is_on_device(operation))
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
        return no_memory();
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

/* Whether a bucket needs no collective at all. */
static int is_empty(const dt_executor_t *executor, const dt_bucket_t *bucket)
{
    for (int i = 0; i < bucket->count; i++) {
        if (!dt_collective_is_empty(bucket->operations[i], executor->ranks.size))
            return 0;
    }
    return bucket->count > 0;
}

static dtrain_status_t pack(dt_executor_t *executor, dt_bucket_t *bucket, int *is_ready)
{
    int failed;
    dt_collective_t *collective = &bucket->collective;
    int64_t bytes = collective->count * (int64_t)dt_dtype_size(collective->reduction.dtype);
    bucket->buffer = dt_fusion_acquire(&executor->pool, bytes, &failed);
    if (!bucket->buffer) {
        *is_ready = 0;
        return failed ? dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                                "out of memory for a fusion buffer of %lld bytes", (long long)bytes)
                      : DTRAIN_OK;
    }
    dt_fusion_pack(bucket->buffer, bucket->pieces, bucket->count, packing_of(bucket));
    bucket->copied += bucket->bytes;
    bucket->packed.in = bucket->packed.out = bucket->buffer->data;
    bucket->packed.count = collective->count;
    collective->pieces = &bucket->packed;
    collective->num_pieces = 1;
    return DTRAIN_OK;
}

/* Fills in the one collective of a bucket. *is_ready 0: all fusion buffers are in use. */
static dtrain_status_t prepare_one(dt_executor_t *executor, dt_bucket_t *bucket, int *is_ready)
{
    dt_collective_t *collective = &bucket->collective;
    if (!bucket->counts)
        bucket->counts = dt_alloc(2 * (size_t)executor->ranks.size * sizeof *bucket->counts);
    if (!bucket->counts)
        return no_memory();
    dt_collective_fill(collective, bucket->operations[0], executor->ranks, bucket->counts);
    collective->pieces = bucket->pieces;
    collective->num_pieces = bucket->count;
    collective->copied = &bucket->copied;
    dtrain_dtype_t cast = dt_coded_cast(bucket->operations[0]);
    if (cast) {
        collective->count = bucket->bytes / (int64_t)dt_dtype_size(collective->reduction.dtype);
        collective->reduction.dtype = cast;
        return pack(executor, bucket, is_ready);
    }
    collective->ready = bucket->ready;
    collective->num_ready = bucket->is_on_device ? bucket->count : 0;
    if (bucket->count == 1) {
        /* Where the output was not known when the bucket was made, it is now. */
        bucket->pieces[0].out = bucket->operations[0]->out;
        bucket->pieces[0].count = collective->count;
        return DTRAIN_OK;
    }
    collective->count = bucket->bytes / (int64_t)dt_dtype_size(collective->reduction.dtype);
    int takes_pieces = bucket->is_on_device || executor->backend->takes_pieces;
    return takes_pieces ? DTRAIN_OK : pack(executor, bucket, is_ready);
}

/* There can be no tensors on devices, for a reason that is the same on all ranks. */
static void fail_bucket(dt_executor_t *executor, dt_bucket_t *bucket, dtrain_status_t status,
                        const char *text)
{
    for (int i = 0; i < bucket->count; i++)
        executor->failed(executor->context, bucket->operations[i], status, text);
    bucket->count = 0;
}

/* Fills in the collective of device memory, for the devices' backend or to be staged. */
static dtrain_status_t prepare_device(dt_executor_t *executor, dt_bucket_t *bucket,
                                      dt_stage_t *stage)
{
    const char *text;
    int is_ready;
    dtrain_status_t fault = dt_device_path_fault(executor->device_path, &text);
    if (fault != DTRAIN_OK) {
        fail_bucket(executor, bucket, fault, text);
        return DTRAIN_OK;
    }
    dtrain_status_t status = prepare_one(executor, bucket, &is_ready);
    if (status != DTRAIN_OK)
        return status;
    bucket->backend = dt_device_path_backend(executor->device_path);
    *stage = DT_STAGE_LAST;
    if (bucket->backend)
        return DTRAIN_OK;
    bucket->backend = executor->backend;
    status = dt_device_path_stage(executor->device_path, &bucket->collective, &bucket->staged);
    return status == DTRAIN_OK ? bucket->staged->next(bucket->staged, &bucket->collective, stage)
                               : status;
}

/* Whether it takes several collectives, of which nobody else needs to know. */
static int needs_stages(const dt_operation_t *operation)
{
    return is_adasum(operation) || operation->signature.kind == DT_KIND_SPARSE ||
           (operation->signature.codec[0] && !dt_coded_cast(operation));
}

static dt_staged_t *make_stages(dt_executor_t *executor, const dt_bucket_t *bucket)
{
    if (is_adasum(bucket->operations[0]))
        return dt_adasum_create(bucket->operations[0], executor->ranks);
    if (bucket->operations[0]->signature.kind == DT_KIND_SPARSE)
        return dt_sparse_create(bucket->operations[0], executor->ranks);
    return dt_coded_create(&executor->coding, bucket->operations, bucket->count, executor->ranks);
}

/* Fills in the bucket's next collective. */
static dtrain_status_t prepare(dt_executor_t *executor, dt_bucket_t *bucket, dt_stage_t *stage,
                               int *is_ready)
{
    *is_ready = 1;
    *stage = DT_STAGE_NONE;
    if (is_empty(executor, bucket))
        return DTRAIN_OK;
    if (!bucket->staged && needs_stages(bucket->operations[0])) {
        bucket->staged = make_stages(executor, bucket);
        if (!bucket->staged)
            return no_memory();
    }
    bucket->backend = executor->backend;
    if (bucket->staged)
        return bucket->staged->next(bucket->staged, &bucket->collective, stage);
    if (bucket->is_on_device)
        return prepare_device(executor, bucket, stage);
    *stage = DT_STAGE_LAST;
    return prepare_one(executor, bucket, is_ready);
}

/* The head of the queue has begun all it has to. */
static void take_head(dt_executor_t *executor)
{
    dt_bucket_t *bucket = executor->waiting_first;
    executor->waiting_first = bucket->next;
    if (!bucket->next)
        executor->waiting_last = NULL;
}

/* The head of the queue has nothing to begin (any more). */
static dtrain_status_t end_head(dt_executor_t *executor)
{
    dt_bucket_t *bucket = executor->waiting_first;
    dtrain_status_t status = DTRAIN_OK;
    take_head(executor);
    if (bucket->staged && bucket->count == 0 && !bucket->is_agreement)
        status = add_sized(executor, bucket->staged);
    dtrain_status_t finished = finish(executor, bucket);
    return status == DTRAIN_OK ? finished : status;
}

static dtrain_status_t start(dt_executor_t *executor, dt_bucket_t *bucket, dt_stage_t stage)
{
    /* The order in which the host's collectives begin is the same on all ranks. */
    if (bucket->backend == executor->backend)
        bucket->collective.sequence = executor->sequence++;
    if (executor->started)
        executor->started(executor->context, bucket->operations, bucket->count);
    dtrain_status_t status =
        bucket->backend->ops->start(bucket->backend, &bucket->collective, &bucket->task);
    if (status != DTRAIN_OK)
        return status;
    executor->running[executor->num_running++] = bucket;
    bucket->has_more = stage == DT_STAGE_MORE;
    if (!bucket->has_more)
        take_head(executor);
    return DTRAIN_OK;
}

static dtrain_status_t start_waiting(dt_executor_t *executor, int *moved)
{
    while (executor->waiting_first && !executor->waiting_first->task &&
           executor->num_running < DT_BUCKETS_RUNNING_MAX) {
        dt_bucket_t *bucket = executor->waiting_first;
        dt_stage_t stage;
        int is_ready;
        dtrain_status_t status = prepare(executor, bucket, &stage, &is_ready);
        if (status != DTRAIN_OK || !is_ready || stage == DT_STAGE_WAIT)
            return status;
        *moved = 1;
        status = stage == DT_STAGE_NONE ? end_head(executor) : start(executor, bucket, stage);
        if (status != DTRAIN_OK)
            return status;
    }
    return DTRAIN_OK;
}

/* Tells operations on a device once all of them is in a stream: another stream can wait for it. */
static void note_enqueued(dt_executor_t *executor, dt_bucket_t *bucket)
{
    dt_mark_t *mark = NULL;
    if (!bucket->is_on_device || bucket->is_enqueued || bucket->has_more)
        return;
    if (bucket->staged)
        mark = bucket->staged->enqueued(bucket->staged);
    else if (bucket->task)
        mark = bucket->backend->ops->enqueued(bucket->backend, bucket->task);
    if (!mark)
        return;
    bucket->is_enqueued = 1;
    for (int i = 0; i < bucket->count; i++)
        atomic_store_explicit(&bucket->operations[i]->enqueued, dt_mark_hold(mark),
                              memory_order_release);
    executor->enqueued(executor->context, bucket->operations, bucket->count);
}

/* OK when the bucket's collective is complete, and what is behind the last one. */
static dtrain_status_t progress(dt_executor_t *executor, dt_bucket_t *bucket)
{
    dtrain_status_t status = DTRAIN_OK;
    if (bucket->task) {
        status = bucket->backend->ops->progress(bucket->backend, bucket->task);
        note_enqueued(executor, bucket);
        if (status != DTRAIN_OK)
            return status;
        bucket->backend->ops->release(bucket->backend, bucket->task);
        bucket->task = NULL;
    }
    if (bucket->has_more || !bucket->staged || !bucket->staged->end)
        return DTRAIN_OK;
    status = bucket->staged->end(bucket->staged);
    note_enqueued(executor, bucket);
    return status;
}

dtrain_status_t dt_executor_progress(dt_executor_t *executor, int *moved)
{
    dtrain_status_t status = start_waiting(executor, moved);
    int i = 0;
    while (status == DTRAIN_OK && i < executor->num_running) {
        dt_bucket_t *bucket = executor->running[i];
        status = progress(executor, bucket);
        if (status == DTRAIN_IN_PROGRESS) {
            status = DTRAIN_OK;
            i++;
        } else if (status == DTRAIN_OK) {
            executor->num_running--;
            memmove(&executor->running[i], &executor->running[i + 1],
                    (size_t)(executor->num_running - i) * sizeof executor->running[0]);
            *moved = 1;
            if (!bucket->has_more)
                status = finish(executor, bucket);
        }
    }
    return status;
}

void dt_executor_leave(dt_executor_t *executor, int clean)
{
    dt_device_path_leave(executor->device_path, clean);
}

int dt_executor_is_idle(const dt_executor_t *executor)
{
    return !executor->waiting_first && executor->num_running == 0;
}

int dt_executor_has_backlog(const dt_executor_t *executor)
{
    return executor->waiting_first != NULL;
}

void dt_executor_abandon(dt_executor_t *executor)
{
    for (int i = 0; i < executor->num_running; i++) {
        dt_bucket_t *bucket = executor->running[i];
        if (bucket->task)
            bucket->backend->ops->release(bucket->backend, bucket->task);
        bucket->task = NULL;
        if (!bucket->has_more) /* else it is in the queue, too */
            recycle(executor, bucket);
    }
    executor->num_running = 0;
    while (executor->waiting_first) {
        dt_bucket_t *bucket = executor->waiting_first;
        executor->waiting_first = bucket->next;
        recycle(executor, bucket);
    }
    executor->waiting_last = NULL;
}
