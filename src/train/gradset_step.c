/* gradset_step.c - one step of a gradient set: marks, runs, the wait. */
#include "train/gradset_step.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/stranded.h"
#include "train/grad_device.h"

/* Names that one line of the log tells at most. */
#define NAMES_TOLD 4

/* ---- Runs --------------------------------------------------------------------------------- */

/* Copies what of the run lies in the caller's memory to the set's, or back. */
static void copy_own(dtrain_gradset_t *set, const dt_grad_run_t *run, int is_back)
{
    const dt_grad_region_t *region = dt_grad_region_of(&set->layout, run->first_block);
    size_t size = dt_dtype_size(region->dtype);
    int64_t end = dt_grad_run_end(run);
    dt_grad_segment_t segment = dt_grad_segment_first(&set->layout, dt_grad_run_begin(run), end);
    for (; segment.count > 0; dt_grad_segment_next(&set->layout, end, &segment)) {
        uint8_t *own = set->slots[segment.index].own;
        if (!own)
            continue;
        uint8_t *theirs = own + (size_t)segment.begin * size;
        uint8_t *ours = set->memory + dt_grad_offset(region, segment.first);
        memcpy(is_back ? theirs : ours, is_back ? ours : theirs, (size_t)segment.count * size);
        atomic_fetch_add(&set->copied, segment.count * (int64_t)size);
    }
}

static void submit(dt_grad_work_t *work);

static void finish(dt_grad_work_t *work, dtrain_status_t status, const char *text)
{
    dtrain_gradset_t *set = work->set;
    dt_runtime_t *runtime = set->runtime;
    int64_t round = atomic_load(&work->num_done);
    dt_grad_outcome_t *outcome = &work->outcomes[round % 2];
    int is_due = work->num_due > round + 1;
    if (status == DTRAIN_OK && set->is_packed && !set->device && !dt_gradset_reduces_to_shares(set))
        copy_own(set, &set->plan.runs[work->run], 1);
    outcome->status = status;
    outcome->error = status == DTRAIN_OK ? NULL : dt_strdup(text);
    atomic_store(&work->num_done, round + 1);
    dt_baton_tell(runtime);
    if (is_due)
        submit(work);
}

static void run_is_done(uint64_t handle, dtrain_status_t status, void *user)
{
    dt_grad_work_t *work = user;
    dt_runtime_t *runtime = work->set->runtime;
    const dt_operation_t *operation = dt_handle_find(runtime->handles, handle);
    dt_grad_outcome_t *outcome = &work->outcomes[atomic_load(&work->num_done) % 2];
    char text[DT_ERROR_MAX] = "";
    atomic_fetch_add(&work->set->copied, operation->copied);
    if (status != DTRAIN_OK) {
        outcome->furthest = operation->result > 0 ? (uint32_t)operation->result : 0;
        dt_runtime_handle_error(runtime, handle, text, sizeof text);
    }
    if (!work->trail)
        dt_runtime_release(runtime, handle);
    finish(work, status, text);
}

/* What a codec leaves out is kept by name, and names of the first plan do not come again. */
static const dtrain_codec_t *codec_of(const dtrain_gradset_t *set, const dt_grad_region_t *region)
{
    return set->is_frozen && region->dtype == DTRAIN_DTYPE_F32 ? set->codec : NULL;
}

/* On a GPU the handle of a round stays for streams that wait for it until the next one. */
static dtrain_status_t follow_up(dt_grad_work_t *work, dt_submission_t *submission)
{
    dt_grad_trail_t *trail = work->trail;
    dt_runtime_t *runtime = work->set->runtime;
    dt_grad_trail_release(trail, runtime);
    submission->refusal_status = dt_grad_trail_gather(work, &submission->ready);
    if (submission->refusal_status != DTRAIN_OK) {
        snprintf(trail->text, sizeof trail->text, "%s", dt_last_error());
        submission->refusal = trail->text;
    }
    dtrain_status_t status = dt_runtime_submit(runtime, submission, &trail->handle);
    if (trail->handle != 0)
        atomic_fetch_add(&runtime->num_kept, 1);
    dt_mark_drop(submission->ready);
    return status;
}

/* With the baton: all gradients of the run are there, and the round before is over. */
static void submit(dt_grad_work_t *work)
{
    dtrain_gradset_t *set = work->set;
    const dt_grad_run_t *run = &set->plan.runs[work->run];
    const dt_grad_region_t *region = dt_grad_region_of(&set->layout, run->first_block);
    int is_sharded = dt_gradset_reduces_to_shares(set);
    if (set->is_packed && !set->device)
        copy_own(set, run, 0);
    int64_t begin = dt_grad_run_begin(run), end;
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
                              .dtype = region->dtype,
                              .device = set->terms.device};
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
                                  .is_own = 1,
                                  .stamp = dt_gradset_stamp(set),
                                  .memory = set->is_window ? DT_MEMORY_SYMMETRIC : DT_MEMORY_ANY};
    dtrain_handle_t handle;
    dtrain_status_t status = work->trail ? follow_up(work, &submission)
                                         : dt_runtime_submit(set->runtime, &submission, &handle);
    if (status != DTRAIN_OK) {
        finish(work, status, dt_last_error());
        return;
    }
    atomic_store(&work->num_submitted, atomic_load(&work->num_done) + 1);
    if (work->trail)
        dt_baton_tell(set->runtime);
}

void dt_gradset_run_is_complete(dt_errand_t *errand)
{
    dt_grad_work_t *work = (dt_grad_work_t *)errand;
    work->num_due++;
    if (work->num_due == atomic_load(&work->num_done) + 1)
        submit(work);
}

/* ---- Marks -------------------------------------------------------------------------------- */

void dt_gradset_complete(dtrain_gradset_t *set, int index)
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
        if (work->trail)
            dt_grad_trail_mark(work);
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

dtrain_status_t dt_gradset_mark(dtrain_gradset_t *set, int index, int brings, void *stream)
{
    if (index < 0 || index >= set->layout.n)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "gradient set '%.100s': there is no gradient %d of %d", set->name, index,
                       set->layout.n);
    if (atomic_load_explicit(&set->is_off, memory_order_relaxed))
        return DTRAIN_OK;
    uint32_t more = brings ? 1 + DT_GRAD_BROUGHT : 1;
    if (set->device && brings)
        set->slots[index].stream = stream;
    uint32_t marks = atomic_fetch_add(&set->slots[index].marks, more) + more;
    uint32_t passes = marks % DT_GRAD_BROUGHT;
    if (passes < set->passes)
        return DTRAIN_OK;
    if (passes > set->passes) {
        atomic_fetch_sub(&set->slots[index].marks, more);
        atomic_fetch_add(&set->slots[index].refused, 1);
        atomic_fetch_add(&set->num_refused, 1);
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "gradient set '%.100s': '%.200s' is marked %u times in a step of %u "
                       "passes: dtrain_gradset_wait ends a step",
                       set->name, set->layout.slices[index].name, passes, set->passes);
    }
    /* On a GPU its memory may still be read in a stream that only the step's wait names. */
    if (marks < DT_GRAD_BROUGHT && set->device)
        return DTRAIN_OK;
    if (marks < DT_GRAD_BROUGHT)
        clear(set, index);
    dt_gradset_complete(set, index);
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

void dt_gradset_flush(dtrain_gradset_t *set, void *stream, int is_streamed)
{
    set->stream = stream;
    set->is_streamed = is_streamed;
    char names[800] = "";
    size_t used = 0;
    int count = 0;
    dt_gradset_judge_step(set);
    for (int i = 0; i < set->layout.n; i++) {
        dt_grad_slot_t *slot = &set->slots[i];
        uint32_t marks = atomic_load(&slot->marks);
        int is_held = set->device && marks < DT_GRAD_BROUGHT; /* complete, but for the zeros */
        if (marks % DT_GRAD_BROUGHT >= set->passes && !is_held)
            continue;
        /* Of several passes one may leave it out; none is to be told of. */
        if (marks == 0) {
            set->missed++;
            if (!slot->was_missed && count++ < NAMES_TOLD)
                used += (size_t)snprintf(names + used, sizeof names - used, "%s'%.150s'",
                                         used > 0 ? ", " : "", set->layout.slices[i].name);
            slot->was_missed = 1;
        }
        if (marks < DT_GRAD_BROUGHT && set->device)
            dt_grad_device_clear(set, i);
        else if (marks < DT_GRAD_BROUGHT)
            clear(set, i);
        atomic_store(&slot->marks, set->passes + DT_GRAD_BROUGHT);
        dt_gradset_complete(set, i);
    }
    report_missing(set, names, count);
}

static int is_run_done(void *argument)
{
    const dt_grad_work_t *work = argument;
    return atomic_load(&work->num_done) > work->set->rounds;
}

/* Waits until this round of a run is over. */
static dtrain_status_t wait_for_end(dt_grad_work_t *work)
{
    dtrain_gradset_t *set = work->set;
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
    dt_grad_outcome_t *outcome = &work->outcomes[set->rounds % 2];
    if (outcome->status == DTRAIN_OK)
        return DTRAIN_OK;
    outcome->is_told = 1;
    return dt_fail(outcome->status, "%s", outcome->error ? outcome->error : "");
}

/* What failed is over for the host, too, so that its outcome is there. */
static dtrain_status_t end_with(dt_grad_work_t *work, dtrain_status_t status)
{
    char text[DT_ERROR_MAX];
    snprintf(text, sizeof text, "%s", dt_last_error());
    wait_for_end(work);
    return dt_fail(status, "%s", text);
}

dtrain_status_t dt_gradset_wait_run(dtrain_gradset_t *set, int run)
{
    dt_grad_work_t *work = &set->works[run];
    if (set->device && set->is_streamed) {
        dtrain_status_t status = dt_grad_trail_follow(work);
        return status == DTRAIN_OK ? status : end_with(work, status);
    }
    dtrain_status_t status = wait_for_end(work);
    if (status == DTRAIN_OK && set->device)
        status = dt_grad_trail_late(work);
    if (status == DTRAIN_OK && set->device)
        status = dt_grad_trail_give_back(work);
    return status;
}

/* What the caller's memory is given back is there for the host, too. */
static dtrain_status_t settle(dtrain_gradset_t *set)
{
    if (!set->device || set->is_streamed || !set->is_packed)
        return DTRAIN_OK;
    return set->device->ops->transfer(set->device, set->stream, NULL, NULL, 0);
}

dtrain_status_t dt_gradset_wait_one(dtrain_gradset_t *set, int index)
{
    const dt_grad_plan_t *plan = &set->plan;
    for (int32_t i = plan->runs_begin[index]; i < plan->runs_begin[index + 1]; i++) {
        if (atomic_load(&set->works[plan->runs_of[i]].missing) > 0)
            return DTRAIN_IN_PROGRESS;
    }
    set->stream = NULL;
    set->is_streamed = 0;
    for (int32_t i = plan->runs_begin[index]; i < plan->runs_begin[index + 1]; i++) {
        dtrain_status_t status = dt_gradset_wait_run(set, plan->runs_of[i]);
        if (status != DTRAIN_OK)
            return status;
    }
    return settle(set);
}

dtrain_status_t dt_gradset_await_runs(dtrain_gradset_t *set)
{
    dtrain_status_t first = DTRAIN_OK;
    char text[DT_ERROR_MAX];
    for (int run = 0; run < set->plan.num_runs; run++) {
        dtrain_status_t status = dt_gradset_wait_run(set, run);
        if (dt_is_stranded(set->runtime))
            return dt_stranded_error(set->runtime);
        if (status != DTRAIN_OK && first == DTRAIN_OK) {
            first = status;
            snprintf(text, sizeof text, "%s", dt_last_error());
        }
    }
    if (first != DTRAIN_OK)
        dt_fail(first, "gradient set '%.100s': %.900s", set->name, text);
    return first;
}

dtrain_status_t dt_gradset_end(dtrain_gradset_t *set, void *stream, int is_streamed)
{
    dtrain_status_t status = dt_runtime_may_block(set->runtime, "dtrain_gradset_wait");
    if (status != DTRAIN_OK)
        return status;
    if (atomic_load(&set->is_off)) {
        dt_gradset_count_step(set);
        return DTRAIN_OK;
    }
    dt_gradset_flush(set, stream, is_streamed);
    status = dt_gradset_await_runs(set);
    if (dt_is_stranded(set->runtime))
        return status;
    return dt_gradset_end_step(set, status == DTRAIN_OK ? settle(set) : status);
}

dtrain_status_t dt_gradset_wait(dtrain_gradset_t *set)
{
    return dt_gradset_catch_up(set, dt_gradset_end(set, NULL, 0));
}

dtrain_status_t dt_gradset_stream_wait(dtrain_gradset_t *set, void *stream)
{
    if (!set->device)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_gradset_stream_wait: gradient set '%.100s' is in host memory",
                       set->name);
    return dt_gradset_catch_up(set, dt_gradset_end(set, stream, 1));
}

/* For the host, too: what is in flight belongs to the plan. */
static dtrain_status_t wait_for_ends(dtrain_gradset_t *set)
{
    dtrain_status_t status = DTRAIN_OK;
    for (int run = 0; run < set->plan.num_runs && status == DTRAIN_OK; run++)
        status = wait_for_end(&set->works[run]);
    return status;
}

dtrain_status_t dt_gradset_end_step(dtrain_gradset_t *set, dtrain_status_t status)
{
    if (status == DTRAIN_OK && !set->is_frozen)
        status = wait_for_ends(set);
    set->steps++;
    dt_gradset_count_step(set);
    set->rounds++;
    if (status == DTRAIN_OK && !set->is_frozen) {
        status = dt_gradset_freeze(set);
        /* The gradients are right, and the plan as it is serves as well, but for time. */
        if (status == DTRAIN_ERR_OUT_OF_MEMORY) {
            dt_log(DTRAIN_LOG_WARN, "train", "gradient set '%.100s' keeps its first plan: %s",
                   set->name, dt_last_error());
            status = DTRAIN_OK;
        }
        set->is_frozen = 1;
    }
    dt_gradset_reset(set);
    return status;
}
