/* mpi_detect.h - the last step of a bootstrap: the failure detectors of all ranks are connected. A
 * world is not made without. */
#ifndef DT_COMM_MPI_MPI_DETECT_H
#define DT_COMM_MPI_MPI_DETECT_H

#include "comm/mpi/mpi_bootstrap.h"

/* Fails on all ranks alike, but for a timeout. */
dtrain_status_t dt_mpi_detect_join(dt_mpi_bootstrap_t *self, int share_sockets);

#endif
