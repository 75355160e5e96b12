/* mpi_absent.c - comm/mpi/mpi_world.h in a build without MPI. */
#include "comm/mpi/mpi_world.h"

#include "base/status.h"

static dtrain_status_t absent(void)
{
    return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                   "this libdtrain was built without MPI and has worlds of one rank only: "
                   "rebuild it where CMake finds an MPI (-DDTRAIN_MPI=ON), or set "
                   "DTRAIN_BACKEND=self");
}

int dt_mpi_is_active(void)
{
    return 0;
}

dtrain_status_t dt_mpi_join(const void *comm, dt_config_t *config, dt_world_t *world)
{
    (void)comm;
    (void)config;
    (void)world;
    return absent();
}

dtrain_status_t dt_mpi_join_fint(int fcomm, dt_config_t *config, dt_world_t *world)
{
    (void)fcomm;
    (void)config;
    (void)world;
    return absent();
}
