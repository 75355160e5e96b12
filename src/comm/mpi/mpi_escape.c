#include "comm/mpi/mpi_escape.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"

typedef void (*abort_fn_t)(int code, bool report);

/* The beginning of Open MPI's orte_ess_base_module_t, the same in versions 2 to 4; later versions
 * have no such variable. */
typedef struct ess {
    int (*init)(void);
    int (*finalize)(void);
    abort_fn_t abort;
} ess_t;

/* Of the process, as MPI is. */
static abort_fn_t original;        /* set before guarded calls are made */
static _Atomic int has_escaped;    /* [atomic] */
static _Thread_local jmp_buf *way; /* out of the guarded call that this thread is in, or NULL */

static void escape(int code, bool report)
{
    jmp_buf *out = way;
    if (!out) {
        original(code, report);
        return;
    }
    way = NULL;
    atomic_store(&has_escaped, 1);
    dt_log(DTRAIN_LOG_INFO, "mpi",
           "MPI would have ended this process (code %d): it is left alone from now on", code);
    longjmp(*out, 1);
}

void dt_mpi_escape_install(void)
{
    ess_t *ess = dlsym(RTLD_DEFAULT, "orte_ess");
    if (!ess || !ess->abort || ess->abort == escape)
        return;
    original = ess->abort;
    ess->abort = escape;
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
    return code;
}

int dt_mpi_has_escaped(void)
{
    return atomic_load_explicit(&has_escaped, memory_order_relaxed);
}
