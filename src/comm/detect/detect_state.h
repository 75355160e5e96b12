/*
 * detect_state.h - the inside of a detector, for its own files and tests.
 *
 * dt_detector_poll does all the work, so a test can drive it with a clock of its own; the thread
 * only calls it.
 */
#ifndef DT_COMM_DETECT_DETECT_STATE_H
#define DT_COMM_DETECT_DETECT_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/detect/detect_join.h"
#include "comm/detect/detect_link.h"

/* In epoll's events, where links come first and then watches. */
#define DT_DETECT_WAKE UINT32_MAX

/* What is known of a rank. */
typedef struct dt_detect_rank {
    uint32_t version;  /* [lock] as in SILENCE */
    int64_t since_ns;  /* [lock] while it is silent: when it was last heard */
    int is_ended;      /* [thread] its END went through here */
    int64_t judge_ns;  /* [thread] its process has ended, and its leader has until then to tell why;
                          0: not so */
    uint32_t question; /* [thread] the number of its last one that was heard of */
    dt_detect_link_t *way; /* [thread] that answers to it go */
} dt_detect_rank_t;

typedef struct dt_detect_watch {
    int fd; /* a pidfd; -1: it has ended, or cannot be watched */
    int rank;
} dt_detect_watch_t;

/* [thread] is the thread's, and before it starts whose detector it is. */
struct dt_detector {
    dt_topology_t topology;          /* [const] peers are borrowed */
    dt_detector_settings_t settings; /* [const] */
    dt_detector_hooks_t hooks;       /* [const] after start */
    uint32_t epoch;                  /* [const] */
    dt_detect_link_t *links;         /* [thread] a member's one link leads to its leader */
    int num_links;
    dt_detect_watch_t *watches; /* [thread] */
    int num_watches;
    int epoll_fd, wake_fd; /* [const] */
    int64_t beat_ns;       /* [thread] when the next beat is due */
    int is_answering;      /* [thread] to another's beat, with the next */
    int has_beaten;        /* [thread] just now, so that answers will come from several */
    int64_t num_suspects;  /* [thread] ranks with judge_ns */
    int64_t overdue_ns; /* [thread] when somebody should have taken the news; DT_NEVER: no matter */
    int is_over;        /* [thread] no end of a connection is a loss any more */

    pthread_mutex_t lock;              /* held for a few instructions; none is taken under it */
    dt_detect_rank_t *ranks;           /* size entries */
    dtrain_status_t status;            /* [lock] the end, or OK */
    int end_rank;                      /* [lock] */
    char text[DT_DETECT_TEXT_MAX + 1]; /* [lock] */
    uint32_t num_questions;            /* [lock] asked here, ever */
    uint32_t wanted[DT_DETECTOR_QUESTIONS]; /* [lock] numbers of those to be sent; 0: none */
    int is_to_tell;                         /* [lock] this rank ends the world; the thread tells */
    int leave;                              /* [lock] 1: with a loss elsewhere, 2: all is over */
    _Atomic int has_news;                   /* [atomic] */
    _Atomic int stop;                       /* [atomic] */
    pthread_t thread;
    int has_thread;
};

static inline int64_t dt_detect_now(const dt_detector_t *detector)
{
    return detector->settings.clock.now(detector->settings.clock.context);
}

/* Takes over the links, which are open, and the watches on success: dt_alloc'ed arrays. */
dtrain_status_t dt_detector_make(const dt_topology_t *topology,
                                 const dt_detector_settings_t *settings, dt_detect_link_t *links,
                                 int num_links, dt_detect_watch_t *watches, int num_watches,
                                 dt_detector_t **detector);

/* Waits for something to happen, at most for wait_ms, and does what is to be done. Returns when it
 * is to be called again at the latest. */
int64_t dt_detector_poll(dt_detector_t *detector, int wait_ms);

void dt_detect_close_link(dt_detector_t *detector, dt_detect_link_t *link);

/* Makes the thread look for what is wanted of it. Any thread. */
void dt_detect_wake(const dt_detector_t *detector);

/* ---- detect_ask.c: questions that detectors answer ----------------------------------------- */

void dt_detect_hear_question(dt_detector_t *detector, dt_detect_link_t *from,
                             const dt_detect_message_t *question);
void dt_detect_hear_answer(dt_detector_t *detector, const dt_detect_message_t *answer);

/* Sends what dt_detector_ask wants asked. */
void dt_detect_ask_own(dt_detector_t *detector);

/* ---- detect_news.c: what is learnt, and told on ------------------------------------------- */

/* A message came over `from`. */
void dt_detect_hear(dt_detector_t *detector, dt_detect_link_t *from,
                    const dt_detect_message_t *message, int64_t now_ns);

/* A connection has ended: is it a loss? */
void dt_detect_link_ended(dt_detector_t *detector, dt_detect_link_t *link);

/* A rank is lost, because of `why`. */
void dt_detect_lose(dt_detector_t *detector, int rank, const char *why);

/* This detector itself notices that a rank is silent, or back. */
void dt_detect_note(dt_detector_t *detector, int rank, int is_silent, int64_t since_ns,
                    int64_t now_ns);

/* What the engine has asked to be told to all. */
void dt_detect_tell_own(dt_detector_t *detector);

void dt_detect_say_leaving(dt_detector_t *detector, int is_over);

#endif
