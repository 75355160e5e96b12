/* optimizers.c - optimizers: dtrain.h says what each function does. */
#include "train/optimizer.h"

#include <stddef.h>

#include "api/gradsets.h"
#include "api/world.h"
#include "base/status.h"
#include "train/broadcast.h"
#include "train/optimizer_state.h"

static dtrain_status_t enter_own(const dtrain_optimizer_t *optimizer)
{
    return dt_api_enter_set(optimizer ? optimizer->set : NULL, "optimizer");
}

static dtrain_status_t leave(dtrain_status_t status)
{
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_optimizer_create(dtrain_gradset_t *set, const dtrain_optimizer_desc_t *desc,
                                        dtrain_optimizer_t **optimizer)
{
    dtrain_status_t status = dt_api_enter_set(set, "gradient set");
    return status == DTRAIN_OK ? leave(dt_optimizer_create(set, desc, optimizer)) : status;
}

void dtrain_optimizer_destroy(dtrain_optimizer_t *optimizer)
{
    if (!optimizer)
        return;
    dt_runtime_t *runtime = dt_api_peek();
    dt_optimizer_destroy(optimizer, runtime && optimizer->set->generation == dt_api_generation());
    if (runtime)
        dt_api_leave();
}

dtrain_status_t dtrain_optimizer_param(dtrain_optimizer_t *optimizer, int index, void **values)
{
    dtrain_status_t status = enter_own(optimizer);
    if (status != DTRAIN_OK)
        return status;
    int n = optimizer->set->layout.n;
    if (!values || index < 0 || index >= n)
        return leave(dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                             values ? "there is no parameter %d of %d"
                                    : "parameter %d of %d: its address is NULL",
                             index, n));
    *values = optimizer->data[index];
    return leave(DTRAIN_OK);
}

dtrain_status_t dtrain_optimizer_step(dtrain_optimizer_t *optimizer, double learning_rate,
                                      dtrain_step_info_t *info)
{
    dtrain_status_t status = enter_own(optimizer);
    return status == DTRAIN_OK ? leave(dt_optimizer_step(optimizer, learning_rate, info)) : status;
}

dtrain_status_t dtrain_optimizer_broadcast(dtrain_optimizer_t *optimizer, int root)
{
    dtrain_status_t status = enter_own(optimizer);
    return status == DTRAIN_OK ? leave(dt_optimizer_broadcast(optimizer, root)) : status;
}

dtrain_status_t dtrain_optimizer_save(dtrain_optimizer_t *optimizer, const char *path,
                                      int in_shards)
{
    dtrain_status_t status = enter_own(optimizer);
    return status == DTRAIN_OK ? leave(dt_optimizer_save(optimizer, path, in_shards)) : status;
}

dtrain_status_t dtrain_optimizer_load(dtrain_optimizer_t *optimizer, const char *path, int root)
{
    dtrain_status_t status = enter_own(optimizer);
    return status == DTRAIN_OK ? leave(dt_optimizer_load(optimizer, path, root)) : status;
}

dtrain_status_t dtrain_optimizer_get_stats(dtrain_optimizer_t *optimizer,
                                           dtrain_optimizer_stats_t *stats)
{
    dtrain_status_t status = enter_own(optimizer);
    if (status != DTRAIN_OK)
        return status;
    if (!stats || stats->struct_size < offsetof(dtrain_optimizer_stats_t, copied_bytes))
        return leave(dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                             "dtrain_optimizer_stats_t: NULL, or struct_size is not %zu: set it to "
                             "sizeof",
                             sizeof *stats));
    const dtrain_optimizer_stats_t now = {.state_bytes = optimizer->state_bytes,
                                          .updated_ns = optimizer->updated_ns,
                                          .gathered_ns = optimizer->gathered_ns,
                                          .copied_bytes = optimizer->copied};
    dt_api_fill(stats, &now, sizeof now);
    return leave(DTRAIN_OK);
}

dtrain_status_t dtrain_broadcast_params(const dtrain_param_t *params, int n, int root)
{
    const dt_params_place_t host = {.device = DTRAIN_DEVICE_CPU};
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    return runtime ? leave(dt_broadcast_params(runtime, params, n, root, host)) : status;
}
