/* In which type, and with which factors, NCCL is asked to reduce. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/nccl/nccl_wire.h"

static dt_reduction_t reduction(dtrain_dtype_t dtype, dtrain_op_t op, int divisor)
{
    return (dt_reduction_t){
        .dtype = dtype, .op = op, .divisor = divisor, .prescale = 1, .postscale = 1};
}

static dt_nccl_wire_t wire(dtrain_dtype_t dtype, dtrain_op_t op, int divisor)
{
    dt_reduction_t asked = reduction(dtype, op, divisor);
    return dt_nccl_wire(&asked);
}

static void test_wire_plain_sum_needs_no_kernel(void **unused)
{
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_U8,  DTRAIN_DTYPE_I8,  DTRAIN_DTYPE_I32,
                                            DTRAIN_DTYPE_I64, DTRAIN_DTYPE_F16, DTRAIN_DTYPE_F32,
                                            DTRAIN_DTYPE_F64, DTRAIN_DTYPE_BF16};
    (void)unused;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        dt_nccl_wire_t plain = wire(dtypes[i], DTRAIN_OP_SUM, 1);
        assert_int_equal(plain.dtype, dtypes[i]);
        assert_int_equal(plain.op, ncclSum);
        assert_false(plain.packs || plain.unpacks);
    }
}

static void test_wire_average_divides_behind_but_for_fp16(void **unused)
{
    (void)unused;
    dt_nccl_wire_t single = wire(DTRAIN_DTYPE_F32, DTRAIN_OP_AVERAGE, 3);
    assert_int_equal(single.op, ncclSum);
    assert_true(single.before_divisor == 1 && single.behind_divisor == 3);
    assert_true(single.unpacks && !single.packs);
    dt_nccl_wire_t half = wire(DTRAIN_DTYPE_F16, DTRAIN_OP_AVERAGE, 3);
    assert_true(half.before_divisor == 3 && half.behind_divisor == 1);
    assert_true(half.packs && !half.unpacks);
}

static void test_wire_integers_that_are_averaged_travel_in_64_bits(void **unused)
{
    (void)unused;
    dt_nccl_wire_t small = wire(DTRAIN_DTYPE_I8, DTRAIN_OP_AVERAGE, 4);
    assert_int_equal(small.dtype, DTRAIN_DTYPE_I64);
    assert_int_equal(small.nccl_dtype, ncclInt64);
    assert_true(small.packs && small.unpacks);
    /* Nothing to divide by: a sum. */
    assert_int_equal(wire(DTRAIN_DTYPE_I8, DTRAIN_OP_AVERAGE, 1).dtype, DTRAIN_DTYPE_I8);
}

static void test_wire_types_that_nccl_has_not_are_widened(void **unused)
{
    (void)unused;
    assert_int_equal(wire(DTRAIN_DTYPE_U16, DTRAIN_OP_MAX, 1).nccl_dtype, ncclInt32);
    assert_int_equal(wire(DTRAIN_DTYPE_I16, DTRAIN_OP_SUM, 1).nccl_dtype, ncclInt32);
    dt_nccl_wire_t disjunction = wire(DTRAIN_DTYPE_BOOL, DTRAIN_OP_SUM, 1);
    assert_int_equal(disjunction.nccl_dtype, ncclUint8);
    assert_int_equal(disjunction.op, ncclMax);
    assert_true(disjunction.packs && disjunction.unpacks);
    assert_int_equal(wire(DTRAIN_DTYPE_BOOL, DTRAIN_OP_PRODUCT, 1).op, ncclMin);
}

static void test_wire_scales_stand_before_and_behind(void **unused)
{
    (void)unused;
    dt_reduction_t asked = reduction(DTRAIN_DTYPE_F32, DTRAIN_OP_MAX, 1);
    asked.prescale = 0.5;
    assert_true(dt_nccl_wire(&asked).packs && !dt_nccl_wire(&asked).unpacks);
    asked.prescale = 1;
    asked.postscale = 2;
    assert_true(!dt_nccl_wire(&asked).packs && dt_nccl_wire(&asked).unpacks);
    assert_true(dt_nccl_wire(&asked).behind_scale == 2);
    asked.dtype = DTRAIN_DTYPE_I32;
    assert_int_equal(dt_nccl_wire(&asked).dtype, DTRAIN_DTYPE_I64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_plain_sum_needs_no_kernel),
        cmocka_unit_test(test_wire_average_divides_behind_but_for_fp16),
        cmocka_unit_test(test_wire_integers_that_are_averaged_travel_in_64_bits),
        cmocka_unit_test(test_wire_types_that_nccl_has_not_are_widened),
        cmocka_unit_test(test_wire_scales_stand_before_and_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
