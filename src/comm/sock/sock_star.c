#include "comm/sock/sock_star.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

/* Up to so many peers are asked one by one, which saves asking epoll first who has something. */
#define DIRECT_MAX 4
#define EVENTS_MAX 64
#define DRAIN_NS DT_NS_PER_S

typedef struct peer {
    dt_sock_stream_t stream;
    int is_ready;  /* it is in the queue of those that may have something */
    int is_told;   /* its loss was told; the stream is closed */
    int is_queued; /* as epoll knows it: wake when there is room to send */
} peer_t;

/* The wake descriptor's place in epoll's events. */
#define WAKE_INDEX UINT32_MAX

/*
 * What other threads touch: `woken` and `sleepers`, and the descriptors, which the kernel guards.
 * wait looks at nothing else, since another thread may be at work meanwhile. A wake that finds
 * nobody asleep is only a store, since it comes with every submission.
 */
typedef struct star {
    dt_control_t base;
    int first_rank;
    int num_peers;
    peer_t *peers;
    int *ready; /* peers that may have something, in turn: a ring of num_peers entries */
    int ready_at, num_ready;
    struct pollfd *polls; /* scratch of destroy: num_peers */
    int epoll_fd;         /* [const] all connections and wake_fd */
    int wake_fd;          /* [const] an eventfd */
    _Atomic int woken;    /* [atomic] since the last wait returned */
    _Atomic int sleepers; /* [atomic] threads in wait */
} star_t;

static void push_ready(star_t *star, int index)
{
    peer_t *peer = &star->peers[index];
    if (peer->is_ready || peer->is_told)
        return;
    peer->is_ready = 1;
    star->ready[(star->ready_at + star->num_ready++) % star->num_peers] = index;
}

static int pop_ready(star_t *star)
{
    int index = star->ready[star->ready_at];
    star->ready_at = (star->ready_at + 1) % star->num_peers;
    star->num_ready--;
    star->peers[index].is_ready = 0;
    return index;
}

/* Tells epoll whether to wake for room; a closed peer is taken out before its descriptor. */
static void watch(star_t *star, int index, int op)
{
    peer_t *peer = &star->peers[index];
    peer->is_queued = dt_sock_stream_queued(&peer->stream) > 0;
    struct epoll_event event = {.events = EPOLLIN | (peer->is_queued ? EPOLLOUT : 0u),
                                .data.u32 = (uint32_t)index};
    epoll_ctl(star->epoll_fd, op, peer->stream.fd, &event);
}

static void watch_queue(star_t *star, int index)
{
    peer_t *peer = &star->peers[index];
    if (peer->is_queued != (dt_sock_stream_queued(&peer->stream) > 0))
        watch(star, index, EPOLL_CTL_MOD);
}

static dtrain_status_t star_send(dt_control_t *control, int to, const void *data, size_t length)
{
    star_t *star = (star_t *)control;
    int index = to - star->first_rank;
    if (index < 0 || index >= star->num_peers)
        return dt_fail(DTRAIN_ERR_INTERNAL, "no control connection leads to rank %d", to);
    dtrain_status_t status = dt_sock_stream_send(&star->peers[index].stream, data, length);
    watch_queue(star, index);
    return status;
}

static void flush_all(star_t *star)
{
    for (int i = 0; i < star->num_peers; i++) {
        if (dt_sock_stream_queued(&star->peers[i].stream) > 0) {
            dt_sock_stream_flush(&star->peers[i].stream);
            watch_queue(star, i);
        }
    }
}

static void fill(star_t *star, int index)
{
    peer_t *peer = &star->peers[index];
    if (peer->is_told)
        return;
    if (dt_sock_stream_queued(&peer->stream) > 0) {
        dt_sock_stream_flush(&peer->stream);
        watch_queue(star, index);
    }
    if (dt_sock_stream_fill(&peer->stream))
        push_ready(star, index);
}

static void fill_all(star_t *star)
{
    if (star->num_peers <= DIRECT_MAX) {
        for (int i = 0; i < star->num_peers; i++)
            fill(star, i);
        return;
    }
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(star->epoll_fd, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u32 != WAKE_INDEX)
            fill(star, (int)events[i].data.u32);
    }
}

static void tell_lost(star_t *star, int index)
{
    peer_t *peer = &star->peers[index];
    int is_fault = peer->stream.end != DT_SOCK_CLOSED || peer->stream.error != 0;
    dt_log(is_fault ? DTRAIN_LOG_WARN : DTRAIN_LOG_DEBUG, "sock",
           "lost the connection to rank %d: %s", star->first_rank + index,
           dt_sock_stream_reason(&peer->stream));
    /* A child of fork may hold the same connection open: close alone would leave it in epoll. */
    watch(star, index, EPOLL_CTL_DEL);
    dt_sock_stream_close(&peer->stream);
    peer->is_queued = 0;
    peer->is_told = 1;
}

static dt_control_event_t take(star_t *star, int index, dt_control_message_t *message)
{
    peer_t *peer = &star->peers[index];
    message->peer = star->first_rank + index;
    if (dt_sock_stream_take(&peer->stream, &message->data, &message->length)) {
        push_ready(star, index); /* there may be another one behind it */
        return DT_CONTROL_MESSAGE;
    }
    if (peer->stream.end == DT_SOCK_OPEN)
        return DT_CONTROL_NONE;
    message->is_starved = peer->stream.end == DT_SOCK_NO_MEMORY;
    tell_lost(star, index);
    message->data = NULL;
    message->length = 0;
    return DT_CONTROL_LOST;
}

static dt_control_event_t star_receive(dt_control_t *control, dt_control_message_t *message)
{
    star_t *star = (star_t *)control;
    for (int filled = 0; filled < 2; filled++) {
        if (filled)
            fill_all(star);
        while (star->num_ready > 0) {
            dt_control_event_t event = take(star, pop_ready(star), message);
            if (event != DT_CONTROL_NONE)
                return event;
        }
    }
    return DT_CONTROL_NONE;
}

static struct timespec to_timespec(int64_t timeout_ns)
{
    struct timespec time = {.tv_sec = (time_t)(timeout_ns / DT_NS_PER_S),
                            .tv_nsec = (long)(timeout_ns % DT_NS_PER_S)};
    return time;
}

static void star_wait(dt_control_t *control, int64_t timeout_ns)
{
    star_t *star = (star_t *)control;
    struct pollfd poll = {.fd = star->epoll_fd, .events = POLLIN};
    struct timespec limit = to_timespec(timeout_ns);
    /* Either the waker sees that somebody sleeps and writes, or we see its mark and do not. */
    atomic_fetch_add(&star->sleepers, 1);
    if (!atomic_load(&star->woken) && timeout_ns > 0)
        ppoll(&poll, 1, timeout_ns == DT_NEVER ? NULL : &limit, NULL);
    atomic_fetch_sub(&star->sleepers, 1);
    /* An exchange and not a store, so that the caller sees what the waker did before. The
     * descriptor is read in any case: a waker may write it after its mark was taken. */
    atomic_exchange(&star->woken, 0);
    uint64_t marks;
    ssize_t taken = read(star->wake_fd, &marks, sizeof marks);
    (void)taken; /* most often nothing is there */
}

static void star_wake(dt_control_t *control)
{
    star_t *star = (star_t *)control;
    int saved = errno;
    uint64_t mark = 1;
    if (atomic_exchange(&star->woken, 1) == 0 && atomic_load(&star->sleepers) > 0) {
        /* It fails only when 2^64 wakes are waiting, which wake as well as one more. */
        ssize_t written = write(star->wake_fd, &mark, sizeof mark);
        (void)written;
    }
    errno = saved;
}

/* Both ends may be full: what comes in is dropped, so that the peer gets to read ours. */
static void discard_input(dt_sock_stream_t *stream)
{
    uint8_t bytes[4096];
    while (recv(stream->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

static int any_queued(const star_t *star)
{
    for (int i = 0; i < star->num_peers; i++) {
        if (dt_sock_stream_queued(&star->peers[i].stream) > 0)
            return 1;
    }
    return 0;
}

/* Fills polls with the open connections and returns how many there are. */
static nfds_t poll_peers(star_t *star)
{
    nfds_t count = 0;
    for (int i = 0; i < star->num_peers; i++) {
        const dt_sock_stream_t *stream = &star->peers[i].stream;
        short events = dt_sock_stream_queued(stream) > 0 ? POLLIN | POLLOUT : POLLIN;
        if (!star->peers[i].is_told)
            star->polls[count++] = (struct pollfd){.fd = stream->fd, .events = events};
    }
    return count;
}

static void drain(star_t *star)
{
    int64_t deadline = dt_now_ns() + DRAIN_NS;
    flush_all(star);
    while (any_queued(star)) {
        int64_t left = deadline - dt_now_ns();
        if (left <= 0)
            return;
        struct timespec limit = to_timespec(left);
        ppoll(star->polls, poll_peers(star), &limit, NULL);
        for (int i = 0; i < star->num_peers; i++) {
            if (!star->peers[i].is_told)
                discard_input(&star->peers[i].stream);
        }
        flush_all(star);
    }
}

static void free_star(star_t *star)
{
    if (star->wake_fd >= 0)
        close(star->wake_fd);
    if (star->epoll_fd >= 0)
        close(star->epoll_fd);
    dt_free(star->peers);
    dt_free(star->ready);
    dt_free(star->polls);
    dt_free(star);
}

static void star_destroy(dt_control_t *control)
{
    star_t *star = (star_t *)control;
    drain(star);
    for (int i = 0; i < star->num_peers; i++) {
        dt_sock_stream_t *stream = &star->peers[i].stream;
        if (star->peers[i].is_told)
            continue;
        /* TCP answers unread bytes with a reset, which could overtake what we sent. */
        shutdown(stream->fd, SHUT_WR);
        discard_input(stream);
        watch(star, i, EPOLL_CTL_DEL);
        dt_sock_stream_close(stream);
    }
    free_star(star);
}

static void star_forget(dt_control_t *control)
{
    star_t *star = (star_t *)control;
    for (int i = 0; i < star->num_peers; i++) {
        if (!star->peers[i].is_told)
            close(star->peers[i].stream.fd);
    }
    close(star->epoll_fd);
    close(star->wake_fd);
}

static const dt_control_ops_t star_ops = {
    .name = "sock",
    .send = star_send,
    .receive = star_receive,
    .wait = star_wait,
    .wake = star_wake,
    .destroy = star_destroy,
    .forget = star_forget,
};

static star_t *allocate(int num_peers)
{
    star_t *star = dt_calloc(1, sizeof *star);
    if (!star)
        return NULL;
    star->base.ops = &star_ops;
    star->num_peers = num_peers;
    star->epoll_fd = star->wake_fd = -1;
    star->peers = dt_calloc((size_t)num_peers, sizeof *star->peers);
    star->ready = dt_calloc((size_t)num_peers, sizeof *star->ready);
    star->polls = dt_calloc((size_t)num_peers, sizeof *star->polls);
    if (star->peers && star->ready && star->polls)
        return star;
    free_star(star);
    return NULL;
}

static int open_descriptors(star_t *star)
{
    star->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    star->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = WAKE_INDEX};
    return star->wake_fd >= 0 && star->epoll_fd >= 0 &&
           epoll_ctl(star->epoll_fd, EPOLL_CTL_ADD, star->wake_fd, &event) == 0;
}

dtrain_status_t dt_sock_star_create(const dt_sock_stream_t *streams, int num_streams,
                                    int first_rank, dt_control_t **control)
{
    star_t *star = allocate(num_streams);
    if (!star)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for %d control connections",
                       num_streams);
    if (!open_descriptors(star)) {
        int error = errno;
        free_star(star);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no descriptors for the control connections: %s",
                       strerror(error));
    }
    star->first_rank = first_rank;
    for (int i = 0; i < num_streams; i++) {
        star->peers[i].stream = streams[i];
        watch(star, i, EPOLL_CTL_ADD);
        push_ready(star, i); /* a stream may have received more than its set-up took */
    }
    *control = &star->base;
    return DTRAIN_OK;
}
