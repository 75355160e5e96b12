/* sock_accept.c - rank 0's connections to all ranks become its control. */
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/sock/sock_handshake.h"
#include "comm/sock/sock_meet.h"
#include "comm/sock/sock_star.h"

/* Everybody is here: from now on the control owns the connections. */
static void tell_success(dt_control_t *control, int size)
{
    uint8_t verdict[DT_SOCK_VERDICT_MAX];
    size_t length = dt_sock_write_verdict(verdict, DTRAIN_OK, "");
    for (int rank = 1; rank < size; rank++) {
        if (control->ops->send(control, rank, verdict, length) != DTRAIN_OK)
            dt_log(DTRAIN_LOG_DEBUG, "sock", "rank %d left when the world was ready", rank);
    }
}

/* A fresh connection has room for the verdict; a rank that does not get it sees the end of it. */
static void tell_failure(dt_sock_stream_t *ranks, int size, dtrain_status_t status)
{
    uint8_t verdict[DT_SOCK_VERDICT_MAX];
    size_t length = dt_sock_write_verdict(verdict, status, dt_last_error());
    for (int rank = 1; rank < size; rank++) {
        if (ranks[rank].fd < 0)
            continue;
        if (dt_sock_stream_send(&ranks[rank], verdict, length) != DTRAIN_OK)
            dt_log(DTRAIN_LOG_DEBUG, "sock", "rank %d was not told why there is no world", rank);
        dt_sock_stream_close(&ranks[rank]);
    }
}

static dtrain_status_t accept_all(const dt_sock_listener_t *listener, int size, int64_t deadline_ns,
                                  dt_sock_meanwhile_t meanwhile, dt_control_t **control)
{
    int *fds = dt_calloc((size_t)size, sizeof *fds);
    dt_sock_stream_t *ranks = dt_calloc((size_t)size, sizeof *ranks);
    dtrain_status_t status;
    if (!fds || !ranks) {
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to connect %d ranks", size);
    } else {
        status = dt_sock_gather(listener, size, NULL, deadline_ns, meanwhile, fds);
        for (int rank = 0; rank < size; rank++)
            dt_sock_stream_open(&ranks[rank], fds[rank]);
        if (status == DTRAIN_OK)
            status = dt_sock_star_create(ranks + 1, size - 1, 1, control);
        if (status == DTRAIN_OK)
            tell_success(*control, size);
        else
            tell_failure(ranks, size, status);
    }
    dt_free(fds);
    dt_free(ranks);
    return status;
}

dtrain_status_t dt_sock_accept(dt_sock_listener_t *listener, int size, int64_t deadline_ns,
                               dt_sock_meanwhile_t meanwhile, dt_control_t **control)
{
    dt_control_t *made = NULL;
    dtrain_status_t status = accept_all(listener, size, deadline_ns, meanwhile, &made);
    dt_sock_listener_free(listener);
    if (status == DTRAIN_OK)
        *control = made;
    return status;
}
