/*
 * test_loss exit|kill|abort FILE
 * The last rank goes down with operations pending on the others, in the way that the argument
 * says. mpirun reports a failure then, and may lose what is written to stderr, so each survivor
 * adds a line to the file; survivors.sh counts them.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static const char *survivors; /* NULL: not one of them */

/* Registered before dtrain_init, so it runs after what libdtrain does at exit. */
static void say_survived(void)
{
    int file = survivors ? open(survivors, O_WRONLY | O_APPEND) : -1;
    if (file >= 0 && write(file, "survived\n", 9) < 0)
        _exit(1);
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void go_down(const char *how)
{
    if (strcmp(how, "exit") == 0)
        exit(1);
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    CHECK_OK(dtrain_abort(7, "disk full"));
    CHECK_STATUS(dtrain_barrier(), DTRAIN_ERR_ABORTED);
    CHECK_STATUS(dtrain_shutdown(), DTRAIN_ERR_ABORTED);
}

static void expect_end(dtrain_status_t status, dtrain_status_t wanted, const char *text)
{
    CHECK_STATUS(status, wanted);
    CHECK_ERROR_HAS(text);
}

static void survive(const char *how, int who, const dtrain_handle_t *handles, int n)
{
    int is_abort = strcmp(how, "abort") == 0;
    dtrain_status_t wanted = is_abort ? DTRAIN_ERR_ABORTED : DTRAIN_ERR_RANK_LOST;
    char text[64];
    snprintf(text, sizeof text,
             is_abort ? "rank %d called dtrain_abort with code 7: disk full" : "rank %d on", who);
    double start = seconds();
    for (int i = 0; i < n; i++)
        expect_end(check_finish(handles[i]), wanted, text);
    CHECK(seconds() - start < 10);
    float value = 1;
    expect_end(dtrain_allreduce("later", &value, &value, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM),
               wanted, text);
    expect_end(dtrain_barrier(), wanted, text);
    expect_end(dtrain_shutdown(), wanted, text);
    CHECK(dtrain_is_initialized() == 0);
}

int main(int argc, char **argv)
{
    enum { NUM = 20, COUNT = 30000 };
    static float values[NUM][COUNT];
    dtrain_handle_t handles[NUM];
    if (argc != 3)
        return 2;
    const char *how = argv[1];
    atexit(say_survived);
    check_begin("test_loss", 20);
    if (!CHECK_OK(check_init(0)))
        return check_end();
    int rank = dtrain_rank(), last = dtrain_size() - 1;
    for (int i = 0; i < 3; i++)
        check_works("before");
    for (int i = 0; rank != last && i < NUM; i++) {
        char name[32];
        snprintf(name, sizeof name, "pending.%d", i);
        CHECK_OK(check_submit(name, values[i], i % 2 ? COUNT : 10, 0, &handles[i]));
    }
    CHECK_OK(dtrain_barrier());
    if (rank == last)
        go_down(how);
    else
        survive(how, last, handles, NUM);
    int failed = check_end();
    survivors = failed ? NULL : argv[2];
    return failed;
}
