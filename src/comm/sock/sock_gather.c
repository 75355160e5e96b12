/*
 * sock_gather.c - rank 0 waits for all ranks. Connections come from ranks and, since anyone may
 * connect, from strangers: each new one is a guest, with a time limit of its own, until its hello
 * was read. Nothing waits for a single guest.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/sock/sock_handshake.h"
#include "comm/sock/sock_listener.h"
#include "comm/sock/sock_meet.h"
#include "comm/sock/sock_net.h"

#define GUEST_NS (5 * DT_NS_PER_S)
#define GUESTS_MAX 256
#define ACCEPTS_AT_ONCE 64
#define MEANWHILE_NS DT_NS_PER_MS
#define NAMED_MAX 16 /* missing ranks that an error names */

typedef struct guest {
    int fd;
    int64_t deadline_ns;
    size_t got;
    uint8_t hello[DT_SOCK_HELLO_BYTES];
} guest_t;

typedef struct hall {
    const dt_sock_listener_t *listener;
    int size;
    const int *names; /* NULL: the ranks' own numbers */
    int num_missing;
    int *ranks;           /* size connections; -1: missing (rank 0: always) */
    struct pollfd *polls; /* 2 listeners, guests, ranks */
    int num_guests;
    guest_t guests[GUESTS_MAX]; /* in the order of arrival */
} hall_t;

static int name_of(const hall_t *hall, int rank)
{
    return hall->names ? hall->names[rank] : rank;
}

static void dismiss(hall_t *hall, int index, const char *why)
{
    dt_log(DTRAIN_LOG_INFO, "sock", "closed a connection to rank %d: %s", name_of(hall, 0), why);
    close(hall->guests[index].fd);
    hall->num_guests--;
    memmove(&hall->guests[index], &hall->guests[index + 1],
            (size_t)(hall->num_guests - index) * sizeof hall->guests[0]);
}

/* A rank that gave up before its hello was read is not here. */
static int has_left(int fd)
{
    uint8_t byte;
    ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* Makes a guest whose hello is complete a rank, or tells why not. */
static const char *admit(hall_t *hall, const guest_t *guest)
{
    int rank = dt_sock_read_hello(guest->hello, hall->listener->secret);
    if (rank < 0)
        return "it does not belong to this job";
    if (rank < 1 || rank >= hall->size || hall->ranks[rank] >= 0)
        return "its rank is not awaited";
    uint8_t answer[DT_SOCK_ANSWER_BYTES];
    dt_sock_write_answer(answer, hall->listener->secret);
    if (has_left(guest->fd) || send(guest->fd, answer, sizeof answer,
                                    MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof answer)
        return "it is closed";
    hall->ranks[rank] = guest->fd;
    hall->num_missing--;
    return NULL;
}

static void listen_to(hall_t *hall, int index)
{
    guest_t *guest = &hall->guests[index];
    ssize_t got =
        recv(guest->fd, guest->hello + guest->got, sizeof guest->hello - guest->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        dismiss(hall, index, "it said nothing");
        return;
    }
    guest->got += (size_t)got;
    if (guest->got < sizeof guest->hello)
        return;
    const char *refusal = admit(hall, guest);
    if (refusal) {
        dismiss(hall, index, refusal);
        return;
    }
    hall->num_guests--;
    memmove(guest, guest + 1, (size_t)(hall->num_guests - index) * sizeof *guest);
}

static void welcome(hall_t *hall, int fd)
{
    if (hall->num_guests == GUESTS_MAX)
        dismiss(hall, 0, "too many strangers");
    hall->guests[hall->num_guests] = (guest_t){.fd = fd, .deadline_ns = dt_now_ns() + GUEST_NS};
    hall->num_guests++;
    listen_to(hall, hall->num_guests - 1);
}

static dtrain_status_t accept_some(hall_t *hall, int listen_fd, int is_tcp)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
            return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                           "rank %d cannot accept more connections (%d ranks are missing): %s",
                           name_of(hall, 0), hall->num_missing, strerror(errno));
        if (fd < 0) /* nobody there, or what went wrong is that connection's own fault */
            break;
        if (is_tcp)
            dt_sock_tune_tcp(fd);
        welcome(hall, fd);
    }
    return DTRAIN_OK;
}

/* Fills polls with listeners, guests and ranks, in this order; returns how many there are. */
static nfds_t fill_polls(const hall_t *hall)
{
    nfds_t count = 0;
    hall->polls[count++] = (struct pollfd){.fd = hall->listener->unix_fd, .events = POLLIN};
    hall->polls[count++] = (struct pollfd){.fd = hall->listener->tcp_fd, .events = POLLIN};
    for (int i = 0; i < hall->num_guests; i++)
        hall->polls[count++] = (struct pollfd){.fd = hall->guests[i].fd, .events = POLLIN};
    for (int rank = 1; rank < hall->size; rank++)
        hall->polls[count++] = (struct pollfd){.fd = hall->ranks[rank], .events = POLLIN};
    return count;
}

static int64_t next_limit(const hall_t *hall, int64_t deadline_ns, int has_meanwhile)
{
    int64_t limit = deadline_ns;
    int64_t now = dt_now_ns();
    if (hall->num_guests > 0 && hall->guests[0].deadline_ns < limit)
        limit = hall->guests[0].deadline_ns;
    if (has_meanwhile && now + MEANWHILE_NS < limit)
        limit = now + MEANWHILE_NS;
    return limit;
}

static void sleep_until(const hall_t *hall, nfds_t count, int64_t limit_ns)
{
    int64_t left = limit_ns - dt_now_ns();
    if (left < 0)
        left = 0;
    struct timespec limit = {.tv_sec = (time_t)(left / DT_NS_PER_S),
                             .tv_nsec = (long)(left % DT_NS_PER_S)};
    if (ppoll(hall->polls, count, limit_ns == DT_NEVER ? NULL : &limit, NULL) <= 0)
        memset(hall->polls, 0, count * sizeof hall->polls[0]);
}

/* A rank has nothing to say until it has heard the verdict, so what it says is that it left. */
static dtrain_status_t check_ranks(const hall_t *hall, const struct pollfd *polls)
{
    for (int rank = 1; rank < hall->size; rank++) {
        if (polls[rank - 1].revents != 0)
            return dt_fail(DTRAIN_ERR_COMMUNICATION,
                           "rank %d closed its connection while the world was being set up",
                           name_of(hall, rank));
    }
    return DTRAIN_OK;
}

static dtrain_status_t serve(hall_t *hall, int64_t limit_ns)
{
    int num_guests = hall->num_guests;
    nfds_t count = fill_polls(hall);
    sleep_until(hall, count, limit_ns);
    dtrain_status_t status = check_ranks(hall, hall->polls + 2 + num_guests);
    /* From the last to the first, since a guest that leaves moves those behind it. */
    for (int i = num_guests - 1; i >= 0; i--) {
        if (hall->polls[2 + i].revents != 0)
            listen_to(hall, i);
    }
    while (hall->num_guests > 0 && dt_now_ns() >= hall->guests[0].deadline_ns)
        dismiss(hall, 0, "it said nothing in time");
    for (int i = 0; i < 2 && status == DTRAIN_OK; i++) {
        if (hall->polls[i].revents != 0)
            status = accept_some(hall, hall->polls[i].fd, i == 1);
    }
    return status;
}

/* "ranks 2, 5, 7 and 12 more" */
static void name_missing(const hall_t *hall, char *text, size_t cap)
{
    int named = 0;
    size_t length = dt_text_format(text, cap, hall->num_missing == 1 ? "rank" : "ranks");
    for (int rank = 1; rank < hall->size && named < NAMED_MAX; rank++) {
        if (hall->ranks[rank] < 0)
            length += dt_text_format(text + length, cap - length, "%s%d", named++ ? ", " : " ",
                                     name_of(hall, rank));
    }
    if (hall->num_missing > named)
        dt_text_format(text + length, cap - length, " and %d more", hall->num_missing - named);
}

static dtrain_status_t wait_for_ranks(hall_t *hall, int64_t deadline_ns,
                                      dt_sock_meanwhile_t meanwhile)
{
    dtrain_status_t status = DTRAIN_OK;
    while (status == DTRAIN_OK && hall->num_missing > 0) {
        if (dt_now_ns() >= deadline_ns) {
            char missing[256];
            name_missing(hall, missing, sizeof missing);
            return dt_fail(DTRAIN_ERR_TIMEOUT, "rank %d timed out waiting for %s to connect",
                           name_of(hall, 0), missing);
        }
        status = serve(hall, next_limit(hall, deadline_ns, meanwhile.call != NULL));
        if (status == DTRAIN_OK && meanwhile.call)
            status = meanwhile.call(meanwhile.context);
    }
    return status;
}

static dtrain_status_t open_hall(const dt_sock_listener_t *listener, int size, const int *names,
                                 int *fds, hall_t **hall)
{
    hall_t *opened = dt_calloc(1, sizeof *opened);
    struct pollfd *polls = dt_calloc((size_t)size + GUESTS_MAX + 2, sizeof *polls);
    if (!opened || !polls) {
        dt_free(opened);
        dt_free(polls);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to connect %d ranks", size);
    }
    *opened = (hall_t){.listener = listener,
                       .size = size,
                       .names = names,
                       .num_missing = size - 1,
                       .ranks = fds,
                       .polls = polls};
    *hall = opened;
    return DTRAIN_OK;
}

static void close_hall(hall_t *hall)
{
    while (hall->num_guests > 0)
        dismiss(hall, hall->num_guests - 1, "nobody is awaited any more");
    dt_free(hall->polls);
    dt_free(hall);
}

dtrain_status_t dt_sock_gather(const dt_sock_listener_t *listener, int size, const int *names,
                               int64_t deadline_ns, dt_sock_meanwhile_t meanwhile, int *fds)
{
    hall_t *hall = NULL;
    for (int rank = 0; rank < size; rank++)
        fds[rank] = -1;
    dt_sock_reserve_descriptors(size);
    dtrain_status_t status = open_hall(listener, size, names, fds, &hall);
    if (!hall)
        return status;
    status = wait_for_ranks(hall, deadline_ns, meanwhile);
    close_hall(hall);
    return status;
}
