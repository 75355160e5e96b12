#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "negotiator_world.h"

static void assert_part(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void assert_error(const entry_t *entry, const char *name, dtrain_status_t status,
                         uint64_t absent)
{
    assert_int_equal(entry->kind, DT_ENTRY_ERROR);
    assert_int_equal(entry->status, status);
    assert_string_equal(entry->name, name);
    assert_true(entry->absent == absent);
}

/* ---- Mismatches ---------------------------------------------------------------------------------
 */

/* Rank 1 reports `other`, the rest a sum of three floats. */
static const struct {
    dt_signature_t other;
    const char *what, *usual, *value;
} mismatches[] = {
    {{.kind = DT_KIND_BROADCAST, .dtype = DTRAIN_DTYPE_F32, .ndim = 1, .shape = {3}},
     "operations differ",
     "allreduce",
     "broadcast"},
    {{.kind = DT_KIND_ALLREDUCE,
      .dtype = DTRAIN_DTYPE_F64,
      .ndim = 1,
      .prescale = 1,
      .postscale = 1,
      .shape = {3}},
     "types differ",
     "float32",
     "float64"},
    {{.kind = DT_KIND_ALLREDUCE,
      .dtype = DTRAIN_DTYPE_F32,
      .ndim = 2,
      .prescale = 1,
      .postscale = 1,
      .shape = {3, 1}},
     "shapes differ",
     "[3]",
     "[3, 1]"},
    {{.kind = DT_KIND_ALLREDUCE,
      .dtype = DTRAIN_DTYPE_F32,
      .ndim = 1,
      .op = DTRAIN_OP_MIN,
      .prescale = 1,
      .postscale = 1,
      .shape = {3}},
     "reductions differ",
     "sum",
     "min"},
    {{.kind = DT_KIND_ALLREDUCE,
      .dtype = DTRAIN_DTYPE_F32,
      .ndim = 1,
      .prescale = 0.5,
      .postscale = 1,
      .shape = {3}},
     "prescales differ",
     ": 1",
     ": 0.5"},
    {{.kind = DT_KIND_ALLREDUCE,
      .dtype = DTRAIN_DTYPE_F32,
      .ndim = 1,
      .prescale = 1,
      .postscale = 7,
      .shape = {3}},
     "postscales differ",
     ": 1",
     ": 7"},
    {{.kind = DT_KIND_ALLREDUCE,
      .dtype = DTRAIN_DTYPE_F32,
      .ndim = 1,
      .prescale = 1,
      .postscale = 1,
      .shape = {3},
      .pset = 6},
     "process sets differ",
     ": 0",
     ": 6"},
};

static void test_negotiator_mismatch_names_ranks_and_both_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mismatches / sizeof mismatches[0]; i++) {
        negotiator_world_t world;
        dt_signature_t usual = allreduce_of(3);
        world_open(&world, 5);
        for (int rank = 0; rank < 5; rank++)
            report_new(&world, rank, "grad", rank == 1 ? &mismatches[i].other : &usual);
        const entry_t *entry = take_one(&world);
        assert_error(entry, "grad", DTRAIN_ERR_MISMATCH, 0);
        assert_part(entry->text, "'grad'");
        assert_part(entry->text, mismatches[i].what);
        assert_part(entry->text, mismatches[i].usual);
        assert_part(entry->text, mismatches[i].value);
        assert_part(entry->text, "ranks 0, 2-4: ");
        assert_part(entry->text, "rank 1: ");
        assert_int_equal(agree(&world, "grad", &usual)->kind, DT_ENTRY_NEW);
        world_close(&world);
    }
}

static void test_negotiator_roots_that_differ_are_a_mismatch(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3), other;
    signature.kind = DT_KIND_BROADCAST;
    other = signature;
    other.root = 1;
    world_open(&world, 2);
    report_new(&world, 1, "x", &signature);
    report_new(&world, 0, "x", &other);
    const entry_t *entry = take_one(&world);
    assert_error(entry, "x", DTRAIN_ERR_MISMATCH, 0);
    assert_part(entry->text, "broadcast 'x': the ranks' roots differ: rank 1: 0; rank 0: 1");
    world_close(&world);
}

static void test_negotiator_mismatch_of_cached_signatures_spoils_neither(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t small = allreduce_of(3), large = allreduce_of(4), odd = allreduce_of(5);
    world_open(&world, 2);
    for (int i = 0; i < 2; i++) {
        agree(&world, "x", &small);
        agree(&world, "x", &large);
    }
    for (int round = 0; round < 3; round++) {
        report_ready(&world, 0, 0);
        report_ready(&world, 1, 1);
        assert_error(take_one(&world), "x", DTRAIN_ERR_MISMATCH, 0);
        report_ready(&world, 0, 0);
        report_new(&world, 1, "x", &odd);
        assert_part(take_one(&world)->text, "rank 0: [3]; rank 1: [5]");
        for (uint32_t id = 0; id < 2; id++) {
            report_ready(&world, 1, id);
            report_ready(&world, 0, id);
            const entry_t *entry = take_one(&world);
            assert_int_equal(entry->kind, DT_ENTRY_CACHED);
            assert_int_equal(entry->id, id);
        }
    }
    world_close(&world);
}

static void test_negotiator_three_opinions_are_one_mismatch(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 3);
    for (int rank = 0; rank < 3; rank++) {
        dt_signature_t signature = allreduce_of(rank + 1);
        report_new(&world, rank, "x", &signature);
    }
    assert_error(take_one(&world), "x", DTRAIN_ERR_MISMATCH, 0);
    world_close(&world);
}

static void test_negotiator_text_with_a_long_name_keeps_its_values(void **state)
{
    (void)state;
    negotiator_world_t world;
    char name[DTRAIN_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    name[DTRAIN_NAME_MAX] = '\0';
    dt_signature_t a = allreduce_of(3), b = allreduce_of(4);
    world_open(&world, 2);
    report_new(&world, 0, name, &a);
    report_new(&world, 1, name, &b);
    assert_part(take_one(&world)->text, "rank 0: [3]; rank 1: [4]");
    world_close(&world);
}

/* ---- Refusals
 * ------------------------------------------------------------------------------------- */

static void test_negotiator_refused_call_fails_it_for_all(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3), other = allreduce_of(4);
    world_open(&world, 3);
    for (int round = 0; round < 3; round++) {
        report_new(&world, 0, "x", &signature);
        report_refused(&world, 2, "x", DTRAIN_ERR_UNSUPPORTED, "no such thing");
        assert_int_equal(take_verdict(&world), 0); /* rank 1 may still be on its way */
        report_new(&world, 1, "x", round == 1 ? &other : &signature);
        const entry_t *entry = take_one(&world);
        assert_error(entry, "x", DTRAIN_ERR_UNSUPPORTED, 0);
        assert_string_equal(entry->text, "rank 2: no such thing");
        assert_int_not_equal(agree(&world, "x", &signature)->kind, DT_ENTRY_ERROR);
    }
    world_close(&world);
}

static void test_negotiator_first_refusal_stands(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 2);
    report_refused(&world, 1, "x", DTRAIN_ERR_INVALID_ARGUMENT, "first");
    report_refused(&world, 0, "x", DTRAIN_ERR_UNSUPPORTED, "second");
    const entry_t *entry = take_one(&world);
    assert_error(entry, "x", DTRAIN_ERR_INVALID_ARGUMENT, 0);
    assert_string_equal(entry->text, "rank 1: first");
    world_close(&world);
}

/* ---- Withdrawals
 * ------------------------------------------------------------------------------------ */

static void test_negotiator_withdrawal_ends_it_for_those_who_have_reported(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 4);
    report_new(&world, 0, "x", &signature);
    report_new(&world, 2, "x", &signature);
    report_withdrawn(&world, 2, "x", 1.5);
    const entry_t *entry = take_one(&world);
    assert_error(entry, "x", DTRAIN_ERR_TIMEOUT, 1 << 1 | 1 << 3);
    assert_part(entry->text, "allreduce 'x'");
    assert_part(entry->text, "by rank 2 after its deadline of 1.5 s");
    assert_part(entry->text, "ranks 1, 3 did not submit it");
    /* Those who come now belong to the next round. */
    report_new(&world, 1, "x", &signature);
    report_new(&world, 3, "x", &signature);
    assert_int_equal(take_verdict(&world), 0);
    report_new(&world, 0, "x", &signature);
    report_new(&world, 2, "x", &signature);
    assert_int_equal(take_one(&world)->kind, DT_ENTRY_NEW);
    world_close(&world);
}

static void test_negotiator_withdrawal_of_what_is_decided_is_too_late(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    report_new(&world, 0, "x", &signature);
    report_new(&world, 1, "x", &signature);
    report_withdrawn(&world, 1, "x", 1);
    assert_int_equal(take_one(&world)->kind, DT_ENTRY_NEW);
    report_withdrawn(&world, 1, "x", 1);
    report_withdrawn(&world, 1, "never.heard.of", 1);
    assert_int_equal(take_verdict(&world), 0);
    world_close(&world);
}

static void test_negotiator_withdrawal_by_a_rank_that_has_not_reported_is_nothing(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    report_new(&world, 0, "x", &signature);
    report_withdrawn(&world, 1, "x", 1); /* its round is over; this is the next one */
    assert_int_equal(take_verdict(&world), 0);
    report_new(&world, 1, "x", &signature);
    assert_int_equal(take_one(&world)->kind, DT_ENTRY_NEW);
    world_close(&world);
}

/* ---- Ranks that leave
 * -------------------------------------------------------------------------------- */

static void test_negotiator_bye_fails_what_waits_and_what_comes(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 3);
    report_new(&world, 0, "waits", &signature);
    report_new(&world, 2, "own", &signature);
    assert_int_equal(dt_negotiator_bye(world.negotiator, 2), DTRAIN_OK);
    const entry_t *entry = take_one(&world);
    assert_error(entry, "waits", DTRAIN_ERR_SHUT_DOWN, 1 << 1 | 1 << 2);
    assert_part(entry->text, "allreduce 'waits' needs rank 2, which has called dtrain_shutdown");
    report_new(&world, 1, "comes", &signature);
    assert_error(take_one(&world), "comes", DTRAIN_ERR_SHUT_DOWN, 1 << 0 | 1 << 2);
    /* What the rank had submitted before it left still comes together. */
    report_new(&world, 0, "own", &signature);
    report_new(&world, 1, "own", &signature);
    assert_int_equal(take_one(&world)->kind, DT_ENTRY_NEW);
    world_close(&world);
}

static void test_negotiator_is_over_when_all_have_left(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    assert_false(dt_negotiator_is_over(world.negotiator));
    report_new(&world, 1, "x", &signature);
    assert_int_equal(dt_negotiator_bye(world.negotiator, 1), DTRAIN_OK);
    assert_false(dt_negotiator_is_over(world.negotiator));
    assert_int_equal(take_verdict(&world), 0);
    assert_int_equal(dt_negotiator_bye(world.negotiator, 0), DTRAIN_OK);
    assert_error(take_one(&world), "x", DTRAIN_ERR_SHUT_DOWN, 1 << 0);
    assert_true(dt_negotiator_is_over(world.negotiator));
    assert_int_equal(dt_negotiator_bye(world.negotiator, 0), DTRAIN_ERR_INTERNAL);
    world_close(&world);
}

static void test_negotiator_several_reports_before_a_verdict_end_once(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 3);
    assert_int_equal(dt_negotiator_bye(world.negotiator, 2), DTRAIN_OK);
    report_new(&world, 0, "x", &signature);
    report_new(&world, 1, "x", &signature);
    assert_error(take_one(&world), "x", DTRAIN_ERR_SHUT_DOWN, 1 << 2);
    world_close(&world);
}

/* ---- Reports that cannot be
 * ------------------------------------------------------------------------- */

static void test_negotiator_contradictions_are_internal_errors(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    assert_int_equal(try_ready(&world, 0, 0), DTRAIN_ERR_INTERNAL);
    assert_int_equal(try_ready(&world, 0, 4000000), DTRAIN_ERR_INTERNAL);
    assert_int_equal(try_ready(&world, 0, UINT32_MAX), DTRAIN_ERR_INTERNAL);
    report_new(&world, 0, "x", &signature);
    assert_int_equal(try_new(&world, 0, "x", &signature), DTRAIN_ERR_INTERNAL);
    assert_part(dt_last_error(), "rank 0 reported 'x' twice");
    world_close(&world);
}

static void test_negotiator_ranks_that_there_are_not_are_internal_errors(void **state)
{
    (void)state;
    const int ranks[][2] = {{45, 1}, {1, 45}, {-1, 0}, {0, INT32_MIN}, {1, 1}, {2, 0}};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        negotiator_world_t world;
        world_open(&world, 2);
        dt_signature_t transfer = allreduce_of(3);
        transfer.kind = DT_KIND_TRANSFER;
        transfer.root = ranks[i][0];
        transfer.peer = ranks[i][1];
        assert_int_equal(try_new(&world, 0, "x", &transfer), DTRAIN_ERR_INTERNAL);
        assert_part(dt_last_error(), "rank 0 reported 'x' with a rank that there is not");
        world_close(&world);
    }
}

/* Builds a report of all kinds, and cuts it at every length. */
static void test_negotiator_every_truncated_report_is_an_error(void **state)
{
    (void)state;
    dt_signature_t signature = allreduce_of(3);
    dt_request_t request = {.name = "new", .name_length = 3, .signature = signature};
    dt_buffer_t report = {0};
    dt_put_u32(&report, 0);
    dt_put_u32(&report, 1);
    dt_put_u64(&report, 1);
    dt_put_u32(&report, 1);
    dt_put_u32(&report, 1);
    dt_put_stamp(&report, (dt_stamp_t){.step = 1});
    dt_put_u32(&report, 1);
    dt_put_request(&report, &request);
    dt_put_u32(&report, 1);
    dt_put_f64(&report, 1);
    dt_put_text(&report, "x", 1);
    for (size_t length = 0; length <= report.length; length++) {
        negotiator_world_t world;
        world_open(&world, 2);
        for (int i = 0; i < 4; i++)
            agree(&world, i % 2 ? "y" : "x", &signature);
        uint8_t *copy = malloc(length ? length : 1);
        assert_non_null(copy);
        memcpy(copy, report.data, length);
        assert_int_equal(dt_negotiator_report(world.negotiator, 0, copy, length, 0),
                         length == report.length ? DTRAIN_OK : DTRAIN_ERR_INTERNAL);
        free(copy);
        world_close(&world);
    }
    dt_buffer_free(&report);
}

static void test_negotiator_random_reports_are_survived(void **state)
{
    (void)state;
    uint64_t random = 99;
    for (int round = 0; round < 300; round++) {
        negotiator_world_t world;
        world_open(&world, 3);
        for (int i = 0; i < 30; i++) {
            uint8_t bytes[96];
            for (size_t k = 0; k < sizeof bytes; k++) {
                random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
                bytes[k] = (uint8_t)(random >> 60 ? random >> 40 & 3 : random >> 48);
            }
            (void)dt_negotiator_report(world.negotiator, i % 3, bytes, random >> 58, 0);
            dt_buffer_clear(&world.verdict);
            (void)dt_negotiator_verdict(world.negotiator, INT64_MAX, &world.verdict);
        }
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negotiator_mismatch_names_ranks_and_both_values),
        cmocka_unit_test(test_negotiator_roots_that_differ_are_a_mismatch),
        cmocka_unit_test(test_negotiator_mismatch_of_cached_signatures_spoils_neither),
        cmocka_unit_test(test_negotiator_three_opinions_are_one_mismatch),
        cmocka_unit_test(test_negotiator_text_with_a_long_name_keeps_its_values),
        cmocka_unit_test(test_negotiator_refused_call_fails_it_for_all),
        cmocka_unit_test(test_negotiator_first_refusal_stands),
        cmocka_unit_test(test_negotiator_withdrawal_ends_it_for_those_who_have_reported),
        cmocka_unit_test(test_negotiator_withdrawal_of_what_is_decided_is_too_late),
        cmocka_unit_test(test_negotiator_withdrawal_by_a_rank_that_has_not_reported_is_nothing),
        cmocka_unit_test(test_negotiator_bye_fails_what_waits_and_what_comes),
        cmocka_unit_test(test_negotiator_is_over_when_all_have_left),
        cmocka_unit_test(test_negotiator_several_reports_before_a_verdict_end_once),
        cmocka_unit_test(test_negotiator_contradictions_are_internal_errors),
        cmocka_unit_test(test_negotiator_ranks_that_there_are_not_are_internal_errors),
        cmocka_unit_test(test_negotiator_every_truncated_report_is_an_error),
        cmocka_unit_test(test_negotiator_random_reports_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
