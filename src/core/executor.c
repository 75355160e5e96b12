#include "core/executor_state.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

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

void dt_executor_free(dt_executor_t *executor)
{
    dt_executor_abandon(executor);
    free_buckets(executor->spare);
    dt_coding_free(&executor->coding);
    dt_device_path_free(executor->device_path);
    dt_fusion_pool_free(&executor->pool);
    dt_executor_free_plan(executor);
}

/* What was given up keeps its memory, since a peer may still be writing to it. */
static void recycle(dt_executor_t *executor, dt_bucket_t *bucket)
{
    if (bucket->buffer)
        dt_fusion_release(bucket->buffer);
    bucket->next = executor->spare;
    executor->spare = bucket;
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
        return dt_executor_no_memory();
    dt_collective_fill(collective, bucket->operations[0], executor->ranks, bucket->counts);
    collective->pieces = bucket->pieces;
    collective->num_pieces = bucket->count;
    collective->copied = &bucket->copied;
    int64_t count = bucket->bytes / (int64_t)dt_dtype_size(collective->reduction.dtype);
    dtrain_dtype_t cast = dt_coded_cast(bucket->operations[0]);
    if (cast) {
        if (bucket->is_on_device)
            collective->rounded_from = collective->reduction.dtype;
        collective->reduction.dtype = cast;
        collective->count = count;
        if (!bucket->is_on_device)
            return pack(executor, bucket, is_ready);
    }
    if (bucket->is_on_device && bucket->count == 1)
        collective->memory = bucket->operations[0]->memory;
    collective->ready = bucket->ready;
    collective->num_ready = bucket->is_on_device ? bucket->count : 0;
    if (bucket->count == 1) {
        /* Where the output was not known when the bucket was made, it is now. */
        bucket->pieces[0].out = bucket->operations[0]->out;
        bucket->pieces[0].count = collective->count;
        return DTRAIN_OK;
    }
    collective->count = count;
    int takes_pieces = bucket->is_on_device || executor->backend->takes_pieces;
    return takes_pieces ? DTRAIN_OK : pack(executor, bucket, is_ready);
}

/* There may be no tensors on devices, for a reason that is the same on all ranks: then the bucket's
 * operations fail, and none is left in it. */
static void check_device(dt_executor_t *executor, dt_bucket_t *bucket)
{
    const char *text;
    dtrain_status_t fault = dt_device_path_fault(executor->device_path, &text);
    if (fault == DTRAIN_OK)
        return;
    for (int i = 0; i < bucket->count; i++)
        executor->failed(executor->context, bucket->operations[i], fault, text);
    bucket->count = 0;
}

/* Fills in the collective of device memory, for the devices' backend or to be staged. */
static dtrain_status_t prepare_device(dt_executor_t *executor, dt_bucket_t *bucket,
                                      dt_stage_t *stage)
{
    int is_ready;
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

/* Fills in the bucket's next collective. */
static dtrain_status_t prepare(dt_executor_t *executor, dt_bucket_t *bucket, dt_stage_t *stage,
                               int *is_ready)
{
    dtrain_status_t status = DTRAIN_OK;
    *is_ready = 1;
    *stage = DT_STAGE_NONE;
    if (!bucket->staged && is_empty(executor, bucket))
        return DTRAIN_OK;
    if (bucket->is_on_device && !bucket->staged)
        check_device(executor, bucket);
    if (bucket->count == 0 && !bucket->staged)
        return DTRAIN_OK;
    if (!bucket->staged && dt_executor_needs_stages(executor, bucket))
        status = dt_executor_make_stages(executor, bucket);
    if (status != DTRAIN_OK)
        return status;
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
        status = dt_executor_add_sized(executor, bucket->staged);
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
    dt_device_split_leave(&executor->split, clean);
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
