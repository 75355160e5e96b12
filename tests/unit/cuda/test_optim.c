/* The device's updates and norms, compiled for the host, come to the bits of optim/. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels_host.h"
#include "optim/norm.h"
#include "optim/update.h"
#include "reduce/half.h"

#define COUNT 5003

typedef struct arrays {
    float gradients[COUNT], parameters[COUNT], first[COUNT], second[COUNT];
    uint16_t copy[COUNT], half[COUNT];
} arrays_t;

static void fill(arrays_t *arrays)
{
    srand(7);
    for (int i = 0; i < COUNT; i++) {
        arrays->gradients[i] = (float)(rand() % 2001 - 1000) / 997;
        arrays->parameters[i] = (float)(rand() % 2001 - 1000) / 331;
        arrays->first[i] = (float)(rand() % 100) / 77;
        arrays->second[i] = (float)(rand() % 100) / 77;
        arrays->half[i] = dt_f32_to_bf16(arrays->gradients[i]);
    }
}

static dt_device_update_t device_args(arrays_t *arrays, const dt_update_settings_t *settings)
{
    return (dt_device_update_t){.count = COUNT,
                                .gradients = arrays->gradients,
                                .parameters = arrays->parameters,
                                .first = arrays->first,
                                .second = arrays->second,
                                .copy = arrays->copy,
                                .rule = (int32_t)settings->rule,
                                .copy_dtype = DTRAIN_DTYPE_BF16,
                                .nesterov = settings->nesterov,
                                .scale = 0.5,
                                .decay = settings->weight_decay,
                                .shrink = 1,
                                .rate = settings->learning_rate,
                                .momentum = settings->momentum};
}

static dt_update_range_t host_range(arrays_t *arrays)
{
    return (dt_update_range_t){.count = COUNT,
                               .dtype = DTRAIN_DTYPE_F32,
                               .gradient_dtype = DTRAIN_DTYPE_F32,
                               .copy_dtype = DTRAIN_DTYPE_BF16,
                               .gradients = arrays->gradients,
                               .parameters = arrays->parameters,
                               .first = arrays->first,
                               .second = arrays->second,
                               .copy = arrays->copy};
}

static void check_same(const arrays_t *device, const arrays_t *host)
{
    assert_memory_equal(device->parameters, host->parameters, sizeof host->parameters);
    assert_memory_equal(device->first, host->first, sizeof host->first);
    assert_memory_equal(device->second, host->second, sizeof host->second);
    assert_memory_equal(device->copy, host->copy, sizeof host->copy);
}

static void test_update_sgd_has_the_bits_of_the_cpu(void **unused)
{
    static arrays_t device, host;
    dt_update_settings_t settings = {.rule = DT_UPDATE_SGD,
                                     .nesterov = 1,
                                     .learning_rate = 0.01,
                                     .weight_decay = 0.001,
                                     .momentum = 0.9};
    (void)unused;
    fill(&device);
    fill(&host);
    dt_update_range_t range = host_range(&host);
    dt_update(&settings, 1, 0.5, &range);
    dt_device_update_t args = device_args(&device, &settings);
    dt_kernel_run_on_host(DT_KERNEL_UPDATE_F32, &args, 3);
    check_same(&device, &host);
}

static void test_update_adamw_has_the_bits_of_the_cpu(void **unused)
{
    static arrays_t device, host;
    dt_update_settings_t settings = {.rule = DT_UPDATE_ADAMW,
                                     .learning_rate = 0.01,
                                     .weight_decay = 0.1,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .epsilon = 1e-8};
    (void)unused;
    fill(&device);
    fill(&host);
    dt_update_range_t range = host_range(&host);
    dt_update(&settings, 1, 0.5, &range);
    dt_device_update_t args = device_args(&device, &settings);
    args.decay = 0;
    args.shrink = 1 - 0.01 * 0.1;
    args.rate = 0.01 / (1 - 0.9);
    args.beta1 = 0.9;
    args.gain1 = 1 - 0.9;
    args.beta2 = 0.999;
    args.gain2 = 1 - 0.999;
    args.root_factor = 1 / sqrt(1 - 0.999);
    args.epsilon = 1e-8;
    dt_kernel_run_on_host(DT_KERNEL_UPDATE_F32, &args, 2);
    check_same(&device, &host);
}

static void test_update_bfloat16_gradients_have_the_bits_of_the_cpu(void **unused)
{
    static arrays_t device, host;
    dt_update_settings_t settings = {.rule = DT_UPDATE_SGD, .learning_rate = 0.1};
    (void)unused;
    fill(&device);
    fill(&host);
    dt_update_range_t range = host_range(&host);
    range.gradients = host.half;
    range.gradient_dtype = DTRAIN_DTYPE_BF16;
    range.first = NULL;
    dt_update(&settings, 1, 0.5, &range);
    dt_device_update_t args = device_args(&device, &settings);
    args.gradients = device.half;
    args.first = NULL;
    dt_kernel_run_on_host(DT_KERNEL_UPDATE_BF16, &args, 2);
    check_same(&device, &host);
}

static void test_update_of_gradients_that_are_not_finite_changes_nothing(void **unused)
{
    static arrays_t device, before;
    dt_update_settings_t settings = {.rule = DT_UPDATE_SGD, .learning_rate = 0.1};
    dt_clip_result_t clip = {.is_finite = 0};
    (void)unused;
    fill(&device);
    fill(&before);
    dt_device_update_t args = device_args(&device, &settings);
    args.clip = &clip;
    dt_kernel_run_on_host(DT_KERNEL_UPDATE_F32, &args, 2);
    check_same(&device, &before);
}

/* ---- Norms ---------------------------------------------------------------------------------- */

#define VALUES_MAX (37 * DT_NORM_BLOCK + 11)

static dt_clip_result_t device_norm(dt_kernel_t kernel, const void *values, int64_t count,
                                    double scale, double max_norm)
{
    static double sums[64];
    int32_t not_finite = 0;
    dt_squares_t squares = {
        .values = values, .count = count, .sums = sums, .not_finite = &not_finite};
    dt_kernel_run_on_host(kernel, &squares, 5);
    dt_clip_result_t result;
    dt_clip_t clip = {.sums = sums,
                      .num_blocks = dt_norm_blocks(count),
                      .not_finite = &not_finite,
                      .result = &result,
                      .scale = scale,
                      .max_norm = max_norm};
    dt_kernel_run_on_host(DT_KERNEL_CLIP, &clip, 1);
    return result;
}

static void test_norm_has_the_bits_of_the_cpu(void **unused)
{
    static float values[VALUES_MAX];
    (void)unused;
    srand(3);
    for (int64_t count = 1; count < VALUES_MAX; count = count * 3 + 5) {
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)(rand() % 2001 - 1000) / 997;
        dt_norm_t norm = dt_norm_begin(0);
        dt_norm_add(&norm, DTRAIN_DTYPE_F32, values, (size_t)count);
        dt_clip_result_t result = device_norm(DT_KERNEL_SQUARES_F32, values, count, 1, 0);
        double wanted = sqrt(dt_norm_total(&norm));
        assert_memory_equal(&result.norm, &wanted, sizeof wanted);
        assert_int_equal(result.is_finite, 1);
    }
}

static void test_clip_scales_down_to_the_greatest_norm(void **unused)
{
    float values[4] = {3, 0, 4, 0}; /* a norm of 5 */
    (void)unused;
    dt_clip_result_t result = device_norm(DT_KERNEL_SQUARES_F32, values, 4, 0.5, 1);
    assert_true(result.norm == 2.5);
    assert_true(result.scale == 0.5 * (1 / 2.5));
    result = device_norm(DT_KERNEL_SQUARES_F32, values, 4, 0.5, 10);
    assert_true(result.scale == 0.5);
}

static void test_norm_of_what_is_not_finite_says_so(void **unused)
{
    uint16_t values[100] = {0};
    double wide[2] = {1e300, 1};
    (void)unused;
    assert_int_equal(device_norm(DT_KERNEL_SQUARES_F16, values, 100, 1, 1).is_finite, 1);
    values[99] = 0x7c00; /* infinite in fp16, an ordinary number in bfloat16 */
    assert_int_equal(device_norm(DT_KERNEL_SQUARES_F16, values, 100, 1, 1).is_finite, 0);
    assert_int_equal(device_norm(DT_KERNEL_SQUARES_BF16, values, 100, 1, 1).is_finite, 1);
    values[99] = 0x7fc0; /* NaN in bfloat16 */
    assert_int_equal(device_norm(DT_KERNEL_SQUARES_BF16, values, 100, 1, 1).is_finite, 0);
    /* The square is infinite, the value is not. */
    assert_int_equal(device_norm(DT_KERNEL_SQUARES_F64, wide, 2, 1, 1).is_finite, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update_sgd_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_update_adamw_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_update_bfloat16_gradients_have_the_bits_of_the_cpu),
        cmocka_unit_test(test_update_of_gradients_that_are_not_finite_changes_nothing),
        cmocka_unit_test(test_norm_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_clip_scales_down_to_the_greatest_norm),
        cmocka_unit_test(test_norm_of_what_is_not_finite_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
