/* lifecycle.c - version, build, settings, init and topology: dtrain.h says what each does. */
#include "api/features.h"
#include "api/world.h"
#include "base/config.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/registry.h"

int dtrain_version(void)
{
    return DTRAIN_VERSION;
}

const char *dtrain_version_string(void)
{
    return DTRAIN_VERSION_STRING;
}

int dtrain_built(dtrain_feature_t feature)
{
    switch (feature) {
    case DTRAIN_FEATURE_MPI:
        return DT_HAVE_MPI;
    case DTRAIN_FEATURE_CUDA:
        return DT_HAVE_CUDA;
    case DTRAIN_FEATURE_NCCL:
        return DT_HAVE_NCCL;
    default:
        return 0;
    }
}

const char *dtrain_status_string(dtrain_status_t status)
{
    return dt_status_string(status);
}

const char *dtrain_last_error(void)
{
    return dt_last_error();
}

size_t dtrain_dtype_size(dtrain_dtype_t dtype)
{
    return dt_dtype_size(dtype);
}

const char *dtrain_dtype_name(dtrain_dtype_t dtype)
{
    return dt_dtype_name(dtype);
}

const char *dtrain_op_name(dtrain_op_t op)
{
    return dt_op_name(op);
}

void dtrain_set_log_callback(dtrain_log_fn_t fn, void *user)
{
    dt_log_set_sink(fn, user);
}

dtrain_status_t dtrain_config_init(dtrain_config_t *config, size_t struct_size)
{
    return dt_config_init(config, struct_size);
}

dtrain_status_t dtrain_config_set(dtrain_config_t *config, const char *key, const char *value)
{
    return dt_config_set(config, key, value);
}

static dtrain_status_t join(const void *argument, dt_config_t *config, dt_world_t *world)
{
    (void)argument;
    return dt_registry_join(config, world);
}

dtrain_status_t dtrain_init(const dtrain_config_t *config)
{
    return dt_api_init(config, join, NULL);
}

int dtrain_is_initialized(void)
{
    dt_runtime_t *runtime = dt_api_peek();
    if (runtime)
        dt_api_leave();
    return runtime != NULL;
}

dtrain_status_t dtrain_abort(int code, const char *why)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_abort(runtime, code, why);
    dt_api_leave();
    return status;
}

/* An int of the topology, or -1 without a world. */
static int topology_field(size_t offset)
{
    dt_runtime_t *runtime = dt_api_peek();
    if (!runtime)
        return -1;
    int value = *(const int *)((const char *)&runtime->world.topology + offset);
    dt_api_leave();
    return value;
}

int dtrain_rank(void)
{
    return topology_field(offsetof(dt_topology_t, rank));
}

int dtrain_size(void)
{
    return topology_field(offsetof(dt_topology_t, size));
}

int dtrain_local_rank(void)
{
    return topology_field(offsetof(dt_topology_t, local_rank));
}

int dtrain_local_size(void)
{
    return topology_field(offsetof(dt_topology_t, local_size));
}

int dtrain_cross_rank(void)
{
    return topology_field(offsetof(dt_topology_t, cross_rank));
}

int dtrain_cross_size(void)
{
    return topology_field(offsetof(dt_topology_t, cross_size));
}

int dtrain_is_homogeneous(void)
{
    return topology_field(offsetof(dt_topology_t, is_homogeneous));
}
