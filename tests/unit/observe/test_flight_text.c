#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "observe/flight_text.h"

static dt_flight_board_t *board;
static dt_flight_t flight;

static int set_up(void **state)
{
    (void)state;
    board = aligned_alloc(64, sizeof *board);
    if (!board)
        return -1;
    memset(board, 0, sizeof *board);
    dt_flight_init(&flight, board);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(board);
    return 0;
}

static const char *kind_name(uint8_t kind)
{
    return kind == 1 ? "allreduce" : "broadcast";
}

static dt_flight_ref_t submit(const char *name, uint8_t kind, int32_t set, double at_s)
{
    dt_flight_operation_t operation = {
        .name = name, .length = strlen(name), .kind = kind, .set = set};
    dt_flight_at(&flight, (int64_t)(at_s * DT_NS_PER_S));
    return dt_flight_submit(&flight, &operation);
}

static void expect_last(double now_s, const char *wanted)
{
    char text[256];
    size_t length = dt_flight_describe_last(board, (int64_t)(now_s * DT_NS_PER_S), kind_name, text,
                                            sizeof text);
    assert_string_equal(text, wanted);
    assert_int_equal(length, strlen(text));
}

static void test_flight_text_of_rank_that_did_nothing_is_empty(void **state)
{
    (void)state;
    expect_last(1, "");
}

static void test_flight_text_names_what_has_come_furthest(void **state)
{
    (void)state;
    dt_flight_ref_t first = submit("w0", 1, 0, 10);
    expect_last(11, "waiting for other ranks in allreduce 'w0' (its operation 1; 1 unfinished)");
    dt_flight_ref_t second = submit("w1", 2, 3, 10);
    dt_flight_agree(&flight, second, 1);
    expect_last(11, "about to start broadcast 'w1' of process set 3 (its operation 2; 2 "
                    "unfinished)");
    dt_flight_start(&flight, second);
    expect_last(11, "in broadcast 'w1' of process set 3 (its operation 2; 2 unfinished)");
    dt_flight_at(&flight, 12 * DT_NS_PER_S);
    dt_flight_finish(&flight, second, DTRAIN_OK);
    expect_last(13.5, "waiting for other ranks in allreduce 'w0' (its operation 1; 1 unfinished), "
                      "and had finished broadcast 'w1' of process set 3 1.5 s ago");
    dt_flight_at(&flight, 14 * DT_NS_PER_S);
    dt_flight_finish(&flight, first, DTRAIN_OK);
    expect_last(14, "outside of all operations, and had finished allreduce 'w0' 0 s ago");
}

static void test_flight_text_of_later_time_than_now_is_zero_ago(void **state)
{
    (void)state;
    dt_flight_finish(&flight, submit("w", 1, 0, 10), DTRAIN_OK);
    expect_last(9, "outside of all operations, and had finished allreduce 'w' 0 s ago");
}

static void test_flight_text_of_strange_name_is_printable(void **state)
{
    (void)state;
    submit("a\nb\x7f\x1b", 1, 0, 1);
    expect_last(1, "waiting for other ranks in allreduce 'a?b?\?' (its operation 1; 1 unfinished)");
}

static void test_flight_text_without_room_is_cut(void **state)
{
    (void)state;
    char text[40];
    dt_flight_finish(&flight, submit("w", 1, 0, 1), DTRAIN_OK);
    submit("a name that is quite long", 1, 0, 1);
    size_t length = dt_flight_describe_last(board, DT_NS_PER_S, kind_name, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_true(length < sizeof text);
    assert_memory_equal(text, "waiting for other ranks", 23);
}

static void expect_position(double now_s, const char *wanted)
{
    char text[512];
    dt_flight_position_t position;
    dt_flight_read_position(board, &position);
    size_t length = dt_flight_describe_position(&position, (int64_t)(now_s * DT_NS_PER_S),
                                                kind_name, text, sizeof text);
    assert_string_equal(text, wanted);
    assert_int_equal(length, strlen(text));
}

static void test_flight_text_of_position_has_each_stage(void **state)
{
    (void)state;
    expect_position(1, "has submitted nothing yet");
    dt_flight_ref_t ref = submit("a", 1, 0, 10);
    dt_flight_agree(&flight, ref, 1);
    submit("b", 2, 0, 12);
    expect_position(12.5, "last submitted broadcast 'b' 0.5 s ago, agreed allreduce 'a' 2.5 s ago, "
                          "started nothing, finished nothing; 2 unfinished");
    dt_flight_finish(&flight, ref, DTRAIN_OK);
    expect_position(13, "last submitted broadcast 'b' 1 s ago, agreed allreduce 'a' 3 s ago, "
                        "started allreduce 'a' 1 s ago, finished allreduce 'a' 1 s ago; 1 "
                        "unfinished");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flight_text_of_rank_that_did_nothing_is_empty, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_flight_text_names_what_has_come_furthest, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_flight_text_of_later_time_than_now_is_zero_ago, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_flight_text_of_strange_name_is_printable, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_flight_text_without_room_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_flight_text_of_position_has_each_stage, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
