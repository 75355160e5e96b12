/*
 * lost_rank.c RANK FILE kill|busy|link - something happens to the rank, and the others wait for its
 * part of an allreduce: it is killed; it is killed by a child while all are at work; or its node's
 * link goes down. Each survivor adds lines to the file: what the call that failed and the next one
 * returned, and the rank when it happened. What they print may be lost, as mpirun ends early.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dtrain/dtrain.h>

#define BUSY_COUNT (1 << 20)
#define BUSY_TURNS 100000
#define BUSY_NS 200000000

static const char *path;

/* All nodes are on one machine, so their clocks are one. */
static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void add_line(const char *line)
{
    int file = open(path, O_WRONLY | O_APPEND);
    ssize_t written = file >= 0 ? write(file, line, strlen(line)) : -1;
    if (written != (ssize_t)strlen(line))
        _exit(1);
    close(file);
}

static void report(int rank, const char *what, dtrain_status_t status)
{
    char line[2048];
    snprintf(line, sizeof line, "rank %d, %s at %.6f: %d, %s\n", rank, what, seconds(), (int)status,
             dtrain_last_error());
    add_line(line);
}

static void report_time(void)
{
    char line[64];
    snprintf(line, sizeof line, "happened at %.6f\n", seconds());
    add_line(line);
}

static void kill_later(void)
{
    const struct timespec moment = {.tv_nsec = BUSY_NS};
    if (fork() != 0)
        return;
    nanosleep(&moment, NULL);
    report_time();
    kill(getppid(), SIGKILL);
    _exit(0);
}

static dtrain_status_t work(int turns, int count)
{
    static float values[BUSY_COUNT];
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < turns && status == DTRAIN_OK; i++)
        status =
            dtrain_allreduce("gradient", values, values, count, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4 || dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "FAILED: %s\n", dtrain_last_error());
        return 1;
    }
    path = argv[2];
    int rank = dtrain_rank(), is_busy = strcmp(argv[3], "busy") == 0;
    int is_link = strcmp(argv[3], "link") == 0;
    dtrain_barrier();
    if (rank == strtol(argv[1], NULL, 10)) {
        if (is_busy) {
            kill_later();
        } else {
            report_time();
            if (!is_link)
                raise(SIGKILL);
            if (system("ip link set eth0 down") != 0)
                return 1;
        }
    }
    /* Where the link is cut, its own node must wait for others too. */
    dtrain_status_t first =
        is_busy ? work(BUSY_TURNS, BUSY_COUNT) : work(is_link ? BUSY_TURNS : 1, 1);
    report(rank, "first", first);
    report(rank, "next", dtrain_barrier());
    dtrain_shutdown();
    return 0;
}
