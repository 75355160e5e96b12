/* What is wrong on one rank reaches every rank, and the next operation works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine_world.h"

/* ---- Mismatches -------------------------------------------------------------------------- */

/* Rank 1 calls with `other`, all other ranks with `most`. */
typedef struct mismatch {
    const char *name;
    engine_op_t most, other;
    const char *what, *most_value, *other_value; /* stand in the text */
} mismatch_t;

static const int64_t square[2] = {2, 2};

static const mismatch_t mismatches[] = {
    {"operation",
     {.count = 4},
     {.count = 4, .kind = DT_KIND_BROADCAST},
     "operations differ",
     "allreduce",
     "broadcast"},
    {"type",
     {.count = 4, .dtype = DTRAIN_DTYPE_F32},
     {.count = 4, .dtype = DTRAIN_DTYPE_I32},
     "types differ",
     "float32",
     "int32"},
    {"shape", {.count = 3}, {.count = 4}, "shapes differ", "[3]", "[4]"},
    {"layout", {.count = 4}, {.shape = square, .ndim = 2}, "shapes differ", "[4]", "[2, 2]"},
    {"rank", {.count = 1}, {.shape = square, .ndim = 0}, "shapes differ", "[1]", "[]"},
    {"empty", {.count = 4}, {.count = 0}, "shapes differ", "[4]", "[0]"},
    {"reduction",
     {.count = 4},
     {.count = 4, .op = DTRAIN_OP_AVERAGE},
     "reductions differ",
     "sum",
     "average"},
    {"prescale", {.count = 4}, {.count = 4, .prescale = 0.5}, "prescales differ", ": 1", ": 0.5"},
    {"postscale",
     {.count = 4, .postscale = 0.25},
     {.count = 4, .postscale = 8},
     "postscales differ",
     ": 0.25",
     ": 8"},
    {"root",
     {.count = 4, .kind = DT_KIND_BROADCAST},
     {.count = 4, .kind = DT_KIND_BROADCAST, .root = 1},
     "roots differ",
     ": 0",
     ": 1"},
};

static void check_mismatch(engine_rank_t *self, const mismatch_t *mismatch)
{
    double memory[4] = {0};
    engine_op_t op = self->rank == 1 ? mismatch->other : mismatch->most;
    op.name = mismatch->name;
    op.in = op.out = memory;
    if (!ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_MISMATCH))
        return;
    char text[DT_ERROR_MAX], name[64];
    snprintf(text, sizeof text, "%s", dt_last_error());
    snprintf(name, sizeof name, "'%s'", mismatch->name);
    ENGINE_TEXT(self, text, name);
    ENGINE_TEXT(self, text, mismatch->what);
    ENGINE_TEXT(self, text, mismatch->most_value);
    ENGINE_TEXT(self, text, mismatch->other_value);
    ENGINE_TEXT(self, text, self->size == 2 ? "rank 0:" : "ranks 0, 2");
    ENGINE_TEXT(self, text, "rank 1:");
}

/* Each kind twice with a success between, so that the second comes with ids. */
static void all_mismatches(engine_rank_t *self)
{
    for (size_t i = 0; i < sizeof mismatches / sizeof mismatches[0]; i++) {
        const mismatch_t *mismatch = &mismatches[i];
        check_mismatch(self, mismatch);
        for (int round = 0; round < 3; round++)
            engine_check_works(self, mismatch->name);
        check_mismatch(self, mismatch);
        engine_check_works(self, mismatch->name);
    }
}

static void test_engine_mismatch_reaches_every_rank_and_the_next_call_works(void **state)
{
    (void)state;
    engine_run(2, NULL, all_mismatches, NULL);
    engine_run(4, NULL, all_mismatches, NULL);
}

static void alternate_signatures(engine_rank_t *self)
{
    for (int step = 0; step < 40; step++) {
        float values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        int count = 1 + step % 4;
        engine_op_t op = {.name = "x", .in = values, .out = values, .count = count};
        op.op = step % 3 ? DTRAIN_OP_SUM : DTRAIN_OP_PRODUCT;
        ENGINE_OK(self, engine_do(self, &op));
        float wanted = step % 3 ? (float)self->size : 1;
        for (int i = 0; i < 8; i++)
            ENGINE_CHECK(self, values[i] == (i < count ? wanted : 1));
    }
}

static void test_engine_name_with_changing_signatures_works(void **state)
{
    (void)state;
    engine_run(3, NULL, alternate_signatures, NULL);
}

static void mismatch_among_others(engine_rank_t *self)
{
    enum { NUM = 20 };
    float values[NUM][4] = {{0}};
    dtrain_handle_t handles[NUM];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < NUM; i++) {
            char name[32];
            snprintf(name, sizeof name, "t%d", i);
            for (int k = 0; k < 4; k++)
                values[i][k] = (float)(i + 1);
            int count = i == 7 && self->rank == 1 ? 4 : 3;
            engine_op_t op = {.name = name, .in = values[i], .out = values[i], .count = count};
            ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
        }
        for (int i = 0; i < NUM; i++) {
            ENGINE_STATUS(self, engine_finish(self, handles[i]),
                          i == 7 ? DTRAIN_ERR_MISMATCH : DTRAIN_OK);
            if (i != 7)
                ENGINE_CHECK(self, values[i][2] == (float)((i + 1) * self->size));
        }
    }
}

static void test_engine_mismatch_of_one_leaves_the_others_right(void **state)
{
    (void)state;
    engine_run(3, NULL, mismatch_among_others, NULL);
}

/* ---- Refused calls -------------------------------------------------------------------------- */

typedef struct refusal {
    const char *name;
    engine_op_t op; /* what rank 1 calls */
    dtrain_status_t status;
    const char *text;
} refusal_t;

static const int64_t negative[1] = {-3};
static const int64_t huge[2] = {INT64_MAX / 2, 8};

static const refusal_t refusals[] = {
    {"type", {.count = 4, .dtype = (dtrain_dtype_t)77}, DTRAIN_ERR_INVALID_ARGUMENT, "77"},
    {"reduction", {.count = 4, .op = (dtrain_op_t)9}, DTRAIN_ERR_INVALID_ARGUMENT, "9"},
    {"extent", {.shape = negative, .ndim = 1}, DTRAIN_ERR_INVALID_ARGUMENT, "[-3]"},
    {"huge", {.shape = huge, .ndim = 2}, DTRAIN_ERR_INVALID_ARGUMENT, "shape"},
    {"ndim", {.shape = negative, .ndim = 17}, DTRAIN_ERR_INVALID_ARGUMENT, "17"},
    {"truth",
     {.count = 4, .dtype = DTRAIN_DTYPE_BOOL, .op = DTRAIN_OP_AVERAGE},
     DTRAIN_ERR_UNSUPPORTED,
     "bool"},
    {"root",
     {.count = 4, .kind = DT_KIND_BROADCAST, .root = 2},
     DTRAIN_ERR_INVALID_ARGUMENT,
     "root 2"},
    {"timeout", {.count = 4, .timeout_ms = -7}, DTRAIN_ERR_INVALID_ARGUMENT, "-7"},
};

static void check_refusal(engine_rank_t *self, const refusal_t *refusal)
{
    float memory[4] = {0};
    engine_op_t op = {.count = 4};
    if (self->rank == 1)
        op = refusal->op;
    op.name = refusal->name;
    op.in = op.out = memory;
    ENGINE_STATUS(self, engine_do(self, &op), refusal->status);
    ENGINE_TEXT(self, dt_last_error(), refusal->text);
    ENGINE_TEXT(self, dt_last_error(), refusal->name);
    if (self->rank != 1)
        ENGINE_TEXT(self, dt_last_error(), "rank 1");
}

static void all_refusals(engine_rank_t *self)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        check_refusal(self, &refusals[i]);
        engine_check_works(self, refusals[i].name);
        check_refusal(self, &refusals[i]);
        engine_check_works(self, refusals[i].name);
    }
    ENGINE_CHECK(self, dt_handle_count(self->runtime->handles) == 0);
}

static void test_engine_refused_call_fails_the_operation_on_all_ranks(void **state)
{
    (void)state;
    engine_run(2, NULL, all_refusals, NULL);
}

/* Rank 1's buffers are wrong: NULL, and overlapping. */
static void wrong_buffers(engine_rank_t *self)
{
    float memory[8] = {0};
    for (int round = 0; round < 3; round++) {
        engine_op_t op = {.name = "null", .in = memory, .out = memory, .count = 4};
        if (self->rank == 1)
            op.out = NULL;
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "output buffer is NULL");
        op.name = "overlap";
        op.out = self->rank == 1 ? memory + 2 : memory;
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "overlap");
        engine_check_works(self, "null");
        engine_check_works(self, "overlap");
    }
}

static void test_engine_wrong_buffers_are_refused_on_all_ranks(void **state)
{
    (void)state;
    engine_run(3, NULL, wrong_buffers, NULL);
}

static void refused_on_all(engine_rank_t *self)
{
    float memory[4] = {0};
    for (int round = 0; round < 10; round++) {
        engine_op_t op = {.name = "x", .kind = DT_KIND_BROADCAST, .root = 9, .count = 4};
        op.in = op.out = memory;
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
    }
    engine_check_works(self, "x");
    ENGINE_CHECK(self, dt_handle_count(self->runtime->handles) == 0);
}

static void test_engine_call_refused_on_all_ranks_leaves_nothing(void **state)
{
    (void)state;
    engine_run(1, NULL, refused_on_all, NULL);
    engine_run(3, NULL, refused_on_all, NULL);
}

static void long_name_refused(engine_rank_t *self)
{
    char name[DTRAIN_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    name[DTRAIN_NAME_MAX] = '\0';
    float memory[4] = {0};
    engine_op_t op = {.name = name, .kind = DT_KIND_BROADCAST, .count = 4, .root = self->rank * 5};
    op.in = op.out = memory;
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "root 5 is not a rank");
}

static void test_engine_reason_survives_a_long_name(void **state)
{
    (void)state;
    engine_run(2, NULL, long_name_refused, NULL);
}

/* A call with nowhere to put the handle is one more refused argument. */
static void no_handle(engine_rank_t *self)
{
    float memory[4] = {0};
    engine_op_t op = {.name = "x", .in = memory, .out = memory, .count = 4};
    dtrain_handle_t handle;
    if (self->rank == 1) {
        ENGINE_STATUS(self, engine_submit(self, &op, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    } else {
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "rank 1");
    }
    engine_check_works(self, "x");
}

static void test_engine_call_without_a_handle_fails_on_all_ranks(void **state)
{
    (void)state;
    engine_run(2, NULL, no_handle, NULL);
}

/* Calls that no other rank can be told of, as there is no name to find them by. */
static void nameless(engine_rank_t *self)
{
    float memory[4] = {0};
    const char *const names[] = {NULL, "", "dtrain.mine"};
    for (int i = 0; i < 3; i++) {
        engine_op_t op = {.name = names[i], .in = memory, .out = memory, .count = 4};
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
    }
    ENGINE_TEXT(self, dt_last_error(), "reserved");
    dtrain_tensor_t tensor = {.struct_size = 4, .name = "x"};
    dt_submission_t submission = {.kind = DT_KIND_ALLREDUCE, .tensor = &tensor};
    dtrain_handle_t handle = 77;
    ENGINE_STATUS(self, dt_runtime_submit(self->runtime, &submission, &handle),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "struct_size");
    submission.tensor = NULL;
    ENGINE_STATUS(self, dt_runtime_submit(self->runtime, &submission, &handle),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_CHECK(self, handle == 77);
    engine_check_works(self, "after");
}

static void test_engine_call_without_a_usable_name_is_refused_here(void **state)
{
    (void)state;
    engine_run(2, NULL, nameless, NULL);
}

static void reserved_options(engine_rank_t *self)
{
    float memory[4] = {0};
    int64_t count = 4;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = "x",
                              .in = memory,
                              .out = memory,
                              .ndim = 1,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32};
    dtrain_options_t wrong[] = {{.struct_size = 3},
                                {.struct_size = sizeof wrong[0], .reserved = 1},
                                {.struct_size = sizeof wrong[0], .timeout_ms = -2},
                                {.struct_size = sizeof wrong[0], .pset = 5}};
    const char *const texts[] = {"struct_size", "reserved", "timeout_ms", "process set 5"};
    for (int i = 0; i < 4; i++) {
        dt_submission_t submission = {
            .kind = DT_KIND_ALLREDUCE, .tensor = &tensor, .options = &wrong[i]};
        dtrain_handle_t handle;
        dtrain_status_t status = dt_runtime_submit(self->runtime, &submission, &handle);
        ENGINE_CHECK(self,
                     status == DTRAIN_ERR_INVALID_ARGUMENT || status == DTRAIN_ERR_UNSUPPORTED);
        ENGINE_TEXT(self, dt_last_error(), texts[i]);
        tensor.device = 3; /* a second fault does not hide the first */
        ENGINE_STATUS(self, dt_runtime_submit(self->runtime, &submission, &handle), status);
        ENGINE_TEXT(self, dt_last_error(), texts[i]);
        tensor.device = 0;
    }
    engine_check_works(self, "x");
}

static void test_engine_wrong_options_are_refused_with_their_reason(void **state)
{
    (void)state;
    engine_run(2, NULL, reserved_options, NULL);
}

/* ---- Duplicate names --------------------------------------------------------------------------
 */

static void submit_twice(engine_rank_t *self)
{
    for (int round = 0; round < 3; round++) {
        float first[2] = {1, 2}, second[2] = {5, 5};
        engine_op_t op = {.name = "x", .in = first, .out = first, .count = 2};
        engine_op_t again = {.name = "x", .in = second, .out = second, .count = 2};
        dtrain_handle_t handle = 0, none = 123;
        if (self->rank == 0) {
            ENGINE_OK(self, engine_submit(self, &op, &handle));
            ENGINE_STATUS(self, engine_submit(self, &again, &none), DTRAIN_ERR_DUPLICATE_NAME);
            ENGINE_TEXT(self, dt_last_error(), "'x'");
            ENGINE_CHECK(self, none == 123);
        }
        engine_meet(self);
        if (self->rank != 0)
            ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, engine_finish(self, handle));
        ENGINE_CHECK(self, first[0] == (float)self->size && first[1] == (float)(2 * self->size));
        ENGINE_CHECK(self, second[0] == 5);
    }
    engine_check_works(self, "x");
}

static void test_engine_name_in_flight_is_refused_and_the_first_is_right(void **state)
{
    (void)state;
    engine_run(2, NULL, submit_twice, NULL);
}

/* The name of a refused call goes on with the next call, of which there may be one. */
static void submit_after_refused(engine_rank_t *self)
{
    float memory[4] = {0}, values[4] = {1, 1, 1, 1};
    engine_op_t wrong = {.name = "x", .kind = DT_KIND_BROADCAST, .root = -1, .count = 4};
    engine_op_t right = {.name = "x", .in = values, .out = values, .count = 4};
    dtrain_handle_t handle = 0, none;
    wrong.in = wrong.out = memory;
    if (self->rank == 0) {
        ENGINE_STATUS(self, engine_submit(self, &wrong, &handle), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_OK(self, engine_submit(self, &right, &handle));
        ENGINE_STATUS(self, engine_submit(self, &right, &none), DTRAIN_ERR_DUPLICATE_NAME);
    }
    engine_meet(self);
    if (self->rank != 0) {
        ENGINE_STATUS(self, engine_do(self, &right), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_OK(self, engine_submit(self, &right, &handle));
    }
    ENGINE_OK(self, engine_finish(self, handle));
    ENGINE_CHECK(self, values[3] == (float)self->size);
}

static void test_engine_call_after_a_refused_one_is_the_next_of_its_name(void **state)
{
    (void)state;
    engine_run(2, NULL, submit_after_refused, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_mismatch_reaches_every_rank_and_the_next_call_works),
        cmocka_unit_test(test_engine_name_with_changing_signatures_works),
        cmocka_unit_test(test_engine_mismatch_of_one_leaves_the_others_right),
        cmocka_unit_test(test_engine_refused_call_fails_the_operation_on_all_ranks),
        cmocka_unit_test(test_engine_wrong_buffers_are_refused_on_all_ranks),
        cmocka_unit_test(test_engine_call_refused_on_all_ranks_leaves_nothing),
        cmocka_unit_test(test_engine_reason_survives_a_long_name),
        cmocka_unit_test(test_engine_call_without_a_handle_fails_on_all_ranks),
        cmocka_unit_test(test_engine_call_without_a_usable_name_is_refused_here),
        cmocka_unit_test(test_engine_wrong_options_are_refused_with_their_reason),
        cmocka_unit_test(test_engine_name_in_flight_is_refused_and_the_first_is_right),
        cmocka_unit_test(test_engine_call_after_a_refused_one_is_the_next_of_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
