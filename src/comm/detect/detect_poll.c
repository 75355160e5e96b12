/*
 * detect_poll.c - what a detector does when something happens, or it is time.
 *
 * In a node each rank watches the processes of all others by pidfds, and has a connection to the
 * node's lowest rank, its leader. Leaders are connected to some of each other over TCP. A process
 * that has ended shows by its pidfd, and by the end of its connections; a node or link that has
 * gone, by beats that TCP finds unacknowledged; a rank that is only stopped keeps its connections
 * and sends no beats.
 *
 * Who judges: a leader, and whoever sees its leader go, at once. A member that sees another member
 * go gives the leader a moment, which has read that rank's last words and tells why with a text
 * that is the same for all.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "comm/detect/detect_state.h"

#define EVENTS_MAX 64
#define LEADER_NS (30 * DT_NS_PER_MS) /* that a leader has to tell why a member is gone */
#define SILENT_BEATS 2                /* that fail to come before a rank counts as silent */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static dt_detect_link_t *link_to(dt_detector_t *detector, int rank)
{
    for (int i = 0; i < detector->num_links; i++) {
        if (detector->links[i].rank == rank)
            return &detector->links[i];
    }
    return NULL;
}

/* A child of fork may hold the same descriptor, and close alone would leave it in epoll. */
void dt_detect_close_link(dt_detector_t *detector, dt_detect_link_t *link)
{
    if (link->fd < 0)
        return;
    epoll_ctl(detector->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    dt_detect_link_close(link);
}

static void read_link(dt_detector_t *detector, dt_detect_link_t *link, int64_t now)
{
    dt_detect_message_t message;
    int got;
    while ((got = dt_detect_link_receive(link, detector->topology.size, &message)) > 0) {
        dt_detect_hear(detector, link, &message, now);
        dt_detect_note(detector, link->rank, 0, now, now);
    }
    if (got == 0)
        return;
    dt_detect_link_ended(detector, link);
    dt_detect_close_link(detector, link);
}

static void process_ended(dt_detector_t *detector, dt_detect_watch_t *watch, int64_t now)
{
    dt_detect_link_t *link = link_to(detector, watch->rank);
    dt_detect_rank_t *rank = &detector->ranks[watch->rank];
    epoll_ctl(detector->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    close(watch->fd);
    watch->fd = -1;
    /* Its last words are there by now: it may have said that it leaves. */
    if (link)
        read_link(detector, link, now);
    if (link && link->has_left)
        return;
    int has_leader = !link && detector->links[0].fd >= 0;
    rank->judge_ns = has_leader ? now + LEADER_NS : now;
    detector->num_suspects++;
}

static void take_event(dt_detector_t *detector, uint32_t index, int64_t now)
{
    uint64_t marks;
    if (index == DT_DETECT_WAKE) {
        ssize_t taken = read(detector->wake_fd, &marks, sizeof marks);
        (void)taken; /* another event of the same batch cannot have taken it */
    } else if (index < (uint32_t)detector->num_links) {
        read_link(detector, &detector->links[index], now);
    } else {
        dt_detect_watch_t *watch = &detector->watches[index - (uint32_t)detector->num_links];
        if (watch->fd >= 0)
            process_ended(detector, watch, now);
    }
}

/* All there is, before anybody is judged: this process may itself have been stopped. */
static int64_t take_events(dt_detector_t *detector, int wait_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int count;
    int64_t now;
    do {
        count = epoll_wait(detector->epoll_fd, events, EVENTS_MAX, wait_ms);
        now = dt_detect_now(detector);
        wait_ms = 0;
        for (int i = 0; i < count; i++) {
            if (events[i].events & EPOLLOUT)
                dt_detect_link_flush(&detector->links[events[i].data.u32]);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                take_event(detector, events[i].data.u32, now);
        }
    } while (count == EVENTS_MAX);
    return now;
}

static void judge(dt_detector_t *detector, int64_t now)
{
    for (int i = 0; detector->num_suspects > 0 && i < detector->num_watches; i++) {
        dt_detect_rank_t *rank = &detector->ranks[detector->watches[i].rank];
        if (rank->judge_ns == 0 || rank->judge_ns > now)
            continue;
        rank->judge_ns = 0;
        detector->num_suspects--;
        dt_detect_lose(detector, detector->watches[i].rank,
                       "it died, or left without dtrain_shutdown");
    }
}

/* Before beats are sent, so that those of the last time are looked at. */
static void check_links(dt_detector_t *detector, int64_t now)
{
    for (int i = 0; i < detector->num_links; i++) {
        dt_detect_link_t *link = &detector->links[i];
        if (dt_detect_link_check(link, detector->settings.timeout_ns, now) == 0)
            continue;
        dt_detect_link_ended(detector, link);
        dt_detect_close_link(detector, link);
    }
}

/* Whoever beats first makes the others answer; their own time comes a little later. */
static void beat(dt_detector_t *detector, int64_t now)
{
    int64_t span = detector->settings.heartbeat_ns;
    if (now < detector->beat_ns)
        return;
    detector->beat_ns = now + span + (detector->is_answering ? span / 8 : 0);
    detector->is_answering = 0;
    detector->has_beaten = 1;
    for (int i = 0; i < detector->num_links; i++) {
        dt_detect_link_t *link = &detector->links[i];
        if (link->fd < 0)
            continue;
        dt_detect_link_beat(link, detector->epoch, now);
        if (now - link->heard_ns > SILENT_BEATS * span)
            dt_detect_note(detector, link->rank, 1, link->heard_ns, now);
    }
}

/* Has epoll wake for room where bytes wait for it, and only there. */
static void watch_room(dt_detector_t *detector)
{
    for (int i = 0; i < detector->num_links; i++) {
        dt_detect_link_t *link = &detector->links[i];
        int is_waiting = link->out.length > 0;
        if (link->fd < 0 || is_waiting == link->is_watched)
            continue;
        struct epoll_event event = {.events = EPOLLIN | (is_waiting ? EPOLLOUT : 0u),
                                    .data.u32 = (uint32_t)i};
        epoll_ctl(detector->epoll_fd, EPOLL_CTL_MOD, link->fd, &event);
        link->is_watched = is_waiting;
    }
}

static void look_after_news(dt_detector_t *detector, int64_t now)
{
    if (now < detector->overdue_ns)
        return;
    detector->overdue_ns = DT_NEVER;
    if (atomic_load(&detector->has_news) && detector->hooks.overdue)
        detector->hooks.overdue(detector->hooks.context, detector->status, detector->text);
}

static int64_t next_time(const dt_detector_t *detector)
{
    int64_t next = earlier(detector->beat_ns, detector->overdue_ns);
    for (int i = 0; i < detector->num_links; i++) {
        const dt_detect_link_t *link = &detector->links[i];
        if (link->fd >= 0 && link->mark_ns != DT_NEVER)
            next = earlier(next, link->mark_ns + detector->settings.timeout_ns);
    }
    for (int i = 0; detector->num_suspects > 0 && i < detector->num_watches; i++) {
        int64_t judge_ns = detector->ranks[detector->watches[i].rank].judge_ns;
        if (judge_ns > 0)
            next = earlier(next, judge_ns);
    }
    return next;
}

int64_t dt_detector_poll(dt_detector_t *detector, int wait_ms)
{
    int64_t now = take_events(detector, wait_ms);
    detector->has_beaten = 0;
    dt_detect_tell_own(detector);
    dt_detect_ask_own(detector);
    judge(detector, now);
    check_links(detector, now);
    beat(detector, now);
    look_after_news(detector, now);
    watch_room(detector);
    return next_time(detector);
}

int dt_detector_look(dt_detector_t *detector)
{
    judge(detector, take_events(detector, 0));
    watch_room(detector);
    return dt_detector_has_news(detector);
}
