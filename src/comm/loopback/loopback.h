/*
 * loopback.h - worlds whose ranks are threads of one process, for tests: the engine runs as it
 * does over MPI, under sanitizers and without a launcher.
 */
#ifndef DT_COMM_LOOPBACK_LOOPBACK_H
#define DT_COMM_LOOPBACK_LOOPBACK_H

#include "comm/p2p.h"
#include "comm/world.h"

/* What the ranks share. */
typedef struct dt_loopback dt_loopback_t;

/*
 * Makes the meeting place of `size` ranks on `num_nodes` pretended nodes (ranks in blocks, as
 * even as can be). NULL when memory ran out. Freed after every rank's world was closed.
 */
dt_loopback_t *dt_loopback_create(int size, int num_nodes);
void dt_loopback_free(dt_loopback_t *loopback);

/* The world of one of its ranks: a loopback control, and the ring backend over loopback p2p. */
dtrain_status_t dt_loopback_join(dt_loopback_t *loopback, int rank, dt_world_t *world);

/* Only the p2p transport of one rank, for tests of the ring. */
dtrain_status_t dt_loopback_p2p(dt_loopback_t *loopback, int rank, dt_p2p_t **p2p);

/*
 * Makes a rank look dead: its messages stop and the others are told it is lost. As if its cables
 * were cut, it is told the same of them, so that a thread that plays it ends too. Any thread.
 */
void dt_loopback_kill(dt_loopback_t *loopback, int rank);

#endif
