/* Ranks of a node that really run at the same time, as threads and as processes, and one that is
 * killed. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "shm_world.h"

/* A mix of all paths at the default sizes, a few of each in flight. */
static int make_tasks(shm_task_t *tasks, int size, uint64_t seed)
{
    static const int64_t counts[] = {1, 500, 3000, 6000, 40000, 100000};
    int num_tasks = 0;
    for (int place = SHM_PRIVATE; place <= SHM_ANY_PLACE; place++) {
        for (int i = 0; i < 6; i++) {
            shm_task_t *task = &tasks[num_tasks++];
            *task = (shm_task_t){.count = counts[i] + (int64_t)(seed % 7), .num_pieces = 1 + i % 3};
            task->dtype = i % 2 ? DTRAIN_DTYPE_F32 : DTRAIN_DTYPE_BF16;
            task->place = (shm_place_t)place;
            task->buffers = (shm_buffers_t)((seed + (uint64_t)num_tasks) % 3);
            if (num_tasks % 5 == 0) {
                task->kind = DT_BROADCAST;
                task->root = num_tasks % size;
            }
        }
    }
    return num_tasks;
}

static void run(shm_driver_t driver, int size, uint64_t seed, dt_shm_tuning_t tuning)
{
    shm_task_t tasks[SHM_WORLD_TASKS_MAX];
    shm_world_t world = {.size = size, .seed = seed, .driver = driver, .tuning = tuning};
    int num_tasks = make_tasks(tasks, size, seed);
    if (shm_world_run(&world, tasks, num_tasks) != 0)
        fail_msg("%s", world.why);
}

static const dt_shm_tuning_t usual = {.slots = 0};
static const dt_shm_tuning_t narrow = {
    .tiny_bytes = -1, .small_bytes = -1, .chunk_bytes = 4096, .slots = 2};

static void test_shm_ranks_as_threads_get_the_reduction(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        run(SHM_THREADS, size, (uint64_t)size, size % 2 ? usual : narrow);
    run(SHM_THREADS, 2, 10, usual);
}

static void test_shm_ranks_as_processes_get_the_reduction(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        run(SHM_PROCESSES, size, 20 + (uint64_t)size, size % 2 ? narrow : usual);
    run(SHM_PROCESSES, 3, 30, usual);
}

/* ---- A rank that is killed ------------------------------------------------------------------ */

/* Entries of a folder whose names contain `part`. */
static int count_entries(const char *path, const char *part)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int count = 0;
    while (folder && (entry = readdir(folder)))
        count += strstr(entry->d_name, part) != NULL;
    if (folder)
        closedir(folder);
    return count;
}

/* Lines of this process's map that are shared memory of ours. */
static int count_maps(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:dtrain") != NULL;
    fclose(maps);
    return count;
}

/* So much that the calls made here cannot have been enough for it. */
#define FAULT_COUNT (2 << 20)

static float values[FAULT_COUNT];

/* Starts one task in private and one in library memory. 0, or -1. */
static int start_two(dt_backend_t *backend, dt_piece_t *pieces, dt_task_t **tasks)
{
    void *memory;
    if (backend->ops->allocate(backend, sizeof values, &memory) != DTRAIN_OK)
        return -1;
    pieces[0] = (dt_piece_t){values, values, FAULT_COUNT};
    pieces[1] = (dt_piece_t){memory, memory, FAULT_COUNT};
    for (int i = 0; i < 2; i++) {
        dt_collective_t collective = {.kind = DT_ALLREDUCE, .sequence = (uint64_t)i};
        collective.reduction = (dt_reduction_t){DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 1, 1, 1};
        collective.pieces = &pieces[i];
        collective.num_pieces = 1;
        collective.count = FAULT_COUNT;
        if (backend->ops->start(backend, &collective, &tasks[i]) != DTRAIN_OK)
            return -1;
    }
    return 0;
}

/* Ends with SIGKILL after as many calls of progress. */
static void be_killed(dt_shm_node_t *node, int calls)
{
    dt_backend_t *backend;
    dt_piece_t pieces[2];
    dt_task_t *tasks[2];
    if (dt_shm_create(node, NULL, &backend) == DTRAIN_OK &&
        start_two(backend, pieces, tasks) == 0) {
        for (int i = 0; i < calls; i++)
            backend->ops->progress(backend, tasks[0]);
    }
    kill(getpid(), SIGKILL);
}

static void lose_a_rank(int calls)
{
    dt_shm_node_t *nodes[3];
    dt_backend_t *backends[2];
    dt_piece_t pieces[2][2];
    dt_task_t *tasks[2][2];
    int status;
    assert_int_equal(dt_shm_local_group(3, SHM_WORLD_HEAP, nodes), DTRAIN_OK);
    pid_t child = fork();
    if (child == 0)
        be_killed(nodes[2], calls);
    dt_shm_node_free(nodes[2]);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(dt_shm_create(nodes[rank], NULL, &backends[rank]), DTRAIN_OK);
        assert_int_equal(start_two(backends[rank], pieces[rank], tasks[rank]), 0);
    }
    for (int i = 0; i < 3; i++)
        backends[i % 2]->ops->progress(backends[i % 2], tasks[i % 2][0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 0; i < 400; i++) {
        dt_backend_t *backend = backends[i % 2];
        assert_int_equal(backend->ops->progress(backend, tasks[i % 2][i / 2 % 2]),
                         DTRAIN_IN_PROGRESS);
    }
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < 2; i++)
            backends[rank]->ops->release(backends[rank], tasks[rank][i]);
        backends[rank]->ops->destroy(backends[rank], 0);
    }
}

static void test_shm_rank_that_is_killed_stops_the_others_and_leaves_nothing(void **state)
{
    (void)state;
    int descriptors = count_entries("/proc/self/fd", "");
    int names = count_entries("/dev/shm", "dtrain");
    for (int calls = 0; calls < 8; calls++)
        lose_a_rank(calls);
    assert_int_equal(count_entries("/proc/self/fd", ""), descriptors);
    assert_int_equal(count_entries("/dev/shm", "dtrain"), names);
    assert_int_equal(count_maps(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_ranks_as_threads_get_the_reduction),
        cmocka_unit_test(test_shm_ranks_as_processes_get_the_reduction),
        cmocka_unit_test(test_shm_rank_that_is_killed_stops_the_others_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
