/*
 * baton.h - who runs the coordinator: one thread at a time, the one that holds the baton. That is
 * the background thread, or a caller that waits and steps the coordinator itself meanwhile ("help
 * while waiting"), so that a small synchronous operation costs no thread switch.
 *
 * The background thread sleeps in control->wait without the baton. While helpers are there it
 * keeps out of the way (parked); it looks again every PARK_NS, and is called at once when the last
 * helper leaves with operations pending.
 */
#ifndef DT_CORE_BATON_H
#define DT_CORE_BATON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct dt_runtime dt_runtime_t;

typedef struct dt_baton {
    pthread_mutex_t gate;
    pthread_cond_t moved; /* [gate] the baton is free, or something is done */
    int is_held;          /* [gate] */
    _Atomic int
        is_parked;   /* [atomic] the background thread waits for `moved`; written under the gate */
    int64_t doze_ns; /* [gate] when the dozing background thread looks again; else 0 */
    _Atomic int helpers;  /* [atomic] callers in dt_baton_help */
    _Atomic int sleepers; /* [atomic] helpers that wait for `moved` */
    _Atomic int dozing;   /* [atomic] threads in, or about to enter, control->wait */
    _Atomic int stop;     /* [atomic] the background thread is to end */
    int has_thread;       /* [const] after start */
    pthread_t thread;
    int64_t spin_ns; /* [const] how long a helper spins before it sleeps */
    int is_crowded;  /* [const] more ranks here than cores: yield at once */
} dt_baton_t;

void dt_baton_init(dt_runtime_t *runtime);

/* Starts the background thread, unless the world is of one. 0, or -1. */
int dt_baton_start(dt_runtime_t *runtime);

/* Ends the background thread and waits for it, at most for limit_ns. 0, or -1: it is stuck. */
int dt_baton_stop(dt_runtime_t *runtime, int64_t limit_ns);
void dt_baton_free(dt_runtime_t *runtime);

/* After something was put where the coordinator finds it, by a sequentially consistent store: makes
 * sure that someone looks. In a world of one the caller itself does. */
void dt_baton_notify(dt_runtime_t *runtime);

/* By the holder, after it marked something as done, likewise: wakes helpers that wait for it. */
void dt_baton_tell(dt_runtime_t *runtime);

/* Wakes all helpers that wait. Any thread. */
void dt_baton_tell_all(dt_runtime_t *runtime);

/* Steps the coordinator, or waits for whoever does, until is_done(argument) or `deadline_ns`; does
 * what can be done now even when that has passed, or the engine is stranded. Returns is_done's last
 * answer. */
int dt_baton_help(dt_runtime_t *runtime, int (*is_done)(void *argument), void *argument,
                  int64_t deadline_ns);

#endif
