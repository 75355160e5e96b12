/*
 * test_loss exit|kill|abort|first|busy|train|stop FILE
 * The last rank (first: rank 0) goes down with operations pending on the others, in the way that
 * the argument says; busy, train: while all move data. mpirun reports a failure then, and may lose
 * what is written to stderr, so each survivor adds a line to the file; survivors.sh counts them.
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
    if (strcmp(how, "kill") == 0 || strcmp(how, "first") == 0)
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

/* The text that is the detector's tells what the rank was doing: all are on one node here. */
static void check_last_doing(void)
{
    if (strstr(dtrain_last_error(), "is lost: "))
        CHECK_ERROR_HAS("; it was last ");
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
    check_last_doing();
    CHECK(seconds() - start < 5); /* that it takes less than 0.1 s is for tests/fault */
    float value = 1;
    expect_end(dtrain_allreduce("later", &value, &value, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM),
               wanted, text);
    expect_end(dtrain_barrier(), wanted, text);
    expect_end(dtrain_shutdown(), wanted, text);
    CHECK(dtrain_is_initialized() == 0);
}

/* Operations pending on all but one rank, which goes down. */
static void lose(const char *how, int who)
{
    enum { NUM = 20, COUNT = 30000 };
    static float values[NUM][COUNT];
    dtrain_handle_t handles[NUM];
    int rank = dtrain_rank();
    for (int i = 0; rank != who && i < NUM; i++) {
        char name[32];
        snprintf(name, sizeof name, "pending.%d", i);
        CHECK_OK(check_submit(name, values[i], i % 2 ? COUNT : 10, 0, &handles[i]));
    }
    /* Who goes down may be out of the barrier, and gone, before others are out of it. */
    dtrain_status_t met = dtrain_barrier();
    CHECK(met == DTRAIN_OK || rank != who);
    if (rank == who)
        go_down(how);
    else
        survive(how, who, handles, NUM);
}

/* A child of the rank kills it in a moment. */
static void die_soon(int who)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    if (dtrain_rank() != who || fork() != 0)
        return;
    nanosleep(&moment, NULL);
    kill(getppid(), SIGKILL);
    _exit(0);
}

/* While all of them are at work. */
static void lose_busy(int who)
{
    enum { COUNT = 1 << 20, TURNS = 100000 };
    static float values[COUNT];
    dtrain_status_t status = DTRAIN_OK;
    char text[64];
    die_soon(who);
    for (int i = 0; i < TURNS && status == DTRAIN_OK; i++)
        status = dtrain_allreduce("busy", values, values, i % 2 ? COUNT : 100, DTRAIN_DTYPE_F32,
                                  DTRAIN_OP_SUM);
    snprintf(text, sizeof text, "rank %d on", who);
    expect_end(status, DTRAIN_ERR_RANK_LOST, text);
    check_last_doing();
    expect_end(dtrain_shutdown(), DTRAIN_ERR_RANK_LOST, text);
}

/* While all of them train, with parameters that each updates its share of. */
static void lose_training(int who)
{
    enum { TURNS = 100000 };
    static const int64_t counts[3] = {1 << 20, 100, 300000};
    static const char *const names[3] = {"a", "b", "c"};
    dtrain_param_t params[3];
    for (int i = 0; i < 3; i++)
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = names[i],
                                     .ndim = 1,
                                     .shape = &counts[i],
                                     .dtype = DTRAIN_DTYPE_F32};
    dtrain_gradset_desc_t set_desc = {.struct_size = sizeof set_desc, .bucket_bytes = 1 << 18};
    dtrain_optimizer_desc_t desc = {
        .struct_size = sizeof desc, .rule = DTRAIN_RULE_ADAM, .sharded = 1};
    dtrain_gradset_t *set = NULL;
    dtrain_optimizer_t *optimizer = NULL;
    char text[64];
    dtrain_status_t status = DTRAIN_OK;
    CHECK_OK(dtrain_gradset_create(&set_desc, params, 3, &set));
    CHECK_OK(dtrain_optimizer_create(set, &desc, &optimizer));
    die_soon(who);
    for (int i = 0; i < TURNS && status == DTRAIN_OK; i++) {
        for (int k = 2; k >= 0; k--)
            dtrain_gradset_ready(set, k, NULL);
        status = dtrain_optimizer_step(optimizer, 1e-3, NULL);
    }
    snprintf(text, sizeof text, "rank %d on", who);
    expect_end(status, DTRAIN_ERR_RANK_LOST, text);
    expect_end(dtrain_optimizer_step(optimizer, 1e-3, NULL), DTRAIN_ERR_RANK_LOST, text);
    expect_end(dtrain_gradset_wait(set), DTRAIN_ERR_RANK_LOST, text);
    expect_end(dtrain_optimizer_save(optimizer, "/tmp/none", 0), DTRAIN_ERR_RANK_LOST, text);
    if (dtrain_rank() % 2) {
        dtrain_optimizer_destroy(optimizer);
        CHECK_OK(dtrain_gradset_destroy(set));
    }
    int is_later = dtrain_rank() % 2 == 0;
    expect_end(dtrain_shutdown(), DTRAIN_ERR_RANK_LOST, text);
    if (is_later) {
        dtrain_optimizer_destroy(optimizer);
        CHECK_OK(dtrain_gradset_destroy(set));
    }
}

/* The rank is stopped for longer than a deadline: others are told so, and the world goes on. */
static void stop_one(int who)
{
    float pid = 0, value = 1;
    dtrain_handle_t handle;
    if (dtrain_rank() == who)
        pid = (float)getpid();
    CHECK(getpid() < 1 << 24); /* as a float has it */
    CHECK_OK(dtrain_allreduce("pid", &pid, &pid, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM));
    if (dtrain_rank() == who) {
        raise(SIGSTOP);
    } else {
        char text[64];
        check_log_start();
        CHECK_OK(check_submit("waits", &value, 1, 3000, &handle));
        CHECK_STATUS(check_finish(handle), DTRAIN_ERR_TIMEOUT);
        snprintf(text, sizeof text, "; rank %d on host ", who);
        CHECK_ERROR_HAS(text);
        CHECK_ERROR_HAS("has been stopped or stuck for");
        /* Rank 0 has warned a second before, and read off its board where it is. */
        snprintf(text, sizeof text, "rank %d on host ", who);
        CHECK(dtrain_rank() != 0 || who == 0 || check_log_has(text));
        CHECK(dtrain_rank() != 0 || check_log_has("finished allreduce 'pid'"));
    }
    if (dtrain_rank() == (who == 0))
        kill((pid_t)pid, SIGCONT);
    check_works("after");
    CHECK_OK(dtrain_shutdown());
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *how = argv[1];
    atexit(say_survived);
    check_begin("test_loss", 20);
    if (!CHECK_OK(check_init(0)))
        return check_end();
    int last = dtrain_size() - 1;
    for (int i = 0; i < 3; i++)
        check_works("before");
    if (strcmp(how, "stop") == 0)
        stop_one(last);
    else if (strcmp(how, "busy") == 0)
        lose_busy(last);
    else if (strcmp(how, "train") == 0)
        lose_training(last);
    else
        lose(how, strcmp(how, "first") == 0 ? 0 : last);
    int failed = check_end();
    survivors = failed ? NULL : argv[2];
    return failed;
}
