#include "base/sigpipe.h"

#include <time.h>

static sigset_t only_sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

void dt_sigpipe_hold(dt_sigpipe_t *held)
{
    const sigset_t set = only_sigpipe();
    pthread_sigmask(SIG_BLOCK, &set, &held->before);
    held->is_held = !sigismember(&held->before, SIGPIPE);
}

void dt_sigpipe_release(const dt_sigpipe_t *held)
{
    const sigset_t set = only_sigpipe();
    const struct timespec now = {0};
    if (!held->is_held)
        return;
    while (sigtimedwait(&set, NULL, &now) > 0)
        ;
    pthread_sigmask(SIG_SETMASK, &held->before, NULL);
}
