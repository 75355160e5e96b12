#include "comm/mpi/mpi_library.h"

#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "comm/mpi/mpi_call.h"
#include "comm/mpi/mpi_escape.h"
#include "comm/mpi/mpi_tuning.h"
#include "comm/mpi/mpi_world.h"

static struct {
    pthread_mutex_t lock;
    int is_ours;    /* [lock] we initialised MPI */
    pid_t pid;      /* [lock] the process that did: a child of fork must leave MPI alone */
    int num_worlds; /* [lock] entered and not left */
    int is_unclean; /* [lock] a world was not left cleanly */
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int was_finalized(void)
{
    int finalized = 0;
    return MPI_Finalized(&finalized) != MPI_SUCCESS || finalized;
}

static int was_initialized(void)
{
    int initialized = 0;
    return MPI_Initialized(&initialized) == MPI_SUCCESS && initialized;
}

int dt_mpi_is_active(void)
{
    return was_initialized() && !was_finalized();
}

static const char *level_name(int level)
{
    switch (level) {
    case MPI_THREAD_SINGLE:
        return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
        return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
        return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE:
        return "MPI_THREAD_MULTIPLE";
    default:
        return "an unknown thread level";
    }
}

/*
 * Open MPI 4 sends its help texts to mpirun and waits for the answer, inside whatever MPI call made
 * it write one. When a peer's TCP connection ends there is one, and with some versions of PMIx no
 * answer: MPI_Test never returns. Once MPI is up nobody misses them, so they are turned off, by the
 * variable behind its parameter orte_execute_quiet, which cannot be set any more in another way.
 * Where there is no such variable, as in Open MPI 5 and other MPIs, there is no such wait either.
 */
static void turn_help_texts_off(void)
{
    bool *is_quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet");
    if (is_quiet)
        *is_quiet = true;
}

static void finalize_at_exit(void)
{
    pthread_mutex_lock(&library.lock);
    int may_finalize = library.is_ours && library.pid == getpid() && library.num_worlds == 0 &&
                       !library.is_unclean && !dt_mpi_has_escaped() && !was_finalized();
    pthread_mutex_unlock(&library.lock);
    if (may_finalize)
        MPI_Finalize();
}

/* Under the lock. */
static dtrain_status_t initialize(void)
{
    int level = MPI_THREAD_SINGLE;
    dt_mpi_tune();
    dtrain_status_t status =
        dt_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    if (status != DTRAIN_OK)
        return status;
    library.is_ours = 1;
    library.pid = getpid();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (atexit(finalize_at_exit) != 0)
        dt_log(DTRAIN_LOG_WARN, "mpi", "MPI will not be finalized at exit: atexit failed");
    dt_log(DTRAIN_LOG_DEBUG, "mpi", "initialised MPI with %s", level_name(level));
    return DTRAIN_OK;
}

/*
 * Whoever holds the runtime's baton calls MPI, on any thread but one at a time: that is
 * MPI_THREAD_SERIALIZED. An application that calls MPI itself at the same time needs MULTIPLE;
 * one that left MPI to us is known not to have started so.
 */
static dtrain_status_t check_level(dtrain_mpi_threads_t threads, int *may_call)
{
    int level = MPI_THREAD_SINGLE;
    int is_main = 0;
    dtrain_status_t status = dt_mpi_check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (status != DTRAIN_OK)
        return status;
    *may_call =
        level >= MPI_THREAD_SERIALIZED || (MPI_Is_thread_main(&is_main) == MPI_SUCCESS && is_main);
    int is_promised = threads == DTRAIN_MPI_THREADS_SERIALIZED || library.is_ours;
    if (level >= (is_promised ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE))
        return DTRAIN_OK;
    if (library.is_ours)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "this MPI offers only %s; libdtrain needs MPI_THREAD_SERIALIZED",
                       level_name(level));
    return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                   "the application initialised MPI with %s; libdtrain needs MPI_THREAD_MULTIPLE, "
                   "or MPI_THREAD_SERIALIZED with DTRAIN_MPI_THREADS=serialized if the "
                   "application makes no MPI call while libdtrain is initialised",
                   level_name(level));
}

/* Under the lock. */
static dtrain_status_t enter(dtrain_mpi_threads_t threads, int has_comm, int *may_call)
{
    if (was_finalized())
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "MPI was finalized already, and cannot be initialised twice in a process");
    if (dt_mpi_has_escaped())
        return dt_fail(
            DTRAIN_ERR_COMMUNICATION,
            "MPI lost its connection to another rank earlier, and cannot be used in this "
            "process any more");
    if (library.is_ours && library.pid != getpid())
        return dt_fail(DTRAIN_ERR_FORKED,
                       "this process was forked from one that had initialised MPI (pid %d)",
                       (int)library.pid);
    if (!was_initialized()) {
        if (has_comm)
            return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                           "MPI is not initialised yet: call MPI_Init_thread with "
                           "MPI_THREAD_MULTIPLE before dtrain_init_mpi, or call dtrain_init");
        dtrain_status_t status = initialize();
        if (status != DTRAIN_OK)
            return status;
    }
    return check_level(threads, may_call);
}

dtrain_status_t dt_mpi_library_enter(dtrain_mpi_threads_t threads, int has_comm, int *may_call)
{
    *may_call = 0;
    pthread_mutex_lock(&library.lock);
    dtrain_status_t status = enter(threads, has_comm, may_call);
    if (status == DTRAIN_OK || *may_call) {
        library.num_worlds++;
        turn_help_texts_off();
        dt_mpi_escape_install();
    }
    pthread_mutex_unlock(&library.lock);
    return status;
}

void dt_mpi_library_leave(int clean)
{
    pthread_mutex_lock(&library.lock);
    library.num_worlds--;
    if (!clean)
        library.is_unclean = 1;
    pthread_mutex_unlock(&library.lock);
}
