/*
 * control.h - the vtable of control transports: small messages between rank 0 and the others.
 *
 * Messages between two ranks arrive whole, once and in order. One thread at a time calls send,
 * receive and destroy (the one that holds the runtime's baton). Any thread may call wake. wait
 * may be called by the holder, and at the same time by one other thread that sleeps while the
 * holder works: it must touch no state that is not safe for that. Nothing blocks except wait.
 */
#ifndef DT_COMM_CONTROL_H
#define DT_COMM_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

/* Longest message. */
#define DT_CONTROL_MESSAGE_MAX (64u << 20)

typedef enum dt_control_event {
    DT_CONTROL_NONE = 0,    /* nothing there */
    DT_CONTROL_MESSAGE = 1, /* data, length */
    DT_CONTROL_LOST = 2     /* the peer's end is closed: it died or left. Told once a peer. */
} dt_control_event_t;

typedef struct dt_control_message {
    int peer;            /* rank it came from, or that is lost */
    const uint8_t *data; /* valid until the next call of receive or destroy */
    size_t length;
    int is_starved; /* LOST: the peer may live, but this rank has no memory for its message. Set by
                       the caller to 0 before. */
} dt_control_message_t;

typedef struct dt_control dt_control_t;

typedef struct dt_control_ops {
    const char *name;
    /*
     * Queues a copy of a message to rank `peer`: rank 0 may send to all, the others to rank 0;
     * never to oneself. It leaves at once or, where the transport is full, during later calls of
     * receive and wait. OK; RANK_LOST when the peer is known to be gone (not an error to act
     * on: receive tells it); OUT_OF_MEMORY.
     */
    dtrain_status_t (*send)(dt_control_t *control, int peer, const void *data, size_t length);
    /* Takes the next event. Peers are served in turn, so that none starves. */
    dt_control_event_t (*receive)(dt_control_t *control, dt_control_message_t *message);
    /*
     * Sleeps until there may be an event (or room to send what is queued: the caller's next
     * receive sends it), wake was called (since the last wait returned), or timeout_ns has
     * passed (DT_NEVER: no limit). May return early.
     */
    void (*wait)(dt_control_t *control, int64_t timeout_ns);
    /* Makes a wait, current or next, return. Any thread, also inside a signal handler. */
    void (*wake)(dt_control_t *control);
    /* Sends what is queued, for at most a second, then closes and frees everything. */
    void (*destroy)(dt_control_t *control);
    /*
     * In a child made by fork: closes the child's copies of descriptors, so that they do not hide
     * the parent's death from the peers. Only makes calls that are safe there; nothing else may
     * follow. NULL where there is nothing to close.
     */
    void (*forget)(dt_control_t *control);
} dt_control_ops_t;

/* First member of every control. */
struct dt_control {
    const dt_control_ops_t *ops;
};

#endif
