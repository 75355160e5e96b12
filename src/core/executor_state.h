/*
 * executor_state.h - the executor from inside, for its files: executor_add.c puts what was agreed
 * into the queue, executor_post.c deals with what needs no collective since it came with the
 * report, executor.c carries out the queue.
 */
#ifndef DT_CORE_EXECUTOR_STATE_H
#define DT_CORE_EXECUTOR_STATE_H

#include "base/status.h"
#include "core/executor.h"

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

static inline dtrain_status_t dt_executor_no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the fusion plan");
}

static inline int dt_is_on_device(const dt_operation_t *operation)
{
    return operation->signature.device != DTRAIN_DEVICE_CPU;
}

static inline int dt_is_adasum(const dt_operation_t *operation)
{
    return operation->signature.kind == DT_KIND_ALLREDUCE &&
           operation->signature.op == DTRAIN_OP_ADASUM;
}

/* The sizes are known on all ranks: what can be done follows at the head of the queue, each by
 * itself. */
dtrain_status_t dt_executor_add_sized(dt_executor_t *executor, const dt_staged_t *sizes);

/* Whether a bucket takes several collectives, of which nobody else needs to know, or has to go
 * through the host's memory; and what carries it out, as its `staged`. */
int dt_executor_needs_stages(const dt_executor_t *executor, const dt_bucket_t *bucket);
dtrain_status_t dt_executor_make_stages(dt_executor_t *executor, dt_bucket_t *bucket);

void dt_executor_free_plan(dt_executor_t *executor);

#endif
