/*
 * shm_join.c - the ranks of a node share their heaps out:
 *
 *     0 -> r    all are here (or why the node cannot be set up)
 *     r -> 0    its heap, and how large it is (or why it has none)
 *     0 -> r    how large a heap is for all: the least of them; all heaps, some at a time
 *     r -> 0    it has mapped them (or why not); then it is the next rank's turn, so that there
 *               are never more descriptors on their way than a user may have
 *     0 -> r    all have
 *
 * An error ends it for everyone: rank 0 tells all, once it is that rank's turn to be told.
 */
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/shm/shm_packet.h"
#include "comm/shm/shm_segment.h"
#include "comm/sock/sock_meet.h"
#include "comm/sock/sock_net.h"

/* Descriptors that rank 0 needs for each rank: its connection and its heap. */
#define FDS_A_RANK 2

/* ---- Rank 0 ------------------------------------------------------------------------------ */

typedef struct host {
    int size;
    int *sockets; /* size entries; -1: none (rank 0: always) */
    int *heaps;   /* size entries; -1: none yet */
    dt_shm_mapping_t *mapping;
    dt_shm_patience_t patience;
} host_t;

/* Returns `status`, with its text. A rank that cannot be told is lost, which others find out. */
static dtrain_status_t tell_all(const host_t *host, dtrain_status_t status)
{
    dt_shm_packet_t packet = dt_shm_packet_of(status);
    for (int rank = 1; rank < host->size; rank++) {
        int socket = host->sockets[rank];
        if (socket >= 0 && dt_shm_packet_send(socket, &packet, NULL, &host->patience) != DTRAIN_OK)
            dt_log(DTRAIN_LOG_DEBUG, "shm", "local rank %d was not told: %s", rank,
                   dt_last_error());
    }
    return dt_shm_packet_status(&packet);
}

/* Takes a rank's heap in. */
static dtrain_status_t hear_heap(host_t *host, int rank)
{
    int fds[DT_SHM_PACKET_FDS];
    dt_shm_packet_t packet;
    dtrain_status_t status =
        dt_shm_packet_receive(host->sockets[rank], &packet, fds, &host->patience);
    if (status != DTRAIN_OK)
        return status;
    status = dt_shm_packet_status(&packet);
    if (status == DTRAIN_OK && (packet.num_fds != 1 || packet.size != host->size))
        status = dt_fail(DTRAIN_ERR_COMMUNICATION,
                         "local rank %d brought %d heaps to a node of %d ranks, and was told of %d",
                         rank, packet.num_fds, host->size, packet.size);
    if (status != DTRAIN_OK) {
        dt_shm_close_all(fds, packet.num_fds);
        return status;
    }
    host->heaps[rank] = fds[0];
    if (packet.bytes < host->mapping->bytes)
        host->mapping->bytes = packet.bytes;
    return DTRAIN_OK;
}

/* Gives a rank all heaps, and hears whether it could map them. */
static dtrain_status_t serve(host_t *host, int rank)
{
    dtrain_status_t status = DTRAIN_OK;
    for (int first = 0; first < host->size && status == DTRAIN_OK; first += DT_SHM_PACKET_FDS) {
        int left = host->size - first;
        dt_shm_packet_t packet = {.size = host->size, .bytes = host->mapping->bytes};
        packet.num_fds = left < DT_SHM_PACKET_FDS ? left : DT_SHM_PACKET_FDS;
        status =
            dt_shm_packet_send(host->sockets[rank], &packet, host->heaps + first, &host->patience);
    }
    int fds[DT_SHM_PACKET_FDS];
    dt_shm_packet_t packet;
    if (status == DTRAIN_OK)
        status = dt_shm_packet_receive(host->sockets[rank], &packet, fds, &host->patience);
    if (status != DTRAIN_OK)
        return status;
    dt_shm_close_all(fds, packet.num_fds);
    return dt_shm_packet_status(&packet);
}

static dtrain_status_t share_out(host_t *host)
{
    dtrain_status_t status = tell_all(host, DTRAIN_OK);
    for (int rank = 1; rank < host->size && status == DTRAIN_OK; rank++)
        status = hear_heap(host, rank);
    for (int rank = 0; rank < host->size && status == DTRAIN_OK; rank++)
        status = dt_shm_mapping_attach(host->mapping, rank, host->heaps[rank]);
    for (int rank = 1; rank < host->size && status == DTRAIN_OK; rank++)
        status = serve(host, rank);
    return status;
}

static dtrain_status_t run_host(host_t *host, const dt_sock_listener_t *listener)
{
    const dt_shm_patience_t *patience = &host->patience;
    dt_sock_reserve_descriptors(FDS_A_RANK * host->size);
    dtrain_status_t status = dt_shm_mapping_create(host->size, 0, &host->mapping, &host->heaps[0]);
    if (host->size > 1) {
        /* Also without a heap of its own, so that the others hear of it. */
        dtrain_status_t gathered = dt_sock_gather(listener, host->size, NULL, patience->deadline_ns,
                                                  patience->meanwhile, host->sockets);
        status = gathered == DTRAIN_OK ? status : gathered;
    }
    if (status == DTRAIN_OK)
        status = share_out(host);
    return tell_all(host, status);
}

static void close_each(const int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/* The mapping was one user's: now the node's, or nobody's. */
static dtrain_status_t hand_over(dtrain_status_t status, dt_shm_mapping_t *mapping, int rank,
                                 dt_shm_node_t **node)
{
    dt_shm_node_t *made = status == DTRAIN_OK ? dt_shm_node_create(mapping, rank) : NULL;
    if (mapping)
        dt_shm_mapping_release(mapping);
    if (made)
        *node = made;
    else if (status == DTRAIN_OK)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the node's shared memory");
    return status;
}

dtrain_status_t dt_shm_accept(dt_sock_listener_t *listener, int size, int64_t deadline_ns,
                              dt_sock_meanwhile_t meanwhile, dt_shm_node_t **node)
{
    host_t host = {.size = size, .patience = {deadline_ns, meanwhile}};
    dtrain_status_t status;
    host.sockets = dt_alloc((size_t)size * sizeof *host.sockets);
    host.heaps = dt_alloc((size_t)size * sizeof *host.heaps);
    if (!host.sockets || !host.heaps) {
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to connect %d ranks", size);
    } else {
        for (int rank = 0; rank < size; rank++)
            host.sockets[rank] = host.heaps[rank] = -1;
        status = run_host(&host, listener);
        close_each(host.sockets, size);
        close_each(host.heaps, size);
        status = hand_over(status, host.mapping, 0, node);
    }
    dt_free(host.sockets);
    dt_free(host.heaps);
    dt_sock_listener_free(listener);
    return status;
}

/* ---- Other ranks --------------------------------------------------------------------------- */

typedef struct guest {
    int size;
    int socket;
    int heap; /* -1: none */
    dt_shm_mapping_t *mapping;
    dt_shm_patience_t patience;
} guest_t;

/* Receives a packet without descriptors, and returns its status. */
static dtrain_status_t hear(const guest_t *guest)
{
    int fds[DT_SHM_PACKET_FDS];
    dt_shm_packet_t packet;
    dtrain_status_t status = dt_shm_packet_receive(guest->socket, &packet, fds, &guest->patience);
    if (status != DTRAIN_OK)
        return status;
    dt_shm_close_all(fds, packet.num_fds);
    return dt_shm_packet_status(&packet);
}

/*
 * Tells how things stand here, and beside it the heap (or none). Returns that `status`, or why it
 * could not be told: when rank 0 gave up meanwhile, its reason is there to be heard.
 */
static dtrain_status_t tell(const guest_t *guest, dtrain_status_t status, int with_heap)
{
    dt_shm_packet_t packet = dt_shm_packet_of(status);
    packet.size = guest->size;
    packet.num_fds = with_heap && status == DTRAIN_OK;
    packet.bytes = packet.num_fds ? guest->mapping->bytes : 0;
    dtrain_status_t sent =
        dt_shm_packet_send(guest->socket, &packet, &guest->heap, &guest->patience);
    if (status != DTRAIN_OK)
        return dt_shm_packet_status(&packet);
    return sent == DTRAIN_ERR_COMMUNICATION ? hear(guest) : sent;
}

static dtrain_status_t map_heaps(guest_t *guest, const dt_shm_packet_t *packet, int first,
                                 const int *fds)
{
    dtrain_status_t status = dt_shm_packet_status(packet);
    if (status != DTRAIN_OK)
        return status;
    if (packet->bytes == 0 || packet->bytes > guest->mapping->bytes || packet->num_fds == 0 ||
        packet->num_fds > guest->size - first)
        return dt_fail(DTRAIN_ERR_COMMUNICATION,
                       "local rank 0 shares out %d heaps of %llu bytes, which nobody has",
                       (int)packet->num_fds, (unsigned long long)packet->bytes);
    guest->mapping->bytes = packet->bytes;
    for (int i = 0; i < packet->num_fds && status == DTRAIN_OK; i++)
        status = dt_shm_mapping_attach(guest->mapping, first + i, fds[i]);
    return status;
}

static dtrain_status_t take_heaps(guest_t *guest)
{
    int fds[DT_SHM_PACKET_FDS];
    dt_shm_packet_t packet;
    for (int first = 0; first < guest->size; first += packet.num_fds) {
        dtrain_status_t status =
            dt_shm_packet_receive(guest->socket, &packet, fds, &guest->patience);
        if (status != DTRAIN_OK)
            return status;
        status = map_heaps(guest, &packet, first, fds);
        dt_shm_close_all(fds, packet.num_fds);
        if (status != DTRAIN_OK)
            return status;
    }
    return DTRAIN_OK;
}

/* Without a heap a rank connects all the same, so that the others hear of it at once. */
static dtrain_status_t run_guest(guest_t *guest, const dt_sock_address_t *address, int rank)
{
    dtrain_status_t made = dt_shm_mapping_create(guest->size, 0, &guest->mapping, &guest->heap);
    dt_shm_packet_t heap = dt_shm_packet_of(made);
    dtrain_status_t status = dt_sock_reach(address, rank, NULL, 1, guest->patience.deadline_ns,
                                           guest->patience.meanwhile, &guest->socket);
    if (status == DTRAIN_OK)
        status = hear(guest);
    if (status == DTRAIN_OK)
        status = tell(guest, dt_shm_packet_status(&heap), 1);
    if (status != DTRAIN_OK)
        return status;
    status = tell(guest, take_heaps(guest), 0);
    return status == DTRAIN_OK ? hear(guest) : status;
}

dtrain_status_t dt_shm_connect(const dt_sock_address_t *address, int rank, int size,
                               int64_t deadline_ns, dt_sock_meanwhile_t meanwhile,
                               dt_shm_node_t **node)
{
    guest_t guest = {.size = size, .socket = -1, .heap = -1, .patience = {deadline_ns, meanwhile}};
    dtrain_status_t status = run_guest(&guest, address, rank);
    close_each(&guest.socket, 1);
    close_each(&guest.heap, 1);
    return hand_over(status, guest.mapping, rank, node);
}
