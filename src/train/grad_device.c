#include "train/grad_device.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/stranded.h"

static dtrain_status_t check_memory(const dtrain_gradset_t *set, const dtrain_param_t *param)
{
    const void *const memory[] = {param->gradient, param->data};
    for (int i = 0; i < 2; i++) {
        if (!memory[i] || set->device->ops->check(set->device, memory[i]) == DTRAIN_OK)
            continue;
        char why[DT_ERROR_MAX];
        snprintf(why, sizeof why, "%s", dt_last_error());
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "parameter '%.200s': %s: %.700s", param->name,
                       i == 0 ? "gradient" : "data", why);
    }
    return DTRAIN_OK;
}

dtrain_status_t dt_grad_device_open(dtrain_gradset_t *set, const dtrain_param_t *params, int n)
{
    const void *hint = NULL;
    for (int i = 0; i < n && !hint; i++)
        hint = params[i].gradient ? params[i].gradient : params[i].data;
    dtrain_status_t status = dt_gpu_open(&set->runtime->gpu, hint, &set->device);
    for (int i = 0; i < n && status == DTRAIN_OK; i++)
        status = check_memory(set, &params[i]);
    return status;
}

dtrain_status_t dt_grad_device_make_window(dtrain_gradset_t *set)
{
    dt_talk_t talk = set->talk;
    if (set->layout.bytes == 0)
        return DTRAIN_OK;
    talk.device = set->terms.device;
    talk.memory = DT_MEMORY_NEW_WINDOW;
    dtrain_status_t status = dt_talk_reduce(&talk, set->memory, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    set->is_window = set->device->ops->kind_of(set->device, set->memory) == DT_MEMORY_SYMMETRIC;
    return status;
}

dt_grad_trail_t *dt_grad_trail_create(int num_slices)
{
    size_t room = (size_t)num_slices + 1;
    dt_grad_trail_t *trail = dt_calloc(1, sizeof *trail);
    if (!trail)
        return NULL;
    trail->marks = dt_calloc(room, sizeof(dt_mark_t *));
    trail->copies = dt_calloc(room, sizeof *trail->copies);
    if (trail->marks && trail->copies)
        return trail;
    dt_grad_trail_free(trail, NULL, 0);
    return NULL;
}

static void drop_marks(dt_grad_trail_t *trail)
{
    while (trail->num_marks > 0)
        dt_mark_drop(trail->marks[--trail->num_marks]);
}

void dt_grad_trail_release(dt_grad_trail_t *trail, dt_runtime_t *runtime)
{
    if (trail->handle == 0)
        return;
    dt_runtime_release(runtime, trail->handle);
    trail->handle = 0;
    atomic_fetch_sub(&runtime->num_kept, 1);
}

void dt_grad_trail_free(dt_grad_trail_t *trail, dt_runtime_t *runtime, int has_world)
{
    if (!trail)
        return;
    if (has_world)
        drop_marks(trail);
    if (has_world)
        dt_grad_trail_release(trail, runtime);
    dt_free(trail->marks);
    dt_free(trail->copies);
    dt_free(trail);
}

/* ---- Ready -------------------------------------------------------------------------------- */

static const dt_grad_run_t *run_of(const dt_grad_work_t *work)
{
    return &work->set->plan.runs[work->run];
}

/* Walks the slices of a run: the first, and the next while its count is not 0. */
static dt_grad_segment_t first_of(const dt_grad_work_t *work, int64_t *end)
{
    const dt_grad_run_t *run = run_of(work);
    *end = dt_grad_run_end(run);
    return dt_grad_segment_first(&work->set->layout, dt_grad_run_begin(run), *end);
}

/* 1 when a slice of the run before `segment` is made in the same stream. */
static int was_seen(const dt_grad_work_t *work, const dt_grad_segment_t *segment)
{
    int64_t end;
    const void *stream = work->set->slots[segment->index].stream;
    dt_grad_segment_t other = first_of(work, &end);
    for (; other.first < segment->first; dt_grad_segment_next(&work->set->layout, end, &other)) {
        if (work->set->slots[other.index].stream == stream)
            return 1;
    }
    return 0;
}

/* The streams hold their gradients by now, whichever thread marked them. Few are distinct. */
void dt_grad_trail_mark(dt_grad_work_t *work)
{
    const dtrain_gradset_t *set = work->set;
    dt_grad_trail_t *trail = work->trail;
    int64_t end;
    dtrain_status_t status = DTRAIN_OK;
    dt_grad_segment_t segment = first_of(work, &end);
    const void *last = NULL;
    for (int i = 0; segment.count > 0 && status == DTRAIN_OK; i++) {
        void *stream = set->slots[segment.index].stream;
        if (i == 0 || (stream != last && !was_seen(work, &segment))) {
            status = set->device->ops->record(set->device, stream, &trail->marks[trail->num_marks]);
            trail->num_marks += status == DTRAIN_OK;
        }
        last = stream;
        dt_grad_segment_next(&set->layout, end, &segment);
    }
    trail->status = status;
    if (status != DTRAIN_OK)
        snprintf(trail->text, sizeof trail->text, "%s", dt_last_error());
}

/* What of the run lies in the caller's memory, as copies to the set's or back. */
static int list_copies(dt_grad_work_t *work, int is_back)
{
    dtrain_gradset_t *set = work->set;
    const dt_grad_region_t *region = dt_grad_region_of(&set->layout, run_of(work)->first_block);
    size_t size = dt_dtype_size(region->dtype);
    int64_t end;
    int n = 0;
    dt_grad_segment_t segment = first_of(work, &end);
    for (; segment.count > 0; dt_grad_segment_next(&set->layout, end, &segment)) {
        uint8_t *own = set->slots[segment.index].own;
        if (!own)
            continue;
        uint8_t *theirs = own + (size_t)segment.begin * size;
        uint8_t *ours = set->memory + dt_grad_offset(region, segment.first);
        work->trail->copies[n++] = (dt_copy_t){.to = is_back ? theirs : ours,
                                               .from = is_back ? ours : theirs,
                                               .bytes = (size_t)segment.count * size};
        atomic_fetch_add(&set->copied, segment.count * (int64_t)size);
    }
    return n;
}

dtrain_status_t dt_grad_trail_gather(dt_grad_work_t *work, dt_mark_t **ready)
{
    dt_device_t *device = work->set->device;
    dt_grad_trail_t *trail = work->trail;
    dtrain_status_t status = trail->status;
    if (status != DTRAIN_OK) {
        drop_marks(trail);
        return dt_fail(status, "%s", trail->text);
    }
    int n = work->set->is_packed ? list_copies(work, 0) : 0;
    if (n == 0 && trail->num_marks == 1) {
        *ready = trail->marks[0];
        trail->num_marks = 0;
        return DTRAIN_OK;
    }
    status = device->ops->copy(device, trail->copies, n, trail->marks, trail->num_marks, ready);
    drop_marks(trail);
    return status;
}

/* ---- The wait ----------------------------------------------------------------------------- */

static int is_submitted(void *argument)
{
    const dt_grad_work_t *work = argument;
    return atomic_load(&work->num_submitted) > work->set->rounds ||
           atomic_load(&work->num_done) > work->set->rounds;
}

static dtrain_status_t error_of(const dt_grad_outcome_t *outcome)
{
    return dt_fail(outcome->status, "%s", outcome->error ? outcome->error : "");
}

/* It is over: this one was submitted after it. */
dtrain_status_t dt_grad_trail_late(const dt_grad_work_t *work)
{
    int64_t rounds = work->set->rounds;
    const dt_grad_outcome_t *late = &work->outcomes[(rounds + 1) % 2];
    return rounds > 0 && late->status != DTRAIN_OK && !late->is_told ? error_of(late) : DTRAIN_OK;
}

dtrain_status_t dt_grad_trail_follow(dt_grad_work_t *work)
{
    dtrain_gradset_t *set = work->set;
    dt_runtime_t *runtime = set->runtime;
    if (!is_submitted(work)) {
        dtrain_status_t status = dt_runtime_may_block(runtime, "waiting for gradients");
        if (status != DTRAIN_OK)
            return status;
        dt_baton_help(runtime, is_submitted, work, DT_NEVER);
        if (!is_submitted(work))
            return dt_stranded_error(runtime);
    }
    dtrain_status_t status = dt_grad_trail_late(work);
    if (status == DTRAIN_OK && work->trail->handle == 0)
        status = error_of(&work->outcomes[set->rounds % 2]);
    if (status == DTRAIN_OK)
        status = dt_runtime_stream_wait(runtime, work->trail->handle, set->stream);
    return status == DTRAIN_OK ? dt_grad_trail_give_back(work) : status;
}

dtrain_status_t dt_grad_trail_give_back(dt_grad_work_t *work)
{
    const dtrain_gradset_t *set = work->set;
    dt_grad_trail_t *trail = work->trail;
    if (!set->is_packed || trail->is_given_back || dt_gradset_reduces_to_shares(set))
        return DTRAIN_OK;
    trail->is_given_back = 1;
    int n = list_copies(work, 1);
    return set->device->ops->copy_in(set->device, set->stream, trail->copies, n);
}

/* A stream that refuses this refuses the mark behind it, too, of which the run then tells. */
void dt_grad_device_clear(dtrain_gradset_t *set, int index)
{
    const dt_grad_slice_t *slice = &set->layout.slices[index];
    size_t size = dt_dtype_size(set->layout.regions[slice->region].dtype);
    set->slots[index].stream = set->stream;
    if (slice->count > 0)
        set->device->ops->clear(set->device, set->stream, dt_gradset_buffer(set, index),
                                (size_t)slice->count * size);
}
