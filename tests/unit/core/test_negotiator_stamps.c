/* Operations that come with every step: ranks that are at different steps are told apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "negotiator_world.h"

static dt_stamp_t at(uint32_t step)
{
    return (dt_stamp_t){.step = step, .passes = 1};
}

/* All ranks do step 1 and 2; returns the operation's id. */
static uint32_t begin(negotiator_world_t *world, int size)
{
    dt_signature_t signature = allreduce_of(3);
    const entry_t *entry = NULL;
    world_open(world, size);
    for (uint32_t step = 1; step <= 2; step++) {
        for (int rank = 0; rank < size; rank++)
            report_new_stamped(world, rank, "g", &signature, at(step));
        entry = take_one(world);
        assert_int_equal(entry->kind, DT_ENTRY_NEW);
    }
    assert_true(entry->id != DT_ID_NONE);
    return entry->id;
}

static void test_negotiator_same_steps_keep_their_id(void **state)
{
    (void)state;
    negotiator_world_t world;
    uint32_t id = begin(&world, 3);
    for (uint32_t step = 3; step < 8; step++) {
        for (int rank = 2; rank >= 0; rank--)
            report_stamped(&world, rank, id, at(step));
        const entry_t *entry = take_one(&world);
        assert_int_equal(entry->kind, DT_ENTRY_CACHED);
        assert_int_equal(entry->id, id);
    }
    world_close(&world);
}

typedef struct difference {
    dt_stamp_t usual, other;
    uint32_t furthest;
    const char *text;
} difference_t;

static void test_negotiator_other_step_is_a_mismatch_that_names_ranks_and_steps(void **state)
{
    (void)state;
    static const difference_t differences[] = {
        {{3, 1, 0}, {4, 1, 0}, 4, "the ranks' steps differ: ranks 0-1: 3; rank 2: 4"},
        {{3, 1, 0}, {2, 1, 0}, 3, "the ranks' steps differ: ranks 0-1: 3; rank 2: 2"},
        {{3, 1, 0},
         {3, 2, 0},
         3,
         "the ranks' steps differ: ranks 0-1: 3 (of 1 pass); rank 2: 3 (of 2 passes)"},
        {{3, 1, 0},
         {3, 1, DT_STAMP_EMPTY},
         3,
         "the ranks' steps differ: ranks 0-1: 3; rank 2: 3 (with no gradient marked)"},
        {{3, 1, 0},
         {3, 1, DT_STAMP_EARLY},
         3,
         "the ranks' steps differ: ranks 0-1: 3; rank 2: 3 (marked before step 2 was ended)"},
    };
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        const difference_t *difference = &differences[i];
        negotiator_world_t world;
        uint32_t id = begin(&world, 3);
        for (int rank = 0; rank < 3; rank++)
            report_stamped(&world, rank, id, rank == 2 ? difference->other : difference->usual);
        const entry_t *entry = take_one(&world);
        assert_int_equal(entry->kind, DT_ENTRY_ERROR);
        assert_int_equal(entry->status, DTRAIN_ERR_MISMATCH);
        assert_int_equal(entry->step, difference->furthest);
        assert_non_null(strstr(entry->text, difference->text));
        /* The next step has the same id again. */
        for (int rank = 0; rank < 3; rank++)
            report_stamped(&world, rank, id, at(5));
        entry = take_one(&world);
        assert_int_equal(entry->kind, DT_ENTRY_CACHED);
        assert_int_equal(entry->id, id);
        world_close(&world);
    }
}

static void test_negotiator_other_step_is_found_before_there_is_an_id(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    report_new_stamped(&world, 0, "g", &signature, at(1));
    report_new_stamped(&world, 1, "g", &signature, at(2));
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->status, DTRAIN_ERR_MISMATCH);
    assert_non_null(strstr(entry->text, "rank 0: 1; rank 1: 2"));
    world_close(&world);
}

static void test_negotiator_other_step_of_each_rank_lists_all(void **state)
{
    (void)state;
    negotiator_world_t world;
    uint32_t id = begin(&world, 4);
    for (int rank = 0; rank < 4; rank++)
        report_stamped(&world, rank, id, at(10 + (uint32_t)rank));
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->step, 13);
    assert_non_null(strstr(entry->text, "rank 0: 10; rank 1: 11; rank 2: 12; rank 3: 13"));
    world_close(&world);
}

static void test_negotiator_error_of_an_operation_without_steps_has_none(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t one = allreduce_of(3), other = allreduce_of(4);
    world_open(&world, 2);
    report_new(&world, 0, "g", &one);
    report_new(&world, 1, "g", &other);
    assert_int_equal(take_one(&world)->step, 0);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negotiator_same_steps_keep_their_id),
        cmocka_unit_test(test_negotiator_other_step_is_a_mismatch_that_names_ranks_and_steps),
        cmocka_unit_test(test_negotiator_other_step_is_found_before_there_is_an_id),
        cmocka_unit_test(test_negotiator_other_step_of_each_rank_lists_all),
        cmocka_unit_test(test_negotiator_error_of_an_operation_without_steps_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
