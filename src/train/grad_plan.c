#include "train/grad_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

/* A block, and when its last gradient becomes ready. */
typedef struct ready {
    int64_t when;
    int64_t block;
} ready_t;

/* What is only needed while a plan is made. */
typedef struct scratch {
    ready_t *blocks;     /* num_blocks, by time */
    int32_t *bucket_of;  /* num_blocks */
    int32_t *run_of;     /* num_blocks */
    int64_t *times;      /* n: a parameter's place in the order of readiness */
    int32_t *first_runs; /* num_buckets + 1: where each bucket's runs begin */
} scratch_t;

static int compare(const void *a, const void *b)
{
    const ready_t *x = a, *y = b;
    if (x->when != y->when)
        return x->when < y->when ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

static int64_t first_block(const dt_grad_slice_t *slice)
{
    return slice->first / DT_NORM_BLOCK;
}

/* One past the last. */
static int64_t end_block(const dt_grad_slice_t *slice)
{
    if (slice->count == 0)
        return first_block(slice);
    return (slice->first + slice->count - 1) / DT_NORM_BLOCK + 1;
}

/* Sorts the blocks by when they are complete. */
static void sort_blocks(const dt_grad_layout_t *layout, const int32_t *order, scratch_t *scratch)
{
    for (int i = 0; i < layout->n; i++)
        scratch->times[order[i]] = i;
    for (int64_t block = 0; block < layout->num_blocks; block++)
        scratch->blocks[block].block = block;
    for (int i = 0; i < layout->n; i++) {
        const dt_grad_slice_t *slice = &layout->slices[i];
        for (int64_t block = first_block(slice); block < end_block(slice); block++) {
            if (scratch->times[i] > scratch->blocks[block].when)
                scratch->blocks[block].when = scratch->times[i];
        }
    }
    qsort(scratch->blocks, (size_t)layout->num_blocks, sizeof *scratch->blocks, compare);
}

/* Fills buckets in that order. Returns how many. */
static int fill_buckets(const dt_grad_layout_t *layout, const dt_grad_policy_t *policy,
                        scratch_t *scratch)
{
    int32_t bucket = 0;
    int64_t bytes = 0;
    for (int64_t i = 0; i < layout->num_blocks; i++) {
        int64_t block = scratch->blocks[i].block;
        if (bytes >= (bucket == 0 ? policy->first_bucket_bytes : policy->bucket_bytes)) {
            bucket++;
            bytes = 0;
        }
        scratch->bucket_of[block] = bucket;
        size_t size = dt_dtype_size(dt_grad_region_of(layout, block)->dtype);
        bytes += (int64_t)(size * DT_NORM_BLOCK);
    }
    return layout->num_blocks > 0 ? bucket + 1 : 0;
}

/* Whether a run begins with this block. */
static int begins_run(const dt_grad_layout_t *layout, const scratch_t *scratch, int64_t block)
{
    return block == 0 || scratch->bucket_of[block] != scratch->bucket_of[block - 1] ||
           block == dt_grad_region_of(layout, block)->first_block;
}

/* Makes the runs, sorted by bucket (counting sort: within a bucket by place). 0, or -1. */
static int make_runs(dt_grad_plan_t *plan, const dt_grad_layout_t *layout, scratch_t *scratch)
{
    size_t buckets = (size_t)plan->num_buckets;
    scratch->first_runs = dt_calloc(buckets + 2, sizeof *scratch->first_runs);
    if (!scratch->first_runs)
        return -1;
    for (int64_t block = 0; block < layout->num_blocks; block++) {
        if (begins_run(layout, scratch, block))
            scratch->first_runs[scratch->bucket_of[block] + 1]++;
    }
    for (size_t i = 0; i < buckets; i++)
        scratch->first_runs[i + 1] += scratch->first_runs[i];
    plan->num_runs = scratch->first_runs[buckets];
    plan->runs = dt_calloc((size_t)plan->num_runs + 1, sizeof *plan->runs);
    if (!plan->runs)
        return -1;
    int32_t run = -1;
    for (int64_t block = 0; block < layout->num_blocks; block++) {
        int32_t bucket = scratch->bucket_of[block];
        if (begins_run(layout, scratch, block)) {
            run = scratch->first_runs[bucket]++;
            plan->runs[run] = (dt_grad_run_t){.first_block = block, .bucket = bucket};
        }
        plan->runs[run].num_blocks++;
        scratch->run_of[block] = run;
    }
    return 0;
}

/* Counts (runs_of NULL) or lists the runs of a parameter. */
static int32_t list_runs(const dt_grad_plan_t *plan, const dt_grad_slice_t *slice,
                         const scratch_t *scratch, int32_t *runs_of)
{
    int32_t count = 0;
    for (int64_t block = first_block(slice); block < end_block(slice);) {
        const dt_grad_run_t *run = &plan->runs[scratch->run_of[block]];
        if (runs_of)
            runs_of[count] = scratch->run_of[block];
        count++;
        block = run->first_block + run->num_blocks;
    }
    return count;
}

static int link_runs(dt_grad_plan_t *plan, const dt_grad_layout_t *layout, const scratch_t *scratch)
{
    plan->runs_begin = dt_calloc((size_t)layout->n + 1, sizeof *plan->runs_begin);
    if (!plan->runs_begin)
        return -1;
    for (int i = 0; i < layout->n; i++)
        plan->runs_begin[i + 1] =
            plan->runs_begin[i] + list_runs(plan, &layout->slices[i], scratch, NULL);
    size_t total = (size_t)plan->runs_begin[layout->n];
    plan->runs_of = dt_calloc(total + 1, sizeof *plan->runs_of);
    if (!plan->runs_of)
        return -1;
    for (int i = 0; i < layout->n; i++)
        list_runs(plan, &layout->slices[i], scratch, plan->runs_of + plan->runs_begin[i]);
    for (size_t i = 0; i < total; i++)
        plan->runs[plan->runs_of[i]].num_slices++;
    return 0;
}

static int make(dt_grad_plan_t *plan, const dt_grad_layout_t *layout, const int32_t *order,
                const dt_grad_policy_t *policy, scratch_t *scratch)
{
    size_t blocks = (size_t)layout->num_blocks + 1;
    scratch->blocks = dt_calloc(blocks, sizeof *scratch->blocks);
    scratch->bucket_of = dt_alloc(blocks * sizeof *scratch->bucket_of);
    scratch->run_of = dt_alloc(blocks * sizeof *scratch->run_of);
    scratch->times = dt_calloc((size_t)layout->n + 1, sizeof *scratch->times);
    if (!scratch->blocks || !scratch->bucket_of || !scratch->run_of || !scratch->times)
        return -1;
    sort_blocks(layout, order, scratch);
    plan->num_buckets = fill_buckets(layout, policy, scratch);
    return make_runs(plan, layout, scratch) || link_runs(plan, layout, scratch) ? -1 : 0;
}

dtrain_status_t dt_grad_plan_make(dt_grad_plan_t *plan, const dt_grad_layout_t *layout,
                                  const int32_t *order, const dt_grad_policy_t *policy)
{
    scratch_t scratch = {0};
    memset(plan, 0, sizeof *plan);
    int failed = make(plan, layout, order, policy, &scratch);
    dt_free(scratch.blocks);
    dt_free(scratch.bucket_of);
    dt_free(scratch.run_of);
    dt_free(scratch.times);
    dt_free(scratch.first_runs);
    if (!failed)
        return DTRAIN_OK;
    dt_grad_plan_free(plan);
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the plan of a gradient set");
}

void dt_grad_plan_free(dt_grad_plan_t *plan)
{
    dt_free(plan->runs);
    dt_free(plan->runs_begin);
    dt_free(plan->runs_of);
    memset(plan, 0, sizeof *plan);
}
