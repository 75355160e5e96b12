#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"

static void test_text_format_that_fits_is_whole(void **state)
{
    (void)state;
    char text[8];
    assert_int_equal(dt_text_format(text, sizeof text, "%s", "1234567"), 7);
    assert_string_equal(text, "1234567");
}

static void test_text_format_that_is_too_long_ends_in_dots(void **state)
{
    (void)state;
    char text[8];
    assert_int_equal(dt_text_format(text, sizeof text, "%s", "12345678"), 7);
    assert_string_equal(text, "1234...");
}

static void test_text_format_never_cuts_a_character(void **state)
{
    (void)state;
    char text[9];
    /* Three characters of three bytes: the cut would fall inside the second. */
    assert_int_equal(
        dt_text_format(text, sizeof text, "%s", "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"), 6);
    assert_string_equal(text, "\xE2\x82\xAC...");
}

static void test_text_distance_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(dt_text_distance("", ""), 0);
    assert_int_equal(dt_text_distance("timeout", "timeout"), 0);
    assert_int_equal(dt_text_distance("timeout", "TIMEOUT"), 0);
    assert_int_equal(dt_text_distance("timeout", ""), 7);
    assert_int_equal(dt_text_distance("", "abc"), 3);
    assert_int_equal(dt_text_distance("timeout", "timout"), 1);
    assert_int_equal(dt_text_distance("timout", "timeout"), 1);
    assert_int_equal(dt_text_distance("kitten", "sitting"), 3);
}

static void test_text_distance_of_endless_names_is_bounded(void **state)
{
    (void)state;
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(dt_text_distance(name, "y"), 63);
    assert_int_equal(dt_text_distance("y", name), 63);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_format_that_fits_is_whole),
        cmocka_unit_test(test_text_format_that_is_too_long_ends_in_dots),
        cmocka_unit_test(test_text_format_never_cuts_a_character),
        cmocka_unit_test(test_text_distance_counts_edits),
        cmocka_unit_test(test_text_distance_of_endless_names_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
