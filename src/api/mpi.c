/* mpi.c - dtrain_mpi.h: init on a caller's communicator. */
#include <dtrain/dtrain_mpi.h>

#include "api/world.h"
#include "comm/mpi/mpi_world.h"

static dtrain_status_t join(const void *argument, dt_config_t *config, dt_world_t *world)
{
    return dt_mpi_join(argument, config, world);
}

static dtrain_status_t join_fint(const void *argument, dt_config_t *config, dt_world_t *world)
{
    return dt_mpi_join_fint(*(const int *)argument, config, world);
}

dtrain_status_t dtrain_init_mpi(MPI_Comm comm, const dtrain_config_t *config)
{
    return dt_api_init(config, join, &comm);
}

dtrain_status_t dtrain_init_mpi_fint(int fcomm, const dtrain_config_t *config)
{
    return dt_api_init(config, join_fint, &fcomm);
}
