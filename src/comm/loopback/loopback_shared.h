/*
 * loopback_shared.h - the loopback's own: a mailbox a rank, which others put things into.
 *
 * Locks: every mailbox has two, one for control and one for p2p; no thread holds two locks at a
 * time. Mailboxes live as long as the loopback, so a rank may still send to one that has left.
 */
#ifndef DT_COMM_LOOPBACK_LOOPBACK_SHARED_H
#define DT_COMM_LOOPBACK_LOOPBACK_SHARED_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/loopback/loopback.h"

/* A control message, or the news that a peer is lost. */
typedef struct dt_loopback_letter {
    struct dt_loopback_letter *next;
    dt_control_event_t event; /* NONE in `losses`: not lost */
    int peer;
    size_t length;
    uint8_t *data; /* behind the struct */
} dt_loopback_letter_t;

/* A p2p send or receive; lies in the receiver's mailbox until it is matched. */
typedef struct dt_loopback_transfer {
    struct dt_loopback_transfer *next;           /* [p2p_lock] in the mailbox */
    struct dt_loopback_transfer *before, *after; /* [owner's thread] all of its owner's */
    struct dt_loopback_mailbox *mailbox;         /* [const] the receiver's */
    int owner;                                   /* [const] the rank that called */
    int source, tag;                             /* [const] */
    const void *from;       /* [const] a send's data, read by who comes second */
    void *to;               /* [const] where a receive's go, written by who comes second */
    size_t length;          /* [const] */
    dtrain_status_t status; /* [p2p_lock] IN_PROGRESS until matched */
} dt_loopback_transfer_t;

typedef struct dt_loopback_transfers {
    dt_loopback_transfer_t *first, *last;
} dt_loopback_transfers_t;

typedef struct dt_loopback_mailbox {
    _Atomic uint32_t events; /* [atomic] counts letters and wakes; its owner sleeps on it */
    _Atomic uint32_t woken;  /* [atomic] wake was called since the last wait returned */
    _Atomic uint32_t dead;   /* [atomic] killed: nothing of it is matched any more */

    pthread_mutex_t control_lock;
    dt_loopback_letter_t *first, *last; /* [control_lock] letters not taken yet */
    dt_loopback_letter_t *losses; /* [control_lock] made beforehand: rank 0's for all, others' for
                                     rank 0 alone */
    int is_closed;                /* [control_lock] its control is destroyed */

    pthread_mutex_t p2p_lock;
    dt_loopback_transfers_t sends, receives; /* [p2p_lock] not matched, oldest first */
} dt_loopback_mailbox_t;

struct dt_loopback {
    int size, num_nodes;              /* [const] */
    dt_loopback_mailbox_t *mailboxes; /* [const] size */
    uint8_t *boards;                  /* [const] size */
};

dtrain_status_t dt_loopback_control(dt_loopback_t *loopback, int rank, dt_control_t **control);

/* Closes a rank's connections, those between rank 0 and the others, and tells both ends. */
void dt_loopback_cut(dt_loopback_t *loopback, int rank);

/* Frees letters that nobody took. */
void dt_loopback_discard_letters(dt_loopback_mailbox_t *mailbox);

#endif
