/*
 * world.h - a world that was joined: who is there, and the transports to reach them. How one
 * comes to be is each folder's own: self/ (one rank), mpi/ (a launcher or a communicator),
 * loopback/ (threads of one process, for tests). registry.h chooses.
 */
#ifndef DT_COMM_WORLD_H
#define DT_COMM_WORLD_H

#include "base/config.h"
#include "comm/backend.h"
#include "comm/boards.h"
#include "comm/control.h"
#include "comm/detector.h"
#include "comm/topology.h"

typedef struct dt_world {
    dt_topology_t topology;
    dt_control_t *control; /* NULL in a world of one */
    dt_backend_t *backend;
    dt_detector_t *detector; /* NULL in a world of one, and in tests' worlds */
    dt_boards_t boards;
    /* The backend calls a library that may raise SIGPIPE, and may never come back when a rank is
     * lost: the runtime's own thread alone steps the engine then, never a caller. */
    int may_hang;
    /* A thread is in such a call and does not come back: the library is called no more. Any thread;
     * or NULL. */
    void (*give_up)(void *context);
    /* Gives back what the bootstrap holds beyond these, after both were destroyed; or NULL. */
    void (*leave)(void *context, int clean);
    void *context;
} dt_world_t;

/* Destroys detector, control and backend, leaves, frees boards and topology. `clean` as in
 * backend.h. */
void dt_world_close(dt_world_t *world, int clean);

#endif
