#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "observe/flight_lines.h"

static const char *kind_name(uint8_t kind)
{
    return kind == 1 ? "allreduce" : "barrier";
}

static void expect_quoted(const char *text, const char *wanted)
{
    char quoted[64];
    size_t length = dt_flight_quote(text, quoted, sizeof quoted);
    assert_string_equal(quoted, wanted);
    assert_int_equal(length, strlen(wanted));
}

static void test_flight_lines_strings_are_valid_json(void **state)
{
    (void)state;
    expect_quoted("", "\"\"");
    expect_quoted("grad.12/w", "\"grad.12/w\"");
    expect_quoted("a\"b\\c", "\"a\\\"b\\\\c\"");
    expect_quoted("a\nb\x01\x7f", "\"a\\u000ab\\u0001\\u007f\"");
    expect_quoted("sch\xc3\xb6n \xe2\x82\xac \xf0\x9f\x98\x80",
                  "\"sch\xc3\xb6n \xe2\x82\xac \xf0\x9f\x98\x80\"");
}

static void test_flight_lines_what_is_no_utf8_is_replaced(void **state)
{
    (void)state;
    expect_quoted("a\xff", "\"a?\"");
    expect_quoted("\xc3", "\"?\"");                /* cut */
    expect_quoted("\xc0\x80", "\"??\"");           /* overlong */
    expect_quoted("\xe0\x80\x80", "\"???\"");      /* overlong */
    expect_quoted("\xed\xa0\x80", "\"???\"");      /* a surrogate */
    expect_quoted("\xf4\x90\x80\x80", "\"????\""); /* beyond the last */
    expect_quoted("\xc3\xb6\xb6", "\"\xc3\xb6?\"");
}

static void test_flight_lines_string_without_room_is_cut_between_characters(void **state)
{
    (void)state;
    char quoted[8];
    assert_int_equal(dt_flight_quote("abcdefghij", quoted, sizeof quoted), 7);
    assert_string_equal(quoted, "\"abcde\"");
    dt_flight_quote("abcd\xc3\xb6", quoted, sizeof quoted);
    assert_string_equal(quoted, "\"abcd\"");
    dt_flight_quote("abcd\n", quoted, sizeof quoted);
    assert_string_equal(quoted, "\"abcd\"");
}

static void test_flight_lines_record_has_all_there_is(void **state)
{
    (void)state;
    char line[DT_FLIGHT_LINE_MAX + 1];
    dt_flight_record_t record = {.number = 7,
                                 .times_ns = {10, 20, 0, 0},
                                 .count = 1000,
                                 .place = 5,
                                 .set = 2,
                                 .status = DTRAIN_IN_PROGRESS,
                                 .kind = 1,
                                 .dtype = DTRAIN_DTYPE_F32,
                                 .name = "w"};
    size_t length = dt_flight_record_line(3, &record, 1000, kind_name, line);
    assert_string_equal(
        line, "{\"type\":\"op\",\"rank\":3,\"number\":7,\"kind\":\"allreduce\",\"name\":\"w\","
              "\"set\":2,\"dtype\":\"float32\",\"count\":1000,\"place\":5,\"status\":1,"
              "\"state\":\"in progress\",\"submitted_ns\":1010,\"agreed_ns\":1020,"
              "\"started_ns\":null,\"finished_ns\":null}");
    assert_int_equal(length, strlen(line));
}

static void test_flight_lines_longest_record_fits(void **state)
{
    (void)state;
    char line[DT_FLIGHT_LINE_MAX + 1];
    dt_flight_record_t record = {.number = UINT64_MAX,
                                 .times_ns = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
                                 .count = INT64_MIN,
                                 .place = UINT64_MAX,
                                 .set = INT32_MIN,
                                 .status = DTRAIN_ERR_MISMATCH,
                                 .kind = 255,
                                 .dtype = DTRAIN_DTYPE_BF16};
    memset(record.name, '\n', sizeof record.name - 1);
    size_t length = dt_flight_record_line(INT32_MIN, &record, 0, kind_name, line);
    assert_int_equal(length, strlen(line));
    assert_true(length < DT_FLIGHT_LINE_MAX);
    assert_int_equal(line[length - 1], '}');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flight_lines_strings_are_valid_json),
        cmocka_unit_test(test_flight_lines_what_is_no_utf8_is_replaced),
        cmocka_unit_test(test_flight_lines_string_without_room_is_cut_between_characters),
        cmocka_unit_test(test_flight_lines_record_has_all_there_is),
        cmocka_unit_test(test_flight_lines_longest_record_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
