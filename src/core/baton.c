#include "core/baton.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "base/thread.h"
#include "core/completion.h"
#include "core/coordinator.h"
#include "core/runtime.h"
#include "core/stranded.h"

/* How often the parked thread looks whether it is needed. */
#define PARK_NS (50 * DT_NS_PER_MS)

/* Turns of an idle loop before it yields, and before it sleeps between turns. */
#define PAUSES 64
#define YIELDS 4096
#define NAP_NS (20 * DT_NS_PER_US)

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* One turn of waiting for data that is on its way: ever more patient. */
static void relax(const dt_baton_t *baton, int *turns)
{
    int turn = (*turns)++;
    if (turn < PAUSES && !baton->is_crowded) {
        pause_cpu();
    } else if (turn < YIELDS) {
        sched_yield();
    } else {
        struct timespec nap = {.tv_sec = 0, .tv_nsec = NAP_NS};
        nanosleep(&nap, NULL);
    }
}

static int64_t now(const dt_runtime_t *runtime)
{
    return runtime->clock.now(runtime->clock.context);
}

/* Something that control->wait does not see. */
static int has_news(dt_runtime_t *runtime)
{
    return atomic_load(&runtime->intake.num_queued) > 0 || atomic_load(&runtime->baton.stop) ||
           dt_errands_are_waiting(&runtime->errands) || dt_coord_has_wish(runtime);
}

/* Sleeps in control->wait. The counter is raised before the last look at what callers may have
 * left, and dt_baton_notify reads it after leaving it: one of the two sees the other. */
static void doze(dt_runtime_t *runtime, int64_t until_ns)
{
    dt_baton_t *baton = &runtime->baton;
    dt_control_t *control = runtime->world.control;
    atomic_fetch_add(&baton->dozing, 1);
    int64_t time = now(runtime);
    if (!has_news(runtime) && until_ns > time)
        control->ops->wait(control, until_ns == DT_NEVER ? DT_NEVER : until_ns - time);
    atomic_fetch_sub(&baton->dozing, 1);
}

static void wait_moved(dt_baton_t *baton, int64_t until_ns)
{
    if (until_ns == DT_NEVER) {
        pthread_cond_wait(&baton->moved, &baton->gate);
        return;
    }
    struct timespec until = {.tv_sec = until_ns / DT_NS_PER_S, .tv_nsec = until_ns % DT_NS_PER_S};
    pthread_cond_timedwait(&baton->moved, &baton->gate, &until);
}

/*
 * The background thread's turn with the baton: until there is nothing to do or a helper comes.
 * While operations are pending it stays awake a little, yielding, since the next submission or
 * message is likely near, and a sleeper costs whoever wakes it a system call. Returns when to wake
 * up at the latest.
 */
static int64_t run_turn(dt_runtime_t *runtime)
{
    dt_baton_t *baton = &runtime->baton;
    int turns = 0;
    int64_t idle_since = 0;
    for (;;) {
        dt_step_t step = dt_coord_step(runtime);
        if (atomic_load(&baton->helpers) > 0 || atomic_load(&baton->stop))
            return 0;
        if (step == DT_STEP_BUSY) {
            turns = 0;
            idle_since = 0;
        } else if (step == DT_STEP_POLL) {
            relax(baton, &turns);
        } else {
            if (atomic_load(&runtime->num_pending) == 0)
                return runtime->check_ns;
            int64_t time = now(runtime);
            if (idle_since == 0)
                idle_since = time;
            if (time - idle_since >= baton->spin_ns)
                return runtime->check_ns;
            sched_yield();
        }
    }
}

static void park(dt_baton_t *baton)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    atomic_store(&baton->is_parked, 1);
    wait_moved(baton, time.tv_sec * DT_NS_PER_S + time.tv_nsec + PARK_NS);
    atomic_store(&baton->is_parked, 0);
}

static void *thread_main(void *argument)
{
    dt_runtime_t *runtime = argument;
    dt_baton_t *baton = &runtime->baton;
    pthread_mutex_lock(&baton->gate);
    while (!atomic_load(&baton->stop)) {
        if (baton->is_held || atomic_load(&baton->helpers) > 0) {
            park(baton);
            continue;
        }
        baton->is_held = 1;
        pthread_mutex_unlock(&baton->gate);
        int64_t until_ns = run_turn(runtime);
        pthread_mutex_lock(&baton->gate);
        baton->is_held = 0;
        pthread_cond_broadcast(&baton->moved);
        if (until_ns == 0 || atomic_load(&baton->helpers) > 0)
            continue;
        baton->doze_ns = until_ns;
        pthread_mutex_unlock(&baton->gate);
        doze(runtime, until_ns);
        pthread_mutex_lock(&baton->gate);
        baton->doze_ns = 0;
        /* The wake may have been meant for a helper that dozes with the baton. */
        if (baton->is_held && atomic_load(&baton->dozing) > 0)
            runtime->world.control->ops->wake(runtime->world.control);
    }
    pthread_mutex_unlock(&baton->gate);
    return NULL;
}

static int count_cores(const dt_topology_t *topology)
{
    if (topology->local_cores > 0)
        return topology->local_cores;
    uint64_t mask[DT_CPU_WORDS];
    dt_cpu_allowed(mask);
    return dt_cpu_count(mask);
}

static int start_thread(dt_runtime_t *runtime)
{
    if (dt_thread_start(&runtime->baton.thread, "dtrain", thread_main, runtime))
        return -1;
    runtime->baton.has_thread = 1;
    return 0;
}

void dt_baton_init(dt_runtime_t *runtime)
{
    dt_baton_t *baton = &runtime->baton;
    memset(baton, 0, sizeof *baton);
    pthread_mutex_init(&baton->gate, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&baton->moved, &attributes);
    pthread_condattr_destroy(&attributes);
    const dt_topology_t *topology = &runtime->world.topology;
    baton->is_crowded = topology->local_size > count_cores(topology);
    baton->spin_ns = runtime->config.spin_ns;
    if (baton->spin_ns < 0)
        baton->spin_ns = (baton->is_crowded ? 50 : 100) * DT_NS_PER_US;
}

int dt_baton_start(dt_runtime_t *runtime)
{
    return runtime->world.control ? start_thread(runtime) : 0;
}

int dt_baton_stop(dt_runtime_t *runtime, int64_t limit_ns)
{
    dt_baton_t *baton = &runtime->baton;
    if (!baton->has_thread)
        return 0;
    atomic_store(&baton->stop, 1);
    dt_baton_tell_all(runtime);
    runtime->world.control->ops->wake(runtime->world.control);
    if (dt_thread_join(baton->thread, limit_ns) != 0)
        return -1;
    baton->has_thread = 0;
    return 0;
}

void dt_baton_free(dt_runtime_t *runtime)
{
    pthread_cond_destroy(&runtime->baton.moved);
    pthread_mutex_destroy(&runtime->baton.gate);
}

static int never_done(void *argument)
{
    (void)argument;
    return 0;
}

/* Who waits at once submits without a notice, and whoever steps may be asleep. */
static void wake_for_news(dt_runtime_t *runtime)
{
    if (atomic_load(&runtime->baton.dozing) > 0 && has_news(runtime))
        runtime->world.control->ops->wake(runtime->world.control);
}

/* Sleeps until something moved, unless it is done. [gate held] */
static void sleep_until_moved(dt_runtime_t *runtime, int (*is_done)(void *argument), void *argument,
                              int64_t until_ns)
{
    dt_baton_t *baton = &runtime->baton;
    atomic_fetch_add(&baton->sleepers, 1);
    wake_for_news(runtime);
    if (!is_done(argument) && !dt_is_stranded(runtime))
        wait_moved(baton, until_ns);
    atomic_fetch_sub(&baton->sleepers, 1);
}

/* Takes the baton when it is free, else waits until something moved. [gate held] */
static int take_or_wait(dt_runtime_t *runtime, int (*is_done)(void *argument), void *argument,
                        int64_t until_ns)
{
    dt_baton_t *baton = &runtime->baton;
    if (!baton->is_held) {
        baton->is_held = 1;
        return 1;
    }
    sleep_until_moved(runtime, is_done, argument, until_ns);
    return 0;
}

static void run_here(dt_runtime_t *runtime)
{
    dt_baton_t *baton = &runtime->baton;
    pthread_mutex_lock(&baton->gate);
    while (!take_or_wait(runtime, never_done, NULL, DT_NEVER)) {
    }
    pthread_mutex_unlock(&baton->gate);
    while (dt_coord_step(runtime) != DT_STEP_IDLE) {
    }
    pthread_mutex_lock(&baton->gate);
    baton->is_held = 0;
    pthread_cond_broadcast(&baton->moved);
    pthread_mutex_unlock(&baton->gate);
}

void dt_baton_notify(dt_runtime_t *runtime)
{
    dt_baton_t *baton = &runtime->baton;
    /* Who is in a callback holds the baton, and steps on when it returns. */
    if (dt_is_in_callback(runtime))
        return;
    if (!runtime->world.control) {
        run_here(runtime);
        return;
    }
    if (atomic_load(&baton->dozing) > 0) {
        runtime->world.control->ops->wake(runtime->world.control);
        return;
    }
    /* It parks only beside a helper, who looks at what was left here when it leaves. */
    if (!atomic_load(&baton->is_parked))
        return;
    pthread_mutex_lock(&baton->gate);
    if (atomic_load(&baton->is_parked) && !baton->is_held)
        pthread_cond_broadcast(&baton->moved);
    pthread_mutex_unlock(&baton->gate);
}

void dt_baton_tell(dt_runtime_t *runtime)
{
    dt_baton_t *baton = &runtime->baton;
    if (atomic_load(&baton->sleepers) == 0)
        return;
    pthread_mutex_lock(&baton->gate);
    pthread_cond_broadcast(&baton->moved);
    pthread_mutex_unlock(&baton->gate);
}

void dt_baton_tell_all(dt_runtime_t *runtime)
{
    dt_baton_t *baton = &runtime->baton;
    pthread_mutex_lock(&baton->gate);
    pthread_cond_broadcast(&baton->moved);
    pthread_mutex_unlock(&baton->gate);
}

/* A helper's turn with the baton. */
static void help_turn(dt_runtime_t *runtime, int (*is_done)(void *argument), void *argument,
                      int64_t deadline_ns)
{
    dt_baton_t *baton = &runtime->baton;
    int turns = 0;
    int64_t idle_since = 0;
    while (!is_done(argument)) {
        dt_step_t step = dt_coord_step(runtime);
        if (step == DT_STEP_BUSY) {
            turns = 0;
            idle_since = 0;
            continue;
        }
        int64_t time = now(runtime);
        if (time >= deadline_ns)
            return;
        if (idle_since == 0)
            idle_since = time;
        if (step == DT_STEP_POLL || time - idle_since < baton->spin_ns || !runtime->world.control)
            relax(baton, &turns);
        else if (!is_done(argument))
            doze(runtime, deadline_ns < runtime->check_ns ? deadline_ns : runtime->check_ns);
    }
}

/* Whether the background thread has something to do, now or before it would look by itself.
 * [gate held] */
static int is_thread_needed(dt_runtime_t *runtime)
{
    dt_baton_t *baton = &runtime->baton;
    if (baton->is_held || atomic_load(&baton->helpers) > 0)
        return 0;
    return atomic_load(&runtime->num_pending) > 0 || atomic_load(&runtime->intake.num_queued) > 0 ||
           dt_errands_are_waiting(&runtime->errands) || runtime->check_ns < baton->doze_ns;
}

/* Lets the background thread go on with what is left. [gate held] */
static void hand_over(dt_runtime_t *runtime)
{
    dt_baton_t *baton = &runtime->baton;
    int is_needed = is_thread_needed(runtime);
    if (atomic_load(&baton->sleepers) > 0 || (is_needed && atomic_load(&baton->is_parked)))
        pthread_cond_broadcast(&baton->moved);
    else if (is_needed && baton->has_thread)
        runtime->world.control->ops->wake(runtime->world.control);
}

/* Waits for the background thread, at first awake. */
static int wait_for_thread(dt_runtime_t *runtime, int (*is_done)(void *argument), void *argument,
                           int64_t deadline_ns)
{
    dt_baton_t *baton = &runtime->baton;
    int64_t sleep_ns = now(runtime) + baton->spin_ns;
    int turns = 0;
    wake_for_news(runtime);
    while (!is_done(argument) && now(runtime) < sleep_ns)
        relax(baton, &turns);
    pthread_mutex_lock(&baton->gate);
    while (!is_done(argument) && now(runtime) < deadline_ns && !dt_is_stranded(runtime))
        sleep_until_moved(runtime, is_done, argument, deadline_ns);
    pthread_mutex_unlock(&baton->gate);
    return is_done(argument);
}

int dt_baton_help(dt_runtime_t *runtime, int (*is_done)(void *argument), void *argument,
                  int64_t deadline_ns)
{
    if (is_done(argument) || dt_is_in_callback(runtime))
        return is_done(argument);
    if (runtime->world.may_hang)
        return wait_for_thread(runtime, is_done, argument, deadline_ns);
    dt_baton_t *baton = &runtime->baton;
    atomic_fetch_add(&baton->helpers, 1);
    pthread_mutex_lock(&baton->gate);
    int done;
    do {
        if (!take_or_wait(runtime, is_done, argument, deadline_ns))
            continue;
        pthread_mutex_unlock(&baton->gate);
        help_turn(runtime, is_done, argument, deadline_ns);
        pthread_mutex_lock(&baton->gate);
        baton->is_held = 0;
    } while (!(done = is_done(argument)) && now(runtime) < deadline_ns && !dt_is_stranded(runtime));
    atomic_fetch_sub(&baton->helpers, 1);
    hand_over(runtime);
    pthread_mutex_unlock(&baton->gate);
    return done;
}
