/*
 * sock_control.h - control messages over stream sockets: a star around rank 0, Unix sockets (in
 * the abstract namespace, so nothing is left in the file system) within a node and TCP between
 * nodes. A peer that dies closes its socket, which the kernel tells at once.
 *
 * How it is set up: rank 0 listens (dt_sock_listen), its address and the job's secret reach the
 * others by the bootstrap's own means (MPI), they connect (dt_sock_connect), rank 0 accepts
 * (dt_sock_accept). A connection that does not send the right secret (compared in constant time)
 * and a rank that is still awaited is closed. Rank 0 ends the set-up by telling everyone who has
 * connected how it went, so accept and connect succeed on all ranks or, with the same error, on
 * none.
 */
#ifndef DT_COMM_SOCK_SOCK_CONTROL_H
#define DT_COMM_SOCK_SOCK_CONTROL_H

#include <stdint.h>

#include "comm/control.h"

#define DT_SOCK_SECRET_BYTES 32
#define DT_SOCK_MAX_ADDRESSES 16

/* What rank 0 tells the others: plain bytes, no pointers; fixed size on all ranks. */
typedef struct dt_sock_address {
    uint8_t secret[DT_SOCK_SECRET_BYTES]; /* random, new for each world */
    char unix_name[64];                   /* name in the abstract namespace, without the zero */
    uint16_t tcp_port;                    /* host order; 0: not listening */
    uint16_t num_addresses;
    uint8_t ipv4[DT_SOCK_MAX_ADDRESSES][4]; /* network order; most likely to work first */
} dt_sock_address_t;

typedef struct dt_sock_listener dt_sock_listener_t;

/*
 * Called about each millisecond while accept or connect waits: a bootstrap keeps its own
 * transport going meanwhile, over which other ranks may still be waiting for the address, or tell
 * that they fail. Rank 0 gives up with what is returned when it is not OK, and so do others that do
 * not reach it; those that have go on, since rank 0 tells them. `call` NULL: nothing to do.
 */
typedef struct dt_sock_meanwhile {
    dtrain_status_t (*call)(void *context);
    void *context;
} dt_sock_meanwhile_t;

/*
 * Rank 0: opens the listening sockets; TCP only when `between_nodes`, on the named network
 * interface ("": all).
 */
dtrain_status_t dt_sock_listen(int between_nodes, const char *network_interface,
                               dt_sock_address_t *address, dt_sock_listener_t **listener);

/*
 * Rank 0: waits until ranks 1 … size-1 (size >= 2) have connected, or the deadline (dt_now_ns).
 * Frees the listener in every case. TIMEOUT names the missing ranks, COMMUNICATION a rank
 * that went away again.
 */
dtrain_status_t dt_sock_accept(dt_sock_listener_t *listener, int size, int64_t deadline_ns,
                               dt_sock_meanwhile_t meanwhile, dt_control_t **control);

/* Rank 0, instead of accept: gives up. */
void dt_sock_listener_free(dt_sock_listener_t *listener);

/*
 * Other ranks: connects, by the Unix socket when `same_node` (and TCP if that fails), and waits
 * until rank 0 has everyone. For its reasons to be heard, rank 0's deadline should be earlier.
 */
dtrain_status_t dt_sock_connect(const dt_sock_address_t *address, int rank, int same_node,
                                int64_t deadline_ns, dt_sock_meanwhile_t meanwhile,
                                dt_control_t **control);

#endif
