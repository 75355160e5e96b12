#include "comm/sock/sock_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/sock/sock_net.h"

static int open_and_listen(int domain, const struct sockaddr *address, socklen_t length)
{
    int fd = socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, address, length) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static dtrain_status_t listen_unix(dt_sock_listener_t *listener, dt_sock_address_t *address)
{
    uint64_t random[2];
    dtrain_status_t status = dt_sock_random(random, sizeof random);
    if (status != DTRAIN_OK)
        return status;
    dt_text_format(address->unix_name, sizeof address->unix_name, "dtrain-%016llx%016llx",
                   (unsigned long long)random[0], (unsigned long long)random[1]);
    struct sockaddr_un name;
    socklen_t length = dt_sock_unix_address(&name, address);
    listener->unix_fd = open_and_listen(AF_UNIX, (struct sockaddr *)&name, length);
    if (listener->unix_fd < 0)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "cannot listen on a Unix socket: %s",
                       strerror(errno));
    return DTRAIN_OK;
}

/* On a named interface only its first address is listened on, and told. */
static dtrain_status_t listen_tcp(dt_sock_listener_t *listener, const char *network_interface,
                                  dt_sock_address_t *address)
{
    dtrain_status_t status = dt_sock_find_addresses(network_interface, address);
    if (status != DTRAIN_OK)
        return status;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    if (network_interface[0] != '\0') {
        memcpy(&name.sin_addr, address->ipv4[0], 4);
        address->num_addresses = 1;
    }
    listener->tcp_fd = open_and_listen(AF_INET, (struct sockaddr *)&name, sizeof name);
    socklen_t length = sizeof name;
    if (listener->tcp_fd < 0 ||
        getsockname(listener->tcp_fd, (struct sockaddr *)&name, &length) != 0)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "cannot listen for TCP connections: %s",
                       strerror(errno));
    address->tcp_port = ntohs(name.sin_port);
    return DTRAIN_OK;
}

dtrain_status_t dt_sock_listen(int between_nodes, const char *network_interface,
                               dt_sock_address_t *address, dt_sock_listener_t **listener)
{
    dt_sock_address_t found = {0};
    dt_sock_listener_t *opened = dt_calloc(1, sizeof *opened);
    if (!opened)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a listening socket");
    opened->unix_fd = opened->tcp_fd = -1;
    dtrain_status_t status = dt_sock_random(found.secret, sizeof found.secret);
    memcpy(opened->secret, found.secret, sizeof found.secret);
    if (status == DTRAIN_OK)
        status = listen_unix(opened, &found);
    if (status == DTRAIN_OK && between_nodes)
        status = listen_tcp(opened, network_interface, &found);
    if (status != DTRAIN_OK) {
        dt_sock_listener_free(opened);
        return status;
    }
    *address = found;
    *listener = opened;
    return DTRAIN_OK;
}

void dt_sock_listener_free(dt_sock_listener_t *listener)
{
    if (!listener)
        return;
    if (listener->unix_fd >= 0)
        close(listener->unix_fd);
    if (listener->tcp_fd >= 0)
        close(listener->tcp_fd);
    dt_free(listener);
}
