/*
 * test_flight call|signal|abort|kill DIRECTORY
 * Dumps of the last operations: while the last rank is stopped, by a call or by a signal for which
 * the program has a handler of its own; and when the world ends. flight.py reads them.
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

/* The sum of zeros but for one. */
static pid_t pid_of(int who)
{
    double pid = rank == who ? (double)getpid() : 0;
    CHECK_OK(dtrain_allreduce("pid", &pid, &pid, 1, DTRAIN_DTYPE_F64, DTRAIN_OP_SUM));
    return (pid_t)pid;
}

/* How often `part` stands in a dump that is taken now. */
static int count_now(const char *dir, const char *part)
{
    static char line[2048];
    char path[512];
    int count = 0;
    snprintf(path, sizeof path, "%s/now", dir);
    CHECK_OK(dtrain_flight_dump(path));
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        count += strstr(line, part) != NULL;
    if (file)
        fclose(file);
    unlink(path);
    return count;
}

static void dump_by_call(const char *dir)
{
    char path[512];
    CHECK_STATUS(dtrain_flight_dump(NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    snprintf(path, sizeof path, "%s/no such directory/x", dir);
    CHECK_STATUS(dtrain_flight_dump(path), DTRAIN_ERR_FILE);
    CHECK_ERROR_HAS("No such file or directory");
    snprintf(path, sizeof path, "%s/call.jsonl", dir);
    CHECK_OK(dtrain_flight_dump(path));
}

static void dump_by_signal(void)
{
    raise(SIGUSR2);
    CHECK(check_log_wait("the last operations are in "));
    CHECK(num_handled == 1);
}

/* All but the last rank submit w, which is stopped before. */
static void dump_of_hang(const char *how, const char *dir)
{
    float values[3] = {0};
    dtrain_handle_t handle;
    pid_t last = pid_of(size - 1);
    if (rank == size - 1)
        raise(SIGSTOP);
    CHECK_OK(check_submit("w", values, 3, 0, &handle));
    if (rank == 0) {
        do
            CHECK_STATUS(dtrain_wait_for(handle, 50), DTRAIN_IN_PROGRESS);
        while (count_now(dir, "\"name\":\"w\"") < size - 1);
        if (strcmp(how, "call") == 0)
            dump_by_call(dir);
        else
            dump_by_signal();
        kill(last, SIGCONT);
    }
    CHECK_OK(check_finish(handle));
}

static void dump_at_end(int is_killed)
{
    dtrain_status_t end = is_killed ? DTRAIN_ERR_RANK_LOST : DTRAIN_ERR_ABORTED;
    float values[3] = {0};
    dtrain_handle_t handle = 0;
    if (rank != size - 1)
        CHECK_OK(check_submit("w", values, 3, 0, &handle));
    /* Who is killed may be out of the barrier, and gone, before others are. */
    dtrain_status_t met = dtrain_barrier();
    CHECK(met == DTRAIN_OK || (is_killed && rank != size - 1));
    if (rank == size - 1 && is_killed)
        raise(SIGKILL);
    if (rank == size - 1)
        CHECK_OK(dtrain_abort(3, "the loss is not a number"));
    else
        CHECK_STATUS(check_finish(handle), end);
    CHECK_STATUS(dtrain_shutdown(), end);
}

static void begin(const char *how, const char *dir)
{
    dtrain_config_t config;
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    config.timeout_ms = 20000;
    if (strcmp(how, "call") != 0)
        CHECK_OK(dtrain_config_set(&config, "flight_dir", dir));
    if (strcmp(how, "signal") == 0)
        CHECK_OK(dtrain_config_set(&config, "flight_signal", "usr2"));
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
    sigaction(SIGUSR2, &action, NULL);
    begin(argv[1], argv[2]);
    check_works("before");
    if (strcmp(argv[1], "abort") == 0 || strcmp(argv[1], "kill") == 0) {
        dump_at_end(strcmp(argv[1], "kill") == 0);
        return check_end();
    }
    dump_of_hang(argv[1], argv[2]);
    check_works("after");
    CHECK_OK(dtrain_shutdown());
    sigaction(SIGUSR2, NULL, &after);
    CHECK(after.sa_handler == count_signal);
    CHECK_STATUS(dtrain_flight_dump("x"), DTRAIN_ERR_NOT_INITIALIZED);
    return check_end();
}
