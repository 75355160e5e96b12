#include "base/thread.h"

#include <signal.h>
#include <time.h>

#include "base/clock.h"

int dt_thread_start(pthread_t *thread, const char *name, void *(*main)(void *argument),
                    void *argument)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error)
        pthread_setname_np(*thread, name);
    return error;
}

/* By the clock of the wall: so is the one timed join that ThreadSanitizer knows. */
int dt_thread_join(pthread_t thread, int64_t limit_ns)
{
    struct timespec until;
    if (limit_ns == DT_NEVER)
        return pthread_join(thread, NULL) ? -1 : 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(limit_ns / DT_NS_PER_S);
    until.tv_nsec += (long)(limit_ns % DT_NS_PER_S);
    if (until.tv_nsec >= DT_NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= DT_NS_PER_S;
    }
    return pthread_timedjoin_np(thread, NULL, &until) ? -1 : 0;
}
