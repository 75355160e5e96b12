/* Groups: all tensors are agreed on, or none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "engine_world.h"

#define TENSORS 40

static const int sizes[] = {1, 2, 3, 4};

static void on_all_sizes(engine_fn_t fn, int from)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] >= from)
            engine_run(sizes[i], NULL, fn, NULL);
    }
}

typedef struct group {
    char names[TENSORS][16];
    float values[TENSORS][4];
    engine_op_t ops[TENSORS];
    dtrain_handle_t handles[TENSORS];
} group_t;

static void fill(engine_rank_t *self, group_t *group, dt_kind_t kind)
{
    for (int i = 0; i < TENSORS; i++) {
        snprintf(group->names[i], sizeof group->names[i], "g%d", i);
        for (int k = 0; k < 4; k++)
            group->values[i][k] = (float)(self->rank + i);
        group->ops[i] = (engine_op_t){
            .name = group->names[i], .kind = kind, .in = group->values[i], .count = i % 4 + 1};
        if (kind == DT_KIND_ALLREDUCE)
            group->ops[i].out = group->values[i];
    }
}

static void grouped_allreduce(engine_rank_t *self)
{
    group_t group;
    for (int round = 0; round < 4; round++) {
        fill(self, &group, DT_KIND_ALLREDUCE);
        ENGINE_OK(self, engine_submit_group(self, group.ops, TENSORS, group.handles));
        for (int i = 0; i < TENSORS; i++) {
            ENGINE_OK(self, engine_finish(self, group.handles[i]));
            ENGINE_CHECK(self, group.values[i][0] ==
                                   (float)(self->size * (self->size - 1) / 2 + i * self->size));
        }
    }
}

static void test_engine_grouped_allreduce_reduces_each(void **state)
{
    (void)state;
    on_all_sizes(grouped_allreduce, 1);
}

/* Rank r brings r + 1 rows, or a share of what it brought. */
static void grouped_rows(engine_rank_t *self)
{
    group_t group;
    for (int round = 0; round < 3; round++) {
        fill(self, &group, DT_KIND_ALLGATHER);
        for (int i = 0; i < TENSORS; i++)
            group.ops[i].count = self->rank % 4 + 1;
        ENGINE_OK(self, engine_submit_group(self, group.ops, TENSORS, group.handles));
        for (int i = 0; i < TENSORS; i++) {
            const float *out;
            int64_t rows;
            ENGINE_OK(self, dt_runtime_wait(self->runtime, group.handles[i], -1));
            ENGINE_OK(self, dt_runtime_output(self->runtime, group.handles[i], (const void **)&out,
                                              &rows, NULL));
            ENGINE_CHECK(self, rows == self->size * (self->size + 1) / 2);
            ENGINE_CHECK(self, out[rows - 1] == (float)(self->size - 1 + i));
            ENGINE_OK(self, dt_runtime_release(self->runtime, group.handles[i]));
        }
        fill(self, &group, DT_KIND_REDUCESCATTER);
        for (int i = 0; i < TENSORS; i++)
            group.ops[i].count = 4;
        ENGINE_OK(self, engine_submit_group(self, group.ops, TENSORS, group.handles));
        for (int i = 0; i < TENSORS; i++) {
            const float *out;
            ENGINE_OK(self, dt_runtime_wait(self->runtime, group.handles[i], -1));
            ENGINE_OK(self, dt_runtime_output(self->runtime, group.handles[i], (const void **)&out,
                                              NULL, NULL));
            ENGINE_CHECK(self,
                         out[0] == (float)(self->size * (self->size - 1) / 2 + i * self->size));
            ENGINE_OK(self, dt_runtime_release(self->runtime, group.handles[i]));
        }
    }
}

static void test_engine_grouped_allgather_and_reducescatter_work(void **state)
{
    (void)state;
    on_all_sizes(grouped_rows, 1);
}

/* ---- All or nothing -------------------------------------------------------------------------- */

static void check_all_fail(engine_rank_t *self, group_t *group, dtrain_status_t status,
                           const char *part)
{
    for (int i = 0; i < TENSORS; i++) {
        float before = group->values[i][0];
        ENGINE_STATUS(self, engine_finish(self, group->handles[i]), status);
        ENGINE_TEXT(self, dt_last_error(), part);
        ENGINE_CHECK(self, group->values[i][0] == before);
    }
}

static void one_shape(engine_rank_t *self)
{
    group_t group;
    for (int round = 0; round < 3; round++) {
        fill(self, &group, DT_KIND_ALLREDUCE);
        if (self->rank == self->size - 1)
            group.ops[17].count = 3;
        ENGINE_OK(self, engine_submit_group(self, group.ops, TENSORS, group.handles));
        check_all_fail(self, &group, DTRAIN_ERR_MISMATCH, "'g17': the ranks' shapes differ");
        grouped_allreduce(self);
    }
}

static void test_engine_group_fails_as_one_when_a_shape_differs(void **state)
{
    (void)state;
    on_all_sizes(one_shape, 2);
}

static void one_refused(engine_rank_t *self)
{
    group_t group;
    fill(self, &group, DT_KIND_ALLREDUCE);
    if (self->rank == self->size - 1) {
        group.ops[5].device = 9;
        group.handles[0] = 77;
        ENGINE_STATUS(self, engine_submit_group(self, group.ops, TENSORS, group.handles),
                      DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "'g5': there is no device 9");
        ENGINE_CHECK(self, group.handles[0] == 77);
    } else {
        ENGINE_OK(self, engine_submit_group(self, group.ops, TENSORS, group.handles));
        check_all_fail(self, &group, DTRAIN_ERR_INVALID_ARGUMENT, "'g5': there is no device 9");
    }
    grouped_allreduce(self);
}

static void test_engine_group_of_which_a_rank_refuses_one_fails_as_one(void **state)
{
    (void)state;
    on_all_sizes(one_refused, 2);
}

static void other_group(engine_rank_t *self)
{
    group_t group;
    fill(self, &group, DT_KIND_ALLREDUCE);
    /* The last rank has the same tensors in another order. */
    if (self->rank == self->size - 1) {
        engine_op_t swapped = group.ops[3];
        group.ops[3] = group.ops[4];
        group.ops[3].count = swapped.count = 4;
        group.ops[4] = swapped;
    }
    group.ops[3].count = group.ops[4].count = 4;
    ENGINE_OK(self, engine_submit_group(self, group.ops, TENSORS, group.handles));
    check_all_fail(self, &group, DTRAIN_ERR_MISMATCH, "the ranks' groups differ");
    grouped_allreduce(self);
}

static void test_engine_group_that_differs_by_rank_fails_as_one(void **state)
{
    (void)state;
    on_all_sizes(other_group, 2);
}

/* A name of the group is in flight on one rank; the operation in flight, which is no part of a
 * group, meets the other ranks' group. */
static void duplicate(engine_rank_t *self)
{
    group_t group;
    fill(self, &group, DT_KIND_ALLREDUCE);
    if (self->rank == 0) {
        float value = 1;
        engine_op_t op = {.name = "g2", .in = &value, .out = &value, .count = 3};
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_STATUS(self, engine_submit_group(self, group.ops, TENSORS, group.handles),
                      DTRAIN_ERR_DUPLICATE_NAME);
        ENGINE_TEXT(self, dt_last_error(), "'g2'");
        engine_meet(self); /* till now nobody else has submitted g2 */
        ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_MISMATCH);
        ENGINE_TEXT(self, dt_last_error(), "groups differ");
    } else {
        engine_meet(self);
        ENGINE_OK(self, engine_submit_group(self, group.ops, TENSORS, group.handles));
        for (int i = 0; i < TENSORS; i++)
            ENGINE_CHECK(self, engine_finish(self, group.handles[i]) < 0);
    }
    engine_meet(self); /* rank 0's refused calls may still be on their way */
    grouped_allreduce(self);
}

static void test_engine_group_with_a_name_in_flight_is_refused_whole(void **state)
{
    (void)state;
    on_all_sizes(duplicate, 2);
}

static void twice_in_one(engine_rank_t *self)
{
    group_t group;
    fill(self, &group, DT_KIND_ALLREDUCE);
    group.ops[9].name = "g8";
    ENGINE_STATUS(self, engine_submit_group(self, group.ops, TENSORS, group.handles),
                  DTRAIN_ERR_DUPLICATE_NAME);
    ENGINE_STATUS(self, engine_submit_group(self, group.ops, 0, group.handles),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    group.ops[9].name = "";
    ENGINE_STATUS(self, engine_submit_group(self, group.ops, TENSORS, group.handles),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "no name");
    engine_meet(self);
    grouped_allreduce(self);
}

static void test_engine_group_with_a_name_twice_or_none_is_refused(void **state)
{
    (void)state;
    on_all_sizes(twice_in_one, 1);
}

/* Rank 0 submits a group of which the others submit one tensor less. */
static void missing(engine_rank_t *self)
{
    group_t group;
    fill(self, &group, DT_KIND_ALLREDUCE);
    group.ops[0].timeout_ms = 200;
    ENGINE_OK(self, engine_submit_group(self, group.ops, self->rank == 0 ? TENSORS : TENSORS - 1,
                                        group.handles));
    for (int i = 0; i < (self->rank == 0 ? TENSORS : TENSORS - 1); i++)
        ENGINE_CHECK(self, engine_finish(self, group.handles[i]) < 0);
    engine_meet(self);
    grouped_allreduce(self);
}

static void test_engine_group_of_which_a_tensor_is_missing_fails_as_one(void **state)
{
    (void)state;
    on_all_sizes(missing, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_grouped_allreduce_reduces_each),
        cmocka_unit_test(test_engine_grouped_allgather_and_reducescatter_work),
        cmocka_unit_test(test_engine_group_fails_as_one_when_a_shape_differs),
        cmocka_unit_test(test_engine_group_of_which_a_rank_refuses_one_fails_as_one),
        cmocka_unit_test(test_engine_group_that_differs_by_rank_fails_as_one),
        cmocka_unit_test(test_engine_group_with_a_name_in_flight_is_refused_whole),
        cmocka_unit_test(test_engine_group_with_a_name_twice_or_none_is_refused),
        cmocka_unit_test(test_engine_group_of_which_a_tensor_is_missing_fails_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
