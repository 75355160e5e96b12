/*
 * grad_plan.h - which blocks of a gradient set travel together: a pure function of the layout, of
 * the order in which gradients become ready and of two sizes, so that all ranks find the same plan.
 * It changes no bits of any result.
 *
 * Blocks are taken in the order in which they become complete, and put into buckets of at least
 * `bucket_bytes`; the first one, which can begin while most of the backward pass is still to come,
 * is smaller. A run is what of a bucket lies together in memory: the unit that is reduced. When
 * gradients become ready in the order of their places, each bucket is one run.
 */
#ifndef DT_TRAIN_GRAD_PLAN_H
#define DT_TRAIN_GRAD_PLAN_H

#include "train/grad_layout.h"

typedef struct dt_grad_policy {
    int64_t first_bucket_bytes, bucket_bytes;
} dt_grad_policy_t;

typedef struct dt_grad_run {
    int64_t first_block, num_blocks; /* of one region */
    int32_t bucket;
    int32_t num_slices; /* with elements in it: they have to be ready before it can begin */
} dt_grad_run_t;

typedef struct dt_grad_plan {
    dt_grad_run_t *runs; /* by bucket, then by place */
    int num_runs, num_buckets;
    /* The runs of parameter i: runs_of[runs_begin[i] … runs_begin[i + 1] - 1]. */
    int32_t *runs_begin;
    int32_t *runs_of;
} dt_grad_plan_t;

/* `order` lists all parameters' indices as they become ready. OUT_OF_MEMORY; then the plan is
 * empty. */
dtrain_status_t dt_grad_plan_make(dt_grad_plan_t *plan, const dt_grad_layout_t *layout,
                                  const int32_t *order, const dt_grad_policy_t *policy);
void dt_grad_plan_free(dt_grad_plan_t *plan); /* nothing for one of zeros */

/* The run's elements of the space: the first, and one past the last. */
static inline int64_t dt_grad_run_begin(const dt_grad_run_t *run)
{
    return run->first_block * DT_NORM_BLOCK;
}

static inline int64_t dt_grad_run_end(const dt_grad_run_t *run)
{
    return (run->first_block + run->num_blocks) * DT_NORM_BLOCK;
}

#endif
