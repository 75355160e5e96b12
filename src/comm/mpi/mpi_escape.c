#include "comm/mpi/mpi_escape.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "comm/mpi/mpi_segments.h"

typedef void (*abort_fn_t)(int code, bool report);

/* The beginning of Open MPI's orte_ess_base_module_t, the same in versions 2 to 4; later versions
 * have no such variable. */
typedef struct ess {
    int (*init)(void);
    int (*finalize)(void);
    abort_fn_t abort;
} ess_t;

/* A transport's connection to `process` is broken. */
typedef void (*broken_fn_t)(void *transport, int32_t flags, void *process, char *info);

/* The beginning of Open MPI's mca_bml_base_module_t, the same from version 4 on. */
typedef struct bml {
    void *component; /* NULL: no transports are in use through this */
    void (*others[7])(void);
    int (*register_error)(broken_fn_t broken);
} bml_t;

/* Flags of libevent's loop, which Open MPI takes as they are. */
#define LOOP_ONCE 1
#define LOOP_NONBLOCK 2

/* Of the process, as MPI is. */
static abort_fn_t original_abort; /* set before guarded calls are made, as the next is */
static broken_fn_t original_broken;
static _Atomic int has_escaped;    /* [atomic] */
static _Thread_local jmp_buf *way; /* out of the guarded call that this thread is in, or NULL */

static void leave_alone(void)
{
    if (!atomic_exchange(&has_escaped, 1))
        dt_log(DTRAIN_LOG_INFO, "mpi",
               "MPI would have ended this process: it is left alone from now on");
}

static void escape(int code, bool report)
{
    jmp_buf *out = way;
    if (!out) { /* as when the launcher is gone */
        dt_mpi_segments_remove();
        original_abort(code, report);
        return;
    }
    way = NULL;
    leave_alone();
    longjmp(*out, 1);
}

static void broken(void *transport, int32_t flags, void *process, char *info)
{
    /* Without a process it is news of another kind. */
    if (way && process)
        leave_alone();
    else
        original_broken(transport, flags, process, info);
}

static void install_for_4(void)
{
    ess_t *ess = dlsym(RTLD_DEFAULT, "orte_ess");
    if (!ess || !ess->abort || ess->abort == escape)
        return;
    original_abort = ess->abort;
    ess->abort = escape;
}

/* Open MPI 4 goes on polling a connection that it has closed, which then always has news, and by
 * default its event loop, and so MPI_Test, ends only where there is none. Now it ends after each
 * round. */
static void end_loops_early(void)
{
    int (*set_flag)(int flag) = NULL;
    void *function = dlsym(RTLD_DEFAULT, "opal_progress_set_event_flag");
    if (!function)
        return;
    memcpy(&set_flag, &function, sizeof function);
    set_flag(LOOP_ONCE | LOOP_NONBLOCK);
}

static void install_for_5(void)
{
    const bool *is_tolerant = dlsym(RTLD_DEFAULT, "ompi_ftmpi_enabled");
    const bml_t *bml = dlsym(RTLD_DEFAULT, "mca_bml");
    void *handler = dlsym(RTLD_DEFAULT, "mca_pml_ob1_error_handler");
    if (!is_tolerant || *is_tolerant || !bml || !bml->component || !handler || original_broken)
        return;
    memcpy(&original_broken, &handler, sizeof handler);
    bml->register_error(broken);
}

void dt_mpi_escape_install(void)
{
    install_for_4();
    install_for_5();
    end_loops_early();
}

int dt_mpi_guard(int (*call)(void *arguments), void *arguments)
{
    jmp_buf here;
    if (dt_mpi_has_escaped())
        return DT_MPI_ESCAPED;
    if (_setjmp(here) != 0)
        return DT_MPI_ESCAPED;
    way = &here;
    int code = call(arguments);
    way = NULL;
    return dt_mpi_has_escaped() ? DT_MPI_ESCAPED : code;
}

int dt_mpi_has_escaped(void)
{
    return atomic_load_explicit(&has_escaped, memory_order_relaxed);
}

void dt_mpi_give_up(void)
{
    if (!atomic_exchange(&has_escaped, 1))
        dt_log(DTRAIN_LOG_INFO, "mpi", "a call of MPI does not come back: no more are made");
}
