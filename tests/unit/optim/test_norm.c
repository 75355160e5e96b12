#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/dtype.h"
#include "base/isa.h"
#include "optim/norm.h"
#include "reduce/half.h"

#define COUNT (23 * DT_NORM_BLOCK + 1234)
#define NUM_BLOCKS 24

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};

static float values[COUNT];
static double values_f64[COUNT];
static uint16_t values_f16[COUNT], values_bf16[COUNT];

static int fill(void **state)
{
    (void)state;
    uint64_t bits = 1;
    for (size_t i = 0; i < COUNT; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)((double)(int64_t)bits * 0x1p-62);
        values_f64[i] = (double)(int64_t)bits * 0x1p-60;
        values_f16[i] = dt_f32_to_f16(values[i]);
        values_bf16[i] = dt_f32_to_bf16(values[i]);
    }
    return 0;
}

static const void *values_of(dtrain_dtype_t dtype)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return values_f16;
    case DTRAIN_DTYPE_BF16:
        return values_bf16;
    case DTRAIN_DTYPE_F64:
        return values_f64;
    default:
        return values;
    }
}

static double value_at(dtrain_dtype_t dtype, size_t i)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return dt_f16_to_f32(values_f16[i]);
    case DTRAIN_DTYPE_BF16:
        return dt_bf16_to_f32(values_bf16[i]);
    case DTRAIN_DTYPE_F64:
        return values_f64[i];
    default:
        return values[i];
    }
}

/* norm.h's definition, for a space of `count` elements. */
static double reference_block(dtrain_dtype_t dtype, size_t count, size_t block)
{
    double sums[16] = {0};
    for (size_t i = block * DT_NORM_BLOCK; i < count && i < (block + 1) * DT_NORM_BLOCK; i++) {
        double value = value_at(dtype, i);
        sums[i % 16] += value * value;
    }
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            sums[i] += sums[i + width];
    return sums[0];
}

static double reference_tree(dtrain_dtype_t dtype, size_t count, size_t lo, size_t hi)
{
    if (hi - lo == 1)
        return reference_block(dtype, count, lo);
    size_t half = 1;
    while (half * 2 < hi - lo)
        half *= 2;
    return reference_tree(dtype, count, lo, lo + half) +
           reference_tree(dtype, count, lo + half, hi);
}

static void assert_same(double a, double b)
{
    uint64_t bits_a, bits_b;
    memcpy(&bits_a, &a, sizeof a);
    memcpy(&bits_b, &b, sizeof b);
    assert_int_equal(bits_a, bits_b);
}

static void assert_same_norm(const dt_norm_t *a, const dt_norm_t *b)
{
    assert_int_equal(a->first_block, b->first_block);
    assert_int_equal(a->num_blocks, b->num_blocks);
    assert_int_equal(a->finite, b->finite);
    assert_int_equal(a->num_nodes, b->num_nodes);
    assert_memory_equal(a->nodes, b->nodes, (size_t)a->num_nodes * sizeof *a->nodes);
}

static dt_norm_t norm_of(dtrain_dtype_t dtype, size_t begin, size_t end)
{
    dt_norm_t norm = dt_norm_begin((int64_t)(begin / DT_NORM_BLOCK));
    dt_norm_add(&norm, dtype, (const char *)values_of(dtype) + begin * dt_dtype_size(dtype),
                end - begin);
    return norm;
}

static void check_dtype(dtrain_dtype_t dtype)
{
    static const size_t counts[] = {1,    15,   16,   17,    4095,  4096,
                                    4097, 8192, 8200, 12288, 70001, COUNT};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        size_t count = counts[i];
        dt_norm_t norm = norm_of(dtype, 0, count);
        assert_int_equal(norm.finite, 1);
        size_t blocks = (count + DT_NORM_BLOCK - 1) / DT_NORM_BLOCK;
        assert_int_equal(dt_norm_blocks((int64_t)count), blocks);
        assert_same(dt_norm_total(&norm), reference_tree(dtype, count, 0, blocks));
    }
}

static void test_norm_of_every_type_and_isa_is_the_documented_tree(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        assert_int_equal(dt_isa_set_cap(isas[i]), 0);
        if (strcmp(dt_isa_name(), isas[i]) != 0) {
            print_message("skipped: this machine has no %s\n", isas[i]);
            continue;
        }
        check_dtype(DTRAIN_DTYPE_F32);
        check_dtype(DTRAIN_DTYPE_F64);
        check_dtype(DTRAIN_DTYPE_F16);
        check_dtype(DTRAIN_DTYPE_BF16);
        checked++;
    }
    assert_true(checked > 0);
}

static void test_norm_of_shards_is_the_norm_of_the_whole(void **state)
{
    (void)state;
    dt_norm_t whole = norm_of(DTRAIN_DTYPE_F32, 0, COUNT);
    for (int size = 1; size <= 30; size++) {
        dt_norm_t sum = dt_norm_begin(0);
        int64_t covered = 0;
        for (int rank = 0; rank < size; rank++) {
            int64_t begin, end;
            dt_norm_shard(COUNT, rank, size, &begin, &end);
            assert_int_equal(begin, covered);
            assert_true(begin % DT_NORM_BLOCK == 0 || begin == end);
            covered = end;
            if (begin == end)
                continue;
            dt_norm_t part = norm_of(DTRAIN_DTYPE_F32, (size_t)begin, (size_t)end);
            assert_int_equal(dt_norm_append(&sum, &part), 0);
        }
        assert_int_equal(covered, COUNT);
        assert_same(dt_norm_total(&sum), dt_norm_total(&whole));
        assert_same_norm(&sum, &whole);
    }
}

/* All ways to cut 24 blocks into three ranges, joined from the left and from the right. */
static void test_norm_of_any_three_ranges_is_the_norm_of_the_whole(void **state)
{
    (void)state;
    dt_norm_t whole = norm_of(DTRAIN_DTYPE_F32, 0, COUNT);
    dt_norm_t blocks[NUM_BLOCKS];
    for (size_t i = 0; i < NUM_BLOCKS; i++) {
        size_t end = (i + 1) * DT_NORM_BLOCK;
        blocks[i] = norm_of(DTRAIN_DTYPE_F32, i * DT_NORM_BLOCK, end < COUNT ? end : COUNT);
    }
    for (int a = 0; a <= NUM_BLOCKS; a++) {
        for (int b = a; b <= NUM_BLOCKS; b++) {
            dt_norm_t left = dt_norm_begin(0), middle = dt_norm_begin(a), right = dt_norm_begin(b);
            for (int i = 0; i < NUM_BLOCKS; i++)
                assert_int_equal(dt_norm_append(i < a   ? &left
                                                : i < b ? &middle
                                                        : &right,
                                                &blocks[i]),
                                 0);
            dt_norm_t rest = middle;
            assert_int_equal(dt_norm_append(&rest, &right), 0);
            dt_norm_t from_right = left, from_left = left;
            assert_int_equal(dt_norm_append(&from_right, &rest), 0);
            assert_int_equal(dt_norm_append(&from_left, &middle), 0);
            assert_int_equal(dt_norm_append(&from_left, &right), 0);
            assert_same(dt_norm_total(&from_right), dt_norm_total(&whole));
            assert_same(dt_norm_total(&from_left), dt_norm_total(&whole));
        }
    }
}

static void test_norm_of_tensors_filled_up_to_blocks_is_that_of_zeros_between(void **state)
{
    (void)state;
    static float padded[4 * DT_NORM_BLOCK];
    memset(padded, 0, sizeof padded);
    memcpy(padded, values, 5000 * sizeof(float));
    memcpy(padded + 2 * DT_NORM_BLOCK, values + 5000, 100 * sizeof(float));
    memcpy(padded + 3 * DT_NORM_BLOCK, values + 5100, DT_NORM_BLOCK * sizeof(float));
    dt_norm_t flat = dt_norm_begin(0), apart = dt_norm_begin(0);
    dt_norm_add(&flat, DTRAIN_DTYPE_F32, padded, 4 * DT_NORM_BLOCK);
    dt_norm_add(&apart, DTRAIN_DTYPE_F32, values, 5000);
    dt_norm_add(&apart, DTRAIN_DTYPE_F32, values + 5000, 100);
    dt_norm_add(&apart, DTRAIN_DTYPE_F32, values + 5100, DT_NORM_BLOCK);
    assert_same_norm(&flat, &apart);
}

static void test_norm_finds_any_value_that_is_not_finite(void **state)
{
    (void)state;
    static const float wrong[] = {INFINITY, -INFINITY, NAN};
    static const size_t at[] = {0, 15, 4095, 4096, 70000, COUNT - 1};
    for (size_t w = 0; w < 3; w++) {
        for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
            float kept = values[at[i]];
            double kept_f64 = values_f64[at[i]];
            values[at[i]] = wrong[w];
            values_f64[at[i]] = wrong[w];
            dt_norm_t norm = norm_of(DTRAIN_DTYPE_F32, 0, COUNT);
            dt_norm_t norm_f64 = norm_of(DTRAIN_DTYPE_F64, 0, COUNT);
            values[at[i]] = kept;
            values_f64[at[i]] = kept_f64;
            assert_int_equal(norm.finite, 0);
            assert_int_equal(norm_f64.finite, 0);
            dt_norm_t sum = dt_norm_begin(0);
            assert_int_equal(dt_norm_append(&sum, &norm), 0);
            assert_int_equal(sum.finite, 0);
        }
    }
}

static void test_norm_of_the_greatest_values_is_finite(void **state)
{
    (void)state;
    static const float great[] = {3.4028235e38f, -3.4028235e38f};
    dt_norm_t norm = dt_norm_begin(0);
    dt_norm_add(&norm, DTRAIN_DTYPE_F32, great, 2);
    assert_int_equal(norm.finite, 1);
    assert_true(fabs(sqrt(dt_norm_total(&norm)) / 3.4028235e38 - sqrt(2)) < 1e-6);
    static const double huge[] = {1e200, 1};
    norm = dt_norm_begin(0);
    dt_norm_add(&norm, DTRAIN_DTYPE_F64, huge, 2);
    assert_int_equal(norm.finite, 1);
    assert_true(isinf(dt_norm_total(&norm)));
}

static void test_norm_of_nothing_is_zero(void **state)
{
    (void)state;
    dt_norm_t norm = dt_norm_begin(0);
    dt_norm_add(&norm, DTRAIN_DTYPE_F32, NULL, 0);
    assert_int_equal(norm.num_blocks, 0);
    assert_same(dt_norm_total(&norm), 0);
}

static void test_norm_append_refuses_gaps_and_damage(void **state)
{
    (void)state;
    dt_norm_t whole = dt_norm_begin(0);
    dt_norm_t part = norm_of(DTRAIN_DTYPE_F32, DT_NORM_BLOCK, 4 * DT_NORM_BLOCK);
    assert_int_equal(dt_norm_append(&whole, &part), -1);
    whole = norm_of(DTRAIN_DTYPE_F32, 0, DT_NORM_BLOCK);
    dt_norm_t before = whole, wrong = part;
    wrong.num_nodes++;
    assert_int_equal(dt_norm_append(&whole, &wrong), -1);
    wrong = part;
    wrong.num_blocks = INT64_MAX;
    assert_int_equal(dt_norm_append(&whole, &wrong), -1);
    wrong = part;
    wrong.num_blocks = -3;
    assert_int_equal(dt_norm_append(&whole, &wrong), -1);
    assert_same_norm(&whole, &before);
    assert_int_equal(dt_norm_append(&whole, &part), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_of_every_type_and_isa_is_the_documented_tree),
        cmocka_unit_test(test_norm_of_shards_is_the_norm_of_the_whole),
        cmocka_unit_test(test_norm_of_any_three_ranges_is_the_norm_of_the_whole),
        cmocka_unit_test(test_norm_of_tensors_filled_up_to_blocks_is_that_of_zeros_between),
        cmocka_unit_test(test_norm_finds_any_value_that_is_not_finite),
        cmocka_unit_test(test_norm_of_the_greatest_values_is_finite),
        cmocka_unit_test(test_norm_of_nothing_is_zero),
        cmocka_unit_test(test_norm_append_refuses_gaps_and_damage),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
