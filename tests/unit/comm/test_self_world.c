#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "comm/self/self_world.h"

static dt_world_t world;

static int setup(void **state)
{
    (void)state;
    return dt_self_join(&world) == DTRAIN_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    dt_world_close(&world, 1);
    return 0;
}

static dt_collective_t allreduce(dtrain_dtype_t dtype, dtrain_op_t op, const dt_piece_t *pieces,
                                 int num_pieces)
{
    dt_collective_t collective = {.kind = DT_ALLREDUCE, .pieces = pieces, .num_pieces = num_pieces};
    collective.reduction =
        (dt_reduction_t){.dtype = dtype, .op = op, .divisor = 1, .prescale = 1, .postscale = 1};
    for (int i = 0; i < num_pieces; i++)
        collective.count += pieces[i].count;
    return collective;
}

static void run(const dt_collective_t *collective)
{
    dt_task_t *task = NULL;
    const dt_backend_ops_t *ops = world.backend->ops;
    assert_int_equal(ops->start(world.backend, collective, &task), DTRAIN_OK);
    assert_non_null(task);
    assert_int_equal(ops->progress(world.backend, task), DTRAIN_OK);
    ops->release(world.backend, task);
}

static void test_self_world_is_one_rank_on_this_host(void **state)
{
    (void)state;
    const dt_topology_t *topology = &world.topology;
    assert_int_equal(topology->rank, 0);
    assert_int_equal(topology->size, 1);
    assert_int_equal(topology->local_size, 1);
    assert_int_equal(topology->cross_size, 1);
    assert_int_equal(topology->is_homogeneous, 1);
    assert_int_equal(topology->peers[0].pid, getpid());
    assert_true(topology->peers[0].host[0] != '\0');
    assert_null(world.control);
    assert_string_equal(world.backend->ops->name, "self");
}

static void test_self_allreduce_copies_every_piece(void **state)
{
    (void)state;
    const float in[5] = {1, -2, 3.5f, 4, 5};
    float out[5] = {0};
    const dt_piece_t pieces[] = {{in, out, 2}, {NULL, NULL, 0}, {in + 2, out + 2, 3}};
    dt_collective_t collective = allreduce(DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, pieces, 3);
    run(&collective);
    assert_memory_equal(out, in, sizeof in);
}

static void test_self_allreduce_scales_in_place(void **state)
{
    (void)state;
    double values[3] = {1, 2, -4};
    const dt_piece_t piece = {values, values, 3};
    dt_collective_t collective = allreduce(DTRAIN_DTYPE_F64, DTRAIN_OP_AVERAGE, &piece, 1);
    collective.reduction.prescale = 0.5;
    collective.reduction.postscale = 3;
    run(&collective);
    assert_true(values[0] == 1.5 && values[1] == 3 && values[2] == -6);
}

static void test_self_allreduce_divides_by_the_divisor(void **state)
{
    (void)state;
    int32_t values[3] = {7, -7, 4};
    const dt_piece_t piece = {values, values, 3};
    dt_collective_t collective = allreduce(DTRAIN_DTYPE_I32, DTRAIN_OP_AVERAGE, &piece, 1);
    collective.reduction.divisor = 2;
    run(&collective);
    assert_int_equal(values[0], 3);
    assert_int_equal(values[1], -3);
    assert_int_equal(values[2], 2);
}

static void test_self_allreduce_of_bool_gives_zero_or_one(void **state)
{
    (void)state;
    const uint8_t in[4] = {0, 1, 7, 255};
    const uint8_t expected[4] = {0, 1, 1, 1};
    uint8_t out[4] = {9, 9, 9, 9};
    const dt_piece_t piece = {in, out, 4};
    dt_collective_t collective = allreduce(DTRAIN_DTYPE_BOOL, DTRAIN_OP_SUM, &piece, 1);
    run(&collective);
    assert_memory_equal(out, expected, sizeof out);
}

static void test_self_broadcast_gives_the_root_its_own_values(void **state)
{
    (void)state;
    const int64_t in[2] = {1, -2};
    int64_t out[2] = {0, 0};
    int64_t both[2] = {3, 4};
    const dt_piece_t pieces[] = {{in, out, 2}, {both, both, 2}, {in, NULL, 2}, {NULL, NULL, 0}};
    const dt_collective_t collective = {.kind = DT_BROADCAST,
                                        .reduction = {.dtype = DTRAIN_DTYPE_I64},
                                        .pieces = pieces,
                                        .num_pieces = 4,
                                        .count = 6};
    run(&collective);
    assert_memory_equal(out, in, sizeof in);
    assert_int_equal(both[0], 3);
    assert_int_equal(both[1], 4);
}

static void test_self_backend_has_several_tasks_at_once(void **state)
{
    (void)state;
    int32_t values[2] = {1, 2};
    const dt_piece_t pieces[2] = {{&values[0], &values[0], 1}, {&values[1], &values[1], 1}};
    const dt_backend_ops_t *ops = world.backend->ops;
    dt_task_t *tasks[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        dt_collective_t collective = allreduce(DTRAIN_DTYPE_I32, DTRAIN_OP_MAX, &pieces[i], 1);
        assert_int_equal(ops->start(world.backend, &collective, &tasks[i]), DTRAIN_OK);
    }
    ops->release(world.backend, tasks[0]);
    assert_int_equal(ops->progress(world.backend, tasks[1]), DTRAIN_OK);
    ops->release(world.backend, tasks[1]);
}

#define WORLD_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_self_world_is_one_rank_on_this_host),
        WORLD_TEST(test_self_allreduce_copies_every_piece),
        WORLD_TEST(test_self_allreduce_scales_in_place),
        WORLD_TEST(test_self_allreduce_divides_by_the_divisor),
        WORLD_TEST(test_self_allreduce_of_bool_gives_zero_or_one),
        WORLD_TEST(test_self_broadcast_gives_the_root_its_own_values),
        WORLD_TEST(test_self_backend_has_several_tasks_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
