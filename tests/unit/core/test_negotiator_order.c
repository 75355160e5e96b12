/* The negotiator's priorities, transfers and groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "core/pset_key.h"
#include "negotiator_world.h"

/* Both ranks of two report an allreduce of `count` floats. */
static void both(negotiator_world_t *world, const char *name, int64_t count, int first, int second)
{
    dt_signature_t signature = allreduce_of(count);
    signature.priority = first;
    report_new(world, 0, name, &signature);
    signature.priority = second;
    report_new(world, 1, name, &signature);
}

static void assert_names(negotiator_world_t *world, int n, const char *const *names)
{
    assert_int_equal(take_verdict(world), n);
    for (int i = 0; i < n; i++)
        assert_string_equal(world->entries[i].name, names[i]);
}

/* ---- Priorities --------------------------------------------------------------------------------
 */

static void test_negotiator_higher_priorities_go_first(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 2);
    both(&world, "a", 1, 0, 0);
    both(&world, "b", 1, 5, 5);
    both(&world, "c", 1, -3, -3);
    both(&world, "d", 1, 5, 5);
    both(&world, "e", 1, INT32_MIN, INT32_MAX); /* the highest counts */
    assert_names(&world, 5, (const char *const[]){"e", "b", "d", "a", "c"});
    world_close(&world);
}

static void test_negotiator_without_priorities_knows_no_room(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 2);
    world.room = 0;
    both(&world, "a", 1000, 0, 0);
    both(&world, "b", 1000, 0, 0);
    assert_names(&world, 2, (const char *const[]){"a", "b"});
    world_close(&world);
}

static void test_negotiator_holds_back_what_has_no_room_so_that_it_can_be_overtaken(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 2);
    both(&world, "a", 100, 1, 1);
    both(&world, "b", 100, 0, 0);
    both(&world, "c", 100, 0, 0);
    world.room = 500; /* bytes; the second goes past it, and is the last */
    assert_names(&world, 2, (const char *const[]){"a", "b"});
    world.room = 0;
    assert_int_equal(take_verdict(&world), 0);
    assert_int_equal(world.verdict.length, 0);
    both(&world, "urgent", 100, 9, 9);
    dt_signature_t barrier = {.kind = DT_KIND_BARRIER, .prescale = 1, .postscale = 1};
    report_new(&world, 0, "barrier", &barrier);
    report_new(&world, 1, "barrier", &barrier);
    report_refused(&world, 0, "refused", DTRAIN_ERR_INVALID_ARGUMENT, "no");
    report_refused(&world, 1, "refused", DTRAIN_ERR_INVALID_ARGUMENT, "no");
    /* What moves no data does not wait. */
    assert_names(&world, 2, (const char *const[]){"barrier", "refused"});
    world.room = 1;
    assert_names(&world, 1, (const char *const[]){"urgent"});
    assert_names(&world, 1, (const char *const[]){"c"});
    assert_int_equal(take_verdict(&world), 0);
    world_close(&world);
}

static void test_negotiator_is_not_over_while_it_holds_back(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 2);
    both(&world, "a", 100, 1, 1);
    world.room = 0;
    assert_int_equal(take_verdict(&world), 0);
    assert_int_equal(dt_negotiator_bye(world.negotiator, 0), DTRAIN_OK);
    assert_int_equal(dt_negotiator_bye(world.negotiator, 1), DTRAIN_OK);
    assert_int_equal(dt_negotiator_is_over(world.negotiator), 0);
    world.room = 1;
    assert_names(&world, 1, (const char *const[]){"a"});
    assert_int_equal(dt_negotiator_is_over(world.negotiator), 1);
    world_close(&world);
}

/* An id stands for one priority that all ranks gave. */
static void test_negotiator_priorities_that_differ_get_no_id(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 2);
    for (int round = 0; round < 3; round++) {
        both(&world, "x", 4, 1, 2);
        const entry_t *entry = take_one(&world);
        assert_int_equal(entry->kind, DT_ENTRY_NEW);
        assert_int_equal(entry->id, DT_ID_NONE);
    }
    dt_signature_t signature = allreduce_of(4);
    signature.priority = 2;
    agree(&world, "x", &signature);
    uint32_t id = agree(&world, "x", &signature)->id;
    assert_int_not_equal(id, DT_ID_NONE);
    both(&world, "low", 4, 1, 1);
    report_ready(&world, 0, id);
    signature.priority = 0; /* one rank changes its mind: it says so in full */
    report_new(&world, 1, "x", &signature);
    assert_int_equal(take_verdict(&world), 2);
    assert_string_equal(world.entries[0].name, "x");
    assert_int_equal(world.entries[0].kind, DT_ENTRY_NEW); /* not all have it by that id */
    assert_int_equal(world.entries[0].id, DT_ID_NONE);
    assert_string_equal(world.entries[1].name, "low");
    world_close(&world);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static dt_signature_t allreduce_in(dt_memory_t memory)
{
    dt_signature_t signature = allreduce_of(4);
    signature.memory = memory;
    return signature;
}

static void test_negotiator_memory_that_all_have_is_told_and_has_an_id(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 3);
    dt_signature_t own = allreduce_in(DT_MEMORY_OWN), any = allreduce_in(DT_MEMORY_ANY);
    assert_int_equal(agree(&world, "x", &own)->signature.memory, DT_MEMORY_OWN);
    uint32_t id = agree(&world, "x", &own)->id;
    assert_int_not_equal(id, DT_ID_NONE);
    assert_int_equal(agree(&world, "x", &any)->signature.memory, DT_MEMORY_ANY);
    uint32_t other = agree(&world, "x", &any)->id;
    assert_int_not_equal(other, DT_ID_NONE);
    assert_int_not_equal(other, id); /* each stands for one kind */
    world_close(&world);
}

static void test_negotiator_memory_that_differs_is_any_without_an_id(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 3);
    dt_signature_t own = allreduce_in(DT_MEMORY_OWN), any = allreduce_in(DT_MEMORY_ANY),
                   symmetric = allreduce_in(DT_MEMORY_SYMMETRIC);
    const dt_signature_t *const others[] = {&any, &symmetric};
    agree(&world, "x", &own);
    uint32_t id = agree(&world, "x", &own)->id;
    for (int round = 0; round < 6; round++) {
        int odd = round % 3; /* the one that differs is the first, one between, and the last */
        for (int rank = 0; rank < 3; rank++) {
            if (rank == odd)
                report_new(&world, rank, "x", others[round / 3]);
            else
                report_ready(&world, rank, id);
        }
        const entry_t *entry = take_one(&world);
        assert_int_equal(entry->kind, DT_ENTRY_NEW);
        assert_int_equal(entry->id, DT_ID_NONE);
        assert_int_equal(entry->signature.memory, DT_MEMORY_ANY);
    }
    world_close(&world);
}

/* Its stand-in lies in memory that is not the library's kind. */
static void test_negotiator_memory_without_a_rank_that_joined_is_any(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 3);
    dt_signature_t own = allreduce_in(DT_MEMORY_OWN), join = {.kind = DT_KIND_JOIN};
    agree(&world, "x", &own);
    uint32_t id = agree(&world, "x", &own)->id;
    report_new(&world, 1, DT_NAME_JOIN, &join);
    assert_int_equal(take_verdict(&world), 0);
    report_ready(&world, 0, id);
    report_ready(&world, 2, id);
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->kind, DT_ENTRY_NEW);
    assert_int_equal(entry->absent, 2);
    assert_int_equal(entry->signature.memory, DT_MEMORY_ANY);
    world_close(&world);
}

/* ---- Transfers
 * ------------------------------------------------------------------------------------ */

static dt_signature_t transfer(int from, int to)
{
    dt_signature_t signature = allreduce_of(2);
    signature.kind = DT_KIND_TRANSFER;
    signature.root = from;
    signature.peer = to;
    return signature;
}

static void test_negotiator_transfer_takes_its_two_ranks(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 5);
    dt_signature_t signature = transfer(3, 1);
    for (int round = 0; round < 3; round++) {
        report_new(&world, 1, "t", &signature);
        assert_int_equal(take_verdict(&world), 0);
        report_new(&world, 3, "t", &signature);
        const entry_t *entry = take_one(&world);
        assert_int_equal(entry->kind, DT_ENTRY_NEW);
        assert_int_equal(entry->id, DT_ID_NONE); /* the others could not know it */
        assert_int_equal(entry->signature.root, 3);
        assert_int_equal(entry->signature.peer, 1);
    }
    world_close(&world);
}

static void test_negotiator_transfer_fails_when_its_other_end_has_left(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 4);
    assert_int_equal(dt_negotiator_bye(world.negotiator, 2), DTRAIN_OK);
    dt_signature_t signature = transfer(0, 1);
    report_new(&world, 0, "t", &signature); /* does not need rank 2 */
    report_new(&world, 1, "t", &signature);
    assert_int_equal(take_one(&world)->kind, DT_ENTRY_NEW);
    signature = transfer(0, 2);
    report_new(&world, 0, "t", &signature);
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->status, DTRAIN_ERR_SHUT_DOWN);
    assert_non_null(strstr(entry->text, "rank 2"));
    assert_int_equal(entry->absent, 0xe);
    world_close(&world);
}

static void test_negotiator_transfer_given_up_names_the_rank_that_is_missing(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 4);
    dt_signature_t signature = transfer(2, 3);
    report_new(&world, 3, "t", &signature);
    report_withdrawn(&world, 3, "t", 1.5);
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->status, DTRAIN_ERR_TIMEOUT);
    assert_non_null(strstr(entry->text, ": rank 2 did not submit it"));
    world_close(&world);
}

static void test_negotiator_transfer_and_another_operation_mismatch_on_all(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 3);
    dt_signature_t signature = transfer(0, 1), other = allreduce_of(2);
    report_new(&world, 0, "t", &signature);
    report_new(&world, 2, "t", &other);
    assert_int_equal(take_verdict(&world), 0);
    report_new(&world, 1, "t", &signature);
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->status, DTRAIN_ERR_MISMATCH);
    assert_int_equal(entry->absent, 0);
    assert_non_null(strstr(entry->text, "rank 2: allreduce"));
    world_close(&world);
}

/* ---- Groups
 * ------------------------------------------------------------------------------------------ */

static dt_signature_t member(uint32_t index, uint32_t size, uint64_t key)
{
    dt_signature_t signature = allreduce_of(2);
    signature.group = key;
    signature.group_size = size;
    signature.group_index = index;
    return signature;
}

static void report_members(negotiator_world_t *world, int rank, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        char name[16];
        dt_signature_t signature = member(i, 3, 99);
        snprintf(name, sizeof name, "g%u", i);
        report_new(world, rank, name, &signature);
    }
}

static void test_negotiator_group_is_decided_with_its_last_tensor(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 2);
    for (int round = 0; round < 2; round++) {
        report_members(&world, 0, 0, 3);
        report_members(&world, 1, 0, 2);
        assert_int_equal(take_verdict(&world), 0);
        report_members(&world, 1, 2, 3);
        assert_int_equal(take_verdict(&world), 3);
    }
    world_close(&world);
}

static void test_negotiator_group_given_up_takes_all_along(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 2);
    report_members(&world, 0, 0, 3);
    report_members(&world, 1, 0, 2);
    report_withdrawn(&world, 0, "g1", 2); /* which is complete, and waits for g2 */
    assert_int_equal(take_verdict(&world), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(world.entries[i].status, DTRAIN_ERR_TIMEOUT);
        assert_non_null(strstr(world.entries[i].text, "the others of its group"));
    }
    report_members(&world, 0, 0, 3); /* and nothing of it is left */
    report_members(&world, 1, 0, 3);
    assert_int_equal(take_verdict(&world), 3);
    assert_int_equal(world.entries[0].kind, DT_ENTRY_NEW);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negotiator_higher_priorities_go_first),
        cmocka_unit_test(test_negotiator_without_priorities_knows_no_room),
        cmocka_unit_test(test_negotiator_holds_back_what_has_no_room_so_that_it_can_be_overtaken),
        cmocka_unit_test(test_negotiator_is_not_over_while_it_holds_back),
        cmocka_unit_test(test_negotiator_priorities_that_differ_get_no_id),
        cmocka_unit_test(test_negotiator_memory_that_all_have_is_told_and_has_an_id),
        cmocka_unit_test(test_negotiator_memory_that_differs_is_any_without_an_id),
        cmocka_unit_test(test_negotiator_memory_without_a_rank_that_joined_is_any),
        cmocka_unit_test(test_negotiator_transfer_takes_its_two_ranks),
        cmocka_unit_test(test_negotiator_transfer_fails_when_its_other_end_has_left),
        cmocka_unit_test(test_negotiator_transfer_given_up_names_the_rank_that_is_missing),
        cmocka_unit_test(test_negotiator_transfer_and_another_operation_mismatch_on_all),
        cmocka_unit_test(test_negotiator_group_is_decided_with_its_last_tensor),
        cmocka_unit_test(test_negotiator_group_given_up_takes_all_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
