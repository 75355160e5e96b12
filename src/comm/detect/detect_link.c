#include "comm/detect/detect_link.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define LATE_NS (100 * DT_NS_PER_MS)

/* Some 1 KiB, which fits into any buffer. */
#define UNANSWERED_MAX 64

static int is_tcp(int fd)
{
    int domain = AF_UNIX;
    socklen_t length = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain != AF_UNIX;
}

/* The user timeout does the work while there are beats. Probes take their place where a stopped
 * peer gets none any more; they are rounded up to whole seconds. */
static void tune(int fd, int64_t timeout_ns)
{
    unsigned timeout_ms = (unsigned)(timeout_ns / DT_NS_PER_MS);
    int on = 1;
    int probe_s = 1;
    int probes = (int)(timeout_ns / DT_NS_PER_S) + 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &probe_s, sizeof probe_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof probe_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

void dt_detect_link_open(dt_detect_link_t *link, int fd, int rank, int64_t timeout_ns,
                         int64_t now_ns)
{
    memset(link, 0, sizeof *link);
    link->fd = fd;
    link->rank = rank;
    link->heard_ns = now_ns;
    link->mark_ns = DT_NEVER;
    link->is_tcp = fd >= 0 && is_tcp(fd);
    if (link->is_tcp)
        tune(fd, timeout_ns);
}

/* Returns how much has left. To a peer that is gone all has: nobody waits for it to be read, and
 * receive meets the error too. */
static size_t send_some(dt_detect_link_t *link, const uint8_t *bytes, size_t length)
{
    size_t sent = 0;
    while (sent < length) {
        ssize_t more = send(link->fd, bytes + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            return errno == EAGAIN || errno == ENOBUFS ? sent : length;
        sent += (size_t)more;
        link->sent += (uint64_t)more;
    }
    return sent;
}

void dt_detect_link_send(dt_detect_link_t *link, const dt_detect_message_t *message)
{
    uint8_t frame[DT_DETECT_FRAME_MAX];
    if (link->fd < 0)
        return;
    size_t length = dt_detect_encode(message, frame);
    size_t sent = link->out.length == 0 ? send_some(link, frame, length) : 0;
    if (sent < length) /* without memory the peer gets half a frame, and gives the connection up */
        dt_buffer_append(&link->out, frame + sent, length - sent);
}

void dt_detect_link_flush(dt_detect_link_t *link)
{
    if (link->fd < 0 || link->out.length == 0)
        return;
    size_t sent = send_some(link, link->out.data, link->out.length);
    link->out.length -= sent;
    memmove(link->out.data, link->out.data + sent, link->out.length);
}

void dt_detect_link_beat(dt_detect_link_t *link, uint32_t epoch, int64_t now_ns)
{
    const dt_detect_message_t beat = {.type = DT_DETECT_BEAT, .epoch = epoch};
    if (link->out.length > 0 || link->unanswered >= UNANSWERED_MAX)
        return;
    link->unanswered++;
    dt_detect_link_send(link, &beat);
    if (link->is_tcp && link->mark_ns == DT_NEVER) {
        link->mark = link->sent;
        link->mark_ns = now_ns;
    }
}

int dt_detect_link_check(dt_detect_link_t *link, int64_t timeout_ns, int64_t now_ns)
{
    int on_the_way = 0;
    if (link->fd < 0 || link->mark_ns == DT_NEVER)
        return 0;
    /* Also what has not even left: without a route the kernel keeps it. */
    if (ioctl(link->fd, SIOCOUTQ, &on_the_way) != 0 ||
        link->sent - (uint64_t)on_the_way >= link->mark) {
        link->mark_ns = DT_NEVER;
        return 0;
    }
    /* Who looks much too late was stopped, maybe with the machine: the answer is about to come. */
    if (now_ns - link->mark_ns > timeout_ns + LATE_NS)
        link->mark_ns = now_ns - timeout_ns + LATE_NS;
    if (now_ns - link->mark_ns < timeout_ns)
        return 0;
    link->error = ETIMEDOUT;
    return -1;
}

/* 1: there are more bytes. 0: not now. -1: it has ended. */
static int fill(dt_detect_link_t *link)
{
    memmove(link->in, link->in + link->in_begin, link->in_end - link->in_begin);
    link->in_end -= link->in_begin;
    link->in_begin = 0;
    size_t room = sizeof link->in - link->in_end;
    ssize_t got;
    do {
        got = recv(link->fd, link->in + link->in_end, room, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return 0;
    if (got <= 0) {
        link->error = got < 0 ? errno : 0;
        return -1;
    }
    link->in_end += (size_t)got;
    link->is_drained = (size_t)got < room;
    return 1;
}

int dt_detect_link_receive(dt_detect_link_t *link, int size, dt_detect_message_t *message)
{
    while (link->fd >= 0) {
        int length = dt_detect_decode(link->in + link->in_begin, link->in_end - link->in_begin,
                                      size, message);
        if (length > 0) {
            link->in_begin += (size_t)length;
            return 1;
        }
        if (length < 0) {
            link->error = EPROTO;
            return -1;
        }
        int filled = link->is_drained ? 0 : fill(link);
        link->is_drained &= filled > 0;
        if (filled <= 0)
            return filled;
    }
    return 0;
}

/* TCP answers unread bytes with a reset, which could overtake what was sent. */
void dt_detect_link_close(dt_detect_link_t *link)
{
    uint8_t bytes[256];
    if (link->fd < 0)
        return;
    shutdown(link->fd, SHUT_WR);
    while (recv(link->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    close(link->fd);
    link->fd = -1;
    dt_buffer_free(&link->out);
}
