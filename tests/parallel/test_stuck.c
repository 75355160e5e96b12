/*
 * test_stuck test|cancel|init FILE
 * The last rank is killed while data moves over MPI, and the call of MPI that the argument names
 * never returns on the others from then on, as it happens with Open MPI 4: they get their error,
 * and out of dtrain_shutdown, all the same. init: so it is in dtrain_init, though nobody dies. The
 * program's own MPI_Test and MPI_Cancel stand before MPI's. Each survivor adds a line to the file;
 * survivors.sh counts them.
 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define EXPORTED __attribute__((visibility("default")))

enum { CALLS = 40 }; /* of MPI_Test, in the midst of the data */

static int is_victim, is_test_stuck, is_cancel_stuck; /* set before `left` */
static _Atomic int left;                              /* calls until it happens; 0: nothing does */
static _Atomic int num_stuck;

static void be_stuck(void)
{
    atomic_fetch_add(&num_stuck, 1);
    for (;;)
        pause();
}

EXPORTED int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    if (atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1) {
        if (is_victim)
            raise(SIGKILL);
        if (is_test_stuck)
            be_stuck();
    }
    return PMPI_Test(request, flag, status);
}

EXPORTED int MPI_Cancel(MPI_Request *request)
{
    if (is_cancel_stuck)
        be_stuck();
    return PMPI_Cancel(request);
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void expect_lost(dtrain_status_t status, int who)
{
    char text[64];
    snprintf(text, sizeof text, "rank %d on", who);
    CHECK_STATUS(status, DTRAIN_ERR_RANK_LOST);
    CHECK_ERROR_HAS(text);
}

static void lose(int who)
{
    enum { COUNT = 1 << 22 };
    static float values[COUNT];
    double start = seconds();
    atomic_store(&left, CALLS);
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < 1000 && status == DTRAIN_OK; i++)
        status = dtrain_allreduce("large", values, values, COUNT, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    expect_lost(status, who);
    expect_lost(dtrain_barrier(), who);
    expect_lost(dtrain_shutdown(), who);
    CHECK(seconds() - start < 15);
    CHECK(!dtrain_is_initialized());
    CHECK(atomic_load(&num_stuck) == 1);
    /* MPI may be in that call for ever. */
    CHECK_STATUS(dtrain_init(NULL), DTRAIN_ERR_COMMUNICATION);
}

static void begin_stuck(void)
{
    dtrain_config_t config;
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    config.init_timeout_ms = 500;
    is_test_stuck = 1;
    atomic_store(&left, 3);
    CHECK_STATUS(dtrain_init(&config), DTRAIN_ERR_TIMEOUT);
    CHECK_ERROR_HAS("MPI has not come back");
    CHECK(!dtrain_is_initialized());
    CHECK_STATUS(dtrain_init(NULL), DTRAIN_ERR_COMMUNICATION);
}

static int tell(const char *path)
{
    int file = open(path, O_WRONLY | O_APPEND);
    if (file < 0)
        return -1;
    ssize_t written = write(file, "survived\n", 9);
    close(file);
    return written == 9 ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    check_begin("test_stuck", 30);
    if (strcmp(argv[1], "init") == 0) {
        begin_stuck();
    } else if (CHECK_OK(check_init(0))) {
        check_works("before");
        int last = dtrain_size() - 1;
        is_victim = dtrain_rank() == last;
        is_test_stuck = strcmp(argv[1], "test") == 0;
        is_cancel_stuck = strcmp(argv[1], "cancel") == 0;
        lose(last);
    }
    int failed = check_end();
    return failed || tell(argv[2]) ? 1 : 0;
}
