/* Gradients against finite differences, and what makes shards add up to the whole. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model.h"
#include "random.h"

#define ROWS 6

static const int sizes[] = {7, 8, 6, 5};
static model_t model;
static float parameters[512], gradients[512];

/* The layers' memory, the first layer first. */
static void place(model_t *placed, float *values, float *their_gradients)
{
    for (int i = 0; i < placed->layer_count; i++) {
        layer_t *layer = &placed->layers[i];
        int weights = layer->inputs * layer->outputs;
        layer->weight = values;
        layer->bias = values + weights;
        layer->weight_gradient = their_gradients;
        layer->bias_gradient = their_gradients + weights;
        values += weights + layer->outputs;
        their_gradients += weights + layer->outputs;
    }
}

static int setup(void **state)
{
    (void)state;
    mlp_error_t error = {.text = ""};
    assert_int_equal(model_create(sizes, 4, ROWS, &model, &error), 0);
    assert_in_range(model.parameter_count, 1, 512);
    place(&model, parameters, gradients);
    model_initialize(&model, 3);
    random_stream_t random = random_begin(11, 0);
    for (int64_t i = 0; i < model.parameter_count; i++)
        parameters[i] += 0.05f * random_normal(&random); /* biases other than 0 */
    for (int i = 0; i < ROWS * sizes[0]; i++)
        model.inputs[i] = random_normal(&random);
    for (int i = 0; i < ROWS; i++)
        model.labels[i] = (uint8_t)random_below(&random, 5);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    model_free(&model);
    return 0;
}

static double loss_of(int rows, float scale)
{
    model_forward(&model, rows);
    return model_loss(&model, rows, scale);
}

static void backward(int rows, float scale)
{
    loss_of(rows, scale);
    for (int i = model.layer_count - 1; i >= 0; i--) {
        model_backward_parameters(&model, i, rows);
        if (i > 0)
            model_backward_input(&model, i, rows);
    }
}

static void test_model_gradients_match_finite_differences(void **state)
{
    const float step = 2e-3f;
    (void)state;
    backward(ROWS, 1.0f / ROWS);
    for (int64_t i = 0; i < model.parameter_count; i++) {
        float value = parameters[i];
        parameters[i] = value + step;
        double above = loss_of(ROWS, 1.0f) / ROWS;
        parameters[i] = value - step;
        double below = loss_of(ROWS, 1.0f) / ROWS;
        parameters[i] = value;
        double expected = (above - below) / (2.0 * (double)step);
        if (fabs((double)gradients[i] - expected) > 1e-3 + 0.01 * fabs(expected))
            fail_msg("parameter %ld: gradient %g, finite difference %g", (long)i,
                     (double)gradients[i], expected);
    }
}

static void test_model_shards_add_up_to_the_batch(void **state)
{
    float whole[512];
    float sum[512] = {0};
    float inputs[ROWS * 7];
    uint8_t labels[ROWS];
    const int first[] = {0, 2, 2, ROWS}; /* shards of 2, 0 and 4 rows */
    (void)state;
    backward(ROWS, 1.0f / ROWS);
    memcpy(whole, gradients, (size_t)model.parameter_count * sizeof(float));
    memcpy(inputs, model.inputs, sizeof inputs);
    memcpy(labels, model.labels, sizeof labels);
    for (int shard = 0; shard < 3; shard++) {
        int rows = first[shard + 1] - first[shard];
        memcpy(model.inputs, inputs + first[shard] * 7, (size_t)rows * 7 * sizeof(float));
        memcpy(model.labels, labels + first[shard], (size_t)rows);
        backward(rows, 1.0f / ROWS);
        for (int64_t i = 0; i < model.parameter_count; i++)
            sum[i] += gradients[i];
    }
    for (int64_t i = 0; i < model.parameter_count; i++)
        assert_float_equal(sum[i], whole[i], 1e-5f);
}

static void test_model_no_rows_gives_zero_gradients(void **state)
{
    (void)state;
    for (int64_t i = 0; i < model.parameter_count; i++)
        gradients[i] = NAN;
    backward(0, 1.0f);
    for (int64_t i = 0; i < model.parameter_count; i++)
        assert_true(gradients[i] == 0.0f);
}

static void test_model_zero_parameters_guess_evenly(void **state)
{
    (void)state;
    memset(parameters, 0, (size_t)model.parameter_count * sizeof(float));
    assert_float_equal(loss_of(ROWS, 1.0f) / ROWS, log(5.0), 1e-5);
    assert_int_equal(model_correct(&model, ROWS), 0); /* a tie is no answer */
}

static void test_model_huge_outputs_give_a_finite_loss(void **state)
{
    (void)state;
    for (int64_t i = 0; i < model.parameter_count; i++)
        parameters[i] *= 1e4f;
    assert_true(isfinite(loss_of(ROWS, 1.0f)));
}

static void test_model_counts_the_rows_whose_label_is_highest(void **state)
{
    (void)state;
    layer_t *last = &model.layers[model.layer_count - 1];
    memset(parameters, 0, (size_t)model.parameter_count * sizeof(float));
    last->bias[2] = 1.0f;
    int expected = 0;
    for (int i = 0; i < ROWS; i++)
        expected += model.labels[i] == 2;
    model_forward(&model, ROWS);
    assert_int_equal(model_correct(&model, ROWS), expected);
}

static void test_model_initial_weights_follow_from_the_seed(void **state)
{
    mlp_error_t error = {.text = ""};
    model_t wide;
    const int wide_sizes[] = {400, 300};
    (void)state;
    static float wide_parameters[401 * 300], wide_gradients[401 * 300];
    assert_int_equal(model_create(wide_sizes, 2, 1, &wide, &error), 0);
    place(&wide, wide_parameters, wide_gradients);
    model_initialize(&wide, 1);
    double squares = 0.0;
    for (int i = 0; i < 400 * 300; i++)
        squares += (double)wide_parameters[i] * (double)wide_parameters[i];
    assert_float_equal(squares / (400 * 300), 2.0 / 400, 0.0001);
    assert_true(wide.layers[0].bias[0] == 0.0f);
    float first = wide_parameters[0];
    model_initialize(&wide, 2);
    assert_true(wide_parameters[0] != first);
    model_initialize(&wide, 1);
    assert_true(wide_parameters[0] == first);
    model_free(&wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model_gradients_match_finite_differences, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_model_shards_add_up_to_the_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model_no_rows_gives_zero_gradients, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model_zero_parameters_guess_evenly, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model_huge_outputs_give_a_finite_loss, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_model_counts_the_rows_whose_label_is_highest, setup,
                                        teardown),
        cmocka_unit_test(test_model_initial_weights_follow_from_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
