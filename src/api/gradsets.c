/* gradsets.c - gradient sets: dtrain.h says what each function does. */
#include "api/gradsets.h"

#include <stddef.h>
#include <string.h>

#include "api/world.h"
#include "base/status.h"
#include "train/grad_norm.h"
#include "train/gradset.h"

dtrain_status_t dt_api_enter_set(const dtrain_gradset_t *set, const char *what)
{
    dtrain_status_t status = DTRAIN_OK;
    if (!set)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the %s is NULL", what);
    if (!dt_api_enter(&status))
        return status;
    if (set->generation == dt_api_generation())
        return DTRAIN_OK;
    dt_api_leave();
    return dt_fail(DTRAIN_ERR_NOT_INITIALIZED,
                   "the %s was made before dtrain_shutdown: make it again", what);
}

void dt_api_fill(void *theirs, const void *fields, size_t size)
{
    uint32_t room;
    memcpy(&room, theirs, sizeof room);
    memcpy((uint8_t *)theirs + sizeof room, (const uint8_t *)fields + sizeof room,
           (room < size ? room : size) - sizeof room);
}

static dtrain_status_t enter(const dtrain_gradset_t *set)
{
    return dt_api_enter_set(set, "gradient set");
}

static dtrain_status_t leave(dtrain_status_t status)
{
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_gradset_create(const dtrain_gradset_desc_t *desc,
                                      const dtrain_param_t *params, int n, dtrain_gradset_t **set)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_gradset_create(runtime, desc, params, n, set);
    if (status == DTRAIN_OK)
        (*set)->generation = dt_api_generation();
    return leave(status);
}

dtrain_status_t dtrain_gradset_destroy(dtrain_gradset_t *set)
{
    if (!set)
        return DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_peek();
    int has_world = runtime && set->generation == dt_api_generation();
    dtrain_status_t status = dt_gradset_destroy(set, has_world);
    if (runtime)
        dt_api_leave();
    return status;
}

static int has(const dtrain_gradset_t *set, int index)
{
    return index >= 0 && index < set->layout.n;
}

static dtrain_status_t has_not(const dtrain_gradset_t *set, int index)
{
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                   "gradient set '%.100s': there is no gradient %d of %d", set->name, index,
                   set->layout.n);
}

dtrain_status_t dtrain_gradset_buffer(dtrain_gradset_t *set, int index, void **buffer)
{
    dtrain_status_t status = enter(set);
    if (status != DTRAIN_OK)
        return status;
    if (!buffer)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the buffer's address is NULL");
    else if (!has(set, index))
        status = has_not(set, index);
    else
        *buffer = dt_gradset_buffer(set, index);
    return leave(status);
}

static dtrain_status_t check_stream(const dtrain_gradset_t *set, const void *stream)
{
    if (!stream || set->device)
        return DTRAIN_OK;
    return dt_fail(
        DTRAIN_ERR_UNSUPPORTED,
        "a stream is for gradients on a GPU, and gradient set '%.100s' is in host memory",
        set->name);
}

dtrain_status_t dtrain_gradset_ready(dtrain_gradset_t *set, int index, void *stream)
{
    dtrain_status_t status = enter(set);
    if (status != DTRAIN_OK)
        return status;
    status = check_stream(set, stream);
    if (status == DTRAIN_OK)
        status = dt_gradset_mark(set, index, 1, stream);
    return leave(status);
}

dtrain_status_t dtrain_gradset_ready_n(dtrain_gradset_t *set, const int *indices, int n,
                                       void *stream)
{
    dtrain_status_t status = enter(set);
    if (status != DTRAIN_OK)
        return status;
    status = check_stream(set, stream);
    if (status == DTRAIN_OK && (n < 0 || (n > 0 && !indices)))
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%d gradients, and no numbers of them", n);
    for (int i = 0; i < n && status == DTRAIN_OK; i++)
        status = dt_gradset_mark(set, indices[i], 1, stream);
    return leave(status);
}

dtrain_status_t dtrain_gradset_unused(dtrain_gradset_t *set, int index)
{
    dtrain_status_t status = enter(set);
    return status == DTRAIN_OK ? leave(dt_gradset_mark(set, index, 0, NULL)) : status;
}

dtrain_status_t dtrain_gradset_wait(dtrain_gradset_t *set)
{
    dtrain_status_t status = enter(set);
    return status == DTRAIN_OK ? leave(dt_gradset_wait(set)) : status;
}

dtrain_status_t dtrain_gradset_wait_one(dtrain_gradset_t *set, int index)
{
    dtrain_status_t status = enter(set);
    if (status != DTRAIN_OK)
        return status;
    status = has(set, index) ? dt_gradset_wait_one(set, index) : has_not(set, index);
    return leave(status);
}

dtrain_status_t dtrain_gradset_clip(dtrain_gradset_t *set, double max_norm, double *norm)
{
    dtrain_status_t status = enter(set);
    return status == DTRAIN_OK ? leave(dt_grad_clip(set, max_norm, norm)) : status;
}

dtrain_status_t dtrain_gradset_set_accumulation(dtrain_gradset_t *set, int passes)
{
    dtrain_status_t status = enter(set);
    return status == DTRAIN_OK ? leave(dt_gradset_set_accumulation(set, passes)) : status;
}

dtrain_status_t dtrain_gradset_sync_enable(dtrain_gradset_t *set, int on)
{
    dtrain_status_t status = enter(set);
    return status == DTRAIN_OK ? leave(dt_gradset_enable_sync(set, on)) : status;
}

dtrain_status_t dtrain_gradset_get_stats(dtrain_gradset_t *set, dtrain_gradset_stats_t *stats)
{
    dtrain_status_t status = enter(set);
    if (status != DTRAIN_OK)
        return status;
    dtrain_gradset_stats_t now;
    dt_gradset_describe(set, &now);
    if (!stats || stats->struct_size < offsetof(dtrain_gradset_stats_t, copied_bytes))
        status =
            dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                    "dtrain_gradset_stats_t: NULL, or struct_size is not %zu: set it to sizeof",
                    sizeof *stats);
    else
        dt_api_fill(stats, &now, sizeof now);
    return leave(status);
}
