/*
 * mpi_bootstrap.h - how processes of MPI become a world:
 *
 *   1. the communicator is duplicated, so that our messages never meet the application's;
 *   2. all have memory for the rest, or none goes on; each rank makes what it needs for itself, and
 * tells all others how that went (mpi_hello.h);
 *   3. rank 0 listens and broadcasts its address, the others connect (sock_control.h); rank 0's
 *      last word to them ends the set-up on all ranks alike;
 *   4. the ranks of each node share memory, if all nodes' can (mpi_node.h);
 *   5. the failure detectors are connected (mpi_detect.h).
 *
 * A rank that fails in 3 or 4 goes on to an agreement, after which all fail alike and dtrain_init
 * may be called again; but for a timeout or a lost rank, since nobody may be there to agree.
 *
 * Nothing blocks in MPI: every step is polled until the deadline. MPI moves nothing unless it is
 * called, so a rank that is through with a step and waits for something else goes on calling it.
 * A rank of this node that dies ends it at once (mpi_watch.h).
 */
#ifndef DT_COMM_MPI_MPI_BOOTSTRAP_H
#define DT_COMM_MPI_MPI_BOOTSTRAP_H

#include <mpi.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/mpi/mpi_hello.h"
#include "comm/mpi/mpi_watch.h"
#include "comm/p2p.h"
#include "comm/sock/sock_control.h"
#include "comm/world.h"

/* Once all ranks are here, they have at least so long for the next step. */
#define DT_MPI_CONNECT_NS (10 * DT_NS_PER_S)

/* Rank 0's address, or why it has none. */
typedef struct dt_mpi_address {
    int32_t status;
    char error[DT_ERROR_MAX];
    dt_sock_address_t address;
} dt_mpi_address_t;

/*
 * A world in the making. MPI cannot take back a collective: after a timeout it may still write
 * to comm, hellos and message, which is why they are on the heap and stay there then.
 */
typedef struct dt_mpi_bootstrap {
    MPI_Comm comm;
    int rank, size;
    int64_t deadline_ns;
    int is_pending;         /* such a collective was left behind */
    int is_agreed;          /* all ranks are at the same point, and fail here alike */
    dt_config_t config;     /* of this rank, until rank 0's has come */
    MPI_Comm parent;        /* the one to make a world of */
    dtrain_status_t status; /* that this rank brings; then what came of it */
    char error[DT_ERROR_MAX];
    dt_mpi_hello_t *hellos; /* size entries, behind them one: this rank's own */
    dt_mpi_address_t *message;
    void *meetings;   /* of mpi_node.c */
    void *reports;    /* of mpi_detect.c */
    int32_t words[2]; /* of dt_mpi_bootstrap_agree */
    int has_heard;    /* of a rank that failed: it is in hellos */
    int is_starved;   /* there was no memory for this struct itself: it is the last reserve */
    dt_mpi_watch_t watch;
    int num_watched;  /* ranks of this node that were there when all had joined */
    dt_p2p_t *p2p;    /* the backend's, which owns it */
    dt_world_t world; /* without leave */
    int has_parted;   /* all ranks were on their way out, and the communicator is given back */
} dt_mpi_bootstrap_t;

/*
 * Does all steps. `status` is what this rank brings: one that failed already takes part up
 * to the second, so that the others fail too. On error the world is in part made.
 */
dtrain_status_t dt_mpi_bootstrap_run(dt_mpi_bootstrap_t *self, dtrain_status_t status);

/* For the steps: waits for a request until the deadline, with a text for users. */
dtrain_status_t dt_mpi_bootstrap_await(dt_mpi_bootstrap_t *self, MPI_Request *request,
                                       const char *what);

/* For the steps: *worst is OK when `status` is on all ranks, else that of one that failed. Needs no
 * memory. */
dtrain_status_t dt_mpi_bootstrap_agree(dt_mpi_bootstrap_t *self, dtrain_status_t status,
                                       dtrain_status_t *worst);

/* For the steps that wait for something else: makes MPI move, `context` being the bootstrap. */
dtrain_status_t dt_mpi_bootstrap_poll(void *context);

/* For the steps: tells all ranks that this one has failed; those that poll fail with it. Returns
 * `status`, with its text. */
dtrain_status_t dt_mpi_bootstrap_tell(dt_mpi_bootstrap_t *self, dtrain_status_t status);

/* Frees what only the steps need. */
void dt_mpi_bootstrap_finish(dt_mpi_bootstrap_t *self);

#endif
