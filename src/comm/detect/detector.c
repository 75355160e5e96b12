/*
 * detector.c - one rank's detector as the engine sees it: its thread, its news, making and freeing
 * it. What the thread does stands in detect_poll.c.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread.h"
#include "comm/detect/detect_state.h"

#define GOODBYE_NS (100 * DT_NS_PER_MS)

/* ---- The thread ---------------------------------------------------------------------------- */

/* Rounded up, so that nothing is called before its time. */
static int wait_until(const dt_detector_t *detector, int64_t until_ns)
{
    int64_t left = until_ns - dt_detect_now(detector);
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
    int64_t now = dt_detect_now(detector);
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
        add(detector, detector->wake_fd, DT_DETECT_WAKE) != 0)
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
        dt_detect_close_link(detector, &detector->links[i]);
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
