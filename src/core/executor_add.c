/* The queue of an executor: what was agreed is planned, and put into buckets. */
#include "base/memory.h"
#include "core/executor_state.h"
#include "core/sizes.h"

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
    bucket->is_on_device = dt_is_on_device(operation);
    bucket->operations[bucket->count++] = operation;
    bucket->bytes += operation->bytes;
    return 0;
}

void dt_executor_free_plan(dt_executor_t *executor)
{
    dt_free(executor->items);
    dt_free(executor->fixed);
    dt_free(executor->sized);
    dt_free(executor->bucket_of);
    dt_free(executor->planned);
}

static int reserve_scratch(dt_executor_t *executor, int n)
{
    if (n <= executor->scratch_capacity)
        return 0;
    size_t count = (size_t)n * 2;
    dt_executor_free_plan(executor);
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
            return dt_executor_no_memory();
    }
    for (int i = 0; i < n; i++) {
        if (put_in(executor->planned[executor->bucket_of[i]], operations[i]))
            return dt_executor_no_memory();
    }
    return DTRAIN_OK;
}

/* Before the first tensors on devices it is agreed on how they travel. Nothing is begun until then,
 * since it takes collectives. */
static dtrain_status_t add_agreement(dt_executor_t *executor, dt_operation_t *const *operations,
                                     int n)
{
    int i = 0;
    while (i < n && !dt_is_on_device(operations[i]))
        i++;
    if (i == n || executor->device_path)
        return DTRAIN_OK;
    executor->device_path =
        dt_device_path_create(executor->gpu, executor->ranks, executor->members, &executor->split);
    dt_bucket_t *bucket = new_bucket(executor, executor->waiting_last);
    if (!bucket || !executor->device_path)
        return dt_executor_no_memory();
    bucket->is_agreement = 1;
    bucket->staged = dt_device_path_agree(executor->device_path);
    return bucket->staged ? DTRAIN_OK : dt_executor_no_memory();
}

dtrain_status_t dt_executor_split(dt_executor_t *executor, dt_operation_t *operation,
                                  dt_executor_t *part, dt_ranks_t ranks, int *is_taken)
{
    *is_taken = executor->device_path != NULL;
    if (!*is_taken)
        return DTRAIN_OK;
    dt_bucket_t *bucket = new_bucket(executor, executor->waiting_last);
    if (!bucket || put_in(bucket, operation))
        return dt_executor_no_memory();
    bucket->staged = dt_device_split_create(executor->gpu, executor->device_path, ranks,
                                            part ? &part->split : NULL);
    return bucket->staged ? DTRAIN_OK : dt_executor_no_memory();
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
    return bucket ? DTRAIN_OK : dt_executor_no_memory();
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
        return dt_executor_no_memory();
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

dtrain_status_t dt_executor_add_sized(dt_executor_t *executor, const dt_staged_t *sizes)
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
            return dt_executor_no_memory();
    }
    return DTRAIN_OK;
}
