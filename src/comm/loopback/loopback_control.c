#include "comm/loopback/loopback_shared.h"

#include <string.h>

#include "base/futex.h"
#include "base/memory.h"
#include "base/status.h"

typedef struct loopback_control {
    dt_control_t base;
    dt_loopback_t *loopback;
    dt_loopback_mailbox_t *mailbox; /* the own one */
    int rank;
    dt_loopback_letter_t *taken; /* what receive has handed out */
} loopback_control_t;

/* Losses lie in the mailbox. */
static void free_letter(dt_loopback_letter_t *letter)
{
    if (letter && letter->event != DT_CONTROL_LOST)
        dt_free(letter);
}

void dt_loopback_discard_letters(dt_loopback_mailbox_t *mailbox)
{
    while (mailbox->first) {
        dt_loopback_letter_t *letter = mailbox->first;
        mailbox->first = letter->next;
        free_letter(letter);
    }
    mailbox->last = NULL;
}

static void append(dt_loopback_mailbox_t *mailbox, dt_loopback_letter_t *letter)
{
    letter->next = NULL;
    if (mailbox->last)
        mailbox->last->next = letter;
    else
        mailbox->first = letter;
    mailbox->last = letter;
}

static void notify(dt_loopback_mailbox_t *mailbox)
{
    atomic_fetch_add(&mailbox->events, 1);
    dt_futex_wake(&mailbox->events, 1);
}

/* ---- Loss -------------------------------------------------------------------------- */

/* The news for `rank` that `peer` is lost; one of the two is rank 0. */
static dt_loopback_letter_t *loss_of(dt_loopback_t *loopback, int rank, int peer)
{
    return &loopback->mailboxes[rank].losses[rank == 0 ? peer : 0];
}

static void tell_lost(dt_loopback_t *loopback, int rank, int peer)
{
    dt_loopback_mailbox_t *mailbox = &loopback->mailboxes[rank];
    dt_loopback_letter_t *loss = loss_of(loopback, rank, peer);
    pthread_mutex_lock(&mailbox->control_lock);
    int is_new = loss->event == DT_CONTROL_NONE && !mailbox->is_closed;
    if (is_new) {
        loss->event = DT_CONTROL_LOST;
        loss->peer = peer;
        append(mailbox, loss);
    }
    pthread_mutex_unlock(&mailbox->control_lock);
    if (is_new)
        notify(mailbox);
}

void dt_loopback_cut(dt_loopback_t *loopback, int rank)
{
    int first = rank == 0 ? 1 : 0;
    int last = rank == 0 ? loopback->size - 1 : 0;
    for (int peer = first; peer <= last; peer++) {
        tell_lost(loopback, peer, rank);
        tell_lost(loopback, rank, peer);
    }
}

/* ---- The vtable ---------------------------------------------------------------------- */

static dt_loopback_letter_t *write_letter(int sender, const void *data, size_t length)
{
    dt_loopback_letter_t *letter = dt_alloc(sizeof *letter + length);
    if (!letter)
        return NULL;
    *letter = (dt_loopback_letter_t){
        .event = DT_CONTROL_MESSAGE,
        .peer = sender,
        .length = length,
        .data = (uint8_t *)(letter + 1),
    };
    if (length > 0)
        memcpy(letter->data, data, length);
    return letter;
}

static dtrain_status_t control_send(dt_control_t *base, int peer, const void *data, size_t length)
{
    loopback_control_t *control = (loopback_control_t *)base;
    dt_loopback_mailbox_t *mailbox = &control->loopback->mailboxes[peer];
    const dt_loopback_letter_t *loss = loss_of(control->loopback, peer, control->rank);
    dt_loopback_letter_t *letter = write_letter(control->rank, data, length);
    if (!letter)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a control message of %zu bytes",
                       length);
    pthread_mutex_lock(&mailbox->control_lock);
    int is_cut = mailbox->is_closed || loss->event == DT_CONTROL_LOST;
    if (!is_cut)
        append(mailbox, letter);
    pthread_mutex_unlock(&mailbox->control_lock);
    if (is_cut) {
        free_letter(letter);
        return DTRAIN_ERR_RANK_LOST;
    }
    notify(mailbox);
    return DTRAIN_OK;
}

static dt_control_event_t control_receive(dt_control_t *base, dt_control_message_t *message)
{
    loopback_control_t *control = (loopback_control_t *)base;
    dt_loopback_mailbox_t *mailbox = control->mailbox;
    free_letter(control->taken);
    pthread_mutex_lock(&mailbox->control_lock);
    dt_loopback_letter_t *letter = mailbox->first;
    if (letter) {
        mailbox->first = letter->next;
        if (!mailbox->first)
            mailbox->last = NULL;
    }
    pthread_mutex_unlock(&mailbox->control_lock);
    control->taken = letter;
    if (!letter)
        return DT_CONTROL_NONE;
    *message = (dt_control_message_t){
        .peer = letter->peer, .data = letter->data, .length = letter->length};
    return letter->event;
}

static int has_letter(dt_loopback_mailbox_t *mailbox)
{
    pthread_mutex_lock(&mailbox->control_lock);
    int has = mailbox->first != NULL;
    pthread_mutex_unlock(&mailbox->control_lock);
    return has;
}

/* `events` is read before the mailbox is looked into, so what comes in between is not slept
 * over. */
static void control_wait(dt_control_t *base, int64_t timeout_ns)
{
    loopback_control_t *control = (loopback_control_t *)base;
    dt_loopback_mailbox_t *mailbox = control->mailbox;
    uint32_t seen = atomic_load(&mailbox->events);
    if (!atomic_load(&mailbox->woken) && !has_letter(mailbox))
        dt_futex_wait(&mailbox->events, seen, timeout_ns);
    atomic_store(&mailbox->woken, 0);
}

static void control_wake(dt_control_t *base)
{
    loopback_control_t *control = (loopback_control_t *)base;
    atomic_store(&control->mailbox->woken, 1);
    notify(control->mailbox);
}

static void control_destroy(dt_control_t *base)
{
    loopback_control_t *control = (loopback_control_t *)base;
    dt_loopback_mailbox_t *mailbox = control->mailbox;
    free_letter(control->taken);
    pthread_mutex_lock(&mailbox->control_lock);
    mailbox->is_closed = 1;
    dt_loopback_discard_letters(mailbox);
    pthread_mutex_unlock(&mailbox->control_lock);
    dt_loopback_cut(control->loopback, control->rank);
    dt_free(control);
}

static const dt_control_ops_t control_ops = {
    .name = "loopback",
    .send = control_send,
    .receive = control_receive,
    .wait = control_wait,
    .wake = control_wake,
    .destroy = control_destroy,
};

dtrain_status_t dt_loopback_control(dt_loopback_t *loopback, int rank, dt_control_t **control)
{
    loopback_control_t *made = dt_calloc(1, sizeof *made);
    if (!made)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a loopback control");
    made->base.ops = &control_ops;
    made->loopback = loopback;
    made->mailbox = &loopback->mailboxes[rank];
    made->rank = rank;
    *control = &made->base;
    return DTRAIN_OK;
}
