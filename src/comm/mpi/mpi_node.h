/*
 * mpi_node.h - the last step of a bootstrap: the ranks of each node share memory, for their data
 * and, on rank 0's node, for control messages. Data of several nodes goes through it where all
 * nodes have the same number of ranks, and more than one. All ranks do, or none does: a world in
 * which some cannot (a limit, a container) works without, and says so in the log.
 */
#ifndef DT_COMM_MPI_MPI_NODE_H
#define DT_COMM_MPI_MPI_NODE_H

#include "comm/mpi/mpi_bootstrap.h"

/* After the control connections; may replace backend and control by better ones. */
dtrain_status_t dt_mpi_node_join(dt_mpi_bootstrap_t *self);

#endif
