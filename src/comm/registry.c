#include "comm/registry.h"

#include <string.h>

#include "base/status.h"
#include "comm/mpi/mpi_world.h"
#include "comm/self/self_world.h"

/*
 * A process started by another MPI's launcher finds nobody: each becomes a world of one and
 * trains alone, which looks like success. So the launcher's word is compared with what was
 * joined.
 */
static dtrain_status_t check_launcher(const dt_world_t *world, int launched, const char *variable)
{
    if (launched <= 1 || world->topology.size > 1)
        return DTRAIN_OK;
    return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                   "the launcher started %d processes (%s=%d), but MPI found only this one: the "
                   "launcher belongs to another MPI than libdtrain was built with. Use that MPI's "
                   "own mpirun, or rebuild libdtrain; DTRAIN_BACKEND=self makes each process a "
                   "world of its own",
                   launched, variable, launched);
}

static dtrain_status_t join_mpi(dt_config_t *config, dt_world_t *world, int launched,
                                const char *variable)
{
    dt_world_t joined = {0};
    dtrain_status_t status = dt_mpi_join(NULL, config, &joined);
    if (status != DTRAIN_OK)
        return status;
    status = check_launcher(&joined, launched, variable);
    if (status != DTRAIN_OK) {
        dt_world_close(&joined, 1);
        return status;
    }
    *world = joined;
    return DTRAIN_OK;
}

dtrain_status_t dt_registry_join(dt_config_t *config, dt_world_t *world)
{
    const char *variable = NULL;
    int launched = dt_config_launcher_size(&variable);
    if (strcmp(config->backend, "mpi") == 0)
        return join_mpi(config, world, launched, variable);
    if (strcmp(config->backend, "auto") == 0 && (launched > 0 || dt_mpi_is_active()))
        return join_mpi(config, world, launched, variable);
    return config->fault != DTRAIN_OK ? config->fault : dt_self_join(world);
}
