/*
 * mpi_watch.h - who dies while there is no world: MPI does not tell, and what it waits for then
 * never comes. The launcher's daemon is the parent of the ranks of a node, and gives each its rank
 * in the environment; so a rank finds the others of its node, and the kernel tells when one of them
 * ends.
 *
 * It does what it can: where processes cannot be found (another launcher, a script in between),
 * deaths end in the time limit of whoever waits.
 */
#ifndef DT_COMM_MPI_MPI_WATCH_H
#define DT_COMM_MPI_MPI_WATCH_H

#include <mpi.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

typedef struct dt_mpi_watched {
    int fd; /* of the process */
    int pid;
    int rank; /* in the communicator */
} dt_mpi_watched_t;

typedef struct dt_mpi_watch {
    dt_mpi_watched_t *processes;
    int count, capacity;
    int is_blind;    /* there may be more, for want of memory or descriptors, or of a launcher that
                        tells */
    int64_t lost_ns; /* when one was first seen to have ended; 0: none */
    int lost;        /* its index */
} dt_mpi_watch_t;

/* Finds the other ranks of `comm` on this node. Call it when all of them are known to have started;
 * those that have ended since are not found. */
void dt_mpi_watch_open(dt_mpi_watch_t *watch, MPI_Comm comm);

void dt_mpi_watch_close(dt_mpi_watch_t *watch);

/* RANK_LOST, with a text, when one has ended; some time after that: what it said last comes first.
 */
dtrain_status_t dt_mpi_watch_check(dt_mpi_watch_t *watch);

/* As dt_mpi_finish, and RANK_LOST as above; the request is under way then too. */
dtrain_status_t dt_mpi_watch_finish(dt_mpi_watch_t *watch, MPI_Request *request,
                                    int64_t deadline_ns, const char *what);

#endif
