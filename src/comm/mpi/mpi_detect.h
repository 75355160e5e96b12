/* mpi_detect.h - the last step of a bootstrap: the failure detectors of all ranks are connected. A
 * world is not made without. */
#ifndef DT_COMM_MPI_MPI_DETECT_H
#define DT_COMM_MPI_MPI_DETECT_H

#include "comm/mpi/mpi_bootstrap.h"

/*
 * Once there is a detector, though without its thread: as dt_mpi_watch_finish until the deadline,
 * and fails with the detector's news, which are the same on all ranks: MPI alone does not say which
 * rank is lost, and one that has failed leaves and so looks lost itself.
 */
dtrain_status_t dt_mpi_detect_finish(dt_mpi_bootstrap_t *self, MPI_Request *request,
                                     const char *what);

/* Fails on all ranks alike, but for a timeout. */
dtrain_status_t dt_mpi_detect_join(dt_mpi_bootstrap_t *self, int share_sockets);

#endif
