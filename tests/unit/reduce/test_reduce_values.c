/* What users rely on, with the numbers they would try, on every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fenv.h>
#include <math.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/isa.h"
#include "reduce/half.h"
#include "reduce/reduce.h"

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};
#define NUM_ISAS (sizeof isas / sizeof isas[0])

#define MOST_RANKS 9

static dt_reduction_t reduction_of(dtrain_dtype_t dtype, dtrain_op_t op, int ranks)
{
    return (dt_reduction_t){.dtype = dtype,
                            .op = op,
                            .divisor = op == DTRAIN_OP_AVERAGE ? ranks : 1,
                            .prescale = 1,
                            .postscale = 1};
}

/* Reduces rows of `count` elements, which lie behind each other, into `out`. */
static void reduce_rows(const dt_reduction_t *reduction, void *out, const void *rows,
                        size_t row_bytes, int ranks, size_t count)
{
    const void *sources[MOST_RANKS];
    for (int r = 0; r < ranks; r++)
        sources[r] = (const char *)rows + (size_t)r * row_bytes;
    dt_reduce(reduction, &out, 1, sources, ranks, count);
}

static void test_reduce_f16_average_of_large_values_does_not_overflow(void **state)
{
    (void)state;
    uint16_t big = dt_f32_to_f16(40000), rows[2][1] = {{big}, {big}}, out[1];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_F16, DTRAIN_OP_AVERAGE, 2);
    for (size_t i = 0; i < NUM_ISAS; i++) {
        dt_isa_set_cap(isas[i]);
        reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 1);
        assert_int_equal(out[0], big);
    }
}

static void test_reduce_f16_sum_of_large_values_is_infinite(void **state)
{
    (void)state;
    uint16_t big = dt_f32_to_f16(40000), rows[2][1] = {{big}, {big}}, out[1];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_F16, DTRAIN_OP_SUM, 2);
    reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 1);
    assert_int_equal(out[0], 0x7c00);
}

static void test_reduce_integer_average_truncates_towards_zero(void **state)
{
    (void)state;
    int32_t rows[2][6] = {{1, 2, 7, -7, INT32_MAX, INT32_MIN},
                          {-1, -2, -8, 8, INT32_MAX, INT32_MIN}},
            out[6];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_I32, DTRAIN_OP_AVERAGE, 2);
    const int32_t expected[6] = {0, 0, 0, 0, INT32_MAX, INT32_MIN};
    reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 6);
    assert_memory_equal(out, expected, sizeof expected);

    int32_t three[3][2] = {{-1, 1}, {-1, 1}, {-3, 3}};
    reduction.divisor = 3;
    reduce_rows(&reduction, out, three, sizeof three[0], 3, 2);
    assert_int_equal(out[0], -1);
    assert_int_equal(out[1], 1);
}

static void test_reduce_average_of_equal_values_is_the_value(void **state)
{
    (void)state;
    const float values[5] = {1, -3.25f, 1e20f, 12345, 0x1p-140f};
    float rows[3][5], out[5];
    for (int r = 0; r < 3; r++)
        memcpy(rows[r], values, sizeof values);
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_F32, DTRAIN_OP_AVERAGE, 3);
    for (size_t i = 0; i < NUM_ISAS; i++) {
        dt_isa_set_cap(isas[i]);
        reduce_rows(&reduction, out, rows, sizeof rows[0], 3, 5);
        assert_memory_equal(out, values, sizeof values);
    }
}

static void test_reduce_order_of_addition_is_the_tree(void **state)
{
    (void)state;
    /* Left to right the ones would be lost one by one; as pairs they are kept. */
    float rows[6][1] = {{0x1p24f}, {0}, {1}, {1}, {1}, {1}}, out[1];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 6);
    for (size_t i = 0; i < NUM_ISAS; i++) {
        dt_isa_set_cap(isas[i]);
        reduce_rows(&reduction, out, rows, sizeof rows[0], 6, 1);
        assert_true(out[0] == 0x1p24f + 4);
    }
}

static void test_reduce_integers_wrap_around(void **state)
{
    (void)state;
    int8_t bytes[3][2] = {{100, -128}, {100, -1}, {100, 2}}, byte_out[2];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_I8, DTRAIN_OP_SUM, 3);
    reduce_rows(&reduction, byte_out, bytes, sizeof bytes[0], 3, 2);
    assert_int_equal(byte_out[0], 300 - 256);
    assert_int_equal(byte_out[1], -127);

    int64_t words[2][1] = {{INT64_MAX}, {INT64_MAX}}, word_out[1];
    reduction = reduction_of(DTRAIN_DTYPE_I64, DTRAIN_OP_PRODUCT, 2);
    reduce_rows(&reduction, word_out, words, sizeof words[0], 2, 1);
    assert_int_equal(word_out[0], 1);

    int32_t many[9][1], many_out[1];
    for (int r = 0; r < 9; r++)
        many[r][0] = -65537;
    reduction = reduction_of(DTRAIN_DTYPE_I32, DTRAIN_OP_PRODUCT, 9);
    reduce_rows(&reduction, many_out, many, sizeof many[0], 9, 1);
    assert_int_equal(many_out[0], -(9 * 65536 + 1)); /* -(1 + 2^16)^9 modulo 2^32 */
}

static void test_reduce_scales_on_integers_truncate_and_saturate(void **state)
{
    (void)state;
    int8_t rows[2][3] = {{5, -5, 127}, {3, -3, 127}}, out[3];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_I8, DTRAIN_OP_SUM, 2);
    reduction.prescale = 0.5; /* 2 and 1, -2 and -1, 63 and 63 */
    reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 3);
    assert_int_equal(out[0], 3);
    assert_int_equal(out[1], -3);
    assert_int_equal(out[2], 126);

    reduction.prescale = 1;
    reduction.postscale = 1.3; /* 10.4, -10.4, 330.2 */
    reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 3);
    assert_int_equal(out[0], 10);
    assert_int_equal(out[1], -10);
    assert_int_equal(out[2], 127);

    reduction = reduction_of(DTRAIN_DTYPE_I8, DTRAIN_OP_AVERAGE, 2);
    reduction.postscale = 0.5; /* 8 / 2 * 0.5; -8 / 2 * 0.5; 127 * 0.5: truncated once */
    reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 3);
    assert_int_equal(out[0], 2);
    assert_int_equal(out[1], -2);
    assert_int_equal(out[2], 63);

    int64_t huge[1][2] = {{INT64_MAX, INT64_MIN}}, huge_out[2];
    reduction = reduction_of(DTRAIN_DTYPE_I64, DTRAIN_OP_SUM, 1);
    reduction.prescale = 1e300;
    reduce_rows(&reduction, huge_out, huge, sizeof huge[0], 1, 2);
    assert_true(huge_out[0] == INT64_MAX && huge_out[1] == INT64_MIN);
}

static void test_reduce_bool_is_logical_and_becomes_0_or_1(void **state)
{
    (void)state;
    const uint8_t rows[2][4] = {{0, 0, 2, 255}, {0, 4, 0, 1}};
    const uint8_t any[4] = {0, 1, 1, 1}, both[4] = {0, 0, 0, 1}, first[4] = {0, 0, 1, 1};
    const dtrain_op_t ops[] = {DTRAIN_OP_SUM, DTRAIN_OP_MAX, DTRAIN_OP_PRODUCT, DTRAIN_OP_MIN};
    uint8_t out[4];
    for (size_t i = 0; i < 4; i++) {
        dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_BOOL, ops[i], 2);
        reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 4);
        assert_memory_equal(out, i < 2 ? any : both, 4);
        reduce_rows(&reduction, out, rows, sizeof rows[0], 1, 4);
        assert_memory_equal(out, first, 4);
    }
}

static void test_reduce_min_and_max_keep_nan_and_order_zeros(void **state)
{
    (void)state;
    const double rows[2][4] = {{NAN, 1, 0.0, -0.0}, {1, NAN, -0.0, 0.0}};
    double min[4], max[4];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_F64, DTRAIN_OP_MIN, 2);
    for (size_t i = 0; i < NUM_ISAS; i++) {
        dt_isa_set_cap(isas[i]);
        reduction.op = DTRAIN_OP_MIN;
        reduce_rows(&reduction, min, rows, sizeof rows[0], 2, 4);
        reduction.op = DTRAIN_OP_MAX;
        reduce_rows(&reduction, max, rows, sizeof rows[0], 2, 4);
        assert_true(isnan(min[0]) && isnan(min[1]) && isnan(max[0]) && isnan(max[1]));
        assert_true(signbit(min[2]) && signbit(min[3]));
        assert_true(!signbit(max[2]) && !signbit(max[3]));
    }
}

/* All 16-bit patterns through the vector conversions, scaled so that they have to be rounded. */
static void check_every_half(dtrain_dtype_t dtype, double scale)
{
    static uint16_t in[0x10000], out[0x10000];
    int is_f16 = dtype == DTRAIN_DTYPE_F16;
    dt_reduction_t reduction = reduction_of(dtype, DTRAIN_OP_SUM, 1);
    reduction.prescale = scale;
    for (unsigned i = 0; i <= 0xffff; i++)
        in[i] = (uint16_t)i;
    reduce_rows(&reduction, out, in, 0, 1, 0x10000);
    for (unsigned i = 0; i <= 0xffff; i++) {
        float value = (is_f16 ? dt_f16_to_f32(in[i]) : dt_bf16_to_f32(in[i])) * (float)scale;
        uint16_t expected = is_f16 ? dt_f32_to_f16(value) : dt_f32_to_bf16(value);
        if (isnan(value))
            assert_true(isnan(is_f16 ? dt_f16_to_f32(out[i]) : dt_bf16_to_f32(out[i])));
        else
            assert_int_equal(out[i], expected);
    }
}

static void test_reduce_halves_of_every_value_round_as_the_scalar_conversion(void **state)
{
    (void)state;
    static const double scales[] = {1.0000001, 1.5, 0.1, 1.00390625, 0x1p-3, 0x1.8p-9, 0x1p-20};
    for (size_t i = 0; i < NUM_ISAS; i++) {
        dt_isa_set_cap(isas[i]);
        for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
            check_every_half(DTRAIN_DTYPE_F16, scales[s]);
            check_every_half(DTRAIN_DTYPE_BF16, scales[s]);
        }
    }
}

#define LENGTH 5000

static uint32_t next_random(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

static void check_cuts(const dt_reduction_t *reduction, const float rows[][LENGTH], uint32_t seed)
{
    float whole[LENGTH], pieces[LENGTH];
    const void *sources[MOST_RANKS];
    reduce_rows(reduction, whole, rows, sizeof rows[0], MOST_RANKS, LENGTH);
    for (size_t at = 0, count; at < LENGTH; at += count) {
        count = next_random(&seed) >> 8 & 511;
        if (count > LENGTH - at)
            count = LENGTH - at;
        void *out = pieces + at;
        for (int r = 0; r < MOST_RANKS; r++)
            sources[r] = rows[r] + at;
        dt_reduce(reduction, &out, 1, sources, MOST_RANKS, count);
    }
    assert_memory_equal(pieces, whole, sizeof whole);
}

static void test_reduce_cut_anywhere_gives_the_same_bits(void **state)
{
    (void)state;
    static float rows[MOST_RANKS][LENGTH];
    uint32_t seed = 1;
    for (int r = 0; r < MOST_RANKS; r++)
        for (int i = 0; i < LENGTH; i++)
            rows[r][i] = ldexpf((float)(int32_t)next_random(&seed), (int)(seed >> 28) - 40);
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_F32, DTRAIN_OP_AVERAGE, MOST_RANKS);
    for (size_t i = 0; i < NUM_ISAS; i++) {
        dt_isa_set_cap(isas[i]);
        for (uint32_t round = 0; round < 20; round++)
            check_cuts(&reduction, rows, round);
    }
}

static void test_reduce_in_a_thread_with_another_rounding_mode_gives_the_same_bits(void **state)
{
    (void)state;
    const float rows[2][1] = {{1}, {0x1p-30f}};
    float out[1];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 2);
    int mode = fegetround();
    fesetround(FE_UPWARD);
    reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 1);
    int mode_after = fegetround();
    fesetround(mode);
    assert_int_equal(mode_after, FE_UPWARD);
    assert_true(out[0] == 1);
}

static void test_reduce_in_a_thread_that_flushes_subnormals_keeps_them(void **state)
{
    (void)state;
#if defined(__x86_64__)
    const float rows[2][1] = {{0x1p-140f}, {0x1p-140f}}, expected[1] = {0x1p-139f};
    float out[1];
    dt_reduction_t reduction = reduction_of(DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 2);
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    reduce_rows(&reduction, out, rows, sizeof rows[0], 2, 1);
    unsigned mode_after = _mm_getcsr();
    _mm_setcsr(mode);
    assert_int_equal(mode_after & 0x8040, 0x8040);
    assert_memory_equal(out, expected, sizeof expected);
#else
    skip();
#endif
}

static int restore_isa(void **state)
{
    (void)state;
    return dt_isa_set_cap("auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_f16_average_of_large_values_does_not_overflow),
        cmocka_unit_test(test_reduce_f16_sum_of_large_values_is_infinite),
        cmocka_unit_test(test_reduce_integer_average_truncates_towards_zero),
        cmocka_unit_test(test_reduce_average_of_equal_values_is_the_value),
        cmocka_unit_test(test_reduce_order_of_addition_is_the_tree),
        cmocka_unit_test(test_reduce_integers_wrap_around),
        cmocka_unit_test(test_reduce_scales_on_integers_truncate_and_saturate),
        cmocka_unit_test(test_reduce_bool_is_logical_and_becomes_0_or_1),
        cmocka_unit_test(test_reduce_min_and_max_keep_nan_and_order_zeros),
        cmocka_unit_test(test_reduce_halves_of_every_value_round_as_the_scalar_conversion),
        cmocka_unit_test(test_reduce_cut_anywhere_gives_the_same_bits),
        cmocka_unit_test(test_reduce_in_a_thread_with_another_rounding_mode_gives_the_same_bits),
        cmocka_unit_test(test_reduce_in_a_thread_that_flushes_subnormals_keeps_them),
    };
    return cmocka_run_group_tests(tests, NULL, restore_isa);
}
