/* sock_net.h - what the set-up of sockets asks of the operating system. */
#ifndef DT_COMM_SOCK_SOCK_NET_H
#define DT_COMM_SOCK_SOCK_NET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "comm/sock/sock_control.h"

/* Bytes that nobody can guess. */
dtrain_status_t dt_sock_random(void *bytes, size_t length);

/* The address of the listener's name in the abstract namespace; returns its length. */
socklen_t dt_sock_unix_address(struct sockaddr_un *address, const dt_sock_address_t *listener);

/* Small messages leave at once, and a host that no longer answers is noticed. */
void dt_sock_tune_tcp(int fd);

/* Lets this process have `count` descriptors more than a program usually has, if the hard limit
 * allows it: a hub has one for each rank. */
void dt_sock_reserve_descriptors(int count);

/*
 * Sleeps until `fd` (-1: none) is ready for `events` of poll: 0, or until limit_ns (dt_now_ns): -1.
 * Meanwhile's call is made about each millisecond.
 */
int dt_sock_wait(int fd, short events, int64_t limit_ns, dt_sock_meanwhile_t meanwhile);

/*
 * Fills in the IPv4 addresses of the named interface, or of all that are up ("": those that
 * other nodes can reach come before the loopback). CONFIG when there is no such interface, with
 * the names of those there are.
 */
dtrain_status_t dt_sock_find_addresses(const char *network_interface, dt_sock_address_t *address);

#endif
