/* Agreement, ids, memory, warnings. What goes wrong is in test_negotiator_errors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "failing_memory.h"
#include "negotiator_world.h"

/* ---- Agreement ----------------------------------------------------------------------------------
 */

static void test_negotiator_decides_when_the_last_rank_has_reported(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 3);
    report_new(&world, 2, "x", &signature);
    assert_int_equal(take_verdict(&world), 0);
    report_new(&world, 0, "x", &signature);
    assert_int_equal(take_verdict(&world), 0);
    report_new(&world, 1, "x", &signature);
    const entry_t *entry = take_one(&world);
    assert_int_equal(entry->kind, DT_ENTRY_NEW);
    assert_string_equal(entry->name, "x");
    assert_true(dt_signature_equal(&entry->signature, &signature));
    assert_int_equal(take_verdict(&world), 0);
    world_close(&world);
}

static void test_negotiator_world_of_one_decides_at_once(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 1);
    assert_int_equal(agree(&world, "x", &signature)->kind, DT_ENTRY_NEW);
    world_close(&world);
}

static void test_negotiator_order_is_that_of_completion(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    report_new(&world, 0, "a", &signature);
    report_new(&world, 0, "b", &signature);
    report_new(&world, 0, "c", &signature);
    report_new(&world, 1, "c", &signature);
    report_new(&world, 1, "late", &signature);
    report_new(&world, 1, "a", &signature);
    report_new(&world, 1, "b", &signature);
    assert_int_equal(take_verdict(&world), 3);
    assert_string_equal(world.entries[0].name, "c");
    assert_string_equal(world.entries[1].name, "a");
    assert_string_equal(world.entries[2].name, "b");
    world_close(&world);
}

/* ---- Ids
 * ------------------------------------------------------------------------------------------- */

static void test_negotiator_gives_an_id_the_second_time(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    assert_true(agree(&world, "x", &signature)->id == DT_ID_NONE);
    const entry_t *entry = agree(&world, "x", &signature);
    assert_int_equal(entry->kind, DT_ENTRY_NEW);
    assert_int_equal(entry->id, 0);
    assert_true(agree(&world, "y", &signature)->id == DT_ID_NONE);
    assert_int_equal(agree(&world, "y", &signature)->id, 1);
    world_close(&world);
}

static void test_negotiator_takes_bits_for_what_has_an_id(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    for (int i = 0; i < 2; i++) {
        agree(&world, "x", &signature);
        agree(&world, "y", &signature);
    }
    for (int round = 0; round < 3; round++) {
        report_ready(&world, 0, 1);
        report_ready(&world, 1, 0);
        report_ready(&world, 1, 1);
        report_ready(&world, 0, 0);
        assert_int_equal(take_verdict(&world), 2);
        assert_int_equal(world.entries[0].kind, DT_ENTRY_CACHED);
        assert_int_equal(world.entries[0].id, 1);
        assert_int_equal(world.entries[1].id, 0);
    }
    /* A rank that asks in full means the same. */
    report_ready(&world, 0, 0);
    report_new(&world, 1, "x", &signature);
    assert_int_equal(take_one(&world)->kind, DT_ENTRY_CACHED);
    world_close(&world);
}

static void test_negotiator_takes_many_bits_of_one_report(void **state)
{
    (void)state;
    enum { NUM = 150 };
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    for (int i = 0; i < 2 * NUM; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d", i % NUM);
        agree(&world, name, &signature);
    }
    for (int rank = 0; rank < 2; rank++) {
        dt_buffer_clear(&world.report);
        dt_put_u32(&world.report, 0);
        dt_put_u32(&world.report, 3);
        dt_put_u64(&world.report, UINT64_MAX);
        dt_put_u64(&world.report, UINT64_MAX);
        dt_put_u64(&world.report, (UINT64_C(1) << (NUM - 128)) - 1);
        dt_put_u32(&world.report, 0);
        dt_put_u32(&world.report, 0);
        dt_put_u32(&world.report, 0);
        assert_int_equal(
            dt_negotiator_report(world.negotiator, rank, world.report.data, world.report.length, 0),
            DTRAIN_OK);
    }
    assert_int_equal(take_verdict(&world), NUM);
    for (int i = 0; i < NUM; i++)
        assert_int_equal(world.entries[i].id, i);
    world_close(&world);
}

static void test_negotiator_caches_each_signature_of_a_name(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t small = allreduce_of(3), large = allreduce_of(4), other = allreduce_of(5);
    world_open(&world, 2);
    for (int i = 0; i < 2; i++) {
        agree(&world, "x", &small);
        agree(&world, "x", &large);
    }
    report_ready(&world, 0, 1);
    report_ready(&world, 1, 1);
    assert_int_equal(take_one(&world)->id, 1);
    assert_true(agree(&world, "x", &other)->id == DT_ID_NONE); /* beside those with one */
    report_ready(&world, 0, 0);
    report_ready(&world, 1, 0);
    assert_int_equal(take_one(&world)->id, 0);
    assert_int_equal(agree(&world, "x", &other)->id, 2);
    for (uint32_t id = 0; id < 3; id++) {
        report_ready(&world, 0, id);
        report_ready(&world, 1, id);
        assert_int_equal(take_one(&world)->id, id);
    }
    world_close(&world);
}

/* ---- Memory
 * ------------------------------------------------------------------------------------------ */

static void test_negotiator_names_that_come_once_leave_nothing(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 3);
    agree(&world, "first", &signature);
    int before = memory_live();
    for (int i = 0; i < 3000; i++) {
        char name[32];
        snprintf(name, sizeof name, "step.%d", i);
        agree(&world, name, &signature);
    }
    assert_int_equal(memory_live(), before);
    world_close(&world);
}

static void test_negotiator_shape_that_changes_always_leaves_nothing(void **state)
{
    (void)state;
    negotiator_world_t world;
    dt_signature_t signature = allreduce_of(1);
    world_open(&world, 2);
    agree(&world, "x", &signature);
    agree(&world, "x", &signature);
    int before = memory_live();
    for (int i = 2; i < 2000; i++) {
        signature = allreduce_of(i);
        agree(&world, "x", &signature);
    }
    assert_int_equal(memory_live(), before);
    world_close(&world);
}

static void test_negotiator_bounds_the_signatures_it_caches_of_a_name(void **state)
{
    (void)state;
    negotiator_world_t world;
    world_open(&world, 1);
    int cached = 0;
    for (int i = 0; i < 200; i++) {
        dt_signature_t signature = allreduce_of(i);
        agree(&world, "x", &signature);
        cached += agree(&world, "x", &signature)->id != DT_ID_NONE;
    }
    assert_in_range(cached, 1, 100);
    world_close(&world);
}

static void test_negotiator_out_of_memory_is_an_error_and_no_leak(void **state)
{
    (void)state;
    dt_signature_t signature = allreduce_of(3), other = allreduce_of(4);
    int before = memory_live();
    for (int n = 1, failed = 1; failed; n++) {
        negotiator_world_t world;
        world_open(&world, 2);
        dt_buffer_extend(&world.report, 4000);
        memory_fail_at(n);
        dtrain_status_t status = try_new(&world, 0, "x", &signature);
        if (status == DTRAIN_OK)
            status = try_new(&world, 1, "x", &other);
        failed = memory_has_failed();
        memory_fail_at(0);
        assert_int_equal(status, failed ? DTRAIN_ERR_OUT_OF_MEMORY : DTRAIN_OK);
        world_close(&world);
        assert_int_equal(memory_live(), before);
    }
    for (int n = 1; n <= 5; n++) {
        negotiator_world_t world;
        world_open(&world, 2);
        dt_negotiator_t *first = world.negotiator;
        memory_fail_at(n);
        world.negotiator = dt_negotiator_create(&world.joined.topology, &world.psets);
        memory_fail_at(0);
        assert_null(world.negotiator);
        dt_negotiator_free(first);
        world_close(&world);
        assert_int_equal(memory_live(), before);
    }
}

/* ---- Warnings
 * ------------------------------------------------------------------------------------------ */

typedef struct lines {
    int count;
    char last[2048];
} lines_t;

static void count_line(dtrain_log_level_t level, const char *line, void *user)
{
    lines_t *lines = user;
    assert_int_equal(level, DTRAIN_LOG_WARN);
    lines->count++;
    snprintf(lines->last, sizeof lines->last, "%s", line);
}

/* Whom it warns of is `missing`, until the next call. */
static dt_rank_set_t missing;

static int64_t warn(negotiator_world_t *world, int64_t after_ns, int64_t now_ns)
{
    dt_rank_set_free(&missing);
    assert_int_equal(dt_rank_set_init(&missing, world->topology.size), 0);
    return dt_negotiator_warn(world->negotiator, after_ns, now_ns, &missing);
}

static void test_negotiator_warns_ever_more_seldom_of_the_missing(void **state)
{
    (void)state;
    negotiator_world_t world;
    lines_t lines = {0};
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 4);
    dt_log_set_sink(count_line, &lines);
    int64_t start = world.now_ns, after = 2 * DT_NS_PER_S;
    assert_true(warn(&world, after, start) == DT_NEVER);
    report_new(&world, 1, "x", &signature);
    assert_true(warn(&world, after, start) == start + after);
    assert_true(warn(&world, after, start + after - 1) == start + after);
    assert_int_equal(lines.count, 0);
    assert_true(warn(&world, after, start + after) == start + 2 * after);
    assert_int_equal(lines.count, 1);
    assert_non_null(strstr(lines.last, "allreduce 'x' float32 [3] waits since 2.0 s"));
    assert_non_null(strstr(lines.last, "for ranks 0, 2-3 (of 4); submitted by rank 1"));
    report_new(&world, 3, "x", &signature);
    assert_true(warn(&world, after, start + 2 * after) == start + 4 * after);
    assert_int_equal(lines.count, 2);
    assert_non_null(strstr(lines.last, "for ranks 0, 2 (of 4); submitted by ranks 1, 3"));
    assert_int_equal(missing.count, 2);
    assert_true(dt_rank_set_has(&missing, 0) && dt_rank_set_has(&missing, 2));
    report_new(&world, 0, "x", &signature);
    report_new(&world, 2, "x", &signature);
    assert_true(warn(&world, after, start + 9 * after) == DT_NEVER);
    assert_int_equal(lines.count, 2);
    dt_log_set_sink(NULL, NULL);
    dt_rank_set_free(&missing);
    world_close(&world);
}

static void test_negotiator_warns_anew_in_each_round_of_a_name(void **state)
{
    (void)state;
    negotiator_world_t world;
    lines_t lines = {0};
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    dt_log_set_sink(count_line, &lines);
    for (int round = 0; round < 4; round++) {
        if (round < 2)
            report_new(&world, 0, "x", &signature);
        else
            report_ready(&world, 0, 0);
        int64_t since = world.now_ns;
        assert_true(warn(&world, 100, since + 100) == since + 200);
        assert_int_equal(lines.count, round + 1);
        if (round < 2)
            report_new(&world, 1, "x", &signature);
        else
            report_ready(&world, 1, 0);
        take_one(&world);
        world.now_ns += 5000;
    }
    dt_log_set_sink(NULL, NULL);
    dt_rank_set_free(&missing);
    world_close(&world);
}

static void test_negotiator_of_many_that_wait_names_some(void **state)
{
    (void)state;
    negotiator_world_t world;
    lines_t lines = {0};
    char name[16];
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    dt_log_set_sink(count_line, &lines);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "x%d", i);
        report_new(&world, 0, name, &signature);
    }
    warn(&world, 100, world.now_ns + 100);
    assert_int_equal(lines.count, 17);
    assert_non_null(strstr(lines.last, "84 more operations wait"));
    assert_int_equal(missing.count, 1);
    dt_log_set_sink(NULL, NULL);
    dt_rank_set_free(&missing);
    world_close(&world);
}

static void test_negotiator_does_not_warn_when_told_not_to(void **state)
{
    (void)state;
    negotiator_world_t world;
    lines_t lines = {0};
    dt_signature_t signature = allreduce_of(3);
    world_open(&world, 2);
    dt_log_set_sink(count_line, &lines);
    report_new(&world, 0, "x", &signature);
    assert_true(warn(&world, DT_NEVER, INT64_MAX) == DT_NEVER);
    assert_int_equal(lines.count, 0);
    dt_log_set_sink(NULL, NULL);
    dt_rank_set_free(&missing);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negotiator_decides_when_the_last_rank_has_reported),
        cmocka_unit_test(test_negotiator_world_of_one_decides_at_once),
        cmocka_unit_test(test_negotiator_order_is_that_of_completion),
        cmocka_unit_test(test_negotiator_gives_an_id_the_second_time),
        cmocka_unit_test(test_negotiator_takes_bits_for_what_has_an_id),
        cmocka_unit_test(test_negotiator_takes_many_bits_of_one_report),
        cmocka_unit_test(test_negotiator_caches_each_signature_of_a_name),
        cmocka_unit_test(test_negotiator_names_that_come_once_leave_nothing),
        cmocka_unit_test(test_negotiator_shape_that_changes_always_leaves_nothing),
        cmocka_unit_test(test_negotiator_bounds_the_signatures_it_caches_of_a_name),
        cmocka_unit_test(test_negotiator_out_of_memory_is_an_error_and_no_leak),
        cmocka_unit_test(test_negotiator_warns_ever_more_seldom_of_the_missing),
        cmocka_unit_test(test_negotiator_warns_anew_in_each_round_of_a_name),
        cmocka_unit_test(test_negotiator_of_many_that_wait_names_some),
        cmocka_unit_test(test_negotiator_does_not_warn_when_told_not_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
