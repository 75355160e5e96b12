/* sock_world.h - rank 0 on the test's own thread, the other ranks on threads of their own. */
#ifndef TESTS_SOCK_WORLD_H
#define TESTS_SOCK_WORLD_H

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/sock/sock_control.h"

#define SOCK_RANKS_MAX 8
#define SOCK_PATIENCE_NS (20 * DT_NS_PER_S)

typedef struct sock_rank {
    pthread_t thread;
    dt_sock_address_t address;
    int rank;
    int same_node;
    int64_t deadline_ns;
    void (*run)(dt_control_t *control, int rank); /* with the control, which is then destroyed */
    dtrain_status_t status;
    char error[DT_ERROR_MAX];
} sock_rank_t;

static const dt_sock_meanwhile_t sock_idle = {0};

static inline void *sock_rank_main(void *argument)
{
    sock_rank_t *self = argument;
    dt_control_t *control = NULL;
    self->status = dt_sock_connect(&self->address, self->rank, self->same_node, self->deadline_ns,
                                   sock_idle, &control);
    strncpy(self->error, dt_last_error(), sizeof self->error - 1);
    if (self->status == DTRAIN_OK) {
        if (self->run)
            self->run(control, self->rank);
        control->ops->destroy(control);
    }
    return NULL;
}

/* Starts one rank that connects to `address`. */
static inline void sock_start(sock_rank_t *self, const dt_sock_address_t *address, int rank,
                              int same_node, void (*run)(dt_control_t *, int))
{
    *self = (sock_rank_t){.address = *address,
                          .rank = rank,
                          .same_node = same_node,
                          .run = run,
                          .deadline_ns = dt_now_ns() + SOCK_PATIENCE_NS};
    pthread_create(&self->thread, NULL, sock_rank_main, self);
}

static inline void sock_join(sock_rank_t *ranks, int count)
{
    for (int i = 0; i < count; i++)
        pthread_join(ranks[i].thread, NULL);
}

/* Sleeps until the next event. */
static inline dt_control_event_t sock_next(dt_control_t *control, dt_control_message_t *message)
{
    int64_t deadline = dt_now_ns() + SOCK_PATIENCE_NS;
    for (;;) {
        dt_control_event_t event = control->ops->receive(control, message);
        if (event != DT_CONTROL_NONE || dt_now_ns() > deadline)
            return event;
        control->ops->wait(control, deadline - dt_now_ns());
    }
}

#endif
