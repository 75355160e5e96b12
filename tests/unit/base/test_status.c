#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "base/status.h"

#define LAST_STATUS DTRAIN_ERR_FILE

static void test_status_texts_are_all_distinct(void **state)
{
    (void)state;
    for (int a = LAST_STATUS; a <= DTRAIN_IN_PROGRESS; a++) {
        const char *text = dt_status_string((dtrain_status_t)a);
        assert_string_not_equal(text, "unknown status");
        assert_true(text[0] != '\0');
        for (int b = LAST_STATUS; b < a; b++)
            assert_string_not_equal(text, dt_status_string((dtrain_status_t)b));
    }
}

static void test_status_unknown_number_has_a_text(void **state)
{
    (void)state;
    assert_string_equal(dt_status_string((dtrain_status_t)2), "unknown status");
    assert_string_equal(dt_status_string((dtrain_status_t)(LAST_STATUS - 1)), "unknown status");
    assert_string_equal(dt_status_string((dtrain_status_t)INT32_MIN), "unknown status");
}

static void test_status_fail_stores_text_and_returns_status(void **state)
{
    (void)state;
    assert_int_equal(dt_fail(DTRAIN_ERR_TIMEOUT, "tensor '%s' after %d ms", "w", 5),
                     DTRAIN_ERR_TIMEOUT);
    assert_string_equal(dt_last_error(), "tensor 'w' after 5 ms");
}

static void test_status_fail_may_quote_the_last_error(void **state)
{
    (void)state;
    dt_fail(DTRAIN_ERR_CONFIG, "inner");
    dt_fail(DTRAIN_ERR_CONFIG, "outer: %s", dt_last_error());
    assert_string_equal(dt_last_error(), "outer: inner");
}

static void test_status_long_text_is_cut_with_a_mark(void **state)
{
    (void)state;
    char name[2 * DT_ERROR_MAX];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    dt_fail(DTRAIN_ERR_MISMATCH, "%s", name);
    const char *text = dt_last_error();
    assert_int_equal(strlen(text), DT_ERROR_MAX - 1);
    assert_string_equal(text + DT_ERROR_MAX - 5, "x...");
}

typedef struct other {
    int was_empty;
    int is_own;
} other_t;

static void *fail_elsewhere(void *context)
{
    other_t *other = context;
    other->was_empty = dt_last_error()[0] == '\0';
    dt_fail(DTRAIN_ERR_INTERNAL, "of the other thread");
    other->is_own = strcmp(dt_last_error(), "of the other thread") == 0;
    return NULL;
}

static void test_status_last_error_is_per_thread(void **state)
{
    (void)state;
    pthread_t thread;
    other_t other = {0};
    dt_fail(DTRAIN_ERR_CONFIG, "of this thread");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(other.was_empty, 1);
    assert_int_equal(other.is_own, 1);
    assert_string_equal(dt_last_error(), "of this thread");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts_are_all_distinct),
        cmocka_unit_test(test_status_unknown_number_has_a_text),
        cmocka_unit_test(test_status_fail_stores_text_and_returns_status),
        cmocka_unit_test(test_status_fail_may_quote_the_last_error),
        cmocka_unit_test(test_status_long_text_is_cut_with_a_mark),
        cmocka_unit_test(test_status_last_error_is_per_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
