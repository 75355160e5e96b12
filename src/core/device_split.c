#include "core/device_split.h"

#include "base/memory.h"

typedef struct splitting {
    dt_staged_t base;
    dt_gpu_t *gpu;
    const dt_device_path_t *world;
    dt_ranks_t ranks;
    dt_device_split_t *split;
    dt_device_split_t none; /* of who is not in the set */
    int has_begun;
} splitting_t;

static dtrain_status_t begin(splitting_t *splitting)
{
    dt_device_t *device = dt_gpu_peek(splitting->gpu);
    dt_backend_t *world = dt_device_path_backend(splitting->world);
    splitting->has_begun = 1;
    if (!world)
        return DTRAIN_OK;
    return device->ops->split(device, world, splitting->ranks.rank, splitting->ranks.size,
                              &splitting->split->backend);
}

static dtrain_status_t next(dt_staged_t *staged, dt_collective_t *collective, dt_stage_t *stage)
{
    splitting_t *splitting = (splitting_t *)staged;
    dt_device_split_t *split = splitting->split;
    dtrain_status_t status = DTRAIN_OK;
    (void)collective;
    *stage = DT_STAGE_NONE;
    if (!splitting->has_begun)
        status = begin(splitting);
    if (status == DTRAIN_OK && split->backend) {
        dt_device_t *device = dt_gpu_peek(splitting->gpu);
        status = device->ops->connected(device, split->backend);
    }
    if (status == DTRAIN_IN_PROGRESS) {
        *stage = DT_STAGE_WAIT;
        return DTRAIN_OK;
    }
    split->is_decided = status == DTRAIN_OK;
    return status;
}

static void splitting_free(dt_staged_t *staged)
{
    splitting_t *splitting = (splitting_t *)staged;
    dt_device_split_leave(&splitting->none, splitting->none.is_decided);
    dt_free(splitting);
}

dt_staged_t *dt_device_split_create(dt_gpu_t *gpu, const dt_device_path_t *world, dt_ranks_t ranks,
                                    dt_device_split_t *split)
{
    splitting_t *splitting = dt_calloc(1, sizeof *splitting);
    if (!splitting)
        return NULL;
    splitting->base.next = next;
    splitting->base.free = splitting_free;
    splitting->gpu = gpu;
    splitting->world = world;
    splitting->ranks = ranks;
    splitting->split = split ? split : &splitting->none;
    splitting->split->is_asked = 1;
    return &splitting->base;
}

void dt_device_split_leave(dt_device_split_t *split, int clean)
{
    if (split->backend)
        split->backend->ops->destroy(split->backend, clean);
    split->backend = NULL;
}
