/*
 * lost_rank.c RANK FILE [busy-]kill|node|link - something happens to the rank, and the
 * others wait for its part of an allreduce, or (busy-) move much data with it: it is killed; its
 * node loses its link and all processes at once; or the link alone. Each survivor adds lines to the
 * file: what the call that failed and the next one returned, and the rank when it happened. What
 * they print may be lost, as mpirun ends early.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <dtrain/dtrain.h>

#define BUSY_COUNT (1 << 20)
#define TURNS 100000
#define MOMENT_NS 200000000

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

static void cut_link(void)
{
    if (system("ip link set eth0 down") != 0)
        add_line("the link could not be cut\n");
}

static ino_t network_of(const char *pid)
{
    struct stat space;
    char name[64];
    snprintf(name, sizeof name, "/proc/%.20s/ns/net", pid);
    return stat(name, &space) == 0 ? space.st_ino : 0;
}

/* As when the power goes: first the link, so that no connection's end is seen from outside. */
static void kill_node(void)
{
    cut_link();
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid > 1 && pid != getpid() && network_of(entry->d_name) == network_of("self"))
            kill(pid, SIGKILL);
    }
}

static void happen(const char *how)
{
    report_time();
    if (strstr(how, "link"))
        cut_link();
    else if (strstr(how, "node"))
        kill_node();
    else
        kill(getppid(), SIGKILL);
}

/* A child does it, while this process waits for others or moves data with them. */
static void happen_later(const char *how)
{
    const struct timespec moment = {.tv_nsec = MOMENT_NS};
    if (fork() != 0)
        return;
    nanosleep(&moment, NULL);
    happen(how);
    _exit(0);
}

static dtrain_status_t work(int count)
{
    static float values[BUSY_COUNT];
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < TURNS && status == DTRAIN_OK; i++)
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
    int rank = dtrain_rank();
    dtrain_barrier();
    if (rank == strtol(argv[1], NULL, 10)) {
        happen_later(argv[3]);
        /* The others wait for its part. Where the link is cut, its own node must wait too. */
        if (strcmp(argv[3], "kill") == 0)
            pause();
    }
    report(rank, "first", work(strncmp(argv[3], "busy", 4) == 0 ? BUSY_COUNT : 1));
    report(rank, "next", dtrain_barrier());
    dtrain_shutdown();
    return 0;
}
