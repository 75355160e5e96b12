#include "api/flight.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#include "api/world.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"

/* Signals belong to the process, so this is global, as the world is. The handler reads what was set
 * before it was installed. */
static struct {
    int number;              /* [lifecycle] 0: none is watched */
    int is_ready;            /* [lifecycle] the semaphore is made, once for ever */
    struct sigaction before; /* [const] while it is watched */
    sem_t wanted;            /* posted by the handler, and to end the thread */
    _Atomic int is_over;     /* [atomic] */
    pthread_t thread;
} watch;

static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } known[] = {{"hup", SIGHUP},   {"usr1", SIGUSR1}, {"usr2", SIGUSR2},
                 {"quit", SIGQUIT}, {"urg", SIGURG},   {"winch", SIGWINCH}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0)
            return known[i].number;
    }
    return 0;
}

static int has_handler(void)
{
    return (watch.before.sa_flags & SA_SIGINFO) ||
           (watch.before.sa_handler != SIG_DFL && watch.before.sa_handler != SIG_IGN);
}

/* The program's handler from before is called as if it had been called alone. */
static void handle(int number, siginfo_t *info, void *machine)
{
    int saved_errno = errno;
    sem_post(&watch.wanted);
    errno = saved_errno;
    if (has_handler() && (watch.before.sa_flags & SA_SIGINFO))
        watch.before.sa_sigaction(number, info, machine);
    else if (has_handler())
        watch.before.sa_handler(number);
}

static void *thread_main(void *argument)
{
    for (;;) {
        while (sem_wait(&watch.wanted) != 0) {
        }
        if (atomic_load(&watch.is_over))
            return NULL;
        dt_dump_on_request(argument, "asked for by a signal");
    }
}

dtrain_status_t dt_flight_watch_start(dt_runtime_t *runtime)
{
    int number = signal_number(runtime->config.flight_signal);
    if (number == 0)
        return DTRAIN_OK;
    if (!watch.is_ready)
        sem_init(&watch.wanted, 0, 0);
    watch.is_ready = 1;
    while (sem_trywait(&watch.wanted) == 0) {
    }
    atomic_store(&watch.is_over, 0);
    int error = dt_thread_start(&watch.thread, "dtrain-flight", thread_main, runtime);
    if (error)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "cannot start the thread for flight_signal: %s",
                       strerror(error));
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigaction(number, NULL, &watch.before);
    action.sa_mask = watch.before.sa_mask;
    /* Whether calls are interrupted is the program's choice, if it has made one. */
    action.sa_flags |=
        has_handler() ? watch.before.sa_flags & (SA_ONSTACK | SA_RESTART) : SA_RESTART;
    watch.number = number;
    sigaction(number, &action, NULL);
    return DTRAIN_OK;
}

void dt_flight_watch_stop(void)
{
    struct sigaction now;
    if (watch.number == 0)
        return;
    sigaction(watch.number, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle)
        sigaction(watch.number, &watch.before, NULL);
    else
        dt_log(DTRAIN_LOG_INFO, "api", "the program has a handler of its own for flight_signal");
    atomic_store(&watch.is_over, 1);
    sem_post(&watch.wanted);
    pthread_join(watch.thread, NULL);
    watch.number = 0;
}

dtrain_status_t dtrain_flight_dump(const char *path)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = path && path[0]
                 ? dt_dump_write(runtime, path, "asked for by dtrain_flight_dump")
                 : dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_flight_dump: there is no path");
    dt_api_leave();
    return status;
}
