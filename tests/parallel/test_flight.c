/*
 * test_flight call|signal|end DIRECTORY
 * Dumps of the last operations, while the last rank is stopped (call), on a signal for which the
 * program has a handler of its own (signal), and when the world ends (end). flight.py reads them.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int rank, size;
static volatile sig_atomic_t num_handled;

static void count_signal(int number)
{
    (void)number;
    num_handled++;
}

/* The name of rank 0's process is every rank's: a sum of zeros but for one. */
static pid_t pid_of(int who)
{
    double pid = rank == who ? (double)getpid() : 0;
    CHECK_OK(dtrain_allreduce("pid", &pid, &pid, 1, DTRAIN_DTYPE_F64, DTRAIN_OP_SUM));
    return (pid_t)pid;
}

/* All but the last rank submit w, which is stopped before. */
static void dump_of_hang(const char *dir)
{
    float values[3] = {0};
    dtrain_handle_t handle;
    char path[512];
    pid_t last = pid_of(size - 1);
    if (rank == size - 1)
        raise(SIGSTOP);
    CHECK_OK(check_submit("w", values, 3, 0, &handle));
    if (rank == 0) {
        CHECK_STATUS(dtrain_wait_for(handle, 300), DTRAIN_IN_PROGRESS);
        CHECK_STATUS(dtrain_flight_dump(NULL), DTRAIN_ERR_INVALID_ARGUMENT);
        snprintf(path, sizeof path, "%s/no such directory/x", dir);
        CHECK_STATUS(dtrain_flight_dump(path), DTRAIN_ERR_FILE);
        CHECK_ERROR_HAS("No such file or directory");
        snprintf(path, sizeof path, "%s/call.jsonl", dir);
        CHECK_OK(dtrain_flight_dump(path));
        kill(last, SIGCONT);
    }
    CHECK_OK(check_finish(handle));
}

static void dump_on_signal(void)
{
    float values[3] = {0};
    dtrain_handle_t handle = 0;
    if (rank != size - 1)
        CHECK_OK(check_submit("w", values, 3, 0, &handle));
    if (rank == 0) {
        CHECK_STATUS(dtrain_wait_for(handle, 300), DTRAIN_IN_PROGRESS);
        raise(SIGUSR1);
        CHECK(check_log_wait("the last operations are in "));
        CHECK(num_handled == 1);
    }
    CHECK_OK(dtrain_barrier());
    if (rank == size - 1)
        CHECK_OK(check_submit("w", values, 3, 0, &handle));
    CHECK_OK(check_finish(handle));
}

static void dump_at_end(void)
{
    float values[3] = {0};
    dtrain_handle_t handle = 0;
    if (rank != size - 1)
        CHECK_OK(check_submit("w", values, 3, 0, &handle));
    CHECK_OK(dtrain_barrier());
    if (rank == size - 1)
        CHECK_OK(dtrain_abort(3, "the loss is not a number"));
    else
        CHECK_STATUS(check_finish(handle), DTRAIN_ERR_ABORTED);
    CHECK_STATUS(dtrain_shutdown(), DTRAIN_ERR_ABORTED);
}

static void begin(const char *how, const char *dir)
{
    dtrain_config_t config;
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    config.timeout_ms = 20000;
    if (strcmp(how, "end") == 0 || strcmp(how, "signal") == 0)
        CHECK_OK(dtrain_config_set(&config, "flight_dir", dir));
    if (strcmp(how, "signal") == 0)
        CHECK_OK(dtrain_config_set(&config, "flight_signal", "usr1"));
    CHECK_OK(dtrain_init(&config));
    rank = dtrain_rank();
    size = dtrain_size();
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = count_signal}, after;
    if (argc != 3)
        return 2;
    check_begin("test_flight", 50);
    check_log_start();
    sigaction(SIGUSR1, &action, NULL);
    begin(argv[1], argv[2]);
    check_works("before");
    if (strcmp(argv[1], "end") == 0) {
        dump_at_end();
        return check_end();
    }
    if (strcmp(argv[1], "call") == 0)
        dump_of_hang(argv[2]);
    else
        dump_on_signal();
    check_works("after");
    CHECK_OK(dtrain_shutdown());
    sigaction(SIGUSR1, NULL, &after);
    CHECK(after.sa_handler == count_signal);
    CHECK_STATUS(dtrain_flight_dump("x"), DTRAIN_ERR_NOT_INITIALIZED);
    return check_end();
}
