#include "train/optimizer_device.h"

#include <stdio.h>

#include "base/status.h"

dtrain_status_t dt_optimizer_transfer(const dtrain_optimizer_t *optimizer, void *to,
                                      const void *from, size_t bytes)
{
    const dtrain_gradset_t *set = optimizer->set;
    return set->device->ops->transfer(set->device, set->stream, to, from, bytes);
}

dtrain_status_t dt_optimizer_copy(const dtrain_optimizer_t *optimizer, void *to, const void *from,
                                  size_t bytes)
{
    const dtrain_gradset_t *set = optimizer->set;
    const dt_copy_t copy = {.to = to, .from = from, .bytes = bytes};
    return set->device->ops->copy_in(set->device, set->stream, &copy, 1);
}

void dt_optimizer_drop_gather(dtrain_optimizer_t *optimizer, dt_optimizer_part_t *part)
{
    dt_runtime_t *runtime = optimizer->set->runtime;
    optimizer->copied += dt_handle_find(runtime->handles, part->gather)->copied;
    dt_runtime_release(runtime, part->gather);
    part->gather = 0;
    atomic_fetch_sub(&runtime->num_kept, 1);
}

dtrain_status_t dt_optimizer_settle(dtrain_optimizer_t *optimizer)
{
    dt_runtime_t *runtime = optimizer->set->runtime;
    dtrain_status_t first = DTRAIN_OK;
    char text[DT_ERROR_MAX];
    for (int run = 0; run < optimizer->num_parts; run++) {
        dt_optimizer_part_t *part = &optimizer->parts[run];
        if (part->gather == 0)
            continue;
        dtrain_status_t status = dt_runtime_wait(runtime, part->gather, -1);
        if (status != DTRAIN_OK && first == DTRAIN_OK) {
            first = status;
            snprintf(text, sizeof text, "%s", dt_last_error());
        }
        dt_optimizer_drop_gather(optimizer, part);
    }
    return first == DTRAIN_OK ? first : dt_fail(first, "%s", text);
}

dtrain_status_t dt_optimizer_mark_end(dtrain_optimizer_t *optimizer)
{
    const dtrain_gradset_t *set = optimizer->set;
    dt_mark_drop(optimizer->behind);
    optimizer->behind = NULL;
    return set->device->ops->record(set->device, set->stream, &optimizer->behind);
}

dtrain_status_t dt_optimizer_quiesce(dtrain_optimizer_t *optimizer)
{
    dtrain_gradset_t *set = optimizer->set;
    if (!set->device)
        return DTRAIN_OK;
    dtrain_status_t status = dt_optimizer_settle(optimizer);
    if (status == DTRAIN_OK && optimizer->behind)
        status = set->device->ops->await(set->device, optimizer->behind);
    set->stream = NULL;
    set->is_streamed = 0;
    return status;
}

void dt_optimizer_drop_trail(dtrain_optimizer_t *optimizer)
{
    if (!optimizer->set->device)
        return;
    dt_optimizer_settle(optimizer);
    dt_mark_drop(optimizer->behind);
    optimizer->behind = NULL;
}
