/* optimizer_broadcast.c - one rank's parameters and state go to all. */
#include "base/dtype.h"
#include "train/optimizer_device.h"
#include "train/optimizer_state.h"

/* What is not by element. */
typedef struct numbers {
    int64_t step;
    int64_t num_good;
    double loss_scale;
} numbers_t;

/* For parameters and state. */
static dt_talk_t talk_of(const dtrain_optimizer_t *optimizer)
{
    dt_talk_t talk = optimizer->set->talk;
    talk.device = optimizer->set->terms.device;
    return talk;
}

static dtrain_status_t broadcast_params(const dtrain_optimizer_t *optimizer, int root)
{
    const dt_talk_t talk = talk_of(optimizer);
    const dt_grad_layout_t *layout = &optimizer->set->layout;
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < layout->n && status == DTRAIN_OK; i++) {
        const dt_grad_slice_t *slice = &layout->slices[i];
        size_t size = dt_dtype_size(layout->regions[slice->region].param_dtype);
        if (slice->count > 0)
            status =
                dt_talk_broadcast(&talk, optimizer->data[i], (size_t)slice->count * size, root);
    }
    return status;
}

/* Unsharded, all ranks have parts of the same elements. */
static dtrain_status_t broadcast_state(const dtrain_optimizer_t *optimizer, int root)
{
    const dt_talk_t talk = talk_of(optimizer);
    dtrain_status_t status = DTRAIN_OK;
    for (int run = 0; run < optimizer->num_parts && status == DTRAIN_OK; run++) {
        const dt_optimizer_part_t *part = &optimizer->parts[run];
        size_t bytes = (size_t)(part->end - part->begin) * dt_dtype_size(part->dtype);
        for (int i = 0; i < optimizer->num_states && status == DTRAIN_OK; i++)
            status = dt_talk_broadcast(&talk, part->state[i], bytes, root);
        if (status == DTRAIN_OK && part->master)
            status = dt_talk_broadcast(&talk, part->master, bytes, root);
    }
    return status;
}

dtrain_status_t dt_optimizer_broadcast(dtrain_optimizer_t *optimizer, int root)
{
    const dt_talk_t *talk = &optimizer->set->talk;
    numbers_t numbers = {.step = optimizer->step,
                         .num_good = optimizer->num_good,
                         .loss_scale = optimizer->loss_scale};
    dtrain_status_t status = dt_talk_agree(talk, dt_optimizer_quiesce(optimizer));
    if (status == DTRAIN_OK)
        status = dt_talk_broadcast(talk, &numbers, sizeof numbers, root);
    if (status == DTRAIN_OK)
        status = broadcast_params(optimizer, root);
    if (status == DTRAIN_OK && !optimizer->is_sharded)
        status = broadcast_state(optimizer, root);
    else if (status == DTRAIN_OK)
        status = dt_talk_agree(talk, dt_optimizer_take_masters(optimizer));
    if (status != DTRAIN_OK)
        return status;
    optimizer->step = numbers.step;
    optimizer->num_good = numbers.num_good;
    optimizer->loss_scale = numbers.loss_scale;
    return DTRAIN_OK;
}
