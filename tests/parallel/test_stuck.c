/*
 * test_stuck test|cancel|init FILE
 * Of two ranks, rank 0 kills the other while data moves over MPI, and the call of MPI that the
 * argument names never returns from then on, as it happens with Open MPI 4: it gets its error, and
 * out of dtrain_shutdown, all the same. init: so it is on both in dtrain_init, though nobody dies.
 * The program's own functions stand before MPI's. Each survivor adds a line to the file;
 * survivors.sh counts them.
 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define EXPORTED __attribute__((visibility("default")))

enum { CALLS = 40 }; /* until it happens, in the midst of the data */

static int is_test_stuck, is_cancel_stuck, victim_pid; /* set before `left` */
static _Atomic int left;                               /* calls until then; 0: nothing happens */
static _Atomic int is_frozen;                          /* no transfer ends any more */
static _Atomic int num_stuck;

static int is_due(void)
{
    return atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1;
}

static void kill_victim(void)
{
    if (victim_pid)
        kill(victim_pid, SIGKILL);
}

static void be_stuck(void)
{
    atomic_fetch_add(&num_stuck, 1);
    for (;;)
        pause();
}

EXPORTED int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    if (is_test_stuck && is_due()) {
        kill_victim();
        be_stuck();
    }
    if (!atomic_load(&is_frozen))
        return PMPI_Test(request, flag, status);
    *flag = 0;
    return MPI_SUCCESS;
}

/* So that a receive is under way when the world ends, and is cancelled. */
EXPORTED int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int source, int tag,
                       MPI_Comm comm, MPI_Request *request)
{
    int code = PMPI_Irecv(buffer, count, type, source, tag, comm, request);
    if (is_cancel_stuck && is_due()) {
        atomic_store(&is_frozen, 1);
        kill_victim();
    }
    return code;
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

static void expect_lost(dtrain_status_t status)
{
    CHECK_STATUS(status, DTRAIN_ERR_RANK_LOST);
    CHECK_ERROR_HAS("rank 1 on");
}

static void work(void)
{
    enum { COUNT = 1 << 22, TURNS = 1000 };
    static float values[COUNT];
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < TURNS && status == DTRAIN_OK; i++)
        status = dtrain_allreduce("large", values, values, COUNT, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    expect_lost(status);
}

static void lose(const char *how)
{
    float pid = dtrain_rank() == 1 ? (float)getpid() : 0;
    CHECK(getpid() < 1 << 24); /* as a float has it */
    CHECK_OK(dtrain_allreduce("pid", &pid, &pid, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM));
    if (dtrain_rank() == 0) {
        victim_pid = (int)pid;
        is_test_stuck = strcmp(how, "test") == 0;
        is_cancel_stuck = strcmp(how, "cancel") == 0;
        atomic_store(&left, CALLS);
    }
    work();
    double start = seconds();
    expect_lost(dtrain_barrier());
    expect_lost(dtrain_shutdown());
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
        lose(argv[1]);
    }
    int failed = check_end();
    return failed || tell(argv[2]) ? 1 : 0;
}
