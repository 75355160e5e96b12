#include "comm/ring/ring_queue.h"

void dt_ring_queue_reset(dt_ring_queue_t *queue)
{
    queue->posted = queue->done = 0;
}

int dt_ring_queue_has_room(const dt_ring_queue_t *queue, int limit)
{
    return queue->posted - queue->done < limit;
}

static dt_p2p_request_t *next_request(dt_ring_queue_t *queue)
{
    dt_p2p_request_t *request = &queue->requests[queue->posted % DT_RING_QUEUE_MAX];
    *request = (dt_p2p_request_t){{0}};
    return request;
}

dtrain_status_t dt_ring_queue_send(dt_ring_queue_t *queue, dt_p2p_t *p2p, int peer, int tag,
                                   const void *data, size_t length)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_p2p_request_t *request = next_request(queue);
    if (length > 0)
        status = p2p->ops->send(p2p, peer, tag, data, length, request);
    if (status == DTRAIN_OK)
        queue->posted++;
    return status;
}

dtrain_status_t dt_ring_queue_receive(dt_ring_queue_t *queue, dt_p2p_t *p2p, int peer, int tag,
                                      void *data, size_t length)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_p2p_request_t *request = next_request(queue);
    if (length > 0)
        status = p2p->ops->receive(p2p, peer, tag, data, length, request);
    if (status == DTRAIN_OK)
        queue->posted++;
    return status;
}

dtrain_status_t dt_ring_queue_settle(dt_ring_queue_t *queue, dt_p2p_t *p2p)
{
    while (queue->done < queue->posted) {
        dt_p2p_request_t *request = &queue->requests[queue->done % DT_RING_QUEUE_MAX];
        dtrain_status_t status = p2p->ops->test(p2p, request);
        if (status != DTRAIN_OK)
            return status == DTRAIN_IN_PROGRESS ? DTRAIN_OK : status;
        queue->done++;
    }
    return DTRAIN_OK;
}
