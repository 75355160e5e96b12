/*
 * detector.c - one rank's detector.
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
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "comm/detect/detect_state.h"

#define EVENTS_MAX 64
#define LEADER_NS (30 * DT_NS_PER_MS) /* that a leader has to tell why a member is gone */
#define GOODBYE_NS (100 * DT_NS_PER_MS)
#define SILENT_BEATS 2 /* that fail to come before a rank counts as silent */

/* In epoll's events: links first, then watches. */
#define WAKE_INDEX UINT32_MAX

static int64_t now_ns(const dt_detector_t *detector)
{
    return detector->settings.clock.now(detector->settings.clock.context);
}

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
static void close_link(dt_detector_t *detector, dt_detect_link_t *link)
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
    close_link(detector, link);
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
    if (index == WAKE_INDEX) {
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
        now = now_ns(detector);
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
        close_link(detector, link);
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

/* ---- The thread ---------------------------------------------------------------------------- */

/* Rounded up, so that nothing is called before its time. */
static int wait_until(const dt_detector_t *detector, int64_t until_ns)
{
    int64_t left = until_ns - now_ns(detector);
    if (left <= 0)
        return 0;
    return left < INT32_MAX * DT_NS_PER_MS ? (int)((left + DT_NS_PER_MS - 1) / DT_NS_PER_MS)
                                           : INT32_MAX;
}

static int has_queue(const dt_detector_t *detector)
{
    for (int i = 0; i < detector->num_links; i++) {
        if (detector->links[i].out.length > 0)
            return 1;
    }
    return 0;
}

/* A stopped peer's goodbye may not fit any more; it is not waited for. */
static void say_goodbye(dt_detector_t *detector)
{
    int64_t limit_ns = dt_now_ns() + GOODBYE_NS;
    const struct timespec pause = {.tv_nsec = DT_NS_PER_MS};
    pthread_mutex_lock(&detector->lock);
    int leave = detector->leave;
    pthread_mutex_unlock(&detector->lock);
    dt_detect_tell_own(detector);
    if (leave)
        dt_detect_say_leaving(detector, leave > 1);
    while (has_queue(detector) && dt_now_ns() < limit_ns) {
        nanosleep(&pause, NULL);
        for (int i = 0; i < detector->num_links; i++)
            dt_detect_link_flush(&detector->links[i]);
    }
}

static void *thread_main(void *argument)
{
    dt_detector_t *detector = argument;
    const struct timespec pause = {.tv_nsec = DT_NS_PER_MS};
    int wait_ms = 0;
    while (!atomic_load(&detector->stop)) {
        wait_ms = wait_until(detector, dt_detector_poll(detector, wait_ms));
        /* Lets the answers of several ranks gather, in place of waking for each. */
        if (detector->has_beaten && detector->num_links > 1)
            nanosleep(&pause, NULL);
    }
    say_goodbye(detector);
    return NULL;
}

dtrain_status_t dt_detector_start(dt_detector_t *detector, const dt_detector_hooks_t *hooks)
{
    detector->hooks = *hooks;
    int error = dt_thread_start(&detector->thread, "dtrain-detect", thread_main, detector);
    if (error)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "cannot start the failure detector's thread: %s",
                       strerror(error));
    detector->has_thread = 1;
    return DTRAIN_OK;
}

int dt_detector_look(dt_detector_t *detector)
{
    judge(detector, take_events(detector, 0));
    watch_room(detector);
    return dt_detector_has_news(detector);
}

void dt_detect_wake(const dt_detector_t *detector)
{
    uint64_t mark = 1;
    ssize_t written = write(detector->wake_fd, &mark, sizeof mark);
    (void)written; /* fails only when so many marks are there that they wake as well */
}

void dt_detector_stop(dt_detector_t *detector)
{
    if (!detector->has_thread)
        return;
    atomic_store(&detector->stop, 1);
    dt_detect_wake(detector);
    pthread_join(detector->thread, NULL);
    detector->has_thread = 0;
}

void dt_detector_leave(dt_detector_t *detector, int is_over)
{
    pthread_mutex_lock(&detector->lock);
    detector->leave = is_over ? 2 : 1;
    pthread_mutex_unlock(&detector->lock);
    dt_detector_stop(detector);
}

/* ---- What the engine asks ------------------------------------------------------------------- */

int dt_detector_has_news(dt_detector_t *detector)
{
    return atomic_load_explicit(&detector->has_news, memory_order_relaxed);
}

dtrain_status_t dt_detector_take_news(dt_detector_t *detector, char *text, size_t cap)
{
    if (!atomic_exchange(&detector->has_news, 0))
        return DTRAIN_OK;
    pthread_mutex_lock(&detector->lock);
    dtrain_status_t status = detector->status;
    dt_text_format(text, cap, "%s", detector->text);
    pthread_mutex_unlock(&detector->lock);
    return status;
}

void dt_detector_tell(dt_detector_t *detector, int rank, dtrain_status_t status, const char *text)
{
    pthread_mutex_lock(&detector->lock);
    int is_first = detector->status == DTRAIN_OK;
    if (is_first) {
        detector->status = status;
        detector->end_rank = rank;
        detector->is_to_tell = rank >= 0;
        dt_text_format(detector->text, sizeof detector->text, "%s", text);
    }
    pthread_mutex_unlock(&detector->lock);
    atomic_store(&detector->has_news, 0);
    if (is_first)
        dt_detect_wake(detector);
}

size_t dt_detector_describe_silent(dt_detector_t *detector, char *text, size_t cap)
{
    size_t length = 0;
    int64_t now = now_ns(detector);
    text[0] = '\0';
    for (int rank = 0; rank < detector->topology.size && cap - length > 8; rank++) {
        char who[128];
        pthread_mutex_lock(&detector->lock);
        const dt_detect_rank_t known = detector->ranks[rank];
        pthread_mutex_unlock(&detector->lock);
        if ((known.version & 1) == 0)
            continue;
        dt_topology_describe(&detector->topology, rank, who, sizeof who);
        length += dt_text_format(text + length, cap - length,
                                 "%s%s has been stopped or stuck for %.1f s", length ? "; " : "",
                                 who, (double)(now - known.since_ns) / (double)DT_NS_PER_S);
    }
    return length;
}

/* ---- Making and freeing -----------------------------------------------------------------------
 */

static int add(const dt_detector_t *detector, int fd, uint32_t index)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    return fd < 0 ? 0 : epoll_ctl(detector->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int open_descriptors(dt_detector_t *detector)
{
    detector->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    detector->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (detector->wake_fd < 0 || detector->epoll_fd < 0 ||
        add(detector, detector->wake_fd, WAKE_INDEX) != 0)
        return -1;
    uint32_t index = 0;
    for (int i = 0; i < detector->num_links; i++) {
        if (add(detector, detector->links[i].fd, index++) != 0)
            return -1;
    }
    for (int i = 0; i < detector->num_watches; i++) {
        if (add(detector, detector->watches[i].fd, index++) != 0)
            return -1;
    }
    return 0;
}

static void free_detector(dt_detector_t *detector)
{
    if (detector->wake_fd >= 0)
        close(detector->wake_fd);
    if (detector->epoll_fd >= 0)
        close(detector->epoll_fd);
    dt_free(detector->ranks);
    pthread_mutex_destroy(&detector->lock);
    dt_free(detector);
}

dtrain_status_t dt_detector_make(const dt_topology_t *topology,
                                 const dt_detector_settings_t *settings, dt_detect_link_t *links,
                                 int num_links, dt_detect_watch_t *watches, int num_watches,
                                 dt_detector_t **detector_out)
{
    dt_detector_t *detector = dt_calloc(1, sizeof *detector);
    if (!detector)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the failure detector");
    pthread_mutex_init(&detector->lock, NULL);
    detector->topology = *topology;
    detector->settings = *settings;
    detector->links = links;
    detector->num_links = num_links;
    detector->watches = watches;
    detector->num_watches = num_watches;
    detector->overdue_ns = DT_NEVER;
    detector->epoll_fd = detector->wake_fd = -1;
    detector->ranks = dt_calloc((size_t)topology->size, sizeof *detector->ranks);
    if (!detector->ranks || open_descriptors(detector) != 0) {
        int error = detector->ranks ? errno : ENOMEM;
        free_detector(detector);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "cannot make the failure detector: %s",
                       strerror(error));
    }
    *detector_out = detector;
    return DTRAIN_OK;
}

void dt_detector_destroy(dt_detector_t *detector)
{
    if (!detector)
        return;
    dt_detector_stop(detector);
    for (int i = 0; i < detector->num_links; i++)
        close_link(detector, &detector->links[i]);
    for (int i = 0; i < detector->num_watches; i++) {
        if (detector->watches[i].fd >= 0)
            close(detector->watches[i].fd);
    }
    dt_free(detector->links);
    dt_free(detector->watches);
    free_detector(detector);
}

void dt_detector_forget(dt_detector_t *detector)
{
    for (int i = 0; i < detector->num_links; i++) {
        if (detector->links[i].fd >= 0)
            close(detector->links[i].fd);
    }
    for (int i = 0; i < detector->num_watches; i++) {
        if (detector->watches[i].fd >= 0)
            close(detector->watches[i].fd);
    }
    close(detector->epoll_fd);
    close(detector->wake_fd);
}
