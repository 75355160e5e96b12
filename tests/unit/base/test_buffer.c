#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/memory.h"

static int memory_is_out;

/* The names that the linker's --wrap wants. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_dt_realloc(void *old, size_t bytes);
void *__wrap_dt_realloc(void *old, size_t bytes);
/* NOLINTEND(bugprone-reserved-identifier) */

void *__wrap_dt_realloc(void *old, size_t bytes)
{
    return memory_is_out ? NULL : __real_dt_realloc(old, bytes);
}

static int teardown(void **state)
{
    (void)state;
    memory_is_out = 0;
    return 0;
}

static void test_buffer_many_appends_keep_all_bytes(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    for (int i = 0; i < 5000; i++) {
        uint8_t bytes[3] = {(uint8_t)i, (uint8_t)(i >> 8), 7};
        dt_buffer_append(&buffer, bytes, sizeof bytes);
    }
    assert_int_equal(buffer.failed, 0);
    assert_int_equal(buffer.length, 15000);
    assert_true(buffer.capacity >= buffer.length);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(buffer.data[3 * i], (uint8_t)i);
        assert_int_equal(buffer.data[3 * i + 1], (uint8_t)(i >> 8));
        assert_int_equal(buffer.data[3 * i + 2], 7);
    }
    dt_buffer_free(&buffer);
    assert_null(buffer.data);
    assert_int_equal(buffer.capacity, 0);
}

static void test_buffer_append_of_nothing_changes_nothing(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    dt_buffer_append(&buffer, NULL, 0);
    assert_int_equal(buffer.length, 0);
    assert_int_equal(buffer.failed, 0);
    assert_non_null(dt_buffer_extend(&buffer, 0));
    dt_buffer_free(&buffer);
}

static void test_buffer_extend_returns_the_old_end(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    dt_buffer_append(&buffer, "abc", 3);
    void *end = dt_buffer_extend(&buffer, 1000);
    assert_ptr_equal(end, buffer.data + 3);
    assert_int_equal(buffer.length, 1003);
    assert_memory_equal(buffer.data, "abc", 3);
    dt_buffer_free(&buffer);
}

static void test_buffer_clear_keeps_the_memory(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    dt_buffer_append(&buffer, "abc", 3);
    uint8_t *data = buffer.data;
    dt_buffer_clear(&buffer);
    assert_int_equal(buffer.length, 0);
    dt_buffer_append(&buffer, "de", 2);
    assert_ptr_equal(buffer.data, data);
    assert_memory_equal(buffer.data, "de", 2);
    dt_buffer_free(&buffer);
}

static void test_buffer_without_memory_keeps_its_content_and_says_so(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    dt_buffer_append(&buffer, "abc", 3);
    memory_is_out = 1;
    assert_null(dt_buffer_extend(&buffer, 100000));
    memory_is_out = 0;
    dt_buffer_append(&buffer, "d", 1); /* would leave a gap where the failed bytes should be */
    assert_int_equal(buffer.failed, 1);
    assert_int_equal(buffer.length, 3);
    assert_memory_equal(buffer.data, "abc", 3);
    dt_buffer_clear(&buffer);
    assert_int_equal(buffer.failed, 0);
    dt_buffer_free(&buffer);
}

static void test_buffer_length_that_overflows_fails(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    dt_buffer_append(&buffer, "abc", 3);
    assert_null(dt_buffer_extend(&buffer, SIZE_MAX - 1));
    assert_int_equal(buffer.failed, 1);
    dt_buffer_free(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffer_many_appends_keep_all_bytes),
        cmocka_unit_test(test_buffer_append_of_nothing_changes_nothing),
        cmocka_unit_test(test_buffer_extend_returns_the_old_end),
        cmocka_unit_test(test_buffer_clear_keeps_the_memory),
        cmocka_unit_test_teardown(test_buffer_without_memory_keeps_its_content_and_says_so,
                                  teardown),
        cmocka_unit_test(test_buffer_length_that_overflows_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
