#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

static void test_memory_calloc_gives_zeros(void **state)
{
    (void)state;
    unsigned char *bytes = dt_calloc(100, 10);
    assert_non_null(bytes);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(bytes[i], 0);
    dt_free(bytes);
}

static void test_memory_aligned_is_aligned(void **state)
{
    (void)state;
    for (size_t align = 1; align <= 4096; align *= 2) {
        char *bytes = dt_alloc_aligned(align, 100);
        assert_non_null(bytes);
        assert_int_equal((uintptr_t)bytes % align, 0);
        memset(bytes, 1, 100);
        dt_free(bytes);
    }
}

static void test_memory_realloc_keeps_the_content(void **state)
{
    (void)state;
    char *text = dt_alloc(4);
    assert_non_null(text);
    memcpy(text, "abc", 4);
    text = dt_realloc(text, 4000);
    assert_non_null(text);
    assert_string_equal(text, "abc");
    dt_free(text);
    dt_free(NULL);
}

static void test_memory_strdup_is_a_copy(void **state)
{
    (void)state;
    char text[] = "gradient";
    char *copy = dt_strdup(text);
    assert_non_null(copy);
    text[0] = 'x';
    assert_string_equal(copy, "gradient");
    dt_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_calloc_gives_zeros),
        cmocka_unit_test(test_memory_aligned_is_aligned),
        cmocka_unit_test(test_memory_realloc_keeps_the_content),
        cmocka_unit_test(test_memory_strdup_is_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
