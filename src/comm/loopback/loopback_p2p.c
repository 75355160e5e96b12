#include "comm/loopback/loopback_shared.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/*
 * Nothing is stored on the way: whichever of a send and a receive comes second copies from the
 * sender's buffer to the receiver's, under the lock of the receiver's mailbox. So a send is as
 * incomplete as a long one over a network until its receive is there.
 */
typedef struct loopback_p2p {
    dt_p2p_t base;
    dt_loopback_t *loopback;
    dt_loopback_transfer_t *transfers; /* begun by this rank and not found complete yet */
} loopback_p2p_t;

/* ---- Lists -------------------------------------------------------------------------- */

static void append(dt_loopback_transfers_t *list, dt_loopback_transfer_t *transfer)
{
    transfer->next = NULL;
    if (list->last)
        list->last->next = transfer;
    else
        list->first = transfer;
    list->last = transfer;
}

static void unlink_after(dt_loopback_transfers_t *list, dt_loopback_transfer_t *before,
                         dt_loopback_transfer_t *transfer)
{
    if (before)
        before->next = transfer->next;
    else
        list->first = transfer->next;
    if (list->last == transfer)
        list->last = before;
}

static dt_loopback_transfer_t *take_match(dt_loopback_transfers_t *list,
                                          const dt_loopback_transfer_t *wanted)
{
    dt_loopback_transfer_t *before = NULL;
    for (dt_loopback_transfer_t *at = list->first; at; before = at, at = at->next) {
        if (at->source == wanted->source && at->tag == wanted->tag) {
            unlink_after(list, before, at);
            return at;
        }
    }
    return NULL;
}

static void take_out(dt_loopback_transfers_t *list, const dt_loopback_transfer_t *transfer)
{
    dt_loopback_transfer_t *before = NULL;
    for (dt_loopback_transfer_t *at = list->first; at; before = at, at = at->next) {
        if (at == transfer) {
            unlink_after(list, before, at);
            return;
        }
    }
}

static void adopt(loopback_p2p_t *p2p, dt_loopback_transfer_t *transfer)
{
    transfer->after = p2p->transfers;
    if (transfer->after)
        transfer->after->before = transfer;
    p2p->transfers = transfer;
}

static void disown(loopback_p2p_t *p2p, dt_loopback_transfer_t *transfer)
{
    if (transfer->before)
        transfer->before->after = transfer->after;
    else
        p2p->transfers = transfer->after;
    if (transfer->after)
        transfer->after->before = transfer->before;
    dt_free(transfer);
}

/* ---- Matching ------------------------------------------------------------------------ */

static void complete(dt_loopback_transfer_t *send, dt_loopback_transfer_t *receive)
{
    dtrain_status_t status = DTRAIN_OK;
    if (send->length != receive->length)
        status = DTRAIN_ERR_INTERNAL;
    else if (send->length > 0)
        memcpy(receive->to, send->from, send->length);
    send->status = receive->status = status;
}

static void post_send(dt_loopback_transfer_t *send, int is_dead)
{
    dt_loopback_mailbox_t *mailbox = send->mailbox;
    pthread_mutex_lock(&mailbox->p2p_lock);
    dt_loopback_transfer_t *receive = is_dead ? NULL : take_match(&mailbox->receives, send);
    if (receive)
        complete(send, receive);
    else
        append(&mailbox->sends, send);
    pthread_mutex_unlock(&mailbox->p2p_lock);
}

static void post_receive(dt_loopback_transfer_t *receive, int is_dead)
{
    dt_loopback_mailbox_t *mailbox = receive->mailbox;
    pthread_mutex_lock(&mailbox->p2p_lock);
    dt_loopback_transfer_t *send = is_dead ? NULL : take_match(&mailbox->sends, receive);
    if (send)
        complete(send, receive);
    else
        append(&mailbox->receives, receive);
    pthread_mutex_unlock(&mailbox->p2p_lock);
}

/* ---- The vtable ---------------------------------------------------------------------- */

static dt_p2p_request_t to_request(void *transfer)
{
    dt_p2p_request_t request = {{0}};
    memcpy(request.word, &transfer, sizeof transfer);
    return request;
}

static dt_loopback_transfer_t *from_request(const dt_p2p_request_t *request)
{
    void *transfer;
    memcpy(&transfer, request->word, sizeof transfer);
    return transfer;
}

static dt_loopback_transfer_t *begin(loopback_p2p_t *p2p, int source, int receiver, int tag,
                                     dt_p2p_request_t *request)
{
    dt_loopback_transfer_t *transfer = dt_calloc(1, sizeof *transfer);
    if (!transfer)
        return NULL;
    transfer->mailbox = &p2p->loopback->mailboxes[receiver];
    transfer->owner = p2p->base.rank;
    transfer->source = source;
    transfer->tag = tag;
    transfer->status = DTRAIN_IN_PROGRESS;
    adopt(p2p, transfer);
    *request = to_request(transfer);
    return transfer;
}

static int either_is_dead(const loopback_p2p_t *p2p, int peer)
{
    return atomic_load(&p2p->loopback->mailboxes[p2p->base.rank].dead) ||
           atomic_load(&p2p->loopback->mailboxes[peer].dead);
}

static dtrain_status_t p2p_send(dt_p2p_t *base, int peer, int tag, const void *data, size_t length,
                                dt_p2p_request_t *request)
{
    loopback_p2p_t *p2p = (loopback_p2p_t *)base;
    dt_loopback_transfer_t *send = begin(p2p, base->rank, peer, tag, request);
    if (!send)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a loopback message");
    send->from = data;
    send->length = length;
    post_send(send, either_is_dead(p2p, peer));
    return DTRAIN_OK;
}

static dtrain_status_t p2p_receive(dt_p2p_t *base, int peer, int tag, void *data, size_t length,
                                   dt_p2p_request_t *request)
{
    loopback_p2p_t *p2p = (loopback_p2p_t *)base;
    dt_loopback_transfer_t *receive = begin(p2p, peer, base->rank, tag, request);
    if (!receive)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a loopback message");
    receive->to = data;
    receive->length = length;
    post_receive(receive, either_is_dead(p2p, peer));
    return DTRAIN_OK;
}

static dtrain_status_t status_of(dt_loopback_transfer_t *transfer)
{
    pthread_mutex_lock(&transfer->mailbox->p2p_lock);
    dtrain_status_t status = transfer->status;
    pthread_mutex_unlock(&transfer->mailbox->p2p_lock);
    return status;
}

static dtrain_status_t p2p_test(dt_p2p_t *base, dt_p2p_request_t *request)
{
    loopback_p2p_t *p2p = (loopback_p2p_t *)base;
    dt_loopback_transfer_t *transfer = from_request(request);
    if (!transfer)
        return DTRAIN_OK;
    dtrain_status_t status = status_of(transfer);
    if (status == DTRAIN_IN_PROGRESS)
        return status;
    if (status != DTRAIN_OK)
        dt_fail(status, "a message of rank %d with tag %d is not as long as its receive",
                transfer->source, transfer->tag);
    disown(p2p, transfer);
    *request = (dt_p2p_request_t){{0}};
    return status;
}

/* What nobody matched leaves its mailbox, so that no peer touches this rank's memory later. */
static void give_up(dt_loopback_transfer_t *transfer)
{
    dt_loopback_mailbox_t *mailbox = transfer->mailbox;
    pthread_mutex_lock(&mailbox->p2p_lock);
    if (transfer->status == DTRAIN_IN_PROGRESS)
        take_out(transfer->source == transfer->owner ? &mailbox->sends : &mailbox->receives,
                 transfer);
    pthread_mutex_unlock(&mailbox->p2p_lock);
}

static void p2p_destroy(dt_p2p_t *base, int clean)
{
    loopback_p2p_t *p2p = (loopback_p2p_t *)base;
    (void)clean;
    while (p2p->transfers) {
        /* disown takes it off the list. */
        give_up(p2p->transfers); /* NOLINT(clang-analyzer-unix.Malloc) */
        disown(p2p, p2p->transfers);
    }
    dt_free(p2p);
}

static const dt_p2p_ops_t p2p_ops = {
    .name = "loopback",
    .send = p2p_send,
    .receive = p2p_receive,
    .test = p2p_test,
    .destroy = p2p_destroy,
};

dtrain_status_t dt_loopback_p2p(dt_loopback_t *loopback, int rank, dt_p2p_t **p2p)
{
    loopback_p2p_t *made = dt_calloc(1, sizeof *made);
    if (!made)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a loopback transport");
    made->base = (dt_p2p_t){.ops = &p2p_ops, .rank = rank, .size = loopback->size};
    made->loopback = loopback;
    *p2p = &made->base;
    return DTRAIN_OK;
}
