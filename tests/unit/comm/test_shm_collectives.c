/* All kinds of collectives in shared memory, among all ranks of a node and among sets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "backend_world.h"
#include "base/status.h"
#include "comm/shm/shm.h"
#include "samples.h"

#define HEAP (INT64_C(32) << 20)

/* Peers read private memory from so many bytes on, so that all ways occur. */
static const dt_shm_tuning_t narrow = {
    .tiny_bytes = 64, .small_bytes = 256, .chunk_bytes = 512, .slots = 3, .pull_bytes = 2000};

/* ---- Reading a peer's memory may be forbidden: the linker puts this in front of the system's ---
 */

static _Atomic int calls_left = -1; /* -1: it works; else it fails after so many */
static _Atomic int error_given = EPERM;
static _Atomic int64_t bytes_read;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names. */
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long num_to,
                                const struct iovec *from, unsigned long num_from,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long num_to,
                                const struct iovec *from, unsigned long num_from,
                                unsigned long flags);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long num_to,
                                const struct iovec *from, unsigned long num_from,
                                unsigned long flags)
{
    if (calls_left == 0) {
        errno = error_given;
        return -1;
    }
    if (calls_left > 0)
        calls_left--;
    ssize_t got = __real_process_vm_readv(pid, to, num_to, from, num_from, flags);
    if (got > 0)
        bytes_read += got;
    return got;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- Worlds ------------------------------------------------------------------------------ */

static void open_world(backend_world_t *world, int size, uint64_t seed,
                       const dt_shm_tuning_t *tuning)
{
    dt_shm_node_t *nodes[BACKEND_WORLD_MAX];
    *world = (backend_world_t){.size = size, .seed = seed};
    assert_int_equal(dt_shm_local_group(size, HEAP, nodes), DTRAIN_OK);
    for (int rank = 0; rank < size; rank++)
        assert_int_equal(dt_shm_create(nodes[rank], tuning, &world->backends[0][rank]), DTRAIN_OK);
}

static void close_world(backend_world_t *world)
{
    for (int rank = 0; rank < world->size; rank++)
        world->backends[0][rank]->ops->destroy(world->backends[0][rank], 1);
}

static void run(backend_world_t *world, const backend_task_t *tasks, int num_tasks)
{
    if (backend_world_run(world, tasks, num_tasks) != 0)
        fail_msg("%s", world->why);
}

static void test_shm_collective_of_any_kind_and_size_gives_what_the_model_says(void **state)
{
    static const int64_t sizes[] = {0, 1, 17, 64, 1000, 5003};
    (void)state;
    uint64_t seed = 1;
    for (int size = 1; size <= 8; size++) {
        for (int kind = DT_REDUCE; kind <= DT_EXCHANGE; kind++) {
            for (int i = 0; i < 6; i++) {
                for (int place = BACKEND_PRIVATE; place <= BACKEND_ANY; place++, seed++) {
                    backend_world_t world;
                    open_world(&world, size, seed, &narrow);
                    backend_task_t task = {.kind = (dt_collective_kind_t)kind, .longest = sizes[i]};
                    task.dtype = DTRAIN_DTYPE_F32;
                    task.root = (int)(seed % (uint64_t)size);
                    task.place = (backend_place_t)place;
                    task.in_place = (int)(seed / 3) % 2;
                    run(&world, &task, 1);
                    close_world(&world);
                }
            }
        }
    }
}

static void test_shm_reductions_of_any_type_and_op_have_the_canonical_order(void **state)
{
    static const dt_collective_kind_t kinds[] = {DT_REDUCE, DT_REDUCE_SCATTER};
    dt_reduction_t reductions[SAMPLE_REDUCTIONS_MAX];
    int num_reductions = sample_reductions(reductions);
    (void)state;
    uint64_t seed = 1000;
    for (int k = 0; k < num_reductions; k++) {
        for (int i = 0; i < 4; i++, seed++) {
            backend_world_t world;
            open_world(&world, 2 + (int)(seed % 4), seed, &narrow);
            backend_task_t task = {.kind = kinds[i % 2], .dtype = reductions[k].dtype};
            task.op = reductions[k].op;
            task.longest = 700;
            task.in_place = -1;
            task.root = 1;
            task.place = (backend_place_t)(i / 2);
            task.postscale = reductions[k].dtype == DTRAIN_DTYPE_F16 ? 1.7 : 1;
            run(&world, &task, 1);
            close_world(&world);
        }
    }
}

/* ---- Private memory of peers ----------------------------------------------------------------- */

static void test_shm_ranks_that_may_not_read_each_other_copy_instead(void **state)
{
    (void)state;
    calls_left = 0;
    for (uint64_t seed = 1600; seed < 1630; seed++) {
        backend_world_t world;
        open_world(&world, 2 + (int)(seed % 4), seed, &narrow);
        backend_task_t task = {.kind = seed % 2 ? DT_EXCHANGE : DT_ALLGATHER};
        task.dtype = DTRAIN_DTYPE_F32;
        task.longest = 3000;
        task.place = seed % 3 ? BACKEND_PRIVATE : BACKEND_ANY;
        run(&world, &task, 1);
        close_world(&world);
    }
    calls_left = -1;
}

/* The first one or two may go before all know whether they can read. */
static void test_shm_broadcast_of_private_memory_is_read_by_all_who_may(void **state)
{
    (void)state;
    for (uint64_t seed = 1640; seed < 1680; seed++) {
        int may_read = seed % 4 != 0;
        int size = 2 + (int)(seed % 3);
        backend_task_t task = {.kind = DT_BROADCAST, .dtype = DTRAIN_DTYPE_F32, .longest = 3000};
        task.root = (int)(seed % (uint64_t)size);
        task.in_place = (int)(seed % 2);
        backend_world_t world;
        open_world(&world, size, seed, &narrow);
        world.has_threads = seed % 5 == 0;
        calls_left = may_read ? -1 : 0;
        for (int i = 0; i < 3; i++)
            run(&world, &task, 1);
        bytes_read = 0;
        run(&world, &task, 1);
        assert_int_equal(bytes_read, may_read ? 12000 * (size - 1) : 0);
        calls_left = -1;
        close_world(&world);
    }
}

/* One of three may read the others, or what it finds is not theirs: then nobody does. */
static void test_shm_ranks_agree_on_whether_all_can_read(void **state)
{
    (void)state;
    for (int calls = 1; calls < 6; calls++) {
        backend_world_t world;
        open_world(&world, 3, 1700 + (uint64_t)calls, &narrow);
        backend_task_t tasks[8];
        for (int i = 0; i < 8; i++) {
            tasks[i] = (backend_task_t){.kind = DT_ALLGATHER, .dtype = DTRAIN_DTYPE_F32};
            tasks[i].longest = 3000;
        }
        calls_left = calls;
        run(&world, tasks, 8);
        calls_left = -1;
        close_world(&world);
    }
}

static void test_shm_read_that_fails_later_ends_the_task_with_its_error(void **state)
{
    (void)state;
    backend_world_t world;
    open_world(&world, 2, 1800, &narrow);
    backend_task_t task = {.kind = DT_ALLGATHER, .dtype = DTRAIN_DTYPE_F32, .longest = 30000};
    calls_left = 2; /* they find that they can read each other */
    error_given = EFAULT;
    assert_int_equal(backend_world_run(&world, &task, 1), -1);
    assert_non_null(strstr(world.why, "progress failed"));
    assert_non_null(strstr(world.why, "Bad address"));
    calls_left = -1;
    error_given = EPERM;
    close_world(&world);
    backend_world_free_rest(&world);
}

/* At the usual sizes, beyond what is moved at a time. */
static void test_shm_long_collectives_give_what_the_model_says(void **state)
{
    (void)state;
    for (uint64_t seed = 1500; seed < 1530; seed++) {
        backend_world_t world;
        open_world(&world, 1 + (int)(seed % 4), seed, NULL);
        backend_task_t task = {.kind = (dt_collective_kind_t)(DT_REDUCE + seed % 4)};
        task.dtype = DTRAIN_DTYPE_F32;
        task.longest = 200003;
        task.place = (backend_place_t)(seed % 3);
        run(&world, &task, 1);
        close_world(&world);
    }
}

static void run_many(int has_threads, uint64_t first, int num_seeds, int num_sets)
{
    for (uint64_t seed = first; seed < first + (uint64_t)num_seeds; seed++) {
        uint64_t random = seed;
        backend_world_t world;
        backend_task_t tasks[BACKEND_TASKS_MAX];
        dt_shm_tuning_t tuning = narrow;
        tuning.slots = 1 + (int)(seed % 4);
        tuning.pull_bytes = seed % 3 == 0 ? -1 : 100;
        open_world(&world, 3 + (int)(seed % 4), seed, seed % 5 == 0 ? NULL : &tuning);
        backend_set_t sets[] = {{{2, 0}, 2, 1}, {{1, 2, 0}, 3, 2}, {{1}, 1, 255}};
        world.sets = sets;
        world.num_sets = num_sets;
        world.has_threads = has_threads;
        for (int again = 0; again < 3; again++) {
            for (int i = 0; i < BACKEND_TASKS_MAX; i++)
                tasks[i] = backend_any_task(&world, 6000, &random);
            run(&world, tasks, BACKEND_TASKS_MAX);
            /* The same regions, for other ranks; a rank may be there before others have left. */
            for (int i = 0; i < 3; i++)
                sets[i].number += DT_SUBSETS_MAX;
            sets[0].ranks[1] = again;
        }
        close_world(&world);
    }
}

static void test_shm_collectives_in_flight_in_any_order_of_calls_are_all_right(void **state)
{
    (void)state;
    run_many(0, 2000, 25, 0);
}

static void test_shm_sets_and_the_world_do_not_mix(void **state)
{
    (void)state;
    run_many(0, 3000, 25, 3);
}

static void test_shm_sets_of_ranks_on_threads_do_not_mix(void **state)
{
    (void)state;
    run_many(1, 4000, 20, 3);
}

/* ---- A region that is used again while one of its members is late -----------------------------
 */

typedef struct late {
    backend_world_t world;
    dt_backend_t *sets[2][2]; /* of the first and the second set: by member */
    float values[4][1000];
    dt_piece_t pieces[4];
    dt_task_t *tasks[4];
} late_t;

static void start_broadcast(late_t *late, int which, dt_backend_t *set, int root)
{
    late->pieces[which] = (dt_piece_t){late->values[which], late->values[which], 1000};
    dt_collective_t collective = {.kind = DT_BROADCAST, .pieces = &late->pieces[which]};
    collective.reduction.dtype = DTRAIN_DTYPE_F32;
    collective.root = root;
    collective.num_pieces = 1;
    collective.count = 1000;
    assert_int_equal(set->ops->start(set, &collective, &late->tasks[which]), DTRAIN_OK);
}

static dtrain_status_t progress(late_t *late, int which, dt_backend_t *set)
{
    dtrain_status_t status = DTRAIN_IN_PROGRESS;
    for (int i = 0; i < 100 && status == DTRAIN_IN_PROGRESS; i++)
        status = set->ops->progress(set, late->tasks[which]);
    if (status == DTRAIN_OK)
        set->ops->release(set, late->tasks[which]);
    return status;
}

static void make_set(late_t *late, int generation, int member, const int *ranks)
{
    dt_backend_t *all = late->world.backends[0][ranks[member]];
    assert_int_equal(all->ops->subset(all, ranks, 2, 5 + generation * DT_SUBSETS_MAX,
                                      &late->sets[generation][member]),
                     DTRAIN_OK);
}

/* Rank 0 is root in a set with rank 1, leaves it, and is root in the next one with rank 2. */
static void test_shm_set_waits_for_late_members_of_the_one_before_it(void **state)
{
    static const int first[] = {0, 1}, second[] = {0, 2};
    static late_t late;
    (void)state;
    open_world(&late.world, 3, 1, NULL);
    for (int i = 0; i < 1000; i++) {
        late.values[0][i] = (float)i;
        late.values[2][i] = (float)-i;
    }
    make_set(&late, 0, 0, first);
    start_broadcast(&late, 0, late.sets[0][0], 0);
    assert_int_equal(progress(&late, 0, late.sets[0][0]), DTRAIN_OK);
    late.sets[0][0]->ops->destroy(late.sets[0][0], 1);
    make_set(&late, 1, 0, second);
    make_set(&late, 1, 1, second);
    start_broadcast(&late, 2, late.sets[1][0], 0);
    start_broadcast(&late, 3, late.sets[1][1], 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(progress(&late, 2, late.sets[1][0]), DTRAIN_IN_PROGRESS);
        assert_int_equal(progress(&late, 3, late.sets[1][1]), DTRAIN_IN_PROGRESS);
    }
    make_set(&late, 0, 1, first);
    start_broadcast(&late, 1, late.sets[0][1], 0);
    assert_int_equal(progress(&late, 1, late.sets[0][1]), DTRAIN_OK);
    late.sets[0][1]->ops->destroy(late.sets[0][1], 1);
    assert_int_equal(progress(&late, 2, late.sets[1][0]), DTRAIN_OK);
    assert_int_equal(progress(&late, 3, late.sets[1][1]), DTRAIN_OK);
    assert_memory_equal(late.values[0], late.values[1], sizeof late.values[0]);
    assert_memory_equal(late.values[2], late.values[3], sizeof late.values[2]);
    for (int member = 0; member < 2; member++)
        late.sets[1][member]->ops->destroy(late.sets[1][member], 1);
    close_world(&late.world);
}

static void test_shm_subset_of_what_is_no_set_is_refused(void **state)
{
    static const struct {
        int ranks[2], set;
    } bad[] = {{{1, 2}, 1}, {{0, 3}, 1}, {{0, -1}, 1}, {{0, 1}, 0}};
    backend_world_t world;
    (void)state;
    open_world(&world, 3, 1, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dt_backend_t *all = world.backends[0][0], *set = NULL;
        assert_int_equal(all->ops->subset(all, bad[i].ranks, 2, bad[i].set, &set),
                         DTRAIN_ERR_INTERNAL);
        assert_null(set);
    }
    close_world(&world);
}

/* As many as there may be, at once. */
static void test_shm_all_sets_at_once_work(void **state)
{
    static const int ranks[] = {1, 0};
    static dt_backend_t *sets[DT_SUBSETS_MAX][2];
    static dt_task_t *tasks[DT_SUBSETS_MAX][2];
    static dt_piece_t pieces[DT_SUBSETS_MAX][2];
    static float values[DT_SUBSETS_MAX][2][100];
    backend_world_t world;
    (void)state;
    open_world(&world, 2, 1, NULL);
    for (int s = 0; s < DT_SUBSETS_MAX; s++) {
        for (int rank = 0; rank < 2; rank++) {
            dt_backend_t *all = world.backends[0][rank];
            assert_int_equal(all->ops->subset(all, ranks, 2, s + 1, &sets[s][rank]), DTRAIN_OK);
            values[s][rank][99] = (float)(s + 1);
            pieces[s][rank] = (dt_piece_t){values[s][rank], values[s][rank], 100};
            dt_collective_t collective = {.kind = DT_ALLREDUCE, .pieces = &pieces[s][rank]};
            collective.reduction = (dt_reduction_t){DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 1, 1, 1};
            collective.num_pieces = 1;
            collective.count = 100;
            assert_int_equal(sets[s][rank]->ops->start(sets[s][rank], &collective, &tasks[s][rank]),
                             DTRAIN_OK);
        }
    }
    for (int s = DT_SUBSETS_MAX - 1; s >= 0; s--) {
        dtrain_status_t status[2] = {DTRAIN_IN_PROGRESS, DTRAIN_IN_PROGRESS};
        for (int i = 0; i < 100 && (status[0] != DTRAIN_OK || status[1] != DTRAIN_OK); i++)
            status[i % 2] = sets[s][i % 2]->ops->progress(sets[s][i % 2], tasks[s][i % 2]);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(status[rank], DTRAIN_OK);
            assert_true(values[s][rank][99] == (float)(2 * (s + 1)));
            sets[s][rank]->ops->release(sets[s][rank], tasks[s][rank]);
            sets[s][rank]->ops->destroy(sets[s][rank], 1);
        }
    }
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shm_collective_of_any_kind_and_size_gives_what_the_model_says),
        cmocka_unit_test(test_shm_reductions_of_any_type_and_op_have_the_canonical_order),
        cmocka_unit_test(test_shm_ranks_that_may_not_read_each_other_copy_instead),
        cmocka_unit_test(test_shm_broadcast_of_private_memory_is_read_by_all_who_may),
        cmocka_unit_test(test_shm_ranks_agree_on_whether_all_can_read),
        cmocka_unit_test(test_shm_read_that_fails_later_ends_the_task_with_its_error),
        cmocka_unit_test(test_shm_long_collectives_give_what_the_model_says),
        cmocka_unit_test(test_shm_collectives_in_flight_in_any_order_of_calls_are_all_right),
        cmocka_unit_test(test_shm_sets_and_the_world_do_not_mix),
        cmocka_unit_test(test_shm_sets_of_ranks_on_threads_do_not_mix),
        cmocka_unit_test(test_shm_set_waits_for_late_members_of_the_one_before_it),
        cmocka_unit_test(test_shm_subset_of_what_is_no_set_is_refused),
        cmocka_unit_test(test_shm_all_sets_at_once_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
