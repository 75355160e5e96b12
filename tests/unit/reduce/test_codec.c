/* The library's codecs: what comes back of what was encoded, and how many bytes it took. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "reduce/codec.h"
#include "reduce/half.h"

/* Encodes and decodes in memory of exactly the bytes that the codec asks for. */
static void pass(const char *name, const float *in, int64_t count, float *out)
{
    dt_codec_t codec;
    assert_int_equal(dt_codec_make(name, &codec), DTRAIN_OK);
    int64_t bytes = codec.base.coded_bytes(&codec.base, count);
    assert_true(bytes >= 0);
    void *coded = malloc((size_t)bytes);
    codec.base.encode(&codec.base, in, count, coded);
    assert_int_equal(codec.base.decode(&codec.base, coded, count, out), 0);
    free(coded);
}

static int64_t bytes_of(const char *name, int64_t count)
{
    dt_codec_t codec;
    assert_int_equal(dt_codec_make(name, &codec), DTRAIN_OK);
    return codec.base.coded_bytes(&codec.base, count);
}

static float wave(int64_t i)
{
    return (float)(sin((double)i * 0.37) * pow(10, (double)(i % 7) - 3));
}

static float *make_wave(int64_t count)
{
    float *in = malloc((size_t)count * sizeof *in + 1);
    for (int64_t i = 0; i < count; i++)
        in[i] = wave(i);
    return in;
}

static const int64_t counts[] = {0, 1, 2, 15, 16, 17, 255, 256, 257, 1000, 4099};
#define NUM_COUNTS (sizeof counts / sizeof counts[0])

static void test_codec_names_are_known_and_put_into_one_form(void **state)
{
    (void)state;
    const char *pairs[][2] = {{"fp16", "fp16"},
                              {"bf16", "bf16"},
                              {"int8", "int8"},
                              {"topk", "topk:0.01"},
                              {"topk:0.010", "topk:0.01"},
                              {"topk:0.000001", "topk:0.000001"},
                              {"topk:1.0", "topk:1"},
                              {"topk:1", "topk:1"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        dt_codec_t codec;
        assert_int_equal(dt_codec_make(pairs[i][0], &codec), DTRAIN_OK);
        assert_string_equal(codec.base.name, pairs[i][1]);
        assert_int_equal(dt_codec_check(&codec.base), DTRAIN_OK);
        assert_true(dt_codec_is_own(codec.base.name));
    }
    assert_false(dt_codec_is_own("mine"));
}

static void test_codec_name_that_is_none_is_refused(void **state)
{
    (void)state;
    const char *names[] = {"",         "fp32",     "int8:4",    "topk:",     "topk:0",
                           "topk:1.5", "topk:-1",  "topk:0.1x", "topk:.5",   "topk:0.0000001",
                           "topk:2",   "topk:0,1", "fp16 ",     "topk:0.1:2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        dt_codec_t codec;
        int is_default = strcmp(names[i], "topk:") == 0;
        assert_int_equal(dt_codec_make(names[i], &codec),
                         is_default ? DTRAIN_OK : DTRAIN_ERR_INVALID_ARGUMENT);
    }
    dt_codec_t codec;
    dt_codec_make("topk:2", &codec);
    assert_non_null(strstr(dt_last_error(), "'2' is no part of the elements"));
    dt_codec_make("zip", &codec);
    assert_non_null(strstr(dt_last_error(), "'zip' is no codec: there are fp16"));
}

static void test_codec_of_16_bits_rounds_each_value(void **state)
{
    (void)state;
    for (size_t c = 0; c < NUM_COUNTS; c++) {
        int64_t n = counts[c];
        float *in = make_wave(n), *out = make_wave(n);
        pass("fp16", in, n, out);
        for (int64_t i = 0; i < n; i++)
            assert_true(out[i] == dt_f16_to_f32(dt_f32_to_f16(in[i])));
        pass("bf16", in, n, out);
        for (int64_t i = 0; i < n; i++)
            assert_true(out[i] == dt_bf16_to_f32(dt_f32_to_bf16(in[i])));
        assert_int_equal(bytes_of("fp16", n), 2 * n);
        free(in);
        free(out);
    }
}

static void test_codec_int8_is_within_half_a_step_of_each_block(void **state)
{
    (void)state;
    for (size_t c = 0; c < NUM_COUNTS; c++) {
        int64_t n = counts[c];
        float *in = make_wave(n), *out = make_wave(n);
        pass("int8", in, n, out);
        for (int64_t first = 0; first < n; first += DT_INT8_BLOCK) {
            int64_t end = first + DT_INT8_BLOCK < n ? first + DT_INT8_BLOCK : n;
            float largest = 0;
            for (int64_t i = first; i < end; i++)
                largest = fmaxf(largest, fabsf(in[i]));
            for (int64_t i = first; i < end; i++)
                assert_true(fabsf(in[i] - out[i]) <= largest / 127 * 0.50001f);
        }
        assert_int_equal(bytes_of("int8", n), n + (n + 255) / 256 * 4);
        free(in);
        free(out);
    }
}

static void test_codec_int8_takes_extremes(void **state)
{
    (void)state;
    float in[600] = {
        [0] = 127, [1] = -127, [2] = 0.5f, [3] = 1.5f, [256] = 1e-40f, [512] = INFINITY};
    float out[600];
    pass("int8", in, 600, out);
    assert_true(out[0] == 127 && out[1] == -127);
    assert_true(out[2] == 0 && out[3] == 2); /* to even */
    assert_true(out[256] == 0 && out[300] == 0);
    for (int i = 512; i < 600; i++)
        assert_true(isnan(out[i]));
    in[512] = NAN;
    pass("int8", in, 600, out);
    assert_true(isnan(out[599]) && out[0] == 127);
    in[0] = 3.4e38f;
    pass("int8", in, 256, out);
    assert_true(fabsf(out[0] - in[0]) < 1e32f && isfinite(out[0]));
}

/* Larger in magnitude, or the same and before. */
static int precedes(const float *in, int64_t a, int64_t b)
{
    return fabsf(in[a]) > fabsf(in[b]) || (fabsf(in[a]) == fabsf(in[b]) && a < b);
}

static void test_codec_topk_keeps_the_largest_and_of_equals_the_first(void **state)
{
    (void)state;
    for (size_t c = 0; c < NUM_COUNTS; c++) {
        int64_t n = counts[c], kept = 0;
        float *in = make_wave(n), *out = make_wave(n);
        for (int64_t i = 0; i < n; i += 3)
            in[i] = i % 2 ? 0.125f : -0.125f; /* many that are equal */
        pass("topk:0.1", in, n, out);
        for (int64_t i = 0; i < n; i++) {
            int64_t larger = 0;
            for (int64_t j = 0; j < n; j++)
                larger += precedes(in, j, i);
            int is_kept = larger < (n + 9) / 10;
            kept += is_kept;
            assert_true(out[i] == (is_kept ? in[i] : 0));
        }
        assert_int_equal(bytes_of("topk:0.1", n), 8 * kept);
        free(in);
        free(out);
    }
}

static void test_codec_topk_of_all_is_exact_and_nan_comes_first(void **state)
{
    (void)state;
    float in[100] = {[3] = -0.0f, [5] = 1e-45f, [50] = NAN, [51] = INFINITY, [99] = 7}, out[100];
    pass("topk:1", in, 100, out);
    assert_memory_equal(in, out, sizeof in);
    pass("topk:0.01", in, 100, out);
    assert_true(isnan(out[50]) && out[51] == 0);
}

static void test_codec_topk_bytes_that_point_outside_are_refused(void **state)
{
    (void)state;
    dt_codec_t codec;
    assert_int_equal(dt_codec_make("topk:0.01", &codec), DTRAIN_OK);
    uint32_t coded[2] = {100, 0};
    float out[100];
    assert_int_equal(codec.base.decode(&codec.base, coded, 100, out), -1);
    coded[0] = 99;
    assert_int_equal(codec.base.decode(&codec.base, coded, 100, out), 0);
    assert_true(codec.base.coded_bytes(&codec.base, INT64_C(1) << 32) == -1);
    assert_true(codec.base.coded_bytes(&codec.base, (INT64_C(1) << 32) - 1) > 0);
}

static void test_codec_create_gives_one_back_or_says_why(void **state)
{
    (void)state;
    dtrain_codec_t *codec = NULL;
    assert_int_equal(dtrain_codec_create("topk:0.25", &codec), DTRAIN_OK);
    assert_string_equal(codec->name, "topk:0.25");
    assert_int_equal(codec->coded_bytes(codec, 1000), 2000);
    dtrain_codec_destroy(codec);
    dtrain_codec_destroy(NULL);
    assert_int_equal(dtrain_codec_create(NULL, &codec), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_codec_create("int8", NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_codec_create("int9", &codec), DTRAIN_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codec_names_are_known_and_put_into_one_form),
        cmocka_unit_test(test_codec_name_that_is_none_is_refused),
        cmocka_unit_test(test_codec_of_16_bits_rounds_each_value),
        cmocka_unit_test(test_codec_int8_is_within_half_a_step_of_each_block),
        cmocka_unit_test(test_codec_int8_takes_extremes),
        cmocka_unit_test(test_codec_topk_keeps_the_largest_and_of_equals_the_first),
        cmocka_unit_test(test_codec_topk_of_all_is_exact_and_nan_comes_first),
        cmocka_unit_test(test_codec_topk_bytes_that_point_outside_are_refused),
        cmocka_unit_test(test_codec_create_gives_one_back_or_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
