#include "comm/sock/sock_net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

/* Descriptors that a program needs beside the hub's. */
#define DESCRIPTORS_ELSEWHERE 512

/* A host that dies without a word is noticed after about this long. */
#define DEAD_HOST_MS 10000
#define KEEPALIVE_IDLE_S 5
#define KEEPALIVE_INTERVAL_S 1

#define MEANWHILE_NS DT_NS_PER_MS

dtrain_status_t dt_sock_random(void *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        ssize_t got = getrandom((uint8_t *)bytes + at, length - at, 0);
        if (got < 0 && errno != EINTR)
            return dt_fail(DTRAIN_ERR_COMMUNICATION, "no random bytes for the job's secret: %s",
                           strerror(errno));
        if (got > 0)
            at += (size_t)got;
    }
    return DTRAIN_OK;
}

socklen_t dt_sock_unix_address(struct sockaddr_un *address, const dt_sock_address_t *listener)
{
    size_t length = strnlen(listener->unix_name, sizeof listener->unix_name);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, listener->unix_name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* Without any of these the connection works all the same, so failures are no errors. */
void dt_sock_tune_tcp(int fd)
{
    int on = 1;
    int idle = KEEPALIVE_IDLE_S;
    int interval = KEEPALIVE_INTERVAL_S;
    int probes = DEAD_HOST_MS / 1000 / KEEPALIVE_INTERVAL_S;
    unsigned dead_ms = DEAD_HOST_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof dead_ms);
}

void dt_sock_reserve_descriptors(int count)
{
    struct rlimit limit;
    rlim_t needed = (rlim_t)count + DESCRIPTORS_ELSEWHERE;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= needed)
        return;
    if (limit.rlim_max != RLIM_INFINITY && needed > limit.rlim_max) {
        dt_log(DTRAIN_LOG_WARN, "sock",
               "%d connections may not fit into this process's limit of %llu descriptors", count,
               (unsigned long long)limit.rlim_max);
        needed = limit.rlim_max;
    }
    limit.rlim_cur = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        dt_log(DTRAIN_LOG_WARN, "sock", "cannot raise the limit of descriptors: %s",
               strerror(errno));
}

int dt_sock_wait(int fd, short events, int64_t limit_ns, dt_sock_meanwhile_t meanwhile)
{
    for (;;) {
        int64_t left = limit_ns - dt_now_ns();
        if (left <= 0)
            return -1;
        if (meanwhile.call) {
            meanwhile.call(meanwhile.context);
            left = left < MEANWHILE_NS ? left : MEANWHILE_NS;
        }
        struct pollfd entry = {.fd = fd, .events = events};
        struct timespec limit = {.tv_sec = (time_t)(left / DT_NS_PER_S),
                                 .tv_nsec = (long)(left % DT_NS_PER_S)};
        if (ppoll(&entry, 1, &limit, NULL) > 0)
            return 0;
    }
}

static int is_usable(const struct ifaddrs *at)
{
    return at->ifa_addr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) != 0;
}

static void add_addresses(const struct ifaddrs *list, const char *name, unsigned loopback,
                          dt_sock_address_t *address)
{
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        if (!is_usable(at) || (at->ifa_flags & IFF_LOOPBACK) != loopback ||
            address->num_addresses == DT_SOCK_MAX_ADDRESSES)
            continue;
        if (name[0] != '\0' && strcmp(name, at->ifa_name) != 0)
            continue;
        struct sockaddr_in ipv4;
        memcpy(&ipv4, at->ifa_addr, sizeof ipv4);
        memcpy(address->ipv4[address->num_addresses++], &ipv4.sin_addr, 4);
    }
}

/* "eth0, ib0, lo": each name that has a usable address, once. */
static void list_names(const struct ifaddrs *list, char *text, size_t cap)
{
    size_t length = 0;
    text[0] = '\0';
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        int seen = !is_usable(at);
        for (const struct ifaddrs *before = list; before != at; before = before->ifa_next)
            seen |= is_usable(before) && strcmp(before->ifa_name, at->ifa_name) == 0;
        if (!seen && cap - length > IF_NAMESIZE + 8)
            length += dt_text_format(text + length, cap - length, "%s%s", length ? ", " : "",
                                     at->ifa_name);
    }
}

dtrain_status_t dt_sock_find_addresses(const char *network_interface, dt_sock_address_t *address)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "cannot list the network interfaces: %s",
                       strerror(errno));
    address->num_addresses = 0;
    add_addresses(list, network_interface, 0, address);
    add_addresses(list, network_interface, IFF_LOOPBACK, address);
    dtrain_status_t status = DTRAIN_OK;
    if (address->num_addresses == 0) {
        char names[512];
        list_names(list, names, sizeof names);
        status = dt_fail(DTRAIN_ERR_CONFIG,
                         "network_interface (DTRAIN_NETWORK_INTERFACE) is \"%s\", but no such "
                         "interface is up with an IPv4 address; there are: %s",
                         network_interface, names[0] ? names : "none");
    }
    freeifaddrs(list);
    return status;
}
