#include "comm/mpi/mpi_call.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/mpi/mpi_escape.h"

/* Others are mostly here within microseconds; a rank that starts late is worth no busy core. */
#define EAGER_TESTS 200
#define PAUSE_NS (200 * DT_NS_PER_US)

/* MPI with fault tolerance may say itself that a rank is lost, though not which. */
static dtrain_status_t status_of(int code)
{
#ifdef MPI_ERR_PROC_FAILED
    int class = 0;
    if (MPI_Error_class(code, &class) == MPI_SUCCESS &&
        (class == MPI_ERR_PROC_FAILED || class == MPI_ERR_PROC_FAILED_PENDING))
        return DTRAIN_ERR_RANK_LOST;
#else
    (void)code;
#endif
    return DTRAIN_ERR_COMMUNICATION;
}

dtrain_status_t dt_mpi_check(int code, const char *what)
{
    if (code == MPI_SUCCESS)
        return DTRAIN_OK;
    if (code == DT_MPI_ESCAPED)
        return dt_fail(DTRAIN_ERR_RANK_LOST,
                       "%s failed: MPI has lost its connection to another rank", what);
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "%s failed with MPI error %d", what, code);
    for (char *at = text; *at; at++) {
        if (*at == '\n') /* MPICH tells where it was, a line a function */
            *at = ' ';
    }
    return dt_fail(status_of(code), "%s failed: %s", what, text);
}

typedef struct test {
    MPI_Request *request;
    int done;
} test_t;

static int call_test(void *arguments)
{
    test_t *test = arguments;
    return MPI_Test(test->request, &test->done, MPI_STATUS_IGNORE);
}

dtrain_status_t dt_mpi_finish(MPI_Request *request, int64_t deadline_ns, const char *what)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (int tests = 0;; tests++) {
        test_t test = {.request = request};
        dtrain_status_t status = dt_mpi_check(dt_mpi_guard(call_test, &test), what);
        if (status != DTRAIN_OK || test.done)
            return status;
        if (dt_now_ns() >= deadline_ns)
            return DTRAIN_ERR_TIMEOUT;
        if (tests < EAGER_TESTS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}
