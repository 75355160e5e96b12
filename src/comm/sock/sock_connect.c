/* sock_connect.c - a rank's connection to rank 0 becomes its control. */
#include <poll.h>

#include "base/status.h"
#include "comm/sock/sock_handshake.h"
#include "comm/sock/sock_meet.h"
#include "comm/sock/sock_net.h"
#include "comm/sock/sock_star.h"

/* Messages may follow the verdict at once: the stream keeps them. */
static dtrain_status_t hear_verdict(dt_sock_stream_t *stream, int rank, int64_t deadline_ns,
                                    dt_sock_meanwhile_t meanwhile)
{
    const uint8_t *verdict;
    size_t length;
    while (!dt_sock_stream_take(stream, &verdict, &length)) {
        if (stream->end != DT_SOCK_OPEN)
            return dt_fail(stream->end == DT_SOCK_NO_MEMORY ? DTRAIN_ERR_OUT_OF_MEMORY
                                                            : DTRAIN_ERR_COMMUNICATION,
                           "rank 0 was lost while the world was being set up: %s",
                           dt_sock_stream_reason(stream));
        if (dt_sock_wait(stream->fd, POLLIN, deadline_ns, meanwhile) != 0)
            return dt_fail(DTRAIN_ERR_TIMEOUT,
                           "rank %d is connected to rank 0, but other ranks are missing", rank);
        dt_sock_stream_fill(stream);
    }
    return dt_sock_read_verdict(verdict, length);
}

dtrain_status_t dt_sock_connect(const dt_sock_address_t *address, int rank, int same_node,
                                int64_t deadline_ns, dt_sock_meanwhile_t meanwhile,
                                dt_control_t **control)
{
    int fd;
    dtrain_status_t status =
        dt_sock_reach(address, rank, NULL, same_node, deadline_ns, meanwhile, &fd);
    if (status != DTRAIN_OK)
        return status;
    dt_sock_stream_t stream;
    dt_sock_stream_open(&stream, fd);
    status = hear_verdict(&stream, rank, deadline_ns, meanwhile);
    if (status == DTRAIN_OK)
        status = dt_sock_star_create(&stream, 1, 0, control);
    if (status != DTRAIN_OK)
        dt_sock_stream_close(&stream);
    return status;
}
