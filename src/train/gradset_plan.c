/* gradset_plan.c - which plan a gradient set follows: it is made, observed, agreed on and frozen.
 */
#include "train/gradset_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "train/grad_device.h"

/* A plan with the works of its runs. */
typedef struct planned {
    dt_grad_plan_t plan;
    dt_grad_work_t *works;
    int32_t *order;
} planned_t;

static void drop(planned_t *planned, int has_world)
{
    for (int i = 0; planned->works && i < planned->plan.num_runs; i++) {
        dt_grad_work_t *work = &planned->works[i];
        if (work->trail)
            dt_grad_trail_free(work->trail, work->set->runtime, has_world);
        dt_free(work->name);
        dt_free(work->outcomes[0].error);
        dt_free(work->outcomes[1].error);
    }
    dt_free(planned->works);
    dt_free(planned->order);
    dt_grad_plan_free(&planned->plan);
}

void dt_gradset_drop_plan(dtrain_gradset_t *set, int has_world)
{
    planned_t old = {.plan = set->plan, .works = set->works, .order = set->order};
    drop(&old, has_world);
    set->works = NULL;
    set->order = NULL;
    memset(&set->plan, 0, sizeof set->plan);
}

/* As errors show it: which set, which plan, which run, and what is in it. */
static char *name_run(const dtrain_gradset_t *set, const dt_grad_plan_t *plan, int number, int run)
{
    const dt_grad_run_t *blocks = &plan->runs[run];
    int64_t end = dt_grad_run_end(blocks);
    char text[512];
    dt_grad_segment_t segment = dt_grad_segment_first(&set->layout, dt_grad_run_begin(blocks), end);
    int first = segment.index, last = segment.index;
    for (; segment.count > 0; dt_grad_segment_next(&set->layout, end, &segment))
        last = segment.index;
    int is_one = first == last;
    snprintf(text, sizeof text, "dtrain.gradients %lld.%d.%d: %.100s: %.150s%s%.150s",
             (long long)set->id, number, run, set->name, set->layout.slices[first].name,
             is_one ? "" : " to ", is_one ? "" : set->layout.slices[last].name);
    return dt_strdup(text);
}

void dt_gradset_reset(dtrain_gradset_t *set)
{
    int has_refused = atomic_exchange(&set->num_refused, 0) > 0;
    atomic_store_explicit(&set->kind, DT_STAMP_USUAL, memory_order_relaxed);
    for (int i = 0; i < set->layout.n; i++) {
        atomic_store_explicit(&set->slots[i].marks, 0, memory_order_relaxed);
        if (has_refused)
            atomic_store_explicit(&set->slots[i].refused, 0, memory_order_relaxed);
    }
    for (int i = 0; i < set->plan.num_runs; i++) {
        dt_grad_work_t *work = &set->works[i];
        dt_grad_outcome_t *outcome = &work->outcomes[set->rounds % 2];
        atomic_store_explicit(&work->missing, set->plan.runs[i].num_slices, memory_order_relaxed);
        outcome->status = DTRAIN_OK;
        outcome->furthest = 0;
        outcome->is_told = 0;
        dt_free(outcome->error);
        outcome->error = NULL;
        if (work->trail)
            work->trail->is_given_back = 0;
    }
    atomic_store(&set->num_complete, 0);
}

/* Makes a plan beside the one in use. OUT_OF_MEMORY. */
static dtrain_status_t prepare(dtrain_gradset_t *set, const int32_t *order, planned_t *planned)
{
    const dt_grad_policy_t policy = {.first_bucket_bytes = set->terms.first_bucket_bytes,
                                     .bucket_bytes = set->terms.bucket_bytes};
    int number = set->works ? set->plan_number + 1 : 0;
    memset(planned, 0, sizeof *planned);
    dtrain_status_t status = dt_grad_plan_make(&planned->plan, &set->layout, order, &policy);
    if (status != DTRAIN_OK)
        return status;
    const dt_grad_plan_t *plan = &planned->plan;
    size_t n = (size_t)set->layout.n;
    planned->works = dt_calloc((size_t)plan->num_runs + 1, sizeof *planned->works);
    planned->order = dt_calloc(n + 1, sizeof *planned->order);
    int failed = !planned->works || !planned->order;
    if (planned->order)
        memcpy(planned->order, order, n * sizeof *order);
    for (int i = 0; i < plan->num_runs && !failed; i++) {
        dt_grad_work_t *work = &planned->works[i];
        work->errand.run = dt_gradset_run_is_complete;
        work->set = set;
        work->run = i;
        work->name = name_run(set, plan, number, i);
        if (set->device)
            work->trail = dt_grad_trail_create(plan->runs[i].num_slices);
        failed = !work->name || (set->device && !work->trail);
    }
    if (!failed)
        return DTRAIN_OK;
    drop(planned, 1);
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the runs of a gradient set");
}

static int is_same(const dt_grad_plan_t *a, const dt_grad_plan_t *b)
{
    return a->num_runs == b->num_runs &&
           memcmp(a->runs, b->runs, (size_t)a->num_runs * sizeof *a->runs) == 0;
}

/* Puts a plan to use. One that is as it was changes nothing, so that its names keep their ids. */
static void commit(dtrain_gradset_t *set, planned_t *planned)
{
    if (set->works && is_same(&set->plan, &planned->plan)) {
        drop(planned, 1);
        return;
    }
    if (set->works)
        set->plan_number++;
    dt_gradset_drop_plan(set, 1);
    set->rounds = 0;
    set->plan = planned->plan;
    set->works = planned->works;
    set->order = planned->order;
    dt_gradset_reset(set);
}

dtrain_status_t dt_gradset_make_plan(dtrain_gradset_t *set, const int32_t *order)
{
    planned_t planned;
    dtrain_status_t status = prepare(set, order, &planned);
    if (status == DTRAIN_OK)
        commit(set, &planned);
    return status;
}

typedef struct observed {
    int32_t when, index;
} observed_t;

static int by_time(const void *a, const void *b)
{
    const observed_t *x = a, *y = b;
    return x->when < y->when ? -1 : x->when > y->when;
}

/* The order in which this rank's gradients became complete. OUT_OF_MEMORY. */
static dtrain_status_t observe(const dtrain_gradset_t *set, int32_t *order)
{
    int n = set->layout.n;
    observed_t *observed = dt_alloc(((size_t)n + 1) * sizeof *observed);
    if (!observed)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the order of gradients");
    for (int i = 0; i < n; i++)
        observed[i] = (observed_t){.when = atomic_load(&set->slots[i].when), .index = i};
    qsort(observed, (size_t)n, sizeof *observed, by_time);
    for (int i = 0; i < n; i++)
        order[i] = observed[i].index;
    dt_free(observed);
    return DTRAIN_OK;
}

/* A plan that cannot be made on one rank is made on none. */
static dtrain_status_t agree_on_plan(dtrain_gradset_t *set, const int32_t *order)
{
    planned_t planned;
    dtrain_status_t status = prepare(set, order, &planned);
    dtrain_status_t agreed = dt_talk_agree(&set->talk, status);
    if (agreed == DTRAIN_OK)
        commit(set, &planned);
    else if (status == DTRAIN_OK)
        drop(&planned, 1);
    return agreed;
}

dtrain_status_t dt_gradset_adopt(dtrain_gradset_t *set, const int32_t *order)
{
    if (set->is_frozen)
        return DTRAIN_OK;
    dtrain_status_t status = agree_on_plan(set, order);
    set->is_frozen = status == DTRAIN_OK;
    return status;
}

dtrain_status_t dt_gradset_freeze(dtrain_gradset_t *set)
{
    size_t bytes = (size_t)set->layout.n * sizeof(int32_t);
    int32_t *order = dt_calloc((size_t)set->layout.n + 1, sizeof *order);
    dtrain_status_t status =
        order ? observe(set, order)
              : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the order of gradients");
    status = dt_talk_agree(&set->talk, status);
    if (status == DTRAIN_OK && bytes > 0)
        status = dt_talk_broadcast(&set->talk, order, bytes, set->talk.root);
    if (status == DTRAIN_OK)
        status = agree_on_plan(set, order);
    dt_free(order);
    return status;
}
