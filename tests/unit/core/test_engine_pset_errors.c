/* Process sets on ranks that are threads: calls that cannot be, and who learns of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "engine_world.h"

/* ---- Definitions ------------------------------------------------------------------------------
 */

/* What rank 1 says of a set, where the others say 0, 1, 2. */
typedef struct definition {
    int n;
    int ranks[8];
    dtrain_status_t status;
    const char *parts[3];
} definition_t;

static const definition_t definitions[] = {
    {2, {0, 1}, DTRAIN_ERR_MISMATCH, {"rank 1: 0-1", "ranks 0, 2: 0-2", "process sets differ"}},
    {3, {0, 2, 1}, DTRAIN_ERR_MISMATCH, {"rank 1: 0, 2, 1", "ranks 0, 2: 0-2", "dtrain_pset_add"}},
    {3, {0, 1, 3}, DTRAIN_ERR_INVALID_ARGUMENT, {"rank 1: ", "rank 3", "not a rank of 3"}},
    {3, {0, 1, -1}, DTRAIN_ERR_INVALID_ARGUMENT, {"rank 1: ", "rank -1", "not a rank of 3"}},
    {3, {0, 1, 1}, DTRAIN_ERR_INVALID_ARGUMENT, {"rank 1: ", "rank 1 twice", "dtrain_pset_add"}},
    {0, {0}, DTRAIN_ERR_INVALID_ARGUMENT, {"rank 1: ", "0 ranks", "dtrain_pset_add"}},
};

static void disagree(engine_rank_t *self)
{
    static const int usual[] = {0, 1, 2};
    dtrain_pset_t pset = -7;
    for (size_t i = 0; i < sizeof definitions / sizeof definitions[0]; i++) {
        const definition_t *other = &definitions[i];
        dtrain_status_t status = self->rank == 1
                                     ? engine_pset_add(self, other->ranks, other->n, &pset)
                                     : engine_pset_add(self, usual, 3, &pset);
        ENGINE_STATUS(self, status, other->status);
        /* Refused here at once: the own text has no "rank 1:". */
        int is_own = self->rank == 1 && other->status == DTRAIN_ERR_INVALID_ARGUMENT;
        for (int p = is_own ? 1 : 0; p < 3; p++)
            ENGINE_TEXT(self, dt_last_error(), other->parts[p]);
        ENGINE_CHECK(self, pset == -7);
    }
    /* Nothing is left of them: the next set is the first, and works. */
    ENGINE_OK(self, engine_pset_add(self, usual, 3, &pset));
    ENGINE_CHECK(self, pset == 1);
    float value = 2;
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = pset};
    ENGINE_OK(self, engine_do(self, &op));
    ENGINE_CHECK(self, value == 6);
    int own, size;
    ENGINE_STATUS(self, dt_pset_describe(&self->runtime->psets, 2, &own, &size, NULL, 0),
                  DTRAIN_ERR_INVALID_ARGUMENT);
}

static void test_engine_definitions_that_differ_are_an_error_on_all_ranks(void **state)
{
    (void)state;
    engine_run(3, NULL, disagree, NULL);
}

static void differ_in_kind(engine_rank_t *self)
{
    int ranks[] = {0, 1};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    dtrain_status_t status =
        self->rank == 0 ? engine_pset_remove(self, pset) : engine_pset_add(self, ranks, 2, &pset);
    ENGINE_STATUS(self, status, DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(), "dtrain_pset_add");
    ENGINE_TEXT(self, dt_last_error(), "dtrain_pset_remove");
    dtrain_pset_t other;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &other));
    ENGINE_STATUS(self, engine_pset_remove(self, self->rank == 0 ? pset : other),
                  DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(), "rank 0: 1");
    ENGINE_TEXT(self, dt_last_error(), "rank 1: 2");
    /* Both are still there. */
    for (dtrain_pset_t id = 1; id <= 2; id++) {
        float value = 1;
        engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = id};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_OK(self, engine_pset_remove(self, id));
    }
}

static void test_engine_changes_that_differ_are_an_error_and_change_nothing(void **state)
{
    (void)state;
    engine_run(2, NULL, differ_in_kind, NULL);
}

static void too_many(engine_rank_t *self)
{
    int ranks[] = {0};
    dtrain_pset_t pset;
    for (int i = 0; i < DT_SUBSETS_MAX; i++)
        ENGINE_OK(self, engine_pset_add(self, ranks, 1, &pset));
    ENGINE_STATUS(self, engine_pset_add(self, ranks, 1, &pset), DTRAIN_ERR_UNSUPPORTED);
    ENGINE_TEXT(self, dt_last_error(), "255");
    ENGINE_OK(self, engine_pset_remove(self, 100));
    ENGINE_OK(self, engine_pset_add(self, ranks, 1, &pset));
    ENGINE_CHECK(self, pset == DT_SUBSETS_MAX + 1);
}

static void test_engine_sets_beyond_the_most_are_an_error(void **state)
{
    (void)state;
    engine_run(2, NULL, too_many, NULL);
}

/* ---- Calls --------------------------------------------------------------------------------------
 */

static void call_from_outside(engine_rank_t *self)
{
    int ranks[] = {0, 1};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    for (int round = 0; round < 3; round++) {
        float value = 1;
        engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = pset};
        engine_op_t barrier = {.kind = DT_KIND_BARRIER, .pset = pset};
        if (self->rank == 2) {
            ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
            ENGINE_TEXT(self, dt_last_error(), "rank 2 is not in process set 1");
            ENGINE_STATUS(self, engine_do(self, &barrier), DTRAIN_ERR_INVALID_ARGUMENT);
        }
        engine_check_works(self, "meet"); /* rank 0 has rank 2's calls by now */
        if (self->rank < 2) {
            ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
            ENGINE_TEXT(self, dt_last_error(), "rank 2: allreduce 'x': rank 2 is not in process");
            ENGINE_STATUS(self, engine_do(self, &barrier), DTRAIN_ERR_INVALID_ARGUMENT);
            value = 1;
            ENGINE_OK(self, engine_do(self, &op));
            ENGINE_CHECK(self, value == 2);
            ENGINE_OK(self, engine_do(self, &barrier));
        }
        engine_check_works(self, "meet");
    }
}

static void test_engine_call_by_a_rank_outside_fails_on_the_members(void **state)
{
    (void)state;
    engine_run(3, NULL, call_from_outside, NULL);
}

static void wrong_sets(engine_rank_t *self)
{
    int ranks[] = {0, 1};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    float value = 1;
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1};
    const dtrain_pset_t none[] = {2, -1, 77, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 5; i++) {
        op.pset = none[i];
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "there is no process set");
    }
    engine_check_works(self, "x"); /* behind all that was refused */
    /* A root outside the set, on one rank. */
    op.pset = pset;
    op.kind = DT_KIND_BROADCAST;
    op.root = self->rank == 0 ? 2 : 1;
    if (self->rank < 2) {
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "root 2 is not in process set 1");
    }
    ENGINE_OK(self, engine_pset_remove(self, pset));
    op.root = 1;
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "there is no process set 1");
    ENGINE_STATUS(self, engine_pset_remove(self, pset), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_STATUS(self, engine_pset_remove(self, DTRAIN_PSET_WORLD), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "world");
    engine_check_works(self, "x");
}

static void test_engine_call_on_a_set_that_is_none_is_an_error(void **state)
{
    (void)state;
    engine_run(3, NULL, wrong_sets, NULL);
}

/* One rank calls on a set that there is not, where the others mean the world. */
static void stray_call(engine_rank_t *self)
{
    for (int round = 0; round < 4; round++) {
        float value = 1;
        engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1};
        if (round % 2)
            engine_check_works(self, "meet");
        op.pset = self->rank == 1 ? 55 : DTRAIN_PSET_WORLD;
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "there is no process set 55");
        engine_check_works(self, "x");
    }
}

static void test_engine_call_on_no_set_reaches_those_who_mean_the_world(void **state)
{
    (void)state;
    engine_run(3, NULL, stray_call, NULL);
}

/* A mismatch in a set names it, and leaves the same name in the world alone. */
static void mismatch_on_set(engine_rank_t *self)
{
    int ranks[] = {2, 1};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    float values[4] = {1, 1, 1, 1}, others[4] = {1, 1, 1, 1};
    engine_op_t world = {.name = "x", .in = others, .out = others, .count = 4};
    engine_op_t op = {
        .name = "x", .in = values, .out = values, .count = self->rank + 1, .pset = pset};
    dtrain_handle_t handle;
    ENGINE_OK(self, engine_submit(self, &world, &handle));
    if (self->rank > 0) {
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_MISMATCH);
        ENGINE_TEXT(self, dt_last_error(), "'x' of process set 1");
        ENGINE_TEXT(self, dt_last_error(), "rank 1: [2]");
        ENGINE_TEXT(self, dt_last_error(), "rank 2: [3]");
    }
    ENGINE_OK(self, engine_finish(self, handle));
    ENGINE_CHECK(self, others[3] == 3);
}

static void test_engine_mismatch_on_a_set_names_it(void **state)
{
    (void)state;
    engine_run(3, NULL, mismatch_on_set, NULL);
}

/* ---- Removal
 * --------------------------------------------------------------------------------------- */

static void remove_pending(engine_rank_t *self)
{
    int ranks[] = {0, 2};
    dtrain_pset_t pset;
    float value = 3;
    dtrain_handle_t handle = 0;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = pset};
    if (self->rank == 2)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    ENGINE_STATUS(self, engine_pset_remove(self, pset), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "process set 1 has 1 operation(s) pending");
    if (self->rank == 0)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    if (handle) {
        ENGINE_OK(self, engine_finish(self, handle));
        ENGINE_CHECK(self, value == 6);
    }
    ENGINE_OK(self, engine_pset_remove(self, pset));
    engine_check_works(self, "x");
}

static void test_engine_set_with_a_pending_operation_stays(void **state)
{
    (void)state;
    engine_run(3, NULL, remove_pending, NULL);
}

/* A refused call of a rank outside waits for the members' calls, which never come. */
static void remove_refused(engine_rank_t *self)
{
    int ranks[] = {0, 1};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    float value = 3;
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = pset};
    if (self->rank == 2) {
        for (int i = 0; i < 3; i++)
            ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
    }
    ENGINE_OK(self, engine_pset_remove(self, pset));
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    op.pset = pset;
    if (self->rank < 2) {
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, value == 6);
    }
}

static void test_engine_refused_calls_go_with_the_set(void **state)
{
    (void)state;
    engine_run(3, NULL, remove_refused, NULL);
}

/* ---- Ends
 * ------------------------------------------------------------------------------------------- */

static void abort_with_sets(engine_rank_t *self)
{
    int ranks[] = {0, 1, 2};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 3, &pset));
    float *values = engine_buffer(self, 4096);
    engine_op_t op = {.name = "x", .in = values, .out = values, .count = 1024, .pset = pset};
    dtrain_handle_t handle = 0, change = 0;
    if (self->rank > 0)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    dt_submission_t add = {.kind = DT_KIND_PSET_ADD, .ranks = ranks, .num_ranks = 2};
    if (self->rank > 0)
        ENGINE_OK(self, dt_runtime_submit(self->runtime, &add, &change));
    engine_meet(self);
    self->end = DTRAIN_ERR_ABORTED;
    if (self->rank == 0)
        ENGINE_OK(self, dt_runtime_abort(self->runtime, 4, "enough"));
    if (self->rank > 0) {
        ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_ABORTED);
        ENGINE_STATUS(self, engine_finish(self, change), DTRAIN_ERR_ABORTED);
    }
    dtrain_pset_t none;
    ENGINE_STATUS(self, engine_pset_add(self, ranks, 3, &none), DTRAIN_ERR_ABORTED);
}

static void test_engine_end_of_the_world_fails_what_is_pending_on_sets(void **state)
{
    (void)state;
    engine_run(3, NULL, abort_with_sets, NULL);
}

/* A member that leaves fails what waits for it on the set, and not what does not. */
static void leave_with_sets(engine_rank_t *self)
{
    int pair[] = {0, 1}, all[] = {2, 1, 0};
    dtrain_pset_t two, three;
    ENGINE_OK(self, engine_pset_add(self, pair, 2, &two));
    ENGINE_OK(self, engine_pset_add(self, all, 3, &three));
    if (self->rank == 2)
        return;
    float value = 1;
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1, .pset = three};
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_SHUT_DOWN);
    ENGINE_TEXT(self, dt_last_error(), "of process set 2 needs rank 2");
    op.pset = two;
    value = 1;
    ENGINE_OK(self, engine_do(self, &op));
    ENGINE_CHECK(self, value == 2);
    dtrain_pset_t none;
    ENGINE_STATUS(self, engine_pset_add(self, pair, 2, &none), DTRAIN_ERR_SHUT_DOWN);
}

static void test_engine_member_that_left_fails_only_what_needs_it(void **state)
{
    (void)state;
    engine_run(3, NULL, leave_with_sets, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_definitions_that_differ_are_an_error_on_all_ranks),
        cmocka_unit_test(test_engine_changes_that_differ_are_an_error_and_change_nothing),
        cmocka_unit_test(test_engine_sets_beyond_the_most_are_an_error),
        cmocka_unit_test(test_engine_call_by_a_rank_outside_fails_on_the_members),
        cmocka_unit_test(test_engine_call_on_a_set_that_is_none_is_an_error),
        cmocka_unit_test(test_engine_call_on_no_set_reaches_those_who_mean_the_world),
        cmocka_unit_test(test_engine_mismatch_on_a_set_names_it),
        cmocka_unit_test(test_engine_set_with_a_pending_operation_stays),
        cmocka_unit_test(test_engine_refused_calls_go_with_the_set),
        cmocka_unit_test(test_engine_end_of_the_world_fails_what_is_pending_on_sets),
        cmocka_unit_test(test_engine_member_that_left_fails_only_what_needs_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
