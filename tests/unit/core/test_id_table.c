#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/id_table.h"
#include "core/wire.h"
#include "failing_memory.h"

static void test_id_table_finds_what_was_entered_until_it_is_cleared(void **state)
{
    (void)state;
    dt_id_table_t table = {0};
    dt_operation_t a = {.id = 3}, b = {.id = 70000};
    assert_null(dt_id_table_get(&table, 3));
    assert_int_equal(dt_id_table_set(&table, &a), 0);
    assert_int_equal(dt_id_table_set(&table, &b), 0);
    assert_ptr_equal(dt_id_table_get(&table, 3), &a);
    assert_ptr_equal(dt_id_table_get(&table, 70000), &b);
    assert_null(dt_id_table_get(&table, 4));
    assert_null(dt_id_table_get(&table, UINT32_MAX));
    dt_id_table_clear(&table, &a);
    assert_null(dt_id_table_get(&table, 3));
    assert_ptr_equal(dt_id_table_get(&table, 70000), &b);
    dt_id_table_free(&table);
}

static void test_id_table_operation_without_id_is_never_in_it(void **state)
{
    (void)state;
    dt_id_table_t table = {0};
    dt_operation_t none = {.id = DT_ID_NONE};
    int before = memory_live();
    assert_int_equal(dt_id_table_set(&table, &none), 0);
    assert_int_equal(memory_live(), before);
    assert_null(dt_id_table_get(&table, DT_ID_NONE));
    dt_id_table_clear(&table, &none);
    dt_id_table_free(&table);
}

static void test_id_table_clearing_leaves_another_operation_of_that_id(void **state)
{
    (void)state;
    dt_id_table_t table = {0};
    dt_operation_t old = {.id = 1}, now = {.id = 1};
    assert_int_equal(dt_id_table_set(&table, &now), 0);
    dt_id_table_clear(&table, &old);
    assert_ptr_equal(dt_id_table_get(&table, 1), &now);
    dt_id_table_free(&table);
}

static void test_id_table_out_of_memory_keeps_what_is_in_it(void **state)
{
    (void)state;
    dt_id_table_t table = {0};
    dt_operation_t low = {.id = 1}, high = {.id = 100000};
    assert_int_equal(dt_id_table_set(&table, &low), 0);
    memory_fail_at(1);
    assert_int_equal(dt_id_table_set(&table, &high), -1);
    memory_fail_at(0);
    assert_ptr_equal(dt_id_table_get(&table, 1), &low);
    assert_null(dt_id_table_get(&table, 100000));
    dt_id_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_id_table_finds_what_was_entered_until_it_is_cleared),
        cmocka_unit_test(test_id_table_operation_without_id_is_never_in_it),
        cmocka_unit_test(test_id_table_clearing_leaves_another_operation_of_that_id),
        cmocka_unit_test(test_id_table_out_of_memory_keeps_what_is_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
