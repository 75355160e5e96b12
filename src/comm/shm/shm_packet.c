#include "comm/shm/shm_packet.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/sock/sock_net.h"

/* The kernel has no room for more descriptors on their way: until a peer has taken some. */
#define CROWDED_NS DT_NS_PER_MS

/* Room for the control message of a packet, aligned as one has to be. */
typedef union ancillary {
    struct cmsghdr header;
    char room[CMSG_SPACE(DT_SHM_PACKET_FDS * sizeof(int))];
} ancillary_t;

dt_shm_packet_t dt_shm_packet_of(dtrain_status_t status)
{
    dt_shm_packet_t packet = {.status = status};
    if (status != DTRAIN_OK)
        dt_text_format(packet.text, sizeof packet.text, "%s", dt_last_error());
    return packet;
}

dtrain_status_t dt_shm_packet_status(const dt_shm_packet_t *packet)
{
    if (packet->status == DTRAIN_OK)
        return DTRAIN_OK;
    dtrain_status_t status = packet->status < 0 ? packet->status : DTRAIN_ERR_COMMUNICATION;
    return dt_fail(status, "%.*s", (int)strnlen(packet->text, sizeof packet->text), packet->text);
}

void dt_shm_close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static dtrain_status_t fail_peer(const char *why)
{
    return dt_fail(DTRAIN_ERR_COMMUNICATION,
                   "a rank of this node was lost while its shared memory was set up: %s", why);
}

static dtrain_status_t wait_for(int socket, short events, const dt_shm_patience_t *patience)
{
    if (dt_sock_wait(socket, events, patience->deadline_ns, patience->meanwhile) == 0)
        return DTRAIN_OK;
    return dt_fail(DTRAIN_ERR_TIMEOUT, "time is up while the shared memory of the ranks of this "
                                       "node was set up");
}

/* What sendmsg's failure asks to wait for; an error when there is no use in trying again. */
static dtrain_status_t wait_to_send(int socket, const dt_shm_patience_t *patience)
{
    if (errno == EAGAIN)
        return wait_for(socket, POLLOUT, patience);
    if (errno == EINTR)
        return DTRAIN_OK;
    if (errno != ETOOMANYREFS)
        return fail_peer(strerror(errno));
    int64_t soon = dt_now_ns() + CROWDED_NS;
    if (soon > patience->deadline_ns)
        return wait_for(-1, 0, patience);
    dt_sock_wait(-1, 0, soon, patience->meanwhile);
    return DTRAIN_OK;
}

dtrain_status_t dt_shm_packet_send(int socket, const dt_shm_packet_t *packet, const int *fds,
                                   const dt_shm_patience_t *patience)
{
    ancillary_t ancillary;
    memset(&ancillary, 0, sizeof ancillary);
    size_t fd_bytes = (size_t)packet->num_fds * sizeof *fds;
    for (size_t sent = 0; sent < sizeof *packet;) {
        struct iovec rest = {(char *)packet + sent, sizeof *packet - sent};
        struct msghdr message = {.msg_iov = &rest, .msg_iovlen = 1};
        if (fd_bytes > 0 && sent == 0) { /* they go with the first byte */
            message.msg_control = &ancillary;
            message.msg_controllen = CMSG_SPACE(fd_bytes);
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(fd_bytes);
            memcpy(CMSG_DATA(header), fds, fd_bytes);
        }
        ssize_t more = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (more >= 0) {
            sent += (size_t)more;
            continue;
        }
        dtrain_status_t status = wait_to_send(socket, patience);
        if (status != DTRAIN_OK)
            return status;
    }
    return DTRAIN_OK;
}

/* Takes the descriptors of a message over, as far as there is room. */
static void take_fds(struct msghdr *message, int *fds, int *count)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t number = (header->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
        for (size_t i = 0; i < number; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (*count < DT_SHM_PACKET_FDS)
                fds[(*count)++] = fd;
            else
                close(fd);
        }
    }
}

/* Receives once. *got and *count grow; `truncated` when descriptors were lost. */
static dtrain_status_t receive_some(int socket, dt_shm_packet_t *packet, size_t *got, int *fds,
                                    int *count)
{
    ancillary_t ancillary;
    struct iovec rest = {(char *)packet + *got, sizeof *packet - *got};
    struct msghdr message = {.msg_iov = &rest,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof ancillary};
    ssize_t more = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (more < 0 && (errno == EAGAIN || errno == EINTR))
        return DTRAIN_OK;
    if (more <= 0)
        return fail_peer(more < 0 ? strerror(errno) : "it closed its connection");
    take_fds(&message, fds, count);
    *got += (size_t)more;
    if (message.msg_flags & MSG_CTRUNC)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "this process has no descriptors left for the "
                                                 "shared memory of the ranks of this node");
    return DTRAIN_OK;
}

dtrain_status_t dt_shm_packet_receive(int socket, dt_shm_packet_t *packet, int *fds,
                                      const dt_shm_patience_t *patience)
{
    size_t got = 0;
    int count = 0;
    dtrain_status_t status = DTRAIN_OK;
    while (status == DTRAIN_OK && got < sizeof *packet) {
        status = wait_for(socket, POLLIN, patience);
        if (status == DTRAIN_OK)
            status = receive_some(socket, packet, &got, fds, &count);
    }
    if (status == DTRAIN_OK && packet->num_fds != count)
        status = fail_peer("it announced other descriptors than it sent");
    if (status != DTRAIN_OK)
        dt_shm_close_all(fds, count);
    return status;
}
