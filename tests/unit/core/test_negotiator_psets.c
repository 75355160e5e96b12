/* The negotiator with process sets and with ranks that have joined. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "core/pset_key.h"
#include "negotiator_world.h"

static void assert_part(const char *text, const char *part)
{
    if (!strstr(text, part))
        print_error("\"%s\" is not in \"%s\"\n", part, text);
    assert_non_null(strstr(text, part));
}

static dt_signature_t signature_on(dtrain_pset_t pset, dt_kind_t kind)
{
    dt_signature_t signature = {.prescale = 1, .postscale = 1};
    if (kind == DT_KIND_ALLREDUCE)
        signature = allreduce_of(3);
    signature.kind = (uint8_t)kind;
    signature.pset = pset;
    return signature;
}

/* ---- Sets ----------------------------------------------------------------------------------- */

static void test_negotiator_set_is_complete_with_its_members(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 5);
    dtrain_pset_t pset = add_pset(&world, (int[]){4, 1, 3}, 3);
    dt_signature_t signature = signature_on(pset, DT_KIND_ALLREDUCE);
    report_new(&world, 4, "dtrain.set.1/x", &signature);
    report_new(&world, 1, "dtrain.set.1/x", &signature);
    assert_int_equal(take_verdict(&world), 0);
    report_new(&world, 3, "dtrain.set.1/x", &signature);
    assert_int_equal(take_one(&world)->kind, DT_ENTRY_NEW);
    /* Rank 0, which is no member, is told nothing. */
    static const int wanted[] = {0, 1, 0, 1, 1};
    for (int rank = 0; rank < 5; rank++)
        assert_int_equal(take_part(&world, rank), wanted[rank]);
    assert_int_equal(try_new(&world, 0, "dtrain.set.1/x", &signature), DTRAIN_ERR_INTERNAL);
    world_close(&world);
}

static void test_negotiator_parts_keep_the_order(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 3);
    dtrain_pset_t low = add_pset(&world, (int[]){0, 1}, 2),
                  high = add_pset(&world, (int[]){2, 1}, 2);
    dt_signature_t on_world = allreduce_of(3), on_low = signature_on(low, DT_KIND_ALLREDUCE),
                   on_high = signature_on(high, DT_KIND_ALLREDUCE);
    for (int rank = 0; rank < 3; rank++)
        report_new(&world, rank, "a", &on_world);
    for (int rank = 0; rank < 2; rank++)
        report_new(&world, rank, "dtrain.set.1/b", &on_low);
    for (int rank = 1; rank < 3; rank++)
        report_new(&world, rank, "dtrain.set.2/c", &on_high);
    for (int rank = 0; rank < 3; rank++)
        report_new(&world, rank, "d", &on_world);
    assert_int_equal(take_verdict(&world), 4);
    static const char *const wanted[3][5] = {{"a", "dtrain.set.1/b", "d"},
                                             {"a", "dtrain.set.1/b", "dtrain.set.2/c", "d"},
                                             {"a", "dtrain.set.2/c", "d"}};
    for (int rank = 0; rank < 3; rank++) {
        int n = take_part(&world, rank);
        for (int i = 0; i < n; i++)
            assert_string_equal(world.entries[i].name, wanted[rank][i]);
        assert_null(wanted[rank][n]);
    }
    world_close(&world);
}

static void test_negotiator_verdict_on_all_ranks_is_whole(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 3);
    dtrain_pset_t pset = add_pset(&world, (int[]){2, 0, 1}, 3);
    dt_signature_t signature = signature_on(pset, DT_KIND_ALLREDUCE);
    agree(&world, "dtrain.set.1/x", &signature);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(dt_negotiator_part(world.negotiator, rank, &world.verdict, &world.part),
                         0);
    world_close(&world);
}

/* A removed set's ids go to others; what was refused on it fails. */
static void test_negotiator_removed_set_gives_its_ids_back(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 3);
    for (int round = 1; round <= 5; round++) {
        char key[32];
        dtrain_pset_t pset = add_pset(&world, (int[]){1, 2}, 2);
        dt_signature_t signature = signature_on(pset, DT_KIND_ALLREDUCE), removal;
        snprintf(key, sizeof key, "dtrain.set.%d/x", pset);
        uint32_t id = DT_ID_NONE;
        for (int i = 0; i < 2; i++) {
            report_new(&world, 1, key, &signature);
            report_new(&world, 2, key, &signature);
            id = take_one(&world)->id;
        }
        assert_int_equal(id, 0);
        report_ready(&world, 1, 0);
        report_ready(&world, 2, 0);
        assert_int_equal(take_one(&world)->kind, DT_ENTRY_CACHED);
        snprintf(key, sizeof key, "dtrain.set.%d/y", pset);
        report_refused(&world, 0, key, DTRAIN_ERR_INVALID_ARGUMENT, "not in it");
        removal = signature_on(pset, DT_KIND_PSET_REMOVE);
        for (int rank = 0; rank < 3; rank++)
            report_new(&world, rank, DT_NAME_PSET, &removal);
        assert_int_equal(take_verdict(&world), 2);
        assert_int_equal(world.entries[0].signature.kind, DT_KIND_PSET_REMOVE);
        assert_int_equal(world.entries[1].kind, DT_ENTRY_ERROR);
        assert_int_equal(world.entries[1].absent, 6);
        dt_negotiator_forget(world.negotiator, pset);
        dt_psets_remove(&world.psets, dt_psets_find(&world.psets, pset));
        assert_int_equal(try_ready(&world, 1, 0), DTRAIN_ERR_INTERNAL);
        /* One that comes too late is answered. */
        report_refused(&world, 0, key, DTRAIN_ERR_INVALID_ARGUMENT, "not in it");
        assert_int_equal(take_one(&world)->status, DTRAIN_ERR_INVALID_ARGUMENT);
    }
    world_close(&world);
}

/* ---- Join --------------------------------------------------------------------------------------
 */

static void join(negotiator_world_t *world, int rank)
{
    dt_signature_t signature = signature_on(DTRAIN_PSET_WORLD, DT_KIND_JOIN);
    report_new(world, rank, DT_NAME_JOIN, &signature);
}

static void test_negotiator_goes_on_without_those_who_joined(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 4);
    for (int i = 0; i < 2; i++)
        agree(&world, "x", &signature); /* from now on by id 0 */
    report_ready(&world, 0, 0);
    report_ready(&world, 3, 0);
    join(&world, 1);
    assert_int_equal(take_verdict(&world), 0);
    join(&world, 2);
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->kind, DT_ENTRY_NEW);
    assert_true(entry->id == DT_ID_NONE);
    assert_true(dt_signature_equal(&entry->signature, &signature));
    assert_int_equal(entry->absent, 6);
    /* The last one to join is told to all, and from then on all are needed. */
    join(&world, 3);
    join(&world, 0);
    entry = take_one(&world);
    assert_int_equal(entry->signature.kind, DT_KIND_JOIN);
    assert_int_equal(entry->signature.root, 0);
    assert_int_equal(entry->absent, 0);
    for (int rank = 0; rank < 3; rank++)
        report_ready(&world, rank, 0);
    assert_int_equal(take_verdict(&world), 0);
    report_ready(&world, 3, 0);
    assert_int_equal(take_one(&world)->kind, DT_ENTRY_CACHED);
    world_close(&world);
}

static void test_negotiator_names_nothing_new_while_ranks_have_joined(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    join(&world, 0);
    for (int i = 0; i < 4; i++) {
        report_new(&world, 1, "x", &signature);
        const entry_t *entry = take_one(&world);
        assert_true(entry->id == DT_ID_NONE);
        assert_int_equal(entry->absent, 1);
    }
    world_close(&world);
}

/* A thread of a rank that joined reports late, but before the verdict: it takes part. */
static void test_negotiator_late_report_of_a_joined_rank_counts(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 3);
    join(&world, 0);
    join(&world, 1);
    report_new(&world, 2, "x", &signature);
    report_new(&world, 1, "x", &signature);
    assert_int_equal(take_one(&world)->absent, 1);
    world_close(&world);
}

static void test_negotiator_join_that_fails_needs_its_ranks_again(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 3);
    join(&world, 0);
    report_withdrawn(&world, 0, DT_NAME_JOIN, 2);
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->status, DTRAIN_ERR_TIMEOUT);
    assert_part(entry->text, "ranks 1-2");
    report_new(&world, 1, "x", &signature);
    report_new(&world, 2, "x", &signature);
    assert_int_equal(take_verdict(&world), 0);
    report_new(&world, 0, "x", &signature);
    assert_int_equal(take_one(&world)->absent, 0);
    world_close(&world);
}

static void test_negotiator_change_of_sets_needs_all_ranks(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = signature_on(DTRAIN_PSET_WORLD, DT_KIND_PSET_ADD);
    world_open(&world, 3);
    report_new(&world, 1, DT_NAME_PSET, &signature);
    join(&world, 2);
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->status, DTRAIN_ERR_INVALID_ARGUMENT);
    assert_part(entry->text, "needs rank 2, which has called dtrain_join");
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negotiator_set_is_complete_with_its_members),
        cmocka_unit_test(test_negotiator_parts_keep_the_order),
        cmocka_unit_test(test_negotiator_verdict_on_all_ranks_is_whole),
        cmocka_unit_test(test_negotiator_removed_set_gives_its_ids_back),
        cmocka_unit_test(test_negotiator_goes_on_without_those_who_joined),
        cmocka_unit_test(test_negotiator_names_nothing_new_while_ranks_have_joined),
        cmocka_unit_test(test_negotiator_late_report_of_a_joined_rank_counts),
        cmocka_unit_test(test_negotiator_join_that_fails_needs_its_ranks_again),
        cmocka_unit_test(test_negotiator_change_of_sets_needs_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
