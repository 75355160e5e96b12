/* mpi_p2p.h - messages over MPI's non-blocking point to point. */
#ifndef DT_COMM_MPI_MPI_P2P_H
#define DT_COMM_MPI_MPI_P2P_H

#include <mpi.h>

#include "comm/p2p.h"

/* `comm` is borrowed: it is the world's own, with errors returned. */
dtrain_status_t dt_mpi_p2p_create(MPI_Comm comm, dt_p2p_t **p2p);

#endif
