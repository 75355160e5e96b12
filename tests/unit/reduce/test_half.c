#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "reduce/half.h"
#include "reference.h"

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void test_half_every_f16_widened_is_its_value(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits <= 0xffff; bits++) {
        float value = dt_f16_to_f32((uint16_t)bits);
        double expected = reference_decode_f16((uint16_t)bits);
        if (isnan(expected))
            assert_true(isnan(value) && to_bits(value) & 0x400000);
        else
            assert_int_equal(to_bits(value), to_bits((float)expected));
    }
}

static void test_half_every_bf16_widened_is_its_value(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits <= 0xffff; bits++) {
        float value = dt_bf16_to_f32((uint16_t)bits);
        double expected = reference_decode_bf16((uint16_t)bits);
        if (isnan(expected))
            assert_true(isnan(value));
        else
            assert_int_equal(to_bits(value), to_bits((float)expected));
    }
}

static void test_half_every_value_there_and_back_is_the_same(void **state)
{
    (void)state;
    for (unsigned i = 0; i <= 0xffff; i++) {
        uint16_t bits = (uint16_t)i;
        uint16_t f16 = dt_f32_to_f16(dt_f16_to_f32(bits));
        uint16_t bf16 = dt_f32_to_bf16(dt_bf16_to_f32(bits));
        /* A signalling NaN comes back quiet: the top bit of its mantissa is set. */
        assert_int_equal(f16, (bits & 0x7fff) > 0x7c00 ? bits | 0x200 : bits);
        assert_int_equal(bf16, (bits & 0x7fff) > 0x7f80 ? bits | 0x40 : bits);
    }
}

/* Every float whose low bits are near a tie, or 0: all that rounding depends on. */
static void check_rounding(uint32_t high)
{
    static const uint32_t lows[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x1fff,
                                    0x7fff, 0x8000, 0x8001, 0xffff, 0x3000, 0x5001};
    for (size_t i = 0; i < sizeof lows / sizeof lows[0]; i++) {
        float value = from_bits(high << 16 | lows[i]);
        if (isnan(value)) {
            assert_int_equal(dt_f32_to_f16(value) & 0x7e00, 0x7e00);
            assert_int_equal(dt_f32_to_bf16(value) & 0x7fc0, 0x7fc0);
        } else {
            assert_int_equal(dt_f32_to_f16(value), reference_encode_f16(value));
            assert_int_equal(dt_f32_to_bf16(value), reference_encode_bf16(value));
        }
    }
}

static void test_half_floats_of_every_size_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t high = 0; high <= 0xffff; high++)
        check_rounding(high);
}

static void test_half_ties_go_to_the_even_neighbour(void **state)
{
    (void)state;
    assert_int_equal(dt_f32_to_f16(2049), dt_f32_to_f16(2048));
    assert_int_equal(dt_f32_to_f16(2051), dt_f32_to_f16(2052));
    assert_int_equal(dt_f32_to_f16(0x1p-25f), 0x0000);        /* half the least subnormal */
    assert_int_equal(dt_f32_to_f16(0x1.000002p-25f), 0x0001); /* a bit more */
    assert_int_equal(dt_f32_to_f16(0x1.8p-24f), 0x0002);      /* 1.5 subnormals */
    assert_int_equal(dt_f32_to_f16(0x1.ffcp-15f), 0x0400);    /* carries into the normals */
    assert_int_equal(dt_f32_to_f16(-0x1p-25f), 0x8000);
    assert_int_equal(dt_f32_to_bf16(257), dt_f32_to_bf16(256));
    assert_int_equal(dt_f32_to_bf16(259), dt_f32_to_bf16(260));
}

static void test_half_overflow_rounds_to_infinity(void **state)
{
    (void)state;
    assert_int_equal(dt_f32_to_f16(65504), 0x7bff);
    assert_int_equal(dt_f32_to_f16(from_bits(to_bits(65520) - 1)), 0x7bff);
    assert_int_equal(dt_f32_to_f16(65520), 0x7c00);
    assert_int_equal(dt_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(dt_f32_to_bf16(from_bits(0x7f7fffff)), 0x7f80);
    assert_int_equal(dt_f32_to_bf16(from_bits(0xff7f7fff)), 0xff7f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_every_f16_widened_is_its_value),
        cmocka_unit_test(test_half_every_bf16_widened_is_its_value),
        cmocka_unit_test(test_half_every_value_there_and_back_is_the_same),
        cmocka_unit_test(test_half_floats_of_every_size_round_to_nearest_even),
        cmocka_unit_test(test_half_ties_go_to_the_even_neighbour),
        cmocka_unit_test(test_half_overflow_rounds_to_infinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
