/*
 * sock_meet.h - how ranks and the one that they gather at come to connections on which both know
 * who the other is. Who gathers is called rank 0 here, and the others have numbers from 1 on;
 * texts may call them by other names.
 */
#ifndef DT_COMM_SOCK_SOCK_MEET_H
#define DT_COMM_SOCK_SOCK_MEET_H

#include "comm/sock/sock_control.h"

/*
 * Rank 0: waits until ranks 1 … size-1 have connected, or the deadline. fds has `size` entries;
 * fds[0] is -1. Also on failure it holds the connections of those who came, -1 for the others, so
 * that they can be told; the caller closes them. A rank has to be silent until rank 0 speaks: what
 * it says before that is taken for the end of it. Borrows the listener. `names` are the ranks by
 * which texts call the numbers; NULL: the same.
 */
dtrain_status_t dt_sock_gather(const dt_sock_listener_t *listener, int size, const int *names,
                               int64_t deadline_ns, dt_sock_meanwhile_t meanwhile, int *fds);

/* How texts call a rank and the one that it connects to. */
typedef struct dt_sock_names {
    int self, other;
} dt_sock_names_t;

/* Other ranks: connects, as dt_sock_connect, and waits for nobody else. *fd is non-blocking.
 * `names` NULL: `rank` and 0. */
dtrain_status_t dt_sock_reach(const dt_sock_address_t *address, int rank,
                              const dt_sock_names_t *names, int same_node, int64_t deadline_ns,
                              dt_sock_meanwhile_t meanwhile, int *fd);

#endif
