#include "comm/mpi/mpi_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/mpi/mpi_call.h"

/* A rank that fails tells the others and ends; they should rather hear why. */
#define GRACE_NS (30 * DT_NS_PER_MS)
/* How long it may take until a process shows as ended after MPI has failed for it. */
#define EXPLAIN_NS (200 * DT_NS_PER_MS)
/* How often one looks while MPI is tested. */
#define SLICE_NS (20 * DT_NS_PER_MS)
#define ENVIRONMENT_MAX ((size_t)256 << 10)
#define VALUE_MAX 128

/* What launchers tell a process: which job it belongs to, where they do, and its rank. */
typedef struct place {
    char job[VALUE_MAX];
    int rank; /* -1: not told */
} place_t;

/* ---- Processes --------------------------------------------------------------------------- */

/* The whole file, ended by a zero; the length, or 0. */
static size_t read_file(const char *path, char *text, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t count = 0;
    while (fd >= 0 && length < cap - 1 && (count = read(fd, text + length, cap - 1 - length)) > 0)
        length += (size_t)count;
    if (fd >= 0)
        close(fd);
    text[length] = '\0';
    return length;
}

static const char *value_of(const char *entry, const char *name)
{
    size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=' ? entry + length + 1 : NULL;
}

/* Where the launcher put a process. */
static void find_place(int pid, char *text, place_t *place)
{
    char path[64];
    *place = (place_t){.rank = -1};
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    size_t length = read_file(path, text, ENVIRONMENT_MAX);
    for (const char *at = text; at < text + length; at += strlen(at) + 1) {
        const char *job = value_of(at, "PMIX_NAMESPACE");
        const char *rank = value_of(at, "PMIX_RANK");
        if (!rank)
            rank = value_of(at, "PMI_RANK");
        if (job)
            snprintf(place->job, sizeof place->job, "%s", job);
        if (rank)
            place->rank = (int)strtol(rank, NULL, 10);
    }
}

static int rank_in(MPI_Comm comm, int world_rank)
{
    int rank = MPI_UNDEFINED, world_size = 0;
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    if (MPI_Comm_size(MPI_COMM_WORLD, &world_size) != MPI_SUCCESS || world_rank >= world_size)
        return -1;
    if (MPI_Comm_group(MPI_COMM_WORLD, &world) == MPI_SUCCESS &&
        MPI_Comm_group(comm, &group) == MPI_SUCCESS &&
        MPI_Group_translate_ranks(world, 1, &world_rank, group, &rank) != MPI_SUCCESS)
        rank = MPI_UNDEFINED;
    if (world != MPI_GROUP_NULL)
        MPI_Group_free(&world);
    if (group != MPI_GROUP_NULL)
        MPI_Group_free(&group);
    return rank == MPI_UNDEFINED ? -1 : rank;
}

static void add(dt_mpi_watch_t *watch, int pid, int rank)
{
    if (watch->count == watch->capacity) {
        int capacity = watch->capacity ? 2 * watch->capacity : 8;
        dt_mpi_watched_t *processes =
            dt_realloc(watch->processes, (size_t)capacity * sizeof *processes);
        if (!processes) {
            watch->is_blind = 1;
            return;
        }
        watch->processes = processes;
        watch->capacity = capacity;
    }
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0)
        watch->processes[watch->count++] = (dt_mpi_watched_t){.fd = fd, .pid = pid, .rank = rank};
    else if (errno != ESRCH)
        watch->is_blind = 1;
}

/* Children of one of the parent's threads. */
static void add_children(dt_mpi_watch_t *watch, MPI_Comm comm, const char *path, const place_t *own,
                         char *list, char *text)
{
    char *rest = NULL;
    read_file(path, list, ENVIRONMENT_MAX);
    for (char *word = strtok_r(list, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        int pid = (int)strtol(word, NULL, 10);
        place_t place;
        if (pid <= 0 || pid == getpid())
            continue;
        find_place(pid, text, &place);
        if (place.rank < 0 || place.rank == own->rank || strcmp(place.job, own->job) != 0)
            continue;
        int rank = rank_in(comm, place.rank);
        if (rank >= 0)
            add(watch, pid, rank);
    }
}

void dt_mpi_watch_open(dt_mpi_watch_t *watch, MPI_Comm comm)
{
    char path[128];
    place_t own = {.rank = -1};
    *watch = (dt_mpi_watch_t){0};
    char *list = dt_alloc(ENVIRONMENT_MAX), *text = dt_alloc(ENVIRONMENT_MAX);
    if (list && text)
        find_place(getpid(), text, &own);
    snprintf(path, sizeof path, "/proc/%d/task", (int)getppid());
    DIR *threads = own.rank >= 0 ? opendir(path) : NULL;
    watch->is_blind = !threads;
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)getppid(), entry->d_name);
        add_children(watch, comm, path, &own, list, text);
    }
    if (threads)
        closedir(threads);
    dt_free(list);
    dt_free(text);
}

void dt_mpi_watch_close(dt_mpi_watch_t *watch)
{
    for (int i = 0; i < watch->count; i++)
        close(watch->processes[i].fd);
    dt_free(watch->processes);
    *watch = (dt_mpi_watch_t){0};
}

/* ---- Their ends ---------------------------------------------------------------------------- */

static void look(dt_mpi_watch_t *watch)
{
    for (int i = 0; watch->lost_ns == 0 && i < watch->count; i++) {
        struct pollfd ended = {.fd = watch->processes[i].fd, .events = POLLIN};
        if (poll(&ended, 1, 0) == 1) {
            watch->lost = i;
            watch->lost_ns = dt_now_ns();
        }
    }
}

dtrain_status_t dt_mpi_watch_check(dt_mpi_watch_t *watch)
{
    char host[256] = "?";
    look(watch);
    if (watch->lost_ns == 0 || dt_now_ns() - watch->lost_ns < GRACE_NS)
        return DTRAIN_OK;
    (void)gethostname(host, sizeof host - 1);
    return dt_fail(DTRAIN_ERR_RANK_LOST,
                   "rank %d on host %.63s (pid %d) is lost: it died, or left, while the world was "
                   "being set up",
                   watch->processes[watch->lost].rank, host, watch->processes[watch->lost].pid);
}

/* MPI has failed, maybe since a process of this node has gone just now. */
static dtrain_status_t explain(dt_mpi_watch_t *watch, dtrain_status_t failure)
{
    const struct timespec pause = {.tv_nsec = DT_NS_PER_MS};
    int64_t limit_ns = dt_now_ns() + EXPLAIN_NS;
    char text[DT_ERROR_MAX];
    dt_text_format(text, sizeof text, "%s", dt_last_error());
    while (watch->count > 0 && dt_now_ns() < limit_ns) {
        dtrain_status_t health = dt_mpi_watch_check(watch);
        if (health != DTRAIN_OK)
            return health;
        nanosleep(&pause, NULL);
    }
    return dt_fail(failure, "%s", text);
}

dtrain_status_t dt_mpi_watch_finish(dt_mpi_watch_t *watch, MPI_Request *request,
                                    int64_t deadline_ns, const char *what)
{
    for (;;) {
        int64_t slice_ns = dt_now_ns() + SLICE_NS;
        int is_last = slice_ns >= deadline_ns;
        dtrain_status_t status = dt_mpi_finish(request, is_last ? deadline_ns : slice_ns, what);
        if (status == DTRAIN_ERR_COMMUNICATION || status == DTRAIN_ERR_RANK_LOST)
            return explain(watch, status);
        if (status != DTRAIN_ERR_TIMEOUT)
            return status;
        dtrain_status_t health = dt_mpi_watch_check(watch);
        if (health != DTRAIN_OK || is_last)
            return health != DTRAIN_OK ? health : status;
    }
}
