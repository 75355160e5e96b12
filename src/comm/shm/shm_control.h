/*
 * shm_control.h - control messages of rank 0's node through shared memory, over a control that
 * reaches all ranks. Small operations then cost no system call: a message is a few cache lines.
 *
 * The other control stays in use: for ranks of other nodes, to sleep, to wake a rank that sleeps
 * (an empty message), and to learn that a rank is lost.
 */
#ifndef DT_COMM_SHM_SHM_CONTROL_H
#define DT_COMM_SHM_SHM_CONTROL_H

#include "comm/control.h"
#include "comm/shm/shm.h"

/*
 * `node` is rank 0's node, and is borrowed for the call; world_ranks[i] is the rank in the world of
 * its rank i, world_ranks[0] == 0. Takes `base` over, on success alone. OUT_OF_MEMORY; then all
 * ranks of the node must do without.
 */
dtrain_status_t dt_shm_control_create(const dt_shm_node_t *node, const int *world_ranks,
                                      int world_size, dt_control_t *base,
                                      dt_control_t **control_out);

#endif
