#include "comm/loopback/loopback.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/loopback/loopback_shared.h"
#include "comm/ring/ring.h"

static int init_mailbox(dt_loopback_mailbox_t *mailbox, int num_losses)
{
    mailbox->losses = dt_calloc((size_t)num_losses, sizeof *mailbox->losses);
    pthread_mutex_init(&mailbox->control_lock, NULL);
    pthread_mutex_init(&mailbox->p2p_lock, NULL);
    return mailbox->losses ? 0 : -1;
}

static void free_mailbox(dt_loopback_mailbox_t *mailbox)
{
    dt_loopback_discard_letters(mailbox);
    dt_free(mailbox->losses);
    pthread_mutex_destroy(&mailbox->control_lock);
    pthread_mutex_destroy(&mailbox->p2p_lock);
}

dt_loopback_t *dt_loopback_create(int size, int num_nodes)
{
    dt_loopback_t *loopback = dt_calloc(1, sizeof *loopback);
    if (!loopback)
        return NULL;
    *loopback = (dt_loopback_t){.num_nodes = num_nodes};
    loopback->mailboxes = dt_calloc((size_t)size, sizeof *loopback->mailboxes);
    loopback->boards = dt_alloc_aligned(DT_BOARD_BYTES, (size_t)size * DT_BOARD_BYTES);
    if (!loopback->mailboxes || !loopback->boards)
        goto err;
    memset(loopback->boards, 0, (size_t)size * DT_BOARD_BYTES);
    while (loopback->size < size) {
        int rank = loopback->size++;
        if (init_mailbox(&loopback->mailboxes[rank], rank == 0 ? size : 1) != 0)
            goto err;
    }
    return loopback;
err:
    dt_loopback_free(loopback);
    return NULL;
}

void dt_loopback_free(dt_loopback_t *loopback)
{
    if (!loopback)
        return;
    for (int rank = 0; rank < loopback->size; rank++)
        free_mailbox(&loopback->mailboxes[rank]);
    dt_free(loopback->mailboxes);
    dt_free(loopback->boards);
    dt_free(loopback);
}

static dtrain_status_t make_topology(const dt_loopback_t *loopback, int rank,
                                     dt_topology_t *topology)
{
    dt_peer_t *peers = dt_calloc((size_t)loopback->size, sizeof *peers);
    if (!peers)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a loopback world");
    for (int i = 0; i < loopback->size; i++) {
        peers[i].node = (int32_t)((int64_t)i * loopback->num_nodes / loopback->size);
        peers[i].pid = (int32_t)getpid();
        snprintf(peers[i].host, sizeof peers[i].host, "node%d", (int)peers[i].node);
    }
    return dt_topology_make(topology, rank, loopback->size, peers);
}

/* Those of the rank's pretended node. */
static dtrain_status_t make_boards(const dt_loopback_t *loopback, const dt_topology_t *topology,
                                   dt_boards_t *boards)
{
    boards->at = dt_calloc((size_t)topology->size, sizeof *boards->at);
    if (!boards->at)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a loopback world");
    for (int rank = 0; rank < topology->size; rank++) {
        if (topology->peers[rank].node == topology->peers[topology->rank].node)
            boards->at[rank] = loopback->boards + (size_t)rank * DT_BOARD_BYTES;
    }
    return DTRAIN_OK;
}

dtrain_status_t dt_loopback_join(dt_loopback_t *loopback, int rank, dt_world_t *world)
{
    dt_world_t joined = {0};
    dt_p2p_t *p2p;
    dtrain_status_t status = make_topology(loopback, rank, &joined.topology);
    if (status != DTRAIN_OK)
        return status;
    if ((status = make_boards(loopback, &joined.topology, &joined.boards)) != DTRAIN_OK ||
        (status = dt_loopback_p2p(loopback, rank, &p2p)) != DTRAIN_OK ||
        (status = dt_ring_create(p2p, NULL, &joined.backend)) != DTRAIN_OK)
        goto err;
    if (loopback->size > 1 &&
        (status = dt_loopback_control(loopback, rank, &joined.control)) != DTRAIN_OK)
        goto err;
    *world = joined;
    return DTRAIN_OK;
err:
    dt_world_close(&joined, 0);
    return status;
}

void dt_loopback_kill(dt_loopback_t *loopback, int rank)
{
    atomic_store(&loopback->mailboxes[rank].dead, 1);
    dt_loopback_cut(loopback, rank);
}
