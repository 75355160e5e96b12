/* The transformer's gradients, against differences of its loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "gpt_model.h"

#define SEQUENCES 2

static uint8_t text[SEQUENCES * GPT_LENGTH + 1];

static int64_t count_of(int index)
{
    int64_t shape[2];
    gpt_shape(index, shape);
    return shape[0] * shape[1];
}

static void create(gpt_model_t *model)
{
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)(i * i % 7 + 'a');
    assert_int_equal(gpt_create(model, SEQUENCES), 0);
    for (int i = 0; i < GPT_PARAMS; i++) {
        model->values[i] = calloc((size_t)count_of(i), sizeof(float));
        model->gradients[i] = calloc((size_t)count_of(i), sizeof(float));
        assert_non_null(model->values[i]);
        assert_non_null(model->gradients[i]);
    }
    for (int i = 0; i < SEQUENCES; i++)
        model->texts[i] = text + (size_t)i * GPT_LENGTH;
    gpt_initialize(model, 3);
}

static void destroy(gpt_model_t *model)
{
    for (int i = 0; i < GPT_PARAMS; i++) {
        free(model->values[i]);
        free(model->gradients[i]);
    }
    gpt_free(model);
}

static double loss_of(gpt_model_t *model)
{
    gpt_forward(model, SEQUENCES);
    return gpt_loss(model, SEQUENCES, 1);
}

static void note(int index, void *user)
{
    int *marks = user;
    marks[index]++;
}

/* Along a parameter's gradient the loss rises by the gradient's square. */
static void test_gpt_model_gradients_are_the_slopes_of_the_loss(void **state)
{
    (void)state;
    gpt_model_t model;
    int marks[GPT_PARAMS] = {0};
    create(&model);
    double before = loss_of(&model);
    assert_true(before / (SEQUENCES * GPT_LENGTH) > 4 && before / (SEQUENCES * GPT_LENGTH) < 8);
    gpt_backward(&model, SEQUENCES, note, marks);
    for (int i = 0; i < GPT_PARAMS; i++) {
        double square = 0;
        assert_int_equal(marks[i], 1);
        for (int64_t k = 0; k < count_of(i); k++)
            square += (double)model.gradients[i][k] * (double)model.gradients[i][k];
        assert_true(square > 0);
        double length = 0.02 / sqrt(square), slopes[2];
        for (int side = 0; side < 2; side++) {
            float move = (float)(side ? -length : length);
            for (int64_t k = 0; k < count_of(i); k++)
                model.values[i][k] += move * model.gradients[i][k];
            slopes[side] = (loss_of(&model) - before) / (double)move;
            for (int64_t k = 0; k < count_of(i); k++)
                model.values[i][k] -= move * model.gradients[i][k];
        }
        double slope = (slopes[0] + slopes[1]) / 2;
        if (fabs(slope / square - 1) > 0.03)
            print_error("parameter %d: slope %g, gradient's square %g\n", i, slope, square);
        assert_true(fabs(slope / square - 1) <= 0.03);
    }
    destroy(&model);
}

/* What comes later in the text changes no earlier prediction. */
static void test_gpt_model_predictions_look_back_only(void **state)
{
    (void)state;
    gpt_model_t model;
    float before[GPT_TOKENS];
    const int position = 20;
    create(&model);
    gpt_forward(&model, SEQUENCES);
    for (int k = 0; k < GPT_TOKENS; k++)
        before[k] = model.logits[position * GPT_TOKENS + k];
    text[position + 1] = 'z';
    gpt_forward(&model, SEQUENCES);
    for (int k = 0; k < GPT_TOKENS; k++)
        assert_true(model.logits[position * GPT_TOKENS + k] == before[k]);
    text[position] = 'z';
    gpt_forward(&model, SEQUENCES);
    int changed = 0;
    for (int k = 0; k < GPT_TOKENS; k++)
        changed += model.logits[position * GPT_TOKENS + k] != before[k];
    assert_true(changed > GPT_TOKENS / 2);
    destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt_model_gradients_are_the_slopes_of_the_loss),
        cmocka_unit_test(test_gpt_model_predictions_look_back_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
