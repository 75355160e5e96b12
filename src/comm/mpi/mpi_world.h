/* mpi_world.h - a world of MPI processes; free of mpi.h, so that anyone may include it. */
#ifndef DT_COMM_MPI_MPI_WORLD_H
#define DT_COMM_MPI_MPI_WORLD_H

#include "comm/world.h"

/* 1 when the application (or an earlier world) has initialised MPI and nobody finalized it. */
int dt_mpi_is_active(void);

/*
 * Joins the processes of MPI_COMM_WORLD, initialising MPI when need be (it is then finalized at
 * exit, if every world was left cleanly), or of a caller's communicator, given as a pointer to
 * its MPI_Comm. As dt_registry_join.
 */
dtrain_status_t dt_mpi_join(const void *comm, dt_config_t *config, dt_world_t *world);

/* The same for a Fortran handle. */
dtrain_status_t dt_mpi_join_fint(int fcomm, dt_config_t *config, dt_world_t *world);

#endif
