#include "comm/mpi/mpi_aside.h"

#include "base/memory.h"
#include "base/sigpipe.h"
#include "base/thread.h"
#include "comm/mpi/mpi_escape.h"

typedef struct aside {
    void (*call)(void *argument);
    void *argument;
} aside_t;

static void *thread_main(void *argument)
{
    aside_t aside = *(aside_t *)argument;
    dt_free(argument);
    aside.call(aside.argument);
    return NULL;
}

static int start(pthread_t *thread, void (*call)(void *argument), void *argument)
{
    aside_t *aside = dt_alloc(sizeof *aside);
    if (!aside)
        return -1;
    *aside = (aside_t){.call = call, .argument = argument};
    if (dt_thread_start(thread, "dtrain-mpi", thread_main, aside) == 0)
        return 0;
    dt_free(aside);
    return -1;
}

int dt_mpi_aside(void (*call)(void *argument), void *argument, int64_t limit_ns)
{
    pthread_t thread;
    if (start(&thread, call, argument) != 0) {
        dt_sigpipe_t held;
        dt_sigpipe_hold(&held);
        call(argument);
        dt_sigpipe_release(&held);
        return 0;
    }
    if (dt_thread_join(thread, limit_ns) == 0)
        return 0;
    pthread_detach(thread);
    dt_mpi_give_up();
    return 1;
}
