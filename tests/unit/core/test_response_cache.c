#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "core/response_cache.h"
#include "core/wire.h"
#include "failing_memory.h"

static dt_signature_t of_count(int64_t count)
{
    dt_signature_t signature = {.kind = DT_KIND_ALLREDUCE, .ndim = 1, .shape = {count}};
    return signature;
}

static void test_response_cache_makes_a_name_once(void **state)
{
    (void)state;
    dt_response_cache_t cache = {0};
    assert_null(dt_response_cache_find(&cache, "x", 1));
    dt_name_t *name = dt_response_cache_get(&cache, "xyz", 1);
    assert_non_null(name);
    assert_string_equal(name->text, "x");
    assert_int_equal(name->length, 1);
    assert_null(name->in_flight);
    assert_ptr_equal(dt_response_cache_get(&cache, "x", 1), name);
    assert_ptr_equal(dt_response_cache_find(&cache, "x", 1), name);
    assert_null(dt_response_cache_find(&cache, "xy", 2));
    dt_response_cache_free(&cache);
}

static void test_response_cache_finds_ids_by_name_and_signature(void **state)
{
    (void)state;
    dt_response_cache_t cache = {0};
    dt_signature_t a = of_count(1), b = of_count(2), c = of_count(3);
    dt_name_t *x = dt_response_cache_get(&cache, "x", 1);
    dt_name_t *y = dt_response_cache_get(&cache, "y", 1);
    assert_true(dt_response_cache_id(x, &a) == DT_ID_NONE);
    assert_int_equal(dt_response_cache_learn(x, &a, 5), 0);
    assert_int_equal(dt_response_cache_learn(x, &b, 7), 0);
    assert_int_equal(dt_response_cache_learn(y, &a, 6), 0);
    assert_int_equal(dt_response_cache_id(x, &a), 5);
    assert_int_equal(dt_response_cache_id(x, &b), 7);
    assert_int_equal(dt_response_cache_id(y, &a), 6);
    assert_true(dt_response_cache_id(x, &c) == DT_ID_NONE);
    assert_true(dt_response_cache_id(y, &b) == DT_ID_NONE);
    dt_response_cache_free(&cache);
}

static void test_response_cache_grows_with_its_ids(void **state)
{
    (void)state;
    enum { NUM = 3000 };
    dt_response_cache_t cache = {0};
    dt_signature_t signature = of_count(1);
    for (uint32_t i = 0; i < NUM; i++) {
        char text[32];
        int length = snprintf(text, sizeof text, "n%u", i);
        dt_name_t *name = dt_response_cache_get(&cache, text, (size_t)length);
        assert_int_equal(dt_response_cache_learn(name, &signature, i * 5), 0);
    }
    for (uint32_t i = 0; i < NUM; i++) {
        char text[32];
        snprintf(text, sizeof text, "n%u", i);
        const dt_name_t *name = dt_response_cache_find(&cache, text, strlen(text));
        assert_int_equal(dt_response_cache_id(name, &signature), i * 5);
    }
    dt_response_cache_free(&cache);
}

static void test_response_cache_drops_what_is_idle_and_has_no_id(void **state)
{
    (void)state;
    dt_response_cache_t cache = {0};
    dt_signature_t signature = of_count(1);
    dt_operation_t operation;
    dt_name_t *flying = dt_response_cache_get(&cache, "flying", 6);
    dt_name_t *cached = dt_response_cache_get(&cache, "cached", 6);
    int before = memory_live();
    dt_name_t *idle = dt_response_cache_get(&cache, "idle", 4);
    flying->in_flight = &operation;
    assert_int_equal(dt_response_cache_learn(cached, &signature, 0), 0);
    dt_response_cache_drop(&cache, idle);
    dt_response_cache_drop(&cache, cached);
    dt_response_cache_drop(&cache, flying);
    assert_null(dt_response_cache_find(&cache, "idle", 4));
    assert_ptr_equal(dt_response_cache_find(&cache, "cached", 6), cached);
    assert_ptr_equal(dt_response_cache_find(&cache, "flying", 6), flying);
    flying->in_flight = NULL;
    dt_response_cache_drop(&cache, flying);
    assert_null(dt_response_cache_find(&cache, "flying", 6));
    assert_true(memory_live() <= before); /* a name more went than came, and two lists came */
    dt_response_cache_free(&cache);
}

static void test_response_cache_out_of_memory_leaves_it_usable(void **state)
{
    (void)state;
    dt_signature_t signature = of_count(1);
    int before = memory_live();
    for (int n = 1, failed = 1; failed; n++) {
        dt_response_cache_t cache = {0};
        memory_fail_at(n);
        dt_name_t *name = dt_response_cache_get(&cache, "x", 1);
        int learned = name ? dt_response_cache_learn(name, &signature, 3) : -1;
        failed = memory_has_failed();
        memory_fail_at(0);
        assert_int_equal(learned, failed ? -1 : 0);
        if (name && failed)
            assert_true(dt_response_cache_id(name, &signature) == DT_ID_NONE);
        name = dt_response_cache_get(&cache, "x", 1);
        assert_non_null(name);
        if (failed)
            assert_int_equal(dt_response_cache_learn(name, &signature, 3), 0);
        assert_int_equal(dt_response_cache_id(name, &signature), 3);
        dt_response_cache_free(&cache);
        assert_int_equal(memory_live(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_response_cache_makes_a_name_once),
        cmocka_unit_test(test_response_cache_finds_ids_by_name_and_signature),
        cmocka_unit_test(test_response_cache_grows_with_its_ids),
        cmocka_unit_test(test_response_cache_drops_what_is_idle_and_has_no_id),
        cmocka_unit_test(test_response_cache_out_of_memory_leaves_it_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
