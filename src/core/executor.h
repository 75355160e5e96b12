/*
 * executor.h - carries out what was agreed on a process set: plans buckets, packs, starts
 * collectives in the same order on all its ranks, unpacks, and reports each operation as done. A
 * few buckets are under way at once, so that packing one overlaps reducing another. Sets have
 * fusion buffers of their own: one that waits for its ranks must not keep another from starting.
 *
 * What takes several collectives (staged.h) stays at the head of the queue until its last one has
 * begun; nothing overtakes it, since the other ranks could not know. Operations whose sizes are not
 * known come behind the others of their verdict, so as not to hold these up.
 */
#ifndef DT_CORE_EXECUTOR_H
#define DT_CORE_EXECUTOR_H

#include "comm/backend.h"
#include "core/coded.h"
#include "core/collective.h"
#include "core/device_split.h"
#include "core/fusion_buffer.h"
#include "core/fusion_plan.h"
#include "core/operation.h"

#define DT_BUCKETS_RUNNING_MAX 4

typedef struct dt_bucket dt_bucket_t;

/* The first data of these operations is about to move. NULL: nobody wants to know. */
typedef void (*dt_started_fn_t)(void *context, dt_operation_t *const *operations, int n);

/* The results of these operations are complete. */
typedef void (*dt_done_fn_t)(void *context, dt_operation_t *const *operations, int n);

/* An operation came to nothing, with a status that is the same on all ranks. */
typedef void (*dt_failed_fn_t)(void *context, dt_operation_t *operation, dtrain_status_t status,
                               const char *text);

typedef struct dt_executor {
    dt_backend_t *backend; /* borrowed */
    dt_ranks_t ranks;
    dt_plan_policy_t policy;
    dt_started_fn_t started;
    dt_done_fn_t done;
    dt_failed_fn_t failed;
    void *context;
    /* For tensors on devices, set after init; NULL where there are none. `enqueued` tells that all
     * of the operations is in a stream. */
    dt_gpu_t *gpu;      /* borrowed */
    const int *members; /* their ranks in the world; borrowed */
    dt_started_fn_t enqueued;
    dt_device_path_t *device_path; /* made when there is the first such tensor */
    dt_device_split_t split;

    uint64_t sequence; /* of the next collective */
    dt_fusion_pool_t pool;
    dt_coding_t coding;
    dt_bucket_t *waiting_first, *waiting_last; /* in the order of start */
    dt_bucket_t *running[DT_BUCKETS_RUNNING_MAX];
    int num_running;
    dt_bucket_t *spare;    /* emptied buckets, to be used again */
    dt_plan_item_t *items; /* scratch for the plan */
    dt_operation_t **fixed, **sized;
    int32_t *bucket_of;
    dt_bucket_t **planned;
    int scratch_capacity;
} dt_executor_t;

void dt_executor_init(dt_executor_t *executor, dt_backend_t *backend, dt_ranks_t ranks,
                      const dt_plan_policy_t *policy, dt_started_fn_t started, dt_done_fn_t done,
                      dt_failed_fn_t failed, void *context);
/* Gives the devices' backend back, before the host's; `clean` as in backend.h. */
void dt_executor_leave(dt_executor_t *executor, int clean);
void dt_executor_free(dt_executor_t *executor);

/*
 * Short operations with an id need no collective: their input is laid out for the other ranks with
 * the report (post), and reduced as soon as all ranks have agreed by that id (take: *is_done 1; 0
 * when the operation is not of that kind). Others tell their sizes in this way, which spares one.
 * OUT_OF_MEMORY: as from dt_executor_add.
 */
void dt_executor_post(dt_executor_t *executor, const dt_operation_t *operation);
dtrain_status_t dt_executor_take(dt_executor_t *executor, dt_operation_t *operation, int *is_done);

/* Plans operations that all ranks agreed on, in the agreed order. OUT_OF_MEMORY: the world cannot
 * go on, since the other ranks start them. */
dtrain_status_t dt_executor_add(dt_executor_t *executor, dt_operation_t *const *operations, int n);

/*
 * Of the world's: a set is added, by an operation that is agreed on here and not complete yet. Its
 * members have executors for it, the others NULL. *is_taken 0: there is nothing to split, and so
 * nothing to wait for; else the operation is done with when the backend of the world's devices has
 * been. OUT_OF_MEMORY: as from dt_executor_add.
 */
dtrain_status_t dt_executor_split(dt_executor_t *executor, dt_operation_t *operation,
                                  dt_executor_t *part, dt_ranks_t ranks, int *is_taken);

/* Does what can be done now. *moved is set to 1 when something was started or finished. */
dtrain_status_t dt_executor_progress(dt_executor_t *executor, int *moved);

int dt_executor_is_idle(const dt_executor_t *executor);

/* 1 while something waits to be started. */
int dt_executor_has_backlog(const dt_executor_t *executor);

/* The world is gone: gives up all tasks. Their operations stay as they are. */
void dt_executor_abandon(dt_executor_t *executor);

#endif
