#include "core/through_host.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "core/sparse.h"

/* Where a tensor begins in pinned memory. */
#define ALIGNMENT 64

typedef struct through_host {
    dt_staged_t base;
    dt_staged_t *inner;
    dt_staging_pool_t *pool;
    dt_device_t *device;
    dt_operation_t *const *operations;
    int n;
    int is_finished; /* what came of it is on its way back */
    dt_staging_buffer_t *buffer;
    dt_copy_t *copies; /* n */
    dt_mark_t **ready; /* n */
    dt_mark_t *copied_in, *copied_out;
} through_host_t;

static void through_host_free(dt_staged_t *staged)
{
    through_host_t *task = (through_host_t *)staged;
    task->inner->free(task->inner);
    dt_mark_drop(task->copied_in);
    dt_mark_drop(task->copied_out);
    if (task->buffer)
        dt_staging_give(task->pool, task->buffer);
    dt_free(task->copies);
    dt_free(task->ready);
    dt_free(task);
}

static int is_sparse(const through_host_t *task)
{
    return task->operations[0]->signature.kind == DT_KIND_SPARSE;
}

static dtrain_status_t reserve(through_host_t *task, size_t bytes)
{
    if (task->buffer)
        dt_staging_give(task->pool, task->buffer);
    task->buffer = dt_staging_take(task->pool, bytes);
    return task->buffer ? DTRAIN_OK
                        : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                                  "no pinned memory for %zu bytes of a GPU's tensors", bytes);
}

/* ---- In ------------------------------------------------------------------------------------- */

static size_t padded(const dt_operation_t *operation)
{
    return ((size_t)operation->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The rows of a sparse tensor were taken when it was submitted; others are copied now. Results take
 * the place of the inputs. */
static dtrain_status_t copy_in(through_host_t *task)
{
    size_t bytes = 0, at = 0;
    for (int i = 0; i < task->n; i++)
        bytes += padded(task->operations[i]);
    dtrain_status_t status = is_sparse(task) ? DTRAIN_OK : reserve(task, bytes);
    if (status != DTRAIN_OK || is_sparse(task))
        return status;
    for (int i = 0; i < task->n; i++) {
        dt_operation_t *operation = task->operations[i];
        operation->host_in = operation->host_out = task->buffer->memory + at;
        at += padded(operation);
        task->ready[i] = operation->ready;
        task->copies[i] = (dt_copy_t){
            .to = operation->host_out, .from = operation->in, .bytes = (size_t)operation->bytes};
    }
    return task->device->ops->copy(task->device, task->copies, task->n, task->ready, task->n,
                                   &task->copied_in);
}

static dtrain_status_t through_host_next(dt_staged_t *staged, dt_collective_t *collective,
                                         dt_stage_t *stage)
{
    through_host_t *task = (through_host_t *)staged;
    dtrain_status_t status = DTRAIN_OK;
    if (task->copied_in)
        status = task->device->ops->reached(task->device, task->copied_in);
    if (status == DTRAIN_IN_PROGRESS) {
        *stage = DT_STAGE_WAIT;
        return DTRAIN_OK;
    }
    return status == DTRAIN_OK ? task->inner->next(task->inner, collective, stage) : status;
}

/* ---- Out ------------------------------------------------------------------------------------ */

/* The output's bytes are copied from memory that is not pinned, which a GPU would wait for. */
static dtrain_status_t list_sparse(through_host_t *task)
{
    const void *from;
    size_t bytes;
    void *to = dt_sparse_place(task->operations[0], &from, &bytes);
    dtrain_status_t status = reserve(task, bytes);
    if (status != DTRAIN_OK)
        return status;
    memcpy(task->buffer->memory, from, bytes);
    task->copies[0] = (dt_copy_t){.to = to, .from = task->buffer->memory, .bytes = bytes};
    dt_sparse_move(task->operations[0]);
    return DTRAIN_OK;
}

static dtrain_status_t copy_out(through_host_t *task)
{
    dtrain_status_t status = DTRAIN_OK;
    if (task->inner->finish)
        status = task->inner->finish(task->inner);
    if (status == DTRAIN_OK && is_sparse(task))
        status = list_sparse(task);
    for (int i = 0; i < task->n && !is_sparse(task); i++) {
        const dt_operation_t *operation = task->operations[i];
        task->copies[i] = (dt_copy_t){
            .to = operation->out, .from = operation->host_out, .bytes = (size_t)operation->bytes};
    }
    return status == DTRAIN_OK ? task->device->ops->copy(task->device, task->copies, task->n, NULL,
                                                         0, &task->copied_out)
                               : status;
}

static dtrain_status_t through_host_end(dt_staged_t *staged)
{
    through_host_t *task = (through_host_t *)staged;
    if (!task->is_finished) {
        dtrain_status_t status = copy_out(task);
        if (status != DTRAIN_OK)
            return status;
        task->is_finished = 1;
    }
    return task->device->ops->reached(task->device, task->copied_out);
}

static dt_mark_t *through_host_enqueued(dt_staged_t *staged)
{
    return ((through_host_t *)staged)->copied_out;
}

dtrain_status_t dt_through_host_create(dt_staging_pool_t *pool, dt_device_t *device,
                                       dt_operation_t *const *operations, int n, dt_staged_t *inner,
                                       dt_staged_t **staged)
{
    through_host_t *task = dt_calloc(1, sizeof *task);
    if (!task) {
        inner->free(inner);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a GPU's tensors");
    }
    task->base.next = through_host_next;
    task->base.free = through_host_free;
    task->base.end = through_host_end;
    task->base.enqueued = through_host_enqueued;
    task->inner = inner;
    task->pool = pool;
    task->device = device;
    task->operations = operations;
    task->n = n;
    task->copies = dt_alloc((size_t)n * sizeof *task->copies);
    task->ready = dt_alloc((size_t)n * sizeof *task->ready);
    dtrain_status_t status =
        task->copies && task->ready
            ? copy_in(task)
            : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a GPU's tensors");
    if (status == DTRAIN_OK)
        *staged = &task->base;
    else
        through_host_free(&task->base);
    return status;
}
