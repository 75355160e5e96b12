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

#define SCALE 0.5

static dt_device_update_t device_args(arrays_t *arrays, const dt_update_settings_t *settings)
{
    const dt_update_factors_t factors = dt_update_factors(settings, 1, SCALE);
    return (dt_device_update_t){.count = COUNT,
                                .gradients = arrays->gradients,
                                .parameters = arrays->parameters,
                                .first = arrays->first,
                                .second = arrays->second,
                                .copy = arrays->copy,
                                .is_adam = factors.is_adam,
                                .copy_dtype = DTRAIN_DTYPE_BF16,
                                .nesterov = factors.nesterov,
                                .scale = factors.scale,
                                .decay = factors.decay,
                                .shrink = factors.shrink,
                                .rate = factors.rate,
                                .momentum = factors.momentum,
                                .beta1 = factors.beta1,
                                .gain1 = factors.gain1,
                                .beta2 = factors.beta2,
                                .gain2 = factors.gain2,
                                .root_factor = factors.root_factor,
                                .epsilon = factors.epsilon};
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
    dt_update(&settings, 1, SCALE, &range);
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
    dt_update(&settings, 1, SCALE, &range);
    dt_device_update_t args = device_args(&device, &settings);
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
    dt_update(&settings, 1, SCALE, &range);
    dt_device_update_t args = device_args(&device, &settings);
    args.gradients = device.half;
    args.first = NULL;
    dt_kernel_run_on_host(DT_KERNEL_UPDATE_BF16, &args, 2);
    check_same(&device, &host);
}

/* One of the arrays begins an element behind a border of words, or all of them do. */
static void test_update_of_misaligned_arrays_has_the_bits_of_the_cpu(void **unused)
{
    static arrays_t device, host;
    dt_update_settings_t settings = {.rule = DT_UPDATE_ADAM,
                                     .learning_rate = 0.01,
                                     .beta1 = 0.9,
                                     .beta2 = 0.99,
                                     .epsilon = 1e-8};
    (void)unused;
    for (int place = 0; place < 6; place++) {
        fill(&device);
        fill(&host);
        dt_update_range_t range = host_range(&host);
        dt_device_update_t args = device_args(&device, &settings);
        args.count = COUNT - 1;
        range.count = COUNT - 1;
        args.parameters = device.parameters + (place == 1 || place == 5);
        args.first = device.first + (place == 2 || place == 5);
        args.second = device.second + (place == 3 || place == 5);
        args.copy = device.copy + (place == 4 || place == 5);
        args.gradients = device.gradients + (place == 0 || place == 5);
        range.gradients = host.gradients + (place == 0 || place == 5);
        range.parameters = host.parameters + (place == 1 || place == 5);
        range.first = host.first + (place == 2 || place == 5);
        range.second = host.second + (place == 3 || place == 5);
        range.copy = host.copy + (place == 4 || place == 5);
        dt_update(&settings, 1, SCALE, &range);
        dt_kernel_run_on_host(DT_KERNEL_UPDATE_F32, &args, 3);
        check_same(&device, &host);
    }
}

/* ---- Norms ---------------------------------------------------------------------------------- */

#define VALUES_MAX (37 * DT_NORM_BLOCK + 11)
#define SUMS_MAX 64

/* Their squares' sum, by blocks as the device sums them and the host joins them. */
static double device_norm(dt_kernel_t kernel, const void *values, int64_t count)
{
    double sums[SUMS_MAX];
    dt_squares_t squares = {.values = values, .count = count, .sums = sums};
    dt_kernel_run_on_host(kernel, &squares, 5);
    dt_norm_t norm = dt_norm_begin(0);
    for (int64_t i = 0; i < dt_norm_blocks(count); i++) {
        dt_norm_t block = {.first_block = i, .num_blocks = 1, .finite = 1, .num_nodes = 1};
        block.nodes[0] = sums[i];
        assert_int_equal(dt_norm_append(&norm, &block), 0);
    }
    return sqrt(dt_norm_total(&norm));
}

static void check_norm(dt_kernel_t kernel, dtrain_dtype_t dtype, const void *values, int64_t count)
{
    dt_norm_t norm = dt_norm_begin(0);
    dt_norm_add(&norm, dtype, values, (size_t)count);
    double wanted = sqrt(dt_norm_total(&norm)), found = device_norm(kernel, values, count);
    assert_memory_equal(&found, &wanted, sizeof wanted);
}

static void test_norm_has_the_bits_of_the_cpu(void **unused)
{
    static float singles[VALUES_MAX + 1];
    static double doubles[VALUES_MAX + 1];
    static uint16_t halves[VALUES_MAX + 1];
    (void)unused;
    srand(3);
    for (int64_t i = 0; i <= VALUES_MAX; i++) {
        singles[i] = (float)(rand() % 2001 - 1000) / 997;
        doubles[i] = (double)(rand() % 2001 - 1000) / 997;
        halves[i] = dt_f32_to_f16(singles[i]);
    }
    for (int64_t count = 1; count < VALUES_MAX; count = count * 3 + 5) {
        for (int shift = 0; shift < 2; shift++) { /* on a border of words, and beside one */
            check_norm(DT_KERNEL_SQUARES_F32, DTRAIN_DTYPE_F32, singles + shift, count);
            check_norm(DT_KERNEL_SQUARES_F64, DTRAIN_DTYPE_F64, doubles + shift, count);
            check_norm(DT_KERNEL_SQUARES_F16, DTRAIN_DTYPE_F16, halves + shift, count);
        }
    }
}

static void test_norm_of_what_is_not_finite_is_nan(void **unused)
{
    uint16_t values[100] = {0};
    double wide[2] = {1e300, 1};
    (void)unused;
    assert_true(device_norm(DT_KERNEL_SQUARES_F16, values, 100) == 0);
    values[99] = 0x7c00; /* infinite in fp16, an ordinary number in bfloat16 */
    assert_true(isnan(device_norm(DT_KERNEL_SQUARES_F16, values, 100)));
    assert_false(isnan(device_norm(DT_KERNEL_SQUARES_BF16, values, 100)));
    values[99] = 0x7fc0; /* NaN in bfloat16 */
    assert_true(isnan(device_norm(DT_KERNEL_SQUARES_BF16, values, 100)));
    /* The square is infinite, the value is not. */
    assert_true(isinf(device_norm(DT_KERNEL_SQUARES_F64, wide, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update_sgd_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_update_adamw_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_update_bfloat16_gradients_have_the_bits_of_the_cpu),
        cmocka_unit_test(test_update_of_misaligned_arrays_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_norm_has_the_bits_of_the_cpu),
        cmocka_unit_test(test_norm_of_what_is_not_finite_is_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
