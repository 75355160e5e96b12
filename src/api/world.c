#include "api/world.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "api/flight.h"
#include "base/isa.h"
#include "base/log.h"
#include "base/status.h"

/* The world. `runtime` is published last and withdrawn first; `users` counts threads that may be
 * using it. `lifecycle` keeps init and shutdown apart. */
static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;
static dt_runtime_t *_Atomic published; /* [atomic] written with the lock */
static _Atomic int users;               /* [atomic] */
static uint64_t generation;             /* [lock]; a reader has seen `published` */
static _Atomic int is_forked;           /* [atomic] this is a child of a process with a world */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* In the child of a fork there is no background thread, and the sockets are the parent's. */
static void after_fork_in_child(void)
{
    dt_runtime_t *runtime = atomic_load(&published);
    if (!runtime || atomic_exchange(&is_forked, 1))
        return;
    dt_control_t *control = runtime->world.control;
    if (control && control->ops->forget)
        control->ops->forget(control);
    if (runtime->world.detector)
        dt_detector_forget(runtime->world.detector);
}

/* A process that ends without dtrain_shutdown: the thread must not run while the libraries below
 * it are taken down. The other ranks learn of it when the kernel closes the connections. */
static void at_exit(void)
{
    dt_runtime_t *runtime = atomic_load(&published);
    if (runtime && !atomic_load(&is_forked))
        dt_runtime_stop_thread(runtime);
}

static void set_up_process(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
    atexit(at_exit);
}

dt_runtime_t *dt_api_peek(void)
{
    if (atomic_load(&is_forked))
        return NULL;
    atomic_fetch_add(&users, 1);
    dt_runtime_t *runtime = atomic_load(&published);
    if (!runtime)
        atomic_fetch_sub(&users, 1);
    return runtime;
}

dt_runtime_t *dt_api_enter(dtrain_status_t *status)
{
    dt_runtime_t *runtime = dt_api_peek();
    if (runtime)
        return runtime;
    if (atomic_load(&is_forked))
        *status = dt_fail(DTRAIN_ERR_FORKED,
                          "this process was forked after dtrain_init: only the parent may use "
                          "libdtrain");
    else
        *status = dt_fail(DTRAIN_ERR_NOT_INITIALIZED, "dtrain_init has not been called");
    return NULL;
}

uint64_t dt_api_generation(void)
{
    return generation;
}

void dt_api_leave(void)
{
    atomic_fetch_sub(&users, 1);
}

/* In a callback `lifecycle` must not be waited for: who holds it may be waiting for the callback.
 */
static dtrain_status_t refuse_in_callback(const char *call)
{
    dt_runtime_t *runtime = dt_api_peek();
    if (!runtime)
        return DTRAIN_OK;
    dtrain_status_t status = dt_runtime_may_block(runtime, call);
    dt_api_leave();
    return status;
}

static dtrain_status_t init_locked(const dtrain_config_t *user, dt_api_join_fn_t join,
                                   const void *argument)
{
    if (atomic_load(&is_forked))
        return dt_fail(DTRAIN_ERR_FORKED, "this process was forked after dtrain_init: start ranks "
                                          "before, or without fork");
    if (atomic_load(&published))
        return dt_fail(DTRAIN_ERR_ALREADY_INITIALIZED,
                       "dtrain_init has been called already, without dtrain_shutdown");
    dt_config_t config;
    dtrain_status_t status = dt_config_resolve(user, &config);
    if (status != DTRAIN_OK)
        dt_config_faulty(&config, status); /* the other ranks must learn of it */
    dt_isa_set_cap(config.isa);
    dt_world_t world = {0};
    status = join(argument, &config, &world);
    if (status != DTRAIN_OK)
        return status;
    dt_log_set_rank(world.topology.rank);
    pthread_once(&once, set_up_process);
    dt_runtime_t *runtime;
    status = dt_runtime_create(&world, &config, NULL, &runtime);
    if (status != DTRAIN_OK)
        return status;
    status = dt_flight_watch_start(runtime);
    if (status != DTRAIN_OK) {
        dt_runtime_destroy(runtime); /* lost for the others, who must not wait for it */
        return status;
    }
    generation++;
    atomic_store(&published, runtime);
    return status;
}

dtrain_status_t dt_api_init(const dtrain_config_t *config, dt_api_join_fn_t join,
                            const void *argument)
{
    dtrain_status_t status = refuse_in_callback("dtrain_init");
    if (status != DTRAIN_OK)
        return status;
    pthread_mutex_lock(&lifecycle);
    status = init_locked(config, join, argument);
    pthread_mutex_unlock(&lifecycle);
    return status;
}

static dtrain_status_t shutdown_locked(void)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_runtime_shutdown(runtime);
    dt_flight_watch_stop();
    atomic_store(&published, NULL);
    dt_api_leave();
    /* Others are on their way out: what they waited for has ended. */
    while (atomic_load(&users) > 0 && !dt_runtime_is_stranded(runtime))
        sched_yield();
    dt_runtime_destroy(runtime);
    dt_log_set_rank(-1);
    return status;
}

dtrain_status_t dtrain_shutdown(void)
{
    dtrain_status_t status = refuse_in_callback("dtrain_shutdown");
    if (status != DTRAIN_OK)
        return status;
    pthread_mutex_lock(&lifecycle);
    status = shutdown_locked();
    pthread_mutex_unlock(&lifecycle);
    return status;
}
