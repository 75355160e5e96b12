/* All kinds of collectives in worlds of several nodes, among all ranks and among sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hier_world.h"
#include "samples.h"

static const int shapes[][2] = {{2, 2}, {3, 2}, {2, 3}, {3, 3}, {2, 4}, {3, 4}, {5, 2}, {2, 1}};

#define NUM_SHAPES (sizeof shapes / sizeof shapes[0])

/* Chunks that are short enough for many of them, and messages of a few segments. */
static hier_world_t world_of(uint64_t seed)
{
    const int *shape = shapes[seed % NUM_SHAPES];
    return (hier_world_t){.num_nodes = shape[0],
                          .local_size = shape[1],
                          .is_scattered = (int)(seed / NUM_SHAPES % 2),
                          .seed = seed,
                          .tuning = {.chunk_bytes = 512, .slots = 3},
                          .ring = {.segment_bytes = 128, .direct_bytes = 128},
                          .flat_bytes = 256};
}

static void run(hier_world_t *world, backend_world_t *backends, const backend_task_t *tasks,
                int num_tasks)
{
    if (backend_world_run(backends, tasks, num_tasks) != 0)
        fail_msg("%d nodes of %d: %s", world->num_nodes, world->local_size, backends->why);
}

static void close_world(hier_world_t *world, backend_world_t *backends)
{
    hier_world_close(world, backends);
    for (int rank = 0; rank < backends->size; rank++) {
        assert_int_equal(world->reports[rank].num_overlaps, 0);
        assert_int_equal(world->reports[rank].num_scribbles, 0);
        assert_int_equal(world->reports[rank].num_left, 0);
    }
}

static void test_hier_collective_of_any_kind_and_size_gives_what_the_model_says(void **state)
{
    static const int64_t sizes[] = {0, 1, 17, 64, 1000, 3003};
    (void)state;
    uint64_t seed = 0;
    for (size_t shape = 0; shape < 2 * NUM_SHAPES; shape++) {
        for (int kind = DT_REDUCE; kind <= DT_EXCHANGE; kind++) {
            hier_world_t world = world_of((uint64_t)shape);
            backend_world_t backends;
            hier_world_open(&world, &backends);
            for (int i = 0; i < 6; i++, seed++) {
                backend_task_t task = {.kind = (dt_collective_kind_t)kind, .longest = sizes[i]};
                task.dtype = DTRAIN_DTYPE_F32;
                task.root = (int)(seed % (uint64_t)backends.size);
                task.place = (backend_place_t)(seed % 3);
                task.in_place = (int)(seed / 3) % 2;
                backends.seed = seed;
                run(&world, &backends, &task, 1);
            }
            close_world(&world, &backends);
        }
    }
}

static void test_hier_reductions_of_any_type_and_op_have_the_promised_bits(void **state)
{
    static const dt_collective_kind_t kinds[] = {DT_REDUCE, DT_REDUCE_SCATTER};
    dt_reduction_t reductions[SAMPLE_REDUCTIONS_MAX];
    int num_reductions = sample_reductions(reductions);
    (void)state;
    uint64_t seed = 1000;
    for (int k = 0; k < num_reductions; k++) {
        for (int i = 0; i < 4; i++, seed++) {
            hier_world_t world = world_of(seed);
            backend_world_t backends;
            hier_world_open(&world, &backends);
            backend_task_t task = {.kind = kinds[i % 2], .dtype = reductions[k].dtype};
            task.op = reductions[k].op;
            task.longest = 700;
            task.in_place = -1;
            task.root = 1;
            task.place = (backend_place_t)(i / 2);
            task.postscale = reductions[k].dtype == DTRAIN_DTYPE_F32 ? 1.7 : 1;
            run(&world, &backends, &task, 1);
            close_world(&world, &backends);
        }
    }
}

static void run_many(shm_driver_t driver, uint64_t first, int num_seeds)
{
    for (uint64_t seed = first; seed < first + (uint64_t)num_seeds; seed++) {
        uint64_t random = seed;
        hier_world_t world = world_of(seed);
        backend_world_t backends;
        backend_task_t tasks[12];
        if (seed % NUM_SHAPES == NUM_SHAPES - 1) /* of two ranks: too few for the sets */
            world.num_nodes = 4;
        world.driver = driver;
        hier_world_open(&world, &backends);
        backend_set_t sets[] = {{{0, 1}, 2, 1}, {{2, 0}, 2, 2}, {{3, 1, 0, 2}, 4, 3}};
        backends.sets = sets;
        backends.num_sets = 3;
        for (int again = 0; again < 2; again++) {
            for (int i = 0; i < 12; i++)
                tasks[i] = backend_any_task(&backends, 3000, &random);
            run(&world, &backends, tasks, 12);
            for (int i = 0; i < 3; i++)
                sets[i].number += DT_SUBSETS_MAX;
        }
        close_world(&world, &backends);
    }
}

static void test_hier_collectives_and_sets_in_any_order_of_calls_are_all_right(void **state)
{
    (void)state;
    run_many(SHM_INTERLEAVED, 2000, 48);
}

static void test_hier_ranks_as_threads_get_what_the_model_says(void **state)
{
    (void)state;
    run_many(SHM_THREADS, 3000, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hier_collective_of_any_kind_and_size_gives_what_the_model_says),
        cmocka_unit_test(test_hier_reductions_of_any_type_and_op_have_the_promised_bits),
        cmocka_unit_test(test_hier_collectives_and_sets_in_any_order_of_calls_are_all_right),
        cmocka_unit_test(test_hier_ranks_as_threads_get_what_the_model_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
