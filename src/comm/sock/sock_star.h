/* sock_star.h - the control over connections that are set up: rank 0's to all other ranks, or
 * another rank's to rank 0. */
#ifndef DT_COMM_SOCK_SOCK_STAR_H
#define DT_COMM_SOCK_SOCK_STAR_H

#include "comm/control.h"
#include "comm/sock/sock_stream.h"

/*
 * streams[i] leads to rank first_rank + i: 1 on rank 0, and one stream to rank 0 on the others.
 * The streams (not the array) are taken over on success.
 */
dtrain_status_t dt_sock_star_create(const dt_sock_stream_t *streams, int num_streams,
                                    int first_rank, dt_control_t **control);

#endif
