/* Calls on process sets that there are not, while the others wait in the set that was meant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "engine_world.h"

typedef enum when { BEFORE_OTHERS, BEHIND_OTHERS, WITH_OTHERS } when_t;

/* What every member but the culprits calls on the set. */
static const dt_kind_t kinds[] = {DT_KIND_ALLREDUCE, DT_KIND_ALLGATHER, DT_KIND_BROADCAST,
                                  DT_KIND_ALLTOALL, DT_KIND_BARRIER};

/* Two sets: all ranks, last first; and the first and last. One was there and is no more. */
typedef struct sets {
    dtrain_pset_t all, pair, removed;
} sets_t;

static void add_sets(engine_rank_t *self, sets_t *sets)
{
    int all[8], pair[] = {0, self->size - 1};
    for (int i = 0; i < self->size; i++)
        all[i] = self->size - 1 - i;
    ENGINE_OK(self, engine_pset_add(self, all, self->size, &sets->removed));
    ENGINE_OK(self, engine_pset_add(self, all, self->size, &sets->all));
    ENGINE_OK(self, engine_pset_add(self, pair, 2, &sets->pair));
    ENGINE_OK(self, engine_pset_remove(self, sets->removed));
}

static engine_op_t op_on(engine_rank_t *self, dt_kind_t kind, dtrain_pset_t pset)
{
    engine_op_t op = {.name = "x", .kind = kind, .pset = pset, .root = 0};
    int members = pset == 3 ? 2 : self->size;
    if (kind == DT_KIND_BARRIER)
        return op;
    op.count = members;
    op.in = engine_buffer(self, 64 * sizeof(float));
    op.out = engine_buffer(self, 64 * sizeof(float));
    op.out_bytes = 64 * sizeof(float);
    return op;
}

/* `mine` is on no set where this rank is a culprit. */
static void slip(engine_rank_t *self, const engine_op_t *mine, int is_culprit, when_t when,
                 dtrain_pset_t wrong)
{
    dtrain_handle_t handle = 0;
    char text[64];
    snprintf(text, sizeof text, "there is no process set %d", wrong);
    if (!is_culprit && when == BEHIND_OTHERS)
        ENGINE_OK(self, engine_submit(self, mine, &handle));
    if (when == BEHIND_OTHERS)
        engine_meet(self);
    if (is_culprit) {
        ENGINE_STATUS(self, engine_submit(self, mine, &handle), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), text);
    }
    if (when == BEFORE_OTHERS)
        engine_meet(self);
    if (!is_culprit) {
        if (when != BEHIND_OTHERS)
            ENGINE_OK(self, engine_submit(self, mine, &handle));
        ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), text);
        ENGINE_TEXT(self, dt_last_error(), "rank ");
    }
}

static void slip_on_each(engine_rank_t *self)
{
    sets_t sets;
    add_sets(self, &sets);
    const dtrain_pset_t wrong[] = {77, -1, sets.removed};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int i = 0; i < 18; i++) {
            dtrain_pset_t right = i % 2 ? sets.pair : sets.all;
            int is_member = right == sets.all || self->rank == 0 || self->rank == self->size - 1;
            int is_culprit = self->rank == (i % 4 < 2 ? self->size - 1 : 0);
            engine_op_t op = op_on(self, kinds[k], right);
            engine_op_t mine = op;
            if (is_culprit)
                mine.pset = wrong[i / 6];
            if (is_member)
                slip(self, &mine, is_culprit, (when_t)(i % 3), wrong[i / 6]);
            else if (i % 3 != WITH_OTHERS)
                engine_meet(self);
            engine_meet(self);
            /* The next one of the name works, on this set and in the world. */
            if (is_member)
                ENGINE_OK(self, engine_do(self, &op));
            engine_check_works(self, "x");
        }
    }
}

static void test_engine_call_on_no_set_reaches_those_who_mean_one_of_2(void **state)
{
    (void)state;
    engine_run(2, NULL, slip_on_each, NULL);
}

static void test_engine_call_on_no_set_reaches_those_who_mean_one_of_3(void **state)
{
    (void)state;
    engine_run(3, NULL, slip_on_each, NULL);
}

static void test_engine_call_on_no_set_reaches_those_who_mean_one_of_4(void **state)
{
    (void)state;
    engine_run(4, NULL, slip_on_each, NULL);
}

/* Several ranks make the same slip, in any order with the others' calls. */
static void slip_together(engine_rank_t *self)
{
    sets_t sets;
    add_sets(self, &sets);
    for (int round = 0; round < 30; round++) {
        int is_culprit = self->rank == 1 || self->rank == 2;
        engine_op_t op = op_on(self, DT_KIND_ALLREDUCE, sets.all);
        engine_op_t mine = op;
        if (is_culprit)
            mine.pset = 77;
        slip(self, &mine, is_culprit, WITH_OTHERS, 77);
        engine_meet(self);
        engine_check_works(self, "y"); /* what was refused late has arrived */
    }
    ENGINE_OK(self, engine_pset_remove(self, sets.all));
}

static void test_engine_calls_of_several_ranks_on_no_set_reach_the_others(void **state)
{
    (void)state;
    engine_run(4, NULL, slip_together, NULL);
}

/* A rank that makes the right call at once: it is that or the slip that the others meet. */
static void slip_and_repeat(engine_rank_t *self)
{
    sets_t sets;
    add_sets(self, &sets);
    for (int round = 0; round < 60; round++) {
        dtrain_status_t status;
        char name[16];
        snprintf(name, sizeof name, "x%d", round);
        engine_op_t op = op_on(self, DT_KIND_ALLREDUCE, sets.all);
        op.name = name;
        engine_op_t wrong = op;
        wrong.pset = 77;
        if (self->rank == self->size - 1)
            ENGINE_STATUS(self, engine_do(self, &wrong), DTRAIN_ERR_INVALID_ARGUMENT);
        int tries = 0;
        do
            status = engine_do(self, &op);
        while (status == DTRAIN_ERR_INVALID_ARGUMENT && ++tries < 2);
        ENGINE_OK(self, status);
        engine_meet(self);
    }
}

static void test_engine_right_call_after_one_on_no_set_is_not_lost(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        engine_run(size, NULL, slip_and_repeat, NULL);
}

/* A group of which one tensor is on no set is refused as a whole, and on the others as well. */
static void slip_in_group(engine_rank_t *self)
{
    sets_t sets;
    add_sets(self, &sets);
    for (int round = 0; round < 6; round++) {
        engine_op_t ops[2] = {op_on(self, DT_KIND_ALLREDUCE, sets.all),
                              op_on(self, DT_KIND_ALLREDUCE, sets.all)};
        dtrain_handle_t handles[2];
        ops[1].name = "y";
        int is_culprit = self->rank == 1;
        if (round % 2 && !is_culprit)
            engine_meet(self);
        if (is_culprit) {
            ops[0].pset = ops[1].pset = 77;
            ENGINE_STATUS(self, engine_submit_group(self, ops, 2, handles),
                          DTRAIN_ERR_INVALID_ARGUMENT);
        }
        if (round % 2 && is_culprit)
            engine_meet(self);
        if (!is_culprit) {
            ENGINE_OK(self, engine_submit_group(self, ops, 2, handles));
            for (int i = 0; i < 2; i++) {
                ENGINE_STATUS(self, engine_finish(self, handles[i]), DTRAIN_ERR_INVALID_ARGUMENT);
                ENGINE_TEXT(self, dt_last_error(), "there is no process set 77");
            }
        }
        engine_meet(self);
        engine_check_works(self, "x");
        engine_check_works(self, "y");
    }
}

static void test_engine_group_on_no_set_reaches_the_others(void **state)
{
    (void)state;
    engine_run(3, NULL, slip_in_group, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_call_on_no_set_reaches_those_who_mean_one_of_2),
        cmocka_unit_test(test_engine_call_on_no_set_reaches_those_who_mean_one_of_3),
        cmocka_unit_test(test_engine_call_on_no_set_reaches_those_who_mean_one_of_4),
        cmocka_unit_test(test_engine_calls_of_several_ranks_on_no_set_reach_the_others),
        cmocka_unit_test(test_engine_right_call_after_one_on_no_set_is_not_lost),
        cmocka_unit_test(test_engine_group_on_no_set_reaches_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
