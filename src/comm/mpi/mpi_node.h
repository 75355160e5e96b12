/*
 * mpi_node.h - the last step of a bootstrap: the ranks of each node share memory, for the data of
 * a world of one node and for the control messages of rank 0's. All ranks do, or none does: a world
 * in which some cannot (a limit, a container) works without, and says so in the log.
 */
#ifndef DT_COMM_MPI_MPI_NODE_H
#define DT_COMM_MPI_MPI_NODE_H

#include "comm/mpi/mpi_bootstrap.h"

/* After the control connections; may replace backend and control by better ones. */
dtrain_status_t dt_mpi_node_join(dt_mpi_bootstrap_t *self);

#endif
