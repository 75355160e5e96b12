/*
 * detector.h - who is alive: finds ranks that died, nodes and links that went away, and ranks that
 * are stopped, without MPI and with a thread of its own. How it does so stands in
 * detect/detect_poll.c; how one comes to be, in detect/detect_join.h.
 *
 * The first end of the world that it finds, or hears of from another rank's detector, is its news.
 * All ranks hear of it, also when it is rank 0 that is lost.
 */
#ifndef DT_COMM_DETECTOR_H
#define DT_COMM_DETECTOR_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

typedef struct dt_detector dt_detector_t;

/* All are called on the detector's thread, which must not be held up. */
typedef void (*dt_detector_emit_fn_t)(void *emit_context, const char *line);
#define DT_DETECTOR_LINE_MAX 980 /* bytes of a line that is emitted; longer ones are cut */

typedef struct dt_detector_hooks {
    /* There is news. */
    void (*notify)(void *context);
    /*
     * Writes what a lost rank of this node was last doing, as "in allreduce 'w' (operation 812)",
     * or nothing. NULL: nobody knows.
     */
    void (*describe)(void *context, int rank, char *text, size_t cap);
    /* Some time has passed and nobody took the news; `text` is the news's. NULL: nothing to do. */
    void (*overdue)(void *context, dtrain_status_t status, const char *text);
    /*
     * Another rank asks `what` of `rank`, which is this one or, with sees_node, any of this node:
     * gives the lines of the answer to emit. NULL: nobody answers.
     */
    void (*answer)(void *context, int rank, int what, dt_detector_emit_fn_t emit,
                   void *emit_context);
    int sees_node; /* every rank of this node can answer for every other one, as all of them say */
    /* A line of the answer to this rank's question `number`, about `rank`; NULL: that was the last
     * line about it. NULL: answers are of no interest. */
    void (*answered)(void *context, int rank, uint32_t number, const char *line);
    void *context;
} dt_detector_hooks_t;

/* Starts the thread, once all ranks have joined. Once. OUT_OF_MEMORY. */
dtrain_status_t dt_detector_start(dt_detector_t *detector, const dt_detector_hooks_t *hooks);

/*
 * Before start: looks once at what has come, without waiting. 1 when there is news. No beats are
 * sent yet: whom they would go to may still wait for others to connect, and takes whoever talks for
 * one that gives up.
 */
int dt_detector_look(dt_detector_t *detector);

/* 1 when there is news that was not taken. Any thread; one load. */
int dt_detector_has_news(dt_detector_t *detector);

/* Takes the news: its status (RANK_LOST, or that with which another rank ended the world) and text.
 * OK when there is none. */
dtrain_status_t dt_detector_take_news(dt_detector_t *detector, char *text, size_t cap);

/*
 * The engine has ended the world: from now on there is no news. Tells all others why, unless an end
 * is known already. `rank` is whom it concerns; -1: the others know. Any thread; does not wait.
 */
void dt_detector_tell(dt_detector_t *detector, int rank, dtrain_status_t status, const char *text);

/* Writes "rank 2 on host gpu7 (pid 4711) has been stopped or stuck for 3.1 s", for all ranks from
 * which nothing has come for a while; "" and 0 when there are none. Any thread. */
size_t dt_detector_describe_silent(dt_detector_t *detector, char *text, size_t cap);

/*
 * Asks all other ranks `what`, which hooks.answer knows; with sees_node only those of other nodes.
 * *number is the question's, set before there can be an answer. Who does not answer is not heard
 * of. Any thread; does not wait.
 */
#define DT_DETECTOR_QUESTIONS 2 /* `what` is below */
void dt_detector_ask(dt_detector_t *detector, int what, _Atomic uint32_t *number);

/*
 * Says goodbye to the other detectors, so that the end of this one's connections is no loss, and
 * stops the thread. `is_over`: all ranks have called dtrain_shutdown.
 */
void dt_detector_leave(dt_detector_t *detector, int is_over);

/* Stops the thread without a word: others will take this rank for lost. */
void dt_detector_stop(dt_detector_t *detector);

/* Stops the thread and gives everything back. NULL is nothing to do. */
void dt_detector_destroy(dt_detector_t *detector);

/* In a child made by fork: closes the child's copies of descriptors. Nothing else may follow. */
void dt_detector_forget(dt_detector_t *detector);

#endif
