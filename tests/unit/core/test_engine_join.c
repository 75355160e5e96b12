/* Join on ranks that are threads: the others' operations go on without the ranks that joined. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "engine_world.h"
#include "reduce/reduce.h"

#define COUNT 19

/* ---- Uneven data -------------------------------------------------------------------------------
 */

/* Rank r has 2 r + 1 steps, so that in step s those from (s + 1) / 2 on are there. */
static void uneven(engine_rank_t *self)
{
    int by_all = *(const int *)self->argument;
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int step = 0; step < 2 * self->rank + 1; step++) {
            int first = (step + 1) / 2, present = self->size - first;
            float sum = 0, values[3][COUNT];
            const char *const names[] = {"a", "b", "c"};
            dtrain_handle_t handles[3];
            for (int rank = first; rank < self->size; rank++)
                sum += (float)(rank + 1);
            for (int t = 0; t < 3; t++) {
                engine_op_t op = {.name = names[t],
                                  .in = values[t],
                                  .out = values[t],
                                  .count = COUNT,
                                  .op = t == 1 ? DTRAIN_OP_AVERAGE : DTRAIN_OP_SUM};
                for (int k = 0; k < COUNT; k++)
                    values[t][k] = (float)(self->rank + 1);
                ENGINE_OK(self, engine_submit(self, &op, &handles[t]));
            }
            for (int t = 0; t < 3; t++) {
                ENGINE_OK(self, engine_finish(self, handles[t]));
                float divisor = t != 1 ? 1 : by_all ? (float)self->size : (float)present;
                ENGINE_CHECK(self, values[t][0] == sum / divisor);
                ENGINE_CHECK(self, values[t][COUNT - 1] == sum / divisor);
            }
            engine_op_t barrier = {.kind = DT_KIND_BARRIER};
            ENGINE_OK(self, engine_do(self, &barrier));
        }
        int last = -1;
        ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
        ENGINE_CHECK(self, last == self->size - 1);
        engine_check_works(self, "after");
    }
}

static void test_engine_join_lets_the_others_go_on(void **state)
{
    (void)state;
    for (int by_all = 0; by_all < 2; by_all++) {
        dt_config_t config = engine_config();
        config.join_divisor = by_all ? DTRAIN_JOIN_DIVISOR_ALL : DTRAIN_JOIN_DIVISOR_PRESENT;
        for (int size = 1; size <= ENGINE_RANKS_MAX; size++)
            engine_run(size, &config, uneven, &by_all);
    }
}

/* ---- The identity -------------------------------------------------------------------------------
 */

typedef struct reduction_case {
    dtrain_op_t op;
    double prescale;
} reduction_case_t;

static const reduction_case_t reductions[] = {
    {DTRAIN_OP_SUM, 1},     {DTRAIN_OP_AVERAGE, 1}, {DTRAIN_OP_MIN, 1},    {DTRAIN_OP_MAX, 1},
    {DTRAIN_OP_PRODUCT, 1}, {DTRAIN_OP_SUM, -2},    {DTRAIN_OP_MIN, -0.5}, {DTRAIN_OP_MAX, -3},
    {DTRAIN_OP_MIN, 0.25},  {DTRAIN_OP_AVERAGE, 3}};

static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_U8,  DTRAIN_DTYPE_I8,  DTRAIN_DTYPE_U16,
                                        DTRAIN_DTYPE_I16, DTRAIN_DTYPE_I32, DTRAIN_DTYPE_I64,
                                        DTRAIN_DTYPE_F16, DTRAIN_DTYPE_F32, DTRAIN_DTYPE_BF16,
                                        DTRAIN_DTYPE_F64, DTRAIN_DTYPE_BOOL};
#define NUM_DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

/* Bits of every kind, but for NaNs and infinities; zeros of both signs at the start. */
static void fill(unsigned char *values, dtrain_dtype_t dtype, int rank)
{
    size_t element = dt_dtype_size(dtype);
    for (size_t i = 0; i < COUNT * element; i++)
        values[i] = (unsigned char)(37 * i + 101 * (size_t)rank + 11);
    for (int k = 0; k < COUNT && dt_dtype_is_float(dtype); k++) {
        unsigned char *top = values + (size_t)(k + 1) * element - 1;
        *top = (unsigned char)((*top & 0x80) | 0x3c);
    }
    memset(values, 0, 2 * element);
    for (int k = 0; k < 2 && dt_dtype_is_float(dtype); k++)
        values[(size_t)(k + 1) * element - 1] = k == 0 ? 0x80 : (unsigned char)(rank % 2 * 0x80);
    for (int k = 0; k < COUNT && dtype == DTRAIN_DTYPE_BOOL; k++)
        values[k] &= 1;
}

/* What the ranks from 1 on give together. */
static void reduce_others(const dt_reduction_t *reduction, int size, void *wanted)
{
    unsigned char values[ENGINE_RANKS_MAX][COUNT * 8];
    const void *sources[ENGINE_RANKS_MAX];
    for (int rank = 1; rank < size; rank++) {
        fill(values[rank], reduction->dtype, rank);
        sources[rank - 1] = values[rank];
    }
    dt_reduce(reduction, &wanted, 1, sources, size - 1, COUNT);
}

static void reduce_without(engine_rank_t *self)
{
    int last;
    if (self->rank == 0) {
        ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
        return;
    }
    for (size_t r = 0; r < sizeof reductions / sizeof reductions[0]; r++) {
        const reduction_case_t *c = &reductions[r];
        dtrain_handle_t handles[NUM_DTYPES] = {0};
        unsigned char values[NUM_DTYPES][COUNT * 8];
        char names[NUM_DTYPES][16];
        for (int t = 0; t < NUM_DTYPES; t++) {
            if (dtypes[t] == DTRAIN_DTYPE_BOOL && (c->op == DTRAIN_OP_AVERAGE || c->prescale != 1))
                continue;
            snprintf(names[t], sizeof names[t], "t%d", t);
            fill(values[t], dtypes[t], self->rank);
            engine_op_t op = {.name = names[t],
                              .in = values[t],
                              .out = values[t],
                              .count = COUNT,
                              .dtype = dtypes[t],
                              .op = c->op,
                              .prescale = c->prescale};
            ENGINE_OK(self, engine_submit(self, &op, &handles[t]));
        }
        for (int t = 0; t < NUM_DTYPES; t++) {
            if (!handles[t])
                continue;
            ENGINE_OK(self, engine_finish(self, handles[t]));
            unsigned char wanted[COUNT * 8];
            dt_reduction_t reduction = {.dtype = dtypes[t],
                                        .op = c->op,
                                        .divisor = c->op == DTRAIN_OP_AVERAGE ? self->size - 1 : 1,
                                        .prescale = c->prescale,
                                        .postscale = 1};
            reduce_others(&reduction, self->size, wanted);
            ENGINE_CHECK(self, memcmp(values[t], wanted, COUNT * dt_dtype_size(dtypes[t])) == 0);
        }
    }
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
}

/* Two and three ranks: with more the tree over those that are there has another shape. */
static void test_engine_joined_rank_does_not_change_a_bit(void **state)
{
    (void)state;
    dt_config_t fused = engine_config(), unfused = engine_config();
    unfused.fusion_threshold = 0;
    for (int size = 2; size <= 3; size++) {
        engine_run(size, &fused, reduce_without, NULL);
        engine_run(size, &unfused, reduce_without, NULL);
    }
}

/* ---- What cannot go on -------------------------------------------------------------------------
 */

static void wait_for_join(engine_rank_t *self, const engine_op_t *probe, float wanted)
{
    /* Once the sum lacks the rank's part, rank 0 knows that it has joined. */
    float *value = probe->out;
    do {
        *value = 1;
        ENGINE_OK(self, engine_do(self, probe));
    } while (*value != wanted);
}

static void root_has_joined(engine_rank_t *self)
{
    int last;
    if (self->rank != 1) {
        float values[4] = {1, 2, 3, 4}, one = 1;
        engine_op_t probe = {.name = "probe", .in = &one, .out = &one, .count = 1};
        engine_op_t op = {.name = "b",
                          .kind = DT_KIND_BROADCAST,
                          .in = values,
                          .out = values,
                          .count = 4,
                          .root = 1};
        engine_op_t product = {.name = "p",
                               .in = values,
                               .out = values,
                               .count = 4,
                               .op = DTRAIN_OP_PRODUCT,
                               .prescale = 2};
        wait_for_join(self, &probe, (float)(self->size - 1));
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "broadcast 'b': its root, rank 1, has joined");
        ENGINE_STATUS(self, engine_do(self, &product), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "rank 1");
        op.root = 2;
        for (int i = 0; i < 3; i++) {
            float sent[4] = {(float)(self->rank * i), 6, 7, 8};
            op.in = op.out = sent;
            ENGINE_OK(self, engine_do(self, &op));
            ENGINE_CHECK(self, sent[0] == (float)(2 * i) && sent[3] == 8);
        }
    }
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
    ENGINE_CHECK(self, last != 1);
    engine_check_works(self, "b");
}

static void test_engine_operation_that_needs_a_joined_rank_is_an_error(void **state)
{
    (void)state;
    engine_run(3, NULL, root_has_joined, NULL);
    engine_run(5, NULL, root_has_joined, NULL);
}

static void change_with_joined(engine_rank_t *self)
{
    int ranks[] = {0, 1}, last;
    dtrain_pset_t pset;
    if (self->rank == 2) {
        ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
    } else {
        ENGINE_STATUS(self, engine_pset_add(self, ranks, 2, &pset), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "which has called dtrain_join");
        ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
    }
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    ENGINE_CHECK(self, pset == 1);
}

static void test_engine_set_cannot_be_added_while_a_rank_has_joined(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        engine_run(3, NULL, change_with_joined, NULL);
}

/* ---- This rank's own calls
 * ----------------------------------------------------------------------- */

static void join_twice(engine_rank_t *self)
{
    dtrain_options_t options = {.struct_size = sizeof options};
    dt_submission_t join = {.kind = DT_KIND_JOIN, .options = &options};
    dtrain_handle_t handle = 0, second = 0;
    float value = 1;
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1};
    int last = -5;
    if (self->rank == 1) {
        ENGINE_OK(self, dt_runtime_submit(self->runtime, &join, &handle));
        ENGINE_STATUS(self, dt_runtime_submit(self->runtime, &join, &second),
                      DTRAIN_ERR_DUPLICATE_NAME);
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "has joined process set 0");
        ENGINE_STATUS(self, dt_runtime_result(self->runtime, handle, DT_KIND_JOIN, &last),
                      DTRAIN_IN_PROGRESS);
    }
    engine_meet(self);
    if (self->rank != 1) {
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_OK(self, dt_runtime_submit(self->runtime, &join, &handle));
    }
    ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
    ENGINE_OK(self, dt_runtime_result(self->runtime, handle, DT_KIND_JOIN, &last));
    ENGINE_CHECK(self, last >= 0 && last != 1);
    ENGINE_STATUS(self, dt_runtime_result(self->runtime, handle, DT_KIND_PSET_ADD, &last),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
    engine_check_works(self, "x");
}

static void test_engine_second_join_and_calls_after_a_join_are_refused(void **state)
{
    (void)state;
    engine_run(3, NULL, join_twice, NULL);
}

/* What a rank has submitted before it joins takes part. */
static void submit_then_join(engine_rank_t *self)
{
    float value = (float)(self->rank + 1);
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1};
    dtrain_handle_t handle;
    int last;
    for (int i = 0; i < 20; i++) {
        value = (float)(self->rank + 1);
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
        ENGINE_OK(self, engine_finish(self, handle));
        ENGINE_CHECK(self, value == (float)(self->size * (self->size + 1) / 2));
    }
}

static void test_engine_operation_submitted_before_a_join_takes_part(void **state)
{
    (void)state;
    engine_run(4, NULL, submit_then_join, NULL);
}

/* ---- On a set
 * ---------------------------------------------------------------------------------------- */

static void join_on_set(engine_rank_t *self)
{
    int ranks[] = {2, 0, 3}, last;
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 3, &pset));
    float value, other;
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = pset};
    engine_op_t world = {.name = "x", .in = &other, .out = &other, .count = 1};
    dtrain_options_t options = {.struct_size = sizeof options, .pset = pset};
    dt_submission_t join = {.kind = DT_KIND_JOIN, .options = &options};
    dtrain_handle_t handle = 0;
    if (self->rank == 1) {
        ENGINE_STATUS(self, engine_join(self, pset, &last), DTRAIN_ERR_INVALID_ARGUMENT);
    }
    /* Rank 1's call, which is from outside, makes the first join fail. */
    engine_check_works(self, "meet");
    if (self->rank != 1)
        ENGINE_STATUS(self, engine_join(self, pset, &last), DTRAIN_ERR_INVALID_ARGUMENT);
    if (self->rank == 0)
        ENGINE_OK(self, dt_runtime_submit(self->runtime, &join, &handle));
    engine_check_works(self, "meet");
    for (int i = 0; i < 5 && (self->rank == 2 || self->rank == 3); i++) {
        value = (float)self->rank;
        op.op = i % 2 ? DTRAIN_OP_AVERAGE : DTRAIN_OP_SUM;
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, value == (i % 2 ? 2.5f : 5.0f));
    }
    /* The world does not know of it. */
    other = 1;
    ENGINE_OK(self, engine_do(self, &world));
    ENGINE_CHECK(self, other == 4);
    if (self->rank >= 2)
        ENGINE_OK(self, dt_runtime_submit(self->runtime, &join, &handle));
    if (handle)
        ENGINE_OK(self, engine_finish(self, handle));
    ENGINE_OK(self, engine_pset_remove(self, pset));
}

static void test_engine_join_on_a_set_concerns_the_set_alone(void **state)
{
    (void)state;
    engine_run(4, NULL, join_on_set, NULL);
}

/* ---- Ends
 * ------------------------------------------------------------------------------------------------
 */

static void abort_joined(engine_rank_t *self)
{
    self->end = DTRAIN_ERR_ABORTED;
    float *values = engine_buffer(self, sizeof(float) << 16);
    engine_op_t op = {.name = "x", .in = values, .out = values, .count = 1 << 16};
    dtrain_handle_t handle;
    if (self->rank == 2) {
        dt_submission_t join = {.kind = DT_KIND_JOIN};
        ENGINE_OK(self, dt_runtime_submit(self->runtime, &join, &handle));
        engine_meet(self);
        ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_ABORTED);
        return;
    }
    for (int i = 0; i < 5; i++)
        ENGINE_OK(self, engine_do(self, &op));
    ENGINE_OK(self, engine_submit(self, &op, &handle));
    engine_meet(self);
    ENGINE_OK(self, dt_runtime_abort(self->runtime, 1, "why not"));
    dtrain_status_t status = engine_finish(self, handle);
    ENGINE_CHECK(self, status == DTRAIN_OK || status == DTRAIN_ERR_ABORTED);
}

static void test_engine_end_of_the_world_ends_joins(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        engine_run(3, NULL, abort_joined, NULL);
}

/* A rank that joins and leaves at once goes on standing in. */
static void join_and_leave(engine_rank_t *self)
{
    dt_submission_t join = {.kind = DT_KIND_JOIN};
    dtrain_handle_t handle;
    int last;
    if (self->rank == 0) {
        ENGINE_OK(self, dt_runtime_submit(self->runtime, &join, &handle));
        ENGINE_OK(self, engine_shutdown(self));
        ENGINE_OK(self, engine_finish(self, handle));
        return;
    }
    for (int i = 0; i < 10; i++) {
        float value = 1;
        engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, value == 2);
    }
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
    ENGINE_CHECK(self, last > 0);
}

static void test_engine_rank_that_joined_may_leave(void **state)
{
    (void)state;
    engine_run(3, NULL, join_and_leave, NULL);
}

/* A deadline of a join is that of waiting; then the others need this rank again. */
static void join_in_vain(engine_rank_t *self)
{
    dtrain_options_t options = {.struct_size = sizeof options, .timeout_ms = 20};
    dt_submission_t join = {.kind = DT_KIND_JOIN, .options = &options};
    dtrain_handle_t handle;
    if (self->rank == 0) {
        ENGINE_OK(self, dt_runtime_submit(self->runtime, &join, &handle));
        ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_TIMEOUT);
        ENGINE_TEXT(self, dt_last_error(), "join 'dtrain.join' was given up by rank 0");
        ENGINE_TEXT(self, dt_last_error(), "ranks 1-2");
    }
    engine_meet(self);
    engine_check_works(self, "x");
}

static void test_engine_join_with_a_deadline_ends_and_the_rank_is_back(void **state)
{
    (void)state;
    engine_run(3, NULL, join_in_vain, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_join_lets_the_others_go_on),
        cmocka_unit_test(test_engine_joined_rank_does_not_change_a_bit),
        cmocka_unit_test(test_engine_operation_that_needs_a_joined_rank_is_an_error),
        cmocka_unit_test(test_engine_set_cannot_be_added_while_a_rank_has_joined),
        cmocka_unit_test(test_engine_second_join_and_calls_after_a_join_are_refused),
        cmocka_unit_test(test_engine_operation_submitted_before_a_join_takes_part),
        cmocka_unit_test(test_engine_join_on_a_set_concerns_the_set_alone),
        cmocka_unit_test(test_engine_end_of_the_world_ends_joins),
        cmocka_unit_test(test_engine_rank_that_joined_may_leave),
        cmocka_unit_test(test_engine_join_with_a_deadline_ends_and_the_rank_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
