/* A world of nodes that cannot be made, collectives that it refuses, and memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "comm/hier/hier.h"

void *__real_dt_alloc(size_t bytes);
void *__real_dt_calloc(size_t count, size_t bytes);
void *__wrap_dt_alloc(size_t bytes);
void *__wrap_dt_calloc(size_t count, size_t bytes);

static int calls_left = -1; /* allocations that succeed; -1: all */

static int runs_out(void)
{
    if (calls_left == 0)
        return 1;
    calls_left -= calls_left > 0;
    return 0;
}

void *__wrap_dt_alloc(size_t bytes)
{
    return runs_out() ? NULL : __real_dt_alloc(bytes);
}

void *__wrap_dt_calloc(size_t count, size_t bytes)
{
    return runs_out() ? NULL : __real_dt_calloc(count, bytes);
}

/* A backend that keeps what it is given, and does a collective when it is told to. */
typedef struct fake {
    dt_backend_t base;
    dt_collective_t last;
    int num_started, num_released;
    int *destroyed_at; /* written: how many were destroyed before */
    int *num_destroyed;
    dtrain_status_t start_status, status;
} fake_t;

static dtrain_status_t fake_start(dt_backend_t *backend, const dt_collective_t *collective,
                                  dt_task_t **task)
{
    fake_t *fake = (fake_t *)backend;
    if (fake->start_status != DTRAIN_OK)
        return fake->start_status;
    fake->last = *collective;
    fake->num_started++;
    *task = (dt_task_t *)fake;
    return DTRAIN_OK;
}

static dtrain_status_t fake_progress(dt_backend_t *backend, dt_task_t *task)
{
    (void)task;
    return ((fake_t *)backend)->status;
}

static void fake_release(dt_backend_t *backend, dt_task_t *task)
{
    (void)task;
    ((fake_t *)backend)->num_released++;
}

static void fake_destroy(dt_backend_t *backend, int clean)
{
    fake_t *fake = (fake_t *)backend;
    (void)clean;
    *fake->destroyed_at = (*fake->num_destroyed)++;
}

static const dt_backend_ops_t fake_ops = {
    .name = "fake",
    .start = fake_start,
    .progress = fake_progress,
    .release = fake_release,
    .destroy = fake_destroy,
};

/* Three nodes of two ranks, seen by rank 1. */
typedef struct fixture {
    dt_topology_t topology;
    fake_t flat, by_node;
    int flat_destroyed_at, by_node_destroyed_at, num_destroyed;
    dt_backend_t *backend;
} fixture_t;

static void prepare(fixture_t *f)
{
    dt_peer_t *peers = dt_calloc(6, sizeof *peers);
    memset(f, 0, sizeof *f);
    assert_non_null(peers);
    for (int i = 0; i < 6; i++)
        peers[i].node = i / 2;
    assert_int_equal(dt_topology_make(&f->topology, 1, 6, peers), DTRAIN_OK);
    f->flat = (fake_t){.base.ops = &fake_ops,
                       .destroyed_at = &f->flat_destroyed_at,
                       .num_destroyed = &f->num_destroyed};
    f->by_node = f->flat;
    f->by_node.destroyed_at = &f->by_node_destroyed_at;
    f->flat_destroyed_at = f->by_node_destroyed_at = -1;
}

static dtrain_status_t create(fixture_t *f)
{
    return dt_hier_create(&f->flat.base, &f->by_node.base, &f->topology, NULL, &f->backend);
}

static void finish(fixture_t *f, int clean)
{
    f->backend->ops->destroy(f->backend, clean);
    dt_topology_free(&f->topology);
}

static dt_collective_t allreduce_of(const dt_piece_t *pieces, int num_pieces, dtrain_dtype_t dtype)
{
    dt_collective_t collective = {.kind = DT_ALLREDUCE, .pieces = pieces, .num_pieces = num_pieces};
    collective.reduction = (dt_reduction_t){dtype, DTRAIN_OP_SUM, 1, 1, 1};
    for (int i = 0; i < num_pieces; i++)
        collective.count += pieces[i].count;
    return collective;
}

static void test_hier_without_memory_is_not_made(void **state)
{
    (void)state;
    for (int calls = 0; calls < 2; calls++) {
        fixture_t f;
        prepare(&f);
        calls_left = calls;
        dtrain_status_t status = create(&f);
        calls_left = -1;
        assert_int_equal(status, DTRAIN_ERR_OUT_OF_MEMORY);
        assert_int_equal(f.by_node_destroyed_at, 0);
        assert_int_equal(f.flat_destroyed_at, -1);
        dt_topology_free(&f.topology);
    }
}

static void test_hier_destroys_flat_first(void **state)
{
    fixture_t f;
    (void)state;
    prepare(&f);
    assert_int_equal(create(&f), DTRAIN_OK);
    finish(&f, 1);
    assert_int_equal(f.flat_destroyed_at, 0);
    assert_int_equal(f.by_node_destroyed_at, 1);
}

static void test_hier_packs_pieces_that_go_flat_and_unpacks_the_result(void **state)
{
    fixture_t f;
    uint16_t in[4] = {1, 2, 3, 4}, out[4] = {0};
    const dt_piece_t pieces[3] = {{in, out, 1}, {in, out, 0}, {in + 1, out + 1, 3}};
    dt_collective_t collective = allreduce_of(pieces, 3, DTRAIN_DTYPE_BF16);
    dt_task_t *task;
    (void)state;
    prepare(&f);
    assert_int_equal(create(&f), DTRAIN_OK);
    assert_int_equal(f.backend->ops->start(f.backend, &collective, &task), DTRAIN_OK);
    assert_int_equal(f.by_node.num_started, 0);
    assert_int_equal(f.flat.last.num_pieces, 1);
    const dt_piece_t packed = f.flat.last.pieces[0];
    assert_int_equal(packed.count, 4);
    assert_memory_equal(packed.in, in, sizeof in);
    uint16_t *result = packed.out;
    for (int i = 0; i < 4; i++)
        result[i] = (uint16_t)(10 * (i + 1));
    f.flat.status = DTRAIN_IN_PROGRESS;
    assert_int_equal(f.backend->ops->progress(f.backend, task), DTRAIN_IN_PROGRESS);
    assert_int_equal(out[0], 0);
    f.flat.status = DTRAIN_OK;
    assert_int_equal(f.backend->ops->progress(f.backend, task), DTRAIN_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(out[i], 10 * (i + 1));
    f.backend->ops->release(f.backend, task);
    assert_int_equal(f.flat.num_released, 1);
    finish(&f, 1);
}

/* A late message may still be written there, and the sanitizer would see it. */
static void test_hier_task_that_is_given_up_keeps_its_memory_until_destroy(void **state)
{
    fixture_t f;
    uint16_t values[4] = {1, 2, 3, 4};
    const dt_piece_t pieces[2] = {{values, values, 1}, {values + 1, values + 1, 3}};
    dt_collective_t collective = allreduce_of(pieces, 2, DTRAIN_DTYPE_F16);
    dt_task_t *task;
    (void)state;
    prepare(&f);
    assert_int_equal(create(&f), DTRAIN_OK);
    assert_int_equal(f.backend->ops->start(f.backend, &collective, &task), DTRAIN_OK);
    f.flat.status = DTRAIN_ERR_COMMUNICATION;
    assert_int_equal(f.backend->ops->progress(f.backend, task), DTRAIN_ERR_COMMUNICATION);
    f.backend->ops->release(f.backend, task);
    memset(f.flat.last.pieces[0].out, 0xff, sizeof values);
    assert_int_equal(values[3], 4);
    finish(&f, 0);
}

static void test_hier_start_that_fails_leaves_the_world_as_it_was(void **state)
{
    fixture_t f;
    uint16_t values[4] = {0};
    const dt_piece_t pieces[2] = {{values, values, 1}, {values + 1, values + 1, 3}};
    dt_collective_t collective = allreduce_of(pieces, 2, DTRAIN_DTYPE_F16);
    dt_task_t *task = NULL;
    (void)state;
    prepare(&f);
    assert_int_equal(create(&f), DTRAIN_OK);
    for (int calls = 0; calls < 2; calls++) {
        calls_left = calls;
        dtrain_status_t status = f.backend->ops->start(f.backend, &collective, &task);
        calls_left = -1;
        assert_int_equal(status, DTRAIN_ERR_OUT_OF_MEMORY);
    }
    f.flat.start_status = DTRAIN_ERR_OUT_OF_MEMORY;
    assert_int_equal(f.backend->ops->start(f.backend, &collective, &task),
                     DTRAIN_ERR_OUT_OF_MEMORY);
    f.flat.start_status = DTRAIN_OK;
    assert_null(task);
    assert_int_equal(f.backend->ops->start(f.backend, &collective, &task), DTRAIN_OK);
    assert_int_equal(f.flat.last.sequence, 0);
    f.backend->ops->release(f.backend, task);
    finish(&f, 1);
}

static void test_hier_start_of_what_is_no_collective_is_refused(void **state)
{
    fixture_t f;
    float value = 1;
    const dt_piece_t piece = {&value, &value, 1};
    const dt_collective_t good = allreduce_of(&piece, 1, DTRAIN_DTYPE_F32);
    dt_collective_t bad[4] = {good, good, good, good};
    dt_task_t *task = NULL;
    (void)state;
    prepare(&f);
    assert_int_equal(create(&f), DTRAIN_OK);
    bad[0].reduction.dtype = (dtrain_dtype_t)99;
    bad[1].num_pieces = 0;
    bad[2].kind = bad[3].kind = DT_BROADCAST;
    bad[2].root = -1;
    bad[3].root = 6;
    for (int i = 0; i < 4; i++)
        assert_int_equal(f.backend->ops->start(f.backend, &bad[i], &task), DTRAIN_ERR_INTERNAL);
    assert_null(task);
    finish(&f, 1);
}

/* Each backend counts from 0 what it is given, and no number is left out. */
static void test_hier_numbers_the_collectives_of_each_backend(void **state)
{
    fixture_t f;
    static float values[4096];
    const dt_piece_t small = {values, values, 1}, large = {values, values, 4096};
    dt_task_t *task;
    (void)state;
    prepare(&f);
    assert_int_equal(create(&f), DTRAIN_OK);
    for (int i = 0; i < 6; i++) {
        dt_collective_t collective = allreduce_of(i % 3 ? &large : &small, 1, DTRAIN_DTYPE_F32);
        collective.sequence = (uint64_t)i;
        assert_int_equal(f.backend->ops->start(f.backend, &collective, &task), DTRAIN_OK);
        assert_int_equal(f.backend->ops->progress(f.backend, task), DTRAIN_OK);
        f.backend->ops->release(f.backend, task);
    }
    assert_int_equal(f.flat.num_started, 2);
    assert_int_equal(f.flat.last.sequence, 1);
    assert_int_equal(f.by_node.num_started, 4);
    assert_int_equal(f.by_node.last.sequence, 3);
    finish(&f, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hier_without_memory_is_not_made),
        cmocka_unit_test(test_hier_destroys_flat_first),
        cmocka_unit_test(test_hier_packs_pieces_that_go_flat_and_unpacks_the_result),
        cmocka_unit_test(test_hier_task_that_is_given_up_keeps_its_memory_until_destroy),
        cmocka_unit_test(test_hier_start_that_fails_leaves_the_world_as_it_was),
        cmocka_unit_test(test_hier_start_of_what_is_no_collective_is_refused),
        cmocka_unit_test(test_hier_numbers_the_collectives_of_each_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
