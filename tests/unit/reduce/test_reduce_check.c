#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/dtype.h"
#include "base/status.h"
#include "reduce/reduce.h"

static dt_reduction_t plain(dtrain_dtype_t dtype, dtrain_op_t op)
{
    return (dt_reduction_t){.dtype = dtype, .op = op, .divisor = 1, .prescale = 1, .postscale = 1};
}

static void assert_refused(const dt_reduction_t *reduction, dtrain_status_t status,
                           const char *word)
{
    assert_int_equal(dt_reduction_check(reduction), status);
    assert_non_null(strstr(dt_last_error(), word));
}

static void test_reduction_check_every_meaningful_combination_is_ok(void **state)
{
    (void)state;
    for (int dtype = 1; dtype < DT_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < DT_OP_COUNT; op++) {
            dt_reduction_t reduction = plain((dtrain_dtype_t)dtype, (dtrain_op_t)op);
            if (dtype == DTRAIN_DTYPE_BOOL && op == DTRAIN_OP_AVERAGE)
                continue;
            reduction.divisor = op == DTRAIN_OP_AVERAGE ? 3 : 1;
            reduction.prescale = dtype == DTRAIN_DTYPE_BOOL ? 1 : -0.5;
            assert_int_equal(dt_reduction_check(&reduction), DTRAIN_OK);
        }
    }
}

static void test_reduction_check_average_of_bool_is_unsupported(void **state)
{
    (void)state;
    dt_reduction_t reduction = plain(DTRAIN_DTYPE_BOOL, DTRAIN_OP_AVERAGE);
    assert_refused(&reduction, DTRAIN_ERR_UNSUPPORTED, "bool");
}

static void test_reduction_check_scaled_bool_is_unsupported(void **state)
{
    (void)state;
    dt_reduction_t reduction = plain(DTRAIN_DTYPE_BOOL, DTRAIN_OP_SUM);
    reduction.prescale = 0.5;
    assert_refused(&reduction, DTRAIN_ERR_UNSUPPORTED, "prescale 0.5");
    reduction.prescale = 1;
    reduction.postscale = 2;
    assert_refused(&reduction, DTRAIN_ERR_UNSUPPORTED, "postscale 2");
}

static void test_reduction_check_unknown_type_or_operation_is_refused_with_its_number(void **state)
{
    (void)state;
    dt_reduction_t reduction = plain((dtrain_dtype_t)0, DTRAIN_OP_SUM);
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "0");
    reduction = plain((dtrain_dtype_t)DT_DTYPE_COUNT, DTRAIN_OP_SUM);
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "12");
    reduction = plain(DTRAIN_DTYPE_F32, (dtrain_op_t)DT_OP_COUNT);
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "5");
    reduction = plain(DTRAIN_DTYPE_F32, (dtrain_op_t)-1);
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "-1");
}

static void test_reduction_check_scale_that_is_not_finite_is_refused(void **state)
{
    (void)state;
    dt_reduction_t reduction = plain(DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    reduction.prescale = NAN;
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "prescale");
    reduction.prescale = 1;
    reduction.postscale = -INFINITY;
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "postscale");
}

static void test_reduction_check_scale_beyond_float_is_for_doubles_and_integers_only(void **state)
{
    (void)state;
    dt_reduction_t reduction = plain(DTRAIN_DTYPE_BF16, DTRAIN_OP_SUM);
    reduction.prescale = 1e300;
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "1e+300");
    reduction.dtype = DTRAIN_DTYPE_F64;
    assert_int_equal(dt_reduction_check(&reduction), DTRAIN_OK);
    reduction.dtype = DTRAIN_DTYPE_I32;
    assert_int_equal(dt_reduction_check(&reduction), DTRAIN_OK);
}

static void test_reduction_check_divisor_without_average_is_refused(void **state)
{
    (void)state;
    dt_reduction_t reduction = plain(DTRAIN_DTYPE_F32, DTRAIN_OP_MAX);
    reduction.divisor = 2;
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "divisor 2");
    reduction = plain(DTRAIN_DTYPE_F32, DTRAIN_OP_AVERAGE);
    reduction.divisor = 0;
    assert_refused(&reduction, DTRAIN_ERR_INVALID_ARGUMENT, "divisor 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduction_check_every_meaningful_combination_is_ok),
        cmocka_unit_test(test_reduction_check_average_of_bool_is_unsupported),
        cmocka_unit_test(test_reduction_check_scaled_bool_is_unsupported),
        cmocka_unit_test(test_reduction_check_unknown_type_or_operation_is_refused_with_its_number),
        cmocka_unit_test(test_reduction_check_scale_that_is_not_finite_is_refused),
        cmocka_unit_test(test_reduction_check_scale_beyond_float_is_for_doubles_and_integers_only),
        cmocka_unit_test(test_reduction_check_divisor_without_average_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
