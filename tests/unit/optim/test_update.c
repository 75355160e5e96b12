/* Every rule, type and instruction set against the reference, bit for bit, over several steps.
 * Buffers have a wrong alignment and guarded ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/isa.h"
#include "base/status.h"
#include "optim/update.h"
#include "reduce/half.h"
#include "reference.h"

#define COUNT 1037
#define STEPS 4 /* beta^step is exact to the bit in either order up to here for these betas */
#define GUARD 16

static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};

static const dt_update_settings_t cases[] = {
    {.rule = DT_UPDATE_SGD, .learning_rate = 0.1},
    {.rule = DT_UPDATE_SGD, .learning_rate = 0.1, .weight_decay = 0.01},
    {.rule = DT_UPDATE_SGD, .learning_rate = 0.05, .momentum = 0.9},
    {.rule = DT_UPDATE_SGD, .learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.02},
    {.rule = DT_UPDATE_SGD, .learning_rate = 0.05, .momentum = 0.8, .nesterov = 1},
    {.rule = DT_UPDATE_ADAM, .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
    {.rule = DT_UPDATE_ADAM,
     .learning_rate = 1e-2,
     .beta1 = 0.5,
     .beta2 = 0.75,
     .epsilon = 1e-6,
     .weight_decay = 0.1},
    {.rule = DT_UPDATE_ADAMW,
     .learning_rate = 1e-3,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .epsilon = 1e-8,
     .weight_decay = 0.01},
    {.rule = DT_UPDATE_ADAMW, .learning_rate = 1e-3, .epsilon = 1e-8},
};
#define NUM_CASES (sizeof cases / sizeof cases[0])

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 2685821657736338717u;
}

/* Between -1 and 1; now and then very small or 0, so that subnormals are met. */
static double random_value(void)
{
    double value = (double)(int64_t)random_bits() * 0x1p-63;
    uint64_t pick = random_bits() % 16;
    return pick == 0 ? 0 : pick == 1 ? value * 0x1p-70 : value;
}

/* One byte off the natural alignment would be undefined; one element off a vector's is not. */
typedef struct buffers {
    float gradients[COUNT + 1], parameters[COUNT + 1 + GUARD];
    float first[COUNT + 1 + GUARD], second[COUNT + 1 + GUARD];
    double gradients_f64[COUNT + 1], parameters_f64[COUNT + 1 + GUARD];
    double first_f64[COUNT + 1 + GUARD], second_f64[COUNT + 1 + GUARD];
    uint16_t gradients_half[COUNT + 1], copy[COUNT + 1 + GUARD];
} buffers_t;

static buffers_t work;
static element_f32_t expected_f32[COUNT];
static element_f64_t expected_f64[COUNT];

static void start(void)
{
    memset(&work, 0, sizeof work);
    for (size_t i = 0; i < COUNT; i++) {
        float parameter = (float)random_value();
        work.parameters[i + 1] = parameter;
        work.parameters_f64[i + 1] = parameter;
        expected_f32[i] = (element_f32_t){.parameter = parameter};
        expected_f64[i] = (element_f64_t){.parameter = parameter};
    }
}

static void draw_gradients(dtrain_dtype_t dtype)
{
    for (size_t i = 1; i <= COUNT; i++) {
        float value = (float)random_value();
        work.gradients_half[i] =
            dtype == DTRAIN_DTYPE_F16 ? dt_f32_to_f16(value) : dt_f32_to_bf16(value);
        work.gradients[i] = value;
        work.gradients_f64[i] = value;
    }
}

static double gradient_of(dtrain_dtype_t dtype, size_t i)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return dt_f16_to_f32(work.gradients_half[i + 1]);
    case DTRAIN_DTYPE_BF16:
        return dt_bf16_to_f32(work.gradients_half[i + 1]);
    default:
        return work.gradients[i + 1];
    }
}

/* The elements from `begin` on as a range. */
static dt_update_range_t range_of(dtrain_dtype_t gradient_dtype, size_t begin, size_t count,
                                  dtrain_dtype_t copy_dtype)
{
    size_t i = begin + 1;
    if (gradient_dtype == DTRAIN_DTYPE_F64)
        return (dt_update_range_t){.count = count,
                                   .dtype = DTRAIN_DTYPE_F64,
                                   .gradient_dtype = DTRAIN_DTYPE_F64,
                                   .gradients = work.gradients_f64 + i,
                                   .parameters = work.parameters_f64 + i,
                                   .first = work.first_f64 + i,
                                   .second = work.second_f64 + i};
    const void *gradients = work.gradients_half + i;
    if (gradient_dtype == DTRAIN_DTYPE_F32)
        gradients = work.gradients + i;
    return (dt_update_range_t){.count = count,
                               .dtype = DTRAIN_DTYPE_F32,
                               .gradient_dtype = gradient_dtype,
                               .copy_dtype = copy_dtype,
                               .gradients = gradients,
                               .parameters = work.parameters + i,
                               .first = work.first + i,
                               .second = work.second + i,
                               .copy = copy_dtype ? work.copy + i : NULL};
}

static void step_reference(const dt_update_settings_t *settings, dtrain_dtype_t dtype, int64_t step,
                           double scale)
{
    for (size_t i = 0; i < COUNT; i++) {
        double gradient = gradient_of(dtype, i);
        reference_update_f32(settings, step, scale, (float)gradient, &expected_f32[i]);
        reference_update_f64(settings, step, scale, gradient, &expected_f64[i]);
    }
}

/* The same steps in pieces of any length: where a piece ends must not be seen. */
static void step_in_pieces(const dt_update_settings_t *settings, dtrain_dtype_t dtype, int64_t step,
                           double scale, size_t longest, dtrain_dtype_t copy_dtype)
{
    for (size_t begin = 0; begin < COUNT;) {
        size_t count = longest < COUNT ? random_bits() % longest + 1 : COUNT;
        if (count > COUNT - begin)
            count = COUNT - begin;
        dt_update_range_t range = range_of(dtype, begin, count, copy_dtype);
        dt_update(settings, step, scale, &range);
        begin += count;
    }
}

static void assert_bits_f32(float value, float expected)
{
    uint32_t a, b;
    memcpy(&a, &value, sizeof a);
    memcpy(&b, &expected, sizeof b);
    assert_int_equal(a, b);
}

static void assert_bits_f64(double value, double expected)
{
    uint64_t a, b;
    memcpy(&a, &value, sizeof a);
    memcpy(&b, &expected, sizeof b);
    assert_int_equal(a, b);
}

static void check_f32(dtrain_dtype_t copy_dtype)
{
    for (size_t i = 0; i < COUNT; i++) {
        float parameter = work.parameters[i + 1];
        assert_bits_f32(parameter, expected_f32[i].parameter);
        assert_bits_f32(work.first[i + 1], expected_f32[i].first);
        assert_bits_f32(work.second[i + 1], expected_f32[i].second);
        if (copy_dtype == DTRAIN_DTYPE_F16)
            assert_int_equal(work.copy[i + 1], dt_f32_to_f16(parameter));
        else if (copy_dtype == DTRAIN_DTYPE_BF16)
            assert_int_equal(work.copy[i + 1], dt_f32_to_bf16(parameter));
        else
            assert_int_equal(work.copy[i + 1], 0);
        /* An update is at most some 10 learning rates of these; float's rounding is far below. */
        assert_true(fabs(parameter - expected_f64[i].parameter) < 1e-5);
    }
}

static void check_f64(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        assert_bits_f64(work.parameters_f64[i + 1], expected_f64[i].parameter);
        assert_bits_f64(work.first_f64[i + 1], expected_f64[i].first);
        assert_bits_f64(work.second_f64[i + 1], expected_f64[i].second);
    }
}

/* Nothing before the first element or behind the last is touched. */
static void check_guards(void)
{
    assert_bits_f32(work.parameters[0], 0);
    assert_bits_f64(work.parameters_f64[0], 0);
    for (size_t i = COUNT + 1; i < COUNT + 1 + GUARD; i++) {
        assert_bits_f32(work.parameters[i], 0);
        assert_bits_f32(work.first[i], 0);
        assert_bits_f32(work.second[i], 0);
        assert_bits_f64(work.parameters_f64[i], 0);
        assert_bits_f64(work.first_f64[i], 0);
        assert_bits_f64(work.second_f64[i], 0);
        assert_int_equal(work.copy[i], 0);
    }
}

static void check_case(const dt_update_settings_t *settings, dtrain_dtype_t dtype, double scale,
                       size_t longest, dtrain_dtype_t copy_dtype)
{
    assert_int_equal(dt_update_check(settings), DTRAIN_OK);
    start();
    for (int64_t step = 1; step <= STEPS; step++) {
        draw_gradients(dtype);
        step_reference(settings, dtype, step, scale);
        step_in_pieces(settings, dtype, step, scale, longest, copy_dtype);
    }
    if (dtype == DTRAIN_DTYPE_F64)
        check_f64();
    else
        check_f32(copy_dtype);
    check_guards();
}

static void check_all(dtrain_dtype_t dtype, double scale, size_t longest, dtrain_dtype_t copy_dtype)
{
    int checked = 0;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        assert_int_equal(dt_isa_set_cap(isas[i]), 0);
        if (strcmp(dt_isa_name(), isas[i]) != 0) {
            print_message("skipped: this machine has no %s\n", isas[i]);
            continue;
        }
        for (size_t c = 0; c < NUM_CASES; c++)
            check_case(&cases[c], dtype, scale, longest, copy_dtype);
        checked++;
    }
    assert_true(checked > 0);
}

static void test_update_f32_whole_range_gives_the_documented_bits(void **state)
{
    (void)state;
    check_all(DTRAIN_DTYPE_F32, 1, COUNT, 0);
}

static void test_update_f32_scaled_in_pieces_gives_the_documented_bits(void **state)
{
    (void)state;
    check_all(DTRAIN_DTYPE_F32, 1.0 / 3, 70, 0);
}

static void test_update_f64_in_pieces_gives_the_documented_bits(void **state)
{
    (void)state;
    check_all(DTRAIN_DTYPE_F64, 1.0 / 3, 70, 0);
}

static void test_update_f16_gradients_with_copy_give_the_documented_bits(void **state)
{
    (void)state;
    check_all(DTRAIN_DTYPE_F16, 0.25, 70, DTRAIN_DTYPE_F16);
}

static void test_update_bf16_gradients_with_copy_give_the_documented_bits(void **state)
{
    (void)state;
    check_all(DTRAIN_DTYPE_BF16, 3, 70, DTRAIN_DTYPE_BF16);
}

static void test_update_copy_over_the_gradients_is_the_same(void **state)
{
    (void)state;
    start();
    draw_gradients(DTRAIN_DTYPE_BF16);
    dt_update_range_t range = range_of(DTRAIN_DTYPE_BF16, 0, COUNT, DTRAIN_DTYPE_BF16);
    range.copy = work.gradients_half + 1;
    step_reference(&cases[5], DTRAIN_DTYPE_BF16, 1, 1);
    dt_update(&cases[5], 1, 1, &range);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(work.gradients_half[i + 1], dt_f32_to_bf16(expected_f32[i].parameter));
}

/* Late steps: the bias correction has gone, and beta^step has many roundings behind it. */
static void test_update_adam_at_a_late_step_is_near_the_truth(void **state)
{
    (void)state;
    const dt_update_settings_t *adam = &cases[5];
    static const int64_t steps[] = {10, 999, 5000, 123456};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        double parameter = 0.5, gradient = 0.25, first = 0.125, second = 0.01;
        element_f64_t truth = {parameter, first, second};
        reference_update_f64(adam, steps[i], 1, gradient, &truth);
        dt_update_range_t range = {.count = 1,
                                   .dtype = DTRAIN_DTYPE_F64,
                                   .gradient_dtype = DTRAIN_DTYPE_F64,
                                   .gradients = &gradient,
                                   .parameters = &parameter,
                                   .first = &first,
                                   .second = &second};
        dt_update(adam, steps[i], 1, &range);
        assert_true(fabs(parameter - truth.parameter) < 1e-15);
    }
}

static void test_update_without_momentum_needs_no_state(void **state)
{
    (void)state;
    float gradients[33], parameters[33];
    for (int i = 0; i < 33; i++) {
        gradients[i] = (float)i;
        parameters[i] = 1;
    }
    dt_update_range_t range = {.count = 33,
                               .dtype = DTRAIN_DTYPE_F32,
                               .gradient_dtype = DTRAIN_DTYPE_F32,
                               .gradients = gradients,
                               .parameters = parameters};
    dt_update_settings_t sgd = {.rule = DT_UPDATE_SGD, .learning_rate = 0.5};
    assert_int_equal(dt_update_num_states(&sgd), 0);
    dt_update(&sgd, 1, 2, &range);
    for (int i = 0; i < 33; i++)
        assert_true(parameters[i] == 1 - (float)i);
}

static void test_update_num_states_is_what_the_rule_needs(void **state)
{
    (void)state;
    assert_int_equal(dt_update_num_states(&cases[2]), 1);
    assert_int_equal(dt_update_num_states(&cases[5]), 2);
    assert_int_equal(dt_update_num_states(&cases[7]), 2);
}

static void assert_refused(dt_update_settings_t settings, const char *word)
{
    assert_int_equal(dt_update_check(&settings), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dt_last_error(), word));
}

static void test_update_check_refuses_what_makes_no_sense_by_name(void **state)
{
    (void)state;
    const dt_update_settings_t sgd = cases[3], adam = cases[6];
    dt_update_settings_t wrong = sgd;
    wrong.rule = (dt_update_rule_t)7;
    assert_refused(wrong, "7 is no optimizer");
    wrong = sgd;
    wrong.learning_rate = NAN;
    assert_refused(wrong, "learning rate");
    wrong = sgd;
    wrong.weight_decay = -1;
    assert_refused(wrong, "weight decay");
    wrong = sgd;
    wrong.momentum = INFINITY;
    assert_refused(wrong, "momentum");
    wrong.momentum = 0;
    wrong.nesterov = 1;
    assert_refused(wrong, "Nesterov");
    wrong = adam;
    wrong.beta1 = 1;
    assert_refused(wrong, "beta1");
    wrong = adam;
    wrong.beta2 = -0.1;
    assert_refused(wrong, "beta2");
    wrong = adam;
    wrong.epsilon = -1e-8;
    assert_refused(wrong, "epsilon");
}

static int no_cap(void **state)
{
    (void)state;
    return dt_isa_set_cap("auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_update_f32_whole_range_gives_the_documented_bits, no_cap),
        cmocka_unit_test_teardown(test_update_f32_scaled_in_pieces_gives_the_documented_bits,
                                  no_cap),
        cmocka_unit_test_teardown(test_update_f64_in_pieces_gives_the_documented_bits, no_cap),
        cmocka_unit_test_teardown(test_update_f16_gradients_with_copy_give_the_documented_bits,
                                  no_cap),
        cmocka_unit_test_teardown(test_update_bf16_gradients_with_copy_give_the_documented_bits,
                                  no_cap),
        cmocka_unit_test(test_update_copy_over_the_gradients_is_the_same),
        cmocka_unit_test(test_update_adam_at_a_late_step_is_near_the_truth),
        cmocka_unit_test(test_update_without_momentum_needs_no_state),
        cmocka_unit_test(test_update_num_states_is_what_the_rule_needs),
        cmocka_unit_test(test_update_check_refuses_what_makes_no_sense_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
