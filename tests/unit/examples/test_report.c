/* The result line is JSON, whatever the numbers are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report.h"

static void check_line(const result_t *result, const char *expected)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    report_result(out, result);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static void test_report_result_is_one_line_of_json(void **state)
{
    (void)state;
    timing_t timing = {.steps = 4, .samples = 100, .total = 2.0, .comm = 0.5, .exposed = 0.25};
    result_t result = {.ranks = 2,
                       .epochs = 3,
                       .test_accuracy = 0.8875,
                       .train_loss = 0.25,
                       .timing = timing,
                       .buckets = 2,
                       .gradient_bytes = 100000000,
                       .param_checksum = 0xabc};
    check_line(&result, "RESULT {\"ranks\":2,\"epochs\":3,\"test_accuracy\":0.8875,"
                        "\"train_loss\":0.25,\"samples_per_s\":50,\"step_ms\":500,"
                        "\"comm_ms\":125,\"exposed_comm_ms\":62.5,"
                        "\"overlap\":0.5,\"bus_gb_per_s\":0.8,"
                        "\"buckets\":2,\"gradient_bytes\":100000000,"
                        "\"param_checksum\":\"0000000000000abc\"}\n");
}

static void test_report_numbers_that_are_not_finite_become_null(void **state)
{
    (void)state;
    result_t result = {.ranks = 1, .test_accuracy = NAN, .train_loss = INFINITY};
    check_line(&result, "RESULT {\"ranks\":1,\"epochs\":0,\"test_accuracy\":null,"
                        "\"train_loss\":null,\"samples_per_s\":null,\"step_ms\":null,"
                        "\"comm_ms\":null,\"exposed_comm_ms\":null,"
                        "\"overlap\":0,\"bus_gb_per_s\":0,"
                        "\"buckets\":0,\"gradient_bytes\":0,"
                        "\"param_checksum\":\"0000000000000000\"}\n");
}

static void test_report_timing_adds_up(void **state)
{
    (void)state;
    timing_t sum = {.steps = 1, .samples = 2, .total = 3.0, .comm = 4.0, .exposed = 5.0};
    timing_add(&sum, &(timing_t){.steps = 1, .samples = 1, .total = 1, .comm = 1, .exposed = 1});
    assert_int_equal(sum.steps, 2);
    assert_int_equal(sum.samples, 3);
    assert_float_equal(sum.total, 4.0, 0.0);
    assert_float_equal(sum.comm, 5.0, 0.0);
    assert_float_equal(sum.exposed, 6.0, 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report_result_is_one_line_of_json),
        cmocka_unit_test(test_report_numbers_that_are_not_finite_become_null),
        cmocka_unit_test(test_report_timing_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
