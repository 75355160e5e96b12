/*
 * ring_queue.h - the messages of one direction and phase, which complete in the order they were
 * posted. Only the oldest is tested, so a call costs as much as there is news.
 */
#ifndef DT_COMM_RING_RING_QUEUE_H
#define DT_COMM_RING_RING_QUEUE_H

#include "comm/p2p.h"

/* Most messages under way in a queue. */
#define DT_RING_QUEUE_MAX 32

/* All zeros is an empty queue. `posted` messages were begun, the first `done` are complete. */
typedef struct dt_ring_queue {
    dt_p2p_request_t requests[DT_RING_QUEUE_MAX];
    int64_t posted, done;
} dt_ring_queue_t;

/* Back to an empty queue; all that was posted must be complete. */
void dt_ring_queue_reset(dt_ring_queue_t *queue);

/* Whether a message more leaves at most `limit` under way. */
int dt_ring_queue_has_room(const dt_ring_queue_t *queue, int limit);

/*
 * Post the next message of a queue that has room. One without bytes is not sent at all, which
 * both sides know, and counts as complete.
 */
dtrain_status_t dt_ring_queue_send(dt_ring_queue_t *queue, dt_p2p_t *p2p, int peer, int tag,
                                   const void *data, size_t length);
dtrain_status_t dt_ring_queue_receive(dt_ring_queue_t *queue, dt_p2p_t *p2p, int peer, int tag,
                                      void *data, size_t length);

/* Counts what has completed. OK, or the transport's error; never IN_PROGRESS. */
dtrain_status_t dt_ring_queue_settle(dt_ring_queue_t *queue, dt_p2p_t *p2p);

#endif
