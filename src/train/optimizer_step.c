/* optimizer_step.c - one step of an optimizer. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "core/stranded.h"
#include "train/grad_norm.h"
#include "train/optimizer.h"
#include "train/optimizer_device.h"

/* How a loss scale moves when nothing else is asked for. */
#define GROWTH_INTERVAL 2000
#define GROWTH 2.0
#define BACKOFF 0.5
#define LEAST_SCALE 1.0

/* What is the same for all of a step. */
typedef struct pace {
    double learning_rate;
    double scale; /* of gradients */
    int64_t step; /* its number */
} pace_t;

/* ---- Update ------------------------------------------------------------------------------- */

static void *at(void *memory, int64_t element, size_t size)
{
    return memory ? (uint8_t *)memory + (size_t)element * size : NULL;
}

static void call_user(const dtrain_optimizer_t *optimizer, const pace_t *pace,
                      const dt_update_range_t *range, const dt_optimizer_part_t *part,
                      const dt_grad_segment_t *segment)
{
    size_t size = dt_dtype_size(part->dtype);
    dtrain_update_t update = {.struct_size = sizeof update,
                              .param = segment->index,
                              .begin = segment->begin,
                              .count = segment->count,
                              .step = pace->step,
                              .learning_rate = pace->learning_rate,
                              .scale = pace->scale,
                              .dtype = range->dtype,
                              .gradient_dtype = range->gradient_dtype,
                              .gradients = range->gradients,
                              .values = range->parameters,
                              .device = optimizer->set->terms.device,
                              .stream = optimizer->set->stream};
    for (int i = 0; i < optimizer->num_states; i++)
        update.states[i] = at(part->state[i], segment->first - part->begin, size);
    optimizer->desc.update(&update, optimizer->desc.user);
}

/* Of one parameter's elements in a part, or of all of the part. */
static dtrain_status_t update_segment(dtrain_optimizer_t *optimizer, const pace_t *pace,
                                      const dt_optimizer_part_t *part,
                                      const dt_grad_segment_t *segment, void *values)
{
    const dtrain_gradset_t *set = optimizer->set;
    const dt_grad_region_t *region =
        dt_grad_region_of(&set->layout, segment->first / DT_NORM_BLOCK);
    size_t size = dt_dtype_size(part->dtype);
    int64_t place = segment->first - part->begin;
    dt_update_settings_t settings = optimizer->settings;
    settings.learning_rate = pace->learning_rate;
    dt_update_range_t range = {.count = (size_t)segment->count,
                               .dtype = part->dtype,
                               .gradient_dtype = region->dtype,
                               .copy_dtype = region->param_dtype,
                               .gradients = set->memory + dt_grad_offset(region, segment->first),
                               .parameters = part->master ? part->master + place : values,
                               .first = at(part->state[0], place, size),
                               .second = at(part->state[1], place, size),
                               .copy = part->master ? values : NULL};
    if (optimizer->desc.rule == DTRAIN_RULE_USER)
        call_user(optimizer, pace, &range, part, segment);
    else if (!set->device)
        dt_update(&settings, pace->step, pace->scale, &range);
    else {
        dt_update_factors_t factors = dt_update_factors(&settings, pace->step, pace->scale);
        return set->device->ops->update(set->device, set->stream, &factors, &range);
    }
    return DTRAIN_OK;
}

/* A launch takes longer than the work of a small parameter: where all lie as the gradients do, a
 * part is one range. Zeros between parameters stay so, if nothing is divided by zero. */
static int is_one_range(const dtrain_optimizer_t *optimizer)
{
    return optimizer->set->device && !optimizer->is_packed &&
           optimizer->desc.rule != DTRAIN_RULE_USER &&
           (optimizer->settings.rule == DT_UPDATE_SGD || optimizer->settings.epsilon > 0);
}

/* A part, slice by slice: what lies between them has no values. */
static dtrain_status_t update_part(dtrain_optimizer_t *optimizer, const pace_t *pace, int run)
{
    const dt_grad_layout_t *layout = &optimizer->set->layout;
    const dt_optimizer_part_t *part = &optimizer->parts[run];
    const dt_grad_region_t *region =
        dt_grad_region_of(layout, optimizer->set->plan.runs[run].first_block);
    size_t size = dt_dtype_size(region->param_dtype);
    int64_t begin_ns = dt_now_ns();
    dtrain_status_t status = DTRAIN_OK;
    if (is_one_range(optimizer) && part->end > part->begin) {
        const dt_grad_segment_t all = {.first = part->begin, .count = part->end - part->begin};
        status = update_segment(optimizer, pace, part, &all,
                                optimizer->memory + dt_grad_param_offset(region, part->begin));
    } else {
        dt_grad_segment_t segment = dt_grad_segment_first(layout, part->begin, part->end);
        for (; segment.count > 0 && status == DTRAIN_OK;
             dt_grad_segment_next(layout, part->end, &segment))
            status = update_segment(optimizer, pace, part, &segment,
                                    at(optimizer->data[segment.index], segment.begin, size));
    }
    optimizer->updated_ns += dt_now_ns() - begin_ns;
    return status;
}

/* ---- Gather ------------------------------------------------------------------------------- */

/* Copies what of the range lies in the caller's memory to the library's, or back. */
static dtrain_status_t copy_own(dtrain_optimizer_t *optimizer, int64_t begin, int64_t end,
                                int is_back)
{
    const dtrain_gradset_t *set = optimizer->set;
    dtrain_status_t status = DTRAIN_OK;
    if (!optimizer->is_packed || begin == end)
        return status;
    const dt_grad_region_t *region = dt_grad_region_of(&set->layout, begin / DT_NORM_BLOCK);
    size_t size = dt_dtype_size(region->param_dtype);
    dt_grad_segment_t segment = dt_grad_segment_first(&set->layout, begin, end);
    for (; segment.count > 0 && status == DTRAIN_OK;
         dt_grad_segment_next(&set->layout, end, &segment)) {
        uint8_t *theirs = at(optimizer->data[segment.index], segment.begin, size);
        uint8_t *ours = optimizer->memory + dt_grad_param_offset(region, segment.first);
        uint8_t *to = is_back ? theirs : ours, *from = is_back ? ours : theirs;
        size_t bytes = (size_t)segment.count * size;
        if (theirs == ours)
            continue;
        if (set->device)
            status = dt_optimizer_copy(optimizer, to, from, bytes);
        else
            memcpy(to, from, bytes);
        optimizer->copied += (int64_t)bytes;
    }
    return status;
}

/* The first error of a step, with its text. */
typedef struct outcome {
    dtrain_status_t status;
    char text[DT_ERROR_MAX];
} outcome_t;

static void note(outcome_t *outcome, dtrain_status_t status)
{
    if (status == DTRAIN_OK || outcome->status != DTRAIN_OK)
        return;
    outcome->status = status;
    snprintf(outcome->text, sizeof outcome->text, "%s", dt_last_error());
}

/* The run's parameters go to all ranks, each part from the rank that has updated it. `updated` is
 * what that came to: when it is an error, all ranks get it. */
static dtrain_status_t begin_gather(dtrain_optimizer_t *optimizer, int run, outcome_t *updated)
{
    dtrain_gradset_t *set = optimizer->set;
    dt_optimizer_part_t *part = &optimizer->parts[run];
    const dt_grad_run_t *blocks = &set->plan.runs[run];
    const dt_grad_region_t *region = dt_grad_region_of(&set->layout, blocks->first_block);
    const uint8_t *values = optimizer->memory;
    int64_t shape[2] = {blocks->num_blocks, DT_NORM_BLOCK};
    if (updated->status == DTRAIN_OK)
        note(updated, copy_own(optimizer, part->begin, part->end, 0));
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 2,
                              .name = part->name,
                              .in = values + dt_grad_param_offset(region, part->begin),
                              .out = optimizer->memory +
                                     dt_grad_param_offset(region, dt_grad_run_begin(blocks)),
                              .shape = shape,
                              .dtype = region->param_dtype,
                              .device = set->terms.device,
                              .stream = set->stream};
    dtrain_options_t options = {
        .struct_size = sizeof options, .pset = set->talk.pset, .timeout_ms = set->timeout_ms};
    dt_submission_t submission = {.kind = DT_KIND_COLLECT,
                                  .tensor = &tensor,
                                  .options = &options,
                                  .is_own = 1,
                                  .refusal = updated->status != DTRAIN_OK ? updated->text : NULL,
                                  .refusal_status = updated->status};
    dtrain_status_t status = dt_runtime_submit(set->runtime, &submission, &part->gather);
    if (part->gather != 0)
        atomic_fetch_add(&set->runtime->num_kept, 1);
    return status;
}

/* The other ranks' parts of a run are here. */
static dtrain_status_t take_gathered(dtrain_optimizer_t *optimizer, int run)
{
    const dt_optimizer_part_t *part = &optimizer->parts[run];
    const dt_grad_run_t *blocks = &optimizer->set->plan.runs[run];
    dtrain_status_t status = copy_own(optimizer, dt_grad_run_begin(blocks), part->begin, 1);
    if (status == DTRAIN_OK)
        status = copy_own(optimizer, part->end, dt_grad_run_end(blocks), 1);
    return status;
}

/* ---- The step ------------------------------------------------------------------------------ */

static void update_run(dtrain_optimizer_t *optimizer, const pace_t *pace, int run,
                       outcome_t *outcome)
{
    outcome_t updated = {.status = DTRAIN_OK};
    note(&updated, update_part(optimizer, pace, run));
    if (optimizer->is_sharded)
        note(outcome, begin_gather(optimizer, run, &updated));
    else if (updated.status != DTRAIN_OK)
        note(outcome, dt_fail(updated.status, "%s", updated.text));
}

/* On a GPU the stream waits, and the next step settles it. */
static dtrain_status_t finish_gather(dtrain_optimizer_t *optimizer, int run)
{
    dtrain_gradset_t *set = optimizer->set;
    dt_optimizer_part_t *part = &optimizer->parts[run];
    if (set->device) {
        dtrain_status_t status = dt_runtime_stream_wait(set->runtime, part->gather, set->stream);
        return status == DTRAIN_OK ? take_gathered(optimizer, run) : status;
    }
    dtrain_status_t status = dt_runtime_wait(set->runtime, part->gather, -1);
    dt_optimizer_drop_gather(optimizer, part);
    return status == DTRAIN_OK ? take_gathered(optimizer, run) : status;
}

static void finish_gathers(dtrain_optimizer_t *optimizer, outcome_t *outcome)
{
    int64_t begin_ns = dt_now_ns();
    for (int run = 0; run < optimizer->num_parts; run++) {
        if (optimizer->parts[run].gather != 0)
            note(outcome, finish_gather(optimizer, run));
    }
    optimizer->gathered_ns += dt_now_ns() - begin_ns;
}

/* Updates each run as soon as its gradients are there. A run that failed did so on all ranks, and
 * stays as it is on all. */
static void step_by_runs(dtrain_optimizer_t *optimizer, const pace_t *pace, outcome_t *outcome)
{
    dtrain_gradset_t *set = optimizer->set;
    dt_gradset_flush(set, set->stream, set->device != NULL);
    for (int run = 0; run < optimizer->num_parts; run++) {
        dtrain_status_t status = dt_gradset_wait_run(set, run);
        if (dt_is_stranded(set->runtime)) {
            note(outcome, dt_stranded_error(set->runtime));
            return;
        }
        note(outcome, status);
        if (status == DTRAIN_OK)
            update_run(optimizer, pace, run, outcome);
    }
    dt_gradset_end_step(set, DTRAIN_OK);
    finish_gathers(optimizer, outcome);
}

static void step_at_once(dtrain_optimizer_t *optimizer, const pace_t *pace, outcome_t *outcome)
{
    for (int run = 0; run < optimizer->num_parts; run++)
        update_run(optimizer, pace, run, outcome);
    finish_gathers(optimizer, outcome);
}

/* The loss scale after a step: halved where it was too large, doubled when it has been good for
 * long. All ranks have the same norm, and so do the same. */
static void move_loss_scale(dtrain_optimizer_t *optimizer, int is_good)
{
    int32_t interval = optimizer->desc.growth_interval;
    if (optimizer->desc.loss_scale <= 0)
        return;
    if (!is_good) {
        optimizer->num_good = 0;
        optimizer->loss_scale = fmax(optimizer->loss_scale * BACKOFF, LEAST_SCALE);
        return;
    }
    optimizer->num_good++;
    if (interval >= 0 && optimizer->num_good >= (interval > 0 ? interval : GROWTH_INTERVAL)) {
        optimizer->num_good = 0;
        if (isfinite(optimizer->loss_scale * GROWTH))
            optimizer->loss_scale *= GROWTH;
    }
}

/* Norm and clip factor of gradients that are there. */
static dtrain_status_t measure(dtrain_optimizer_t *optimizer, pace_t *pace,
                               dtrain_step_info_t *info)
{
    double norm, scale = 1 / optimizer->loss_scale;
    int finite;
    dtrain_status_t status = dt_grad_norm(optimizer->set, &norm, &finite);
    if (status != DTRAIN_OK)
        return status;
    info->norm = norm * scale;
    info->skipped = !finite || !isfinite(norm);
    if (!info->skipped)
        info->clip = dt_clip_factor(info->norm, optimizer->desc.max_norm);
    pace->scale = scale * info->clip;
    return DTRAIN_OK;
}

/* All gradients are reduced, unless that failed, and the set is between steps. */
static dtrain_status_t await_gradients(dtrain_optimizer_t *optimizer)
{
    dtrain_gradset_t *set = optimizer->set;
    dtrain_status_t status = DTRAIN_OK;
    if (set->steps == optimizer->seen)
        status = dt_gradset_end(set, set->stream, set->device != NULL);
    if (status == DTRAIN_OK && !optimizer->parts)
        status = dt_optimizer_make_parts(optimizer);
    return status;
}

static void run_step(dtrain_optimizer_t *optimizer, pace_t *pace, dtrain_step_info_t *info,
                     outcome_t *outcome)
{
    const dtrain_gradset_t *set = optimizer->set;
    if (optimizer->parts && set->steps == optimizer->seen && !dt_optimizer_needs_norm(optimizer)) {
        step_by_runs(optimizer, pace, outcome);
        return;
    }
    note(outcome, await_gradients(optimizer));
    if (outcome->status == DTRAIN_OK && dt_optimizer_needs_norm(optimizer))
        note(outcome, measure(optimizer, pace, info));
    if (outcome->status == DTRAIN_OK && !info->skipped && optimizer->parts)
        step_at_once(optimizer, pace, outcome);
    if (outcome->status == DTRAIN_OK)
        move_loss_scale(optimizer, !info->skipped);
}

static dtrain_status_t check(const dtrain_optimizer_t *optimizer, double learning_rate,
                             const dtrain_step_info_t *info)
{
    const dtrain_gradset_t *set = optimizer->set;
    if (!isfinite(learning_rate) || learning_rate < 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_optimizer_step: a learning rate of %g: it must be finite and not "
                       "negative",
                       learning_rate);
    if (info && info->struct_size < sizeof *info)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_step_info_t: struct_size is %u, not %zu: set it to sizeof",
                       info->struct_size, sizeof *info);
    if (atomic_load(&set->is_off))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_optimizer_step: gradient set '%.100s' has its sync off: these "
                       "gradients are only this rank's",
                       set->name);
    return dt_runtime_may_block(set->runtime, "dtrain_optimizer_step");
}

/* In the set's stream, on a GPU. */
static dtrain_status_t do_step(dtrain_optimizer_t *optimizer, double learning_rate,
                               dtrain_step_info_t *info)
{
    outcome_t outcome = {.status = DTRAIN_OK};
    dtrain_step_info_t own = {.struct_size = sizeof own, .clip = 1};
    pace_t pace = {.learning_rate = learning_rate, .scale = 1, .step = optimizer->step + 1};
    if (optimizer->set->device)
        note(&outcome, dt_optimizer_settle(optimizer));
    if (outcome.status == DTRAIN_OK)
        run_step(optimizer, &pace, &own, &outcome);
    if (outcome.status == DTRAIN_OK && optimizer->set->device)
        note(&outcome, dt_optimizer_mark_end(optimizer));
    if (outcome.status == DTRAIN_OK)
        optimizer->step += !own.skipped;
    else
        dt_fail(outcome.status, "%s", outcome.text);
    dtrain_status_t status = dt_gradset_catch_up(optimizer->set, outcome.status);
    optimizer->seen = optimizer->set->steps;
    if (status != DTRAIN_OK)
        return status;
    own.step = optimizer->step;
    own.loss_scale = optimizer->loss_scale;
    if (info) {
        own.struct_size = info->struct_size;
        *info = own;
    }
    return DTRAIN_OK;
}

dtrain_status_t dt_optimizer_step(dtrain_optimizer_t *optimizer, double learning_rate,
                                  dtrain_step_info_t *info)
{
    dtrain_status_t status = check(optimizer, learning_rate, info);
    optimizer->set->stream = NULL;
    if (status == DTRAIN_OK)
        status = do_step(optimizer, learning_rate, info);
    return status == DTRAIN_OK ? dt_optimizer_quiesce(optimizer) : status;
}

dtrain_status_t dt_optimizer_stream_step(dtrain_optimizer_t *optimizer, double learning_rate,
                                         void *stream, dtrain_step_info_t *info)
{
    dtrain_gradset_t *set = optimizer->set;
    if (!set->device)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_optimizer_stream_step: gradient set '%.100s' is in host memory",
                       set->name);
    dtrain_status_t status = check(optimizer, learning_rate, info);
    set->stream = stream;
    return status == DTRAIN_OK ? do_step(optimizer, learning_rate, info) : status;
}
