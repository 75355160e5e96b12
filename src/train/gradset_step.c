/* gradset_step.c - one step of a gradient set: marks, runs, the wait, and the plan of the next. */
#include "train/gradset_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/completion.h"
#include "core/stranded.h"

/* Names that one line of the log tells at most. */
#define NAMES_TOLD 4

/* ---- Runs --------------------------------------------------------------------------------- */

static int64_t first_element(const dt_grad_run_t *run)
{
    return run->first_block * DT_NORM_BLOCK;
}

static int64_t end_element(const dt_grad_run_t *run)
{
    return (run->first_block + run->num_blocks) * DT_NORM_BLOCK;
}

/* Copies what of the run lies in the caller's memory to the set's, or back. */
static void copy_own(const dtrain_gradset_t *set, const dt_grad_run_t *run, int is_back)
{
    const dt_grad_region_t *region = dt_grad_region_of(&set->layout, run->first_block);
    size_t size = dt_dtype_size(region->dtype);
    int64_t end = end_element(run);
    dt_grad_segment_t segment = dt_grad_segment_first(&set->layout, first_element(run), end);
    for (; segment.count > 0; dt_grad_segment_next(&set->layout, end, &segment)) {
        uint8_t *own = set->slots[segment.index].own;
        if (!own)
            continue;
        uint8_t *theirs = own + (size_t)segment.begin * size;
        uint8_t *ours = set->memory + dt_grad_offset(region, segment.first);
        memcpy(is_back ? theirs : ours, is_back ? ours : theirs, (size_t)segment.count * size);
    }
}

static void finish(dt_grad_work_t *work, dtrain_status_t status, const char *text)
{
    dtrain_gradset_t *set = work->set;
    dt_runtime_t *runtime = set->runtime;
    if (status == DTRAIN_OK && set->is_packed && !dt_gradset_reduces_to_shares(set))
        copy_own(set, &set->plan.runs[work->run], 1);
    work->status = status;
    work->error = status == DTRAIN_OK ? NULL : dt_strdup(text);
    atomic_store(&work->is_done, 1);
    dt_baton_tell(runtime);
}

static void run_is_done(uint64_t handle, dtrain_status_t status, void *user)
{
    dt_grad_work_t *work = user;
    dt_runtime_t *runtime = work->set->runtime;
    char text[DT_ERROR_MAX] = "";
    if (status != DTRAIN_OK)
        dt_runtime_handle_error(runtime, handle, text, sizeof text);
    dt_runtime_release(runtime, handle);
    finish(work, status, text);
}

/* What a codec leaves out is kept by name, and names of the first plan do not come again. */
static const dtrain_codec_t *codec_of(const dtrain_gradset_t *set, const dt_grad_region_t *region)
{
    return set->is_frozen && region->dtype == DTRAIN_DTYPE_F32 ? set->codec : NULL;
}

/* With the baton: all gradients of the run are there. */
static void submit_run(dt_errand_t *errand)
{
    dt_grad_work_t *work = (dt_grad_work_t *)errand;
    dtrain_gradset_t *set = work->set;
    const dt_grad_run_t *run = &set->plan.runs[work->run];
    const dt_grad_region_t *region = dt_grad_region_of(&set->layout, run->first_block);
    int is_sharded = dt_gradset_reduces_to_shares(set);
    if (set->is_packed)
        copy_own(set, run, 0);
    int64_t begin = first_element(run), end;
    const void *in = set->memory + dt_grad_offset(region, begin);
    if (is_sharded)
        dt_gradset_share(set, work->run, set->talk.rank, &begin, &end);
    int64_t shape[2] = {run->num_blocks, DT_NORM_BLOCK};
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 2,
                              .name = work->name,
                              .in = in,
                              .out = set->memory + dt_grad_offset(region, begin),
                              .shape = shape,
                              .dtype = region->dtype};
    dtrain_options_t options = {.struct_size = sizeof options,
                                .op = (dtrain_op_t)set->terms.op,
                                .prescale = set->terms.prescale,
                                .postscale = set->terms.postscale,
                                .pset = set->talk.pset,
                                .timeout_ms = set->timeout_ms,
                                .callback = run_is_done,
                                .codec = codec_of(set, region),
                                .user = work};
    dt_submission_t submission = {.kind = is_sharded ? DT_KIND_REDUCESCATTER : DT_KIND_ALLREDUCE,
                                  .tensor = &tensor,
                                  .options = &options,
                                  .is_own = 1};
    dtrain_handle_t handle;
    dtrain_status_t status = dt_runtime_submit(set->runtime, &submission, &handle);
    if (status != DTRAIN_OK)
        finish(work, status, dt_last_error());
}

/* ---- Marks -------------------------------------------------------------------------------- */

/* A gradient is complete: so may be runs. */
static void complete(dtrain_gradset_t *set, int index)
{
    const dt_grad_plan_t *plan = &set->plan;
    if (!set->is_frozen) {
        int32_t when = atomic_fetch_add(&set->num_complete, 1);
        atomic_store_explicit(&set->slots[index].when, when, memory_order_relaxed);
    }
    for (int32_t i = plan->runs_begin[index]; i < plan->runs_begin[index + 1]; i++) {
        dt_grad_work_t *work = &set->works[plan->runs_of[i]];
        if (atomic_fetch_sub(&work->missing, 1) > 1)
            continue;
        dt_errands_add(&set->runtime->errands, &work->errand);
        /* In a world of one nobody else is to be heard, and the waiter does it all. */
        if (set->runtime->world.control)
            dt_baton_notify(set->runtime);
    }
}

static void clear(const dtrain_gradset_t *set, int index)
{
    const dt_grad_slice_t *slice = &set->layout.slices[index];
    size_t size = dt_dtype_size(set->layout.regions[slice->region].dtype);
    if (slice->count > 0)
        memset(dt_gradset_buffer(set, index), 0, (size_t)slice->count * size);
}

dtrain_status_t dt_gradset_mark(dtrain_gradset_t *set, int index, int brings)
{
    if (index < 0 || index >= set->layout.n)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "gradient set '%.100s': there is no gradient %d of %d", set->name, index,
                       set->layout.n);
    if (atomic_load_explicit(&set->is_off, memory_order_relaxed))
        return DTRAIN_OK;
    uint32_t more = brings ? 1 + DT_GRAD_BROUGHT : 1;
    uint32_t marks = atomic_fetch_add(&set->slots[index].marks, more) + more;
    uint32_t passes = marks % DT_GRAD_BROUGHT;
    if (passes < set->passes)
        return DTRAIN_OK;
    if (passes > set->passes) {
        atomic_fetch_sub(&set->slots[index].marks, more);
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "gradient set '%.100s': '%.200s' is marked %u times in a step of %u "
                       "passes: dtrain_gradset_wait ends a step",
                       set->name, set->layout.slices[index].name, passes, set->passes);
    }
    if (marks < DT_GRAD_BROUGHT)
        clear(set, index);
    complete(set, index);
    return DTRAIN_OK;
}

/* ---- The wait ----------------------------------------------------------------------------- */

/* Says once of each gradient that it was missing. */
static void report_missing(dtrain_gradset_t *set, const char *names, int count)
{
    int is_over = atomic_load(&set->runtime->phase) == DT_PHASE_GONE;
    if (count > 0 && !is_over)
        dt_log(DTRAIN_LOG_WARN, "train",
               "gradient set '%.100s': step %lld ends without the gradient of %.800s%s: zeros take "
               "part in its place (said once)",
               set->name, (long long)set->steps, names, count > NAMES_TOLD ? " and others" : "");
}

void dt_gradset_flush(dtrain_gradset_t *set)
{
    char names[800] = "";
    size_t used = 0;
    int count = 0;
    for (int i = 0; i < set->layout.n; i++) {
        dt_grad_slot_t *slot = &set->slots[i];
        uint32_t marks = atomic_load(&slot->marks);
        if (marks % DT_GRAD_BROUGHT >= set->passes)
            continue;
        /* Of several passes one may leave it out; none is to be told of. */
        if (marks == 0) {
            set->missed++;
            if (!slot->was_missed && count++ < NAMES_TOLD)
                used += (size_t)snprintf(names + used, sizeof names - used, "%s'%.150s'",
                                         used > 0 ? ", " : "", set->layout.slices[i].name);
            slot->was_missed = 1;
        }
        if (marks < DT_GRAD_BROUGHT)
            clear(set, i);
        atomic_store(&slot->marks, set->passes);
        complete(set, i);
    }
    report_missing(set, names, count);
}

static int is_run_done(void *argument)
{
    dt_grad_work_t *work = argument;
    return atomic_load(&work->is_done);
}

dtrain_status_t dt_gradset_wait_run(dtrain_gradset_t *set, int run)
{
    dt_grad_work_t *work = &set->works[run];
    if (!is_run_done(work)) {
        dtrain_status_t status = dt_runtime_may_block(set->runtime, "waiting for gradients");
        if (status != DTRAIN_OK)
            return status;
        int64_t begin_ns = dt_now_ns();
        dt_baton_help(set->runtime, is_run_done, work, DT_NEVER);
        set->waited_ns += dt_now_ns() - begin_ns;
        if (!is_run_done(work))
            return dt_stranded_error(set->runtime);
    }
    if (work->status == DTRAIN_OK)
        return DTRAIN_OK;
    return dt_fail(work->status, "%s", work->error ? work->error : "");
}

dtrain_status_t dt_gradset_wait_one(dtrain_gradset_t *set, int index)
{
    const dt_grad_plan_t *plan = &set->plan;
    for (int32_t i = plan->runs_begin[index]; i < plan->runs_begin[index + 1]; i++) {
        if (atomic_load(&set->works[plan->runs_of[i]].missing) > 0)
            return DTRAIN_IN_PROGRESS;
    }
    for (int32_t i = plan->runs_begin[index]; i < plan->runs_begin[index + 1]; i++) {
        dtrain_status_t status = dt_gradset_wait_run(set, plan->runs_of[i]);
        if (status != DTRAIN_OK)
            return status;
    }
    return DTRAIN_OK;
}

dtrain_status_t dt_gradset_wait(dtrain_gradset_t *set)
{
    dtrain_status_t first = DTRAIN_OK;
    char text[DT_ERROR_MAX];
    dtrain_status_t status = dt_runtime_may_block(set->runtime, "dtrain_gradset_wait");
    if (status != DTRAIN_OK || atomic_load(&set->is_off))
        return status;
    dt_gradset_flush(set);
    for (int run = 0; run < set->plan.num_runs; run++) {
        status = dt_gradset_wait_run(set, run);
        if (dt_is_stranded(set->runtime))
            return dt_stranded_error(set->runtime);
        if (status != DTRAIN_OK && first == DTRAIN_OK) {
            first = status;
            snprintf(text, sizeof text, "%s", dt_last_error());
        }
    }
    if (first != DTRAIN_OK)
        dt_fail(first, "gradient set '%.100s': %.900s", set->name, text);
    return dt_gradset_end_step(set, first);
}

/* ---- The plan ----------------------------------------------------------------------------- */

/* A plan with the works of its runs. */
typedef struct planned {
    dt_grad_plan_t plan;
    dt_grad_work_t *works;
    int32_t *order;
} planned_t;

static void drop(planned_t *planned)
{
    for (int i = 0; planned->works && i < planned->plan.num_runs; i++) {
        dt_free(planned->works[i].name);
        dt_free(planned->works[i].error);
    }
    dt_free(planned->works);
    dt_free(planned->order);
    dt_grad_plan_free(&planned->plan);
}

void dt_gradset_drop_plan(dtrain_gradset_t *set)
{
    planned_t old = {.plan = set->plan, .works = set->works, .order = set->order};
    drop(&old);
    set->works = NULL;
    set->order = NULL;
    memset(&set->plan, 0, sizeof set->plan);
}

/* As errors show it: which set, which plan, which run, and what is in it. */
static char *name_run(const dtrain_gradset_t *set, const dt_grad_plan_t *plan, int number, int run)
{
    const dt_grad_run_t *blocks = &plan->runs[run];
    int64_t end = end_element(blocks);
    char text[512];
    dt_grad_segment_t segment = dt_grad_segment_first(&set->layout, first_element(blocks), end);
    int first = segment.index, last = segment.index;
    for (; segment.count > 0; dt_grad_segment_next(&set->layout, end, &segment))
        last = segment.index;
    int is_one = first == last;
    snprintf(text, sizeof text, "dtrain.gradients %lld.%d.%d: %.100s: %.150s%s%.150s",
             (long long)set->id, number, run, set->name, set->layout.slices[first].name,
             is_one ? "" : " to ", is_one ? "" : set->layout.slices[last].name);
    return dt_strdup(text);
}

/* Everything as it is before the first mark of a step. */
static void reset(dtrain_gradset_t *set)
{
    for (int i = 0; i < set->layout.n; i++)
        atomic_store_explicit(&set->slots[i].marks, 0, memory_order_relaxed);
    for (int i = 0; i < set->plan.num_runs; i++) {
        dt_grad_work_t *work = &set->works[i];
        atomic_store_explicit(&work->missing, set->plan.runs[i].num_slices, memory_order_relaxed);
        atomic_store_explicit(&work->is_done, 0, memory_order_relaxed);
        work->status = DTRAIN_OK;
        dt_free(work->error);
        work->error = NULL;
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
        work->errand.run = submit_run;
        work->set = set;
        work->run = i;
        work->name = name_run(set, plan, number, i);
        failed = !work->name;
    }
    if (!failed)
        return DTRAIN_OK;
    drop(planned);
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
        drop(planned);
        return;
    }
    if (set->works)
        set->plan_number++;
    dt_gradset_drop_plan(set);
    set->plan = planned->plan;
    set->works = planned->works;
    set->order = planned->order;
    reset(set);
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
        drop(&planned);
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

/* All take the first rank's order. */
static dtrain_status_t freeze(dtrain_gradset_t *set)
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

dtrain_status_t dt_gradset_end_step(dtrain_gradset_t *set, dtrain_status_t status)
{
    set->steps++;
    if (status == DTRAIN_OK && !set->is_frozen) {
        status = freeze(set);
        /* The gradients are right, and the plan as it is serves as well, but for time. */
        if (status == DTRAIN_ERR_OUT_OF_MEMORY) {
            dt_log(DTRAIN_LOG_WARN, "train", "gradient set '%.100s' keeps its first plan: %s",
                   set->name, dt_last_error());
            status = DTRAIN_OK;
        }
        set->is_frozen = 1;
    }
    reset(set);
    return status;
}
