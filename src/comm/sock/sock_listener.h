/* sock_listener.h - rank 0's listening sockets. */
#ifndef DT_COMM_SOCK_SOCK_LISTENER_H
#define DT_COMM_SOCK_SOCK_LISTENER_H

#include "comm/sock/sock_control.h"

struct dt_sock_listener {
    int unix_fd;
    int tcp_fd; /* -1: none */
    uint8_t secret[DT_SOCK_SECRET_BYTES];
};

#endif
