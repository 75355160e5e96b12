#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"

static void test_dtype_sizes_and_names_are_as_documented(void **state)
{
    (void)state;
    static const struct {
        dtrain_dtype_t dtype;
        size_t size;
        const char *name;
        int is_float;
    } expected[] = {
        {DTRAIN_DTYPE_U8, 1, "uint8", 0},    {DTRAIN_DTYPE_I8, 1, "int8", 0},
        {DTRAIN_DTYPE_I32, 4, "int32", 0},   {DTRAIN_DTYPE_I64, 8, "int64", 0},
        {DTRAIN_DTYPE_F16, 2, "float16", 1}, {DTRAIN_DTYPE_F32, 4, "float32", 1},
        {DTRAIN_DTYPE_F64, 8, "float64", 1}, {DTRAIN_DTYPE_BF16, 2, "bfloat16", 1},
        {DTRAIN_DTYPE_BOOL, 1, "bool", 0},   {DTRAIN_DTYPE_U16, 2, "uint16", 0},
        {DTRAIN_DTYPE_I16, 2, "int16", 0},
    };
    assert_int_equal(sizeof expected / sizeof expected[0], DT_DTYPE_COUNT - 1);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(dt_dtype_size(expected[i].dtype), expected[i].size);
        assert_string_equal(dt_dtype_name(expected[i].dtype), expected[i].name);
        assert_int_equal(dt_dtype_is_float(expected[i].dtype), expected[i].is_float);
    }
}

static void test_dtype_unknown_numbers_have_no_size(void **state)
{
    (void)state;
    static const int unknown[] = {0, DT_DTYPE_COUNT, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        dtrain_dtype_t dtype = (dtrain_dtype_t)unknown[i];
        assert_int_equal(dt_dtype_size(dtype), 0);
        assert_string_equal(dt_dtype_name(dtype), "unknown");
        assert_int_equal(dt_dtype_is_float(dtype), 0);
    }
}

static void test_op_names_are_as_documented(void **state)
{
    (void)state;
    assert_string_equal(dt_op_name(DTRAIN_OP_SUM), "sum");
    assert_string_equal(dt_op_name(DTRAIN_OP_AVERAGE), "average");
    assert_string_equal(dt_op_name(DTRAIN_OP_MIN), "min");
    assert_string_equal(dt_op_name(DTRAIN_OP_MAX), "max");
    assert_string_equal(dt_op_name(DTRAIN_OP_PRODUCT), "product");
    assert_string_equal(dt_op_name(DTRAIN_OP_ADASUM), "adasum");
    assert_string_equal(dt_op_name((dtrain_op_t)(DTRAIN_OP_ADASUM + 1)), "unknown");
    assert_string_equal(dt_op_name((dtrain_op_t)-1), "unknown");
}

static void test_device_names_say_whose_memory_it_is(void **state)
{
    (void)state;
    assert_string_equal(dt_device_name(DTRAIN_DEVICE_CPU), "host");
    assert_string_equal(dt_device_name(DTRAIN_DEVICE_CUDA), "GPU");
    assert_string_equal(dt_device_name(2), "unknown");
    assert_string_equal(dt_device_name(-1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_sizes_and_names_are_as_documented),
        cmocka_unit_test(test_dtype_unknown_numbers_have_no_size),
        cmocka_unit_test(test_op_names_are_as_documented),
        cmocka_unit_test(test_device_names_say_whose_memory_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
