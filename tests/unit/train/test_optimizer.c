/* Optimizers on ranks that are threads: sharded and not, clipping, loss scaling, rounded
 * parameters, a rule of the user's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "engine_world.h"
#include "optimizer_training.h"
#include "reduce/half.h"

#define STEPS 8

static float start_value(int index, int64_t element)
{
    return 1e-4f * (float)((index * 131 + (int)element * 17) % 1999 - 1000);
}

static void put_value(void *values, dtrain_dtype_t dtype, int64_t at, float value)
{
    if (dtype == DTRAIN_DTYPE_F64)
        ((double *)values)[at] = value;
    else if (dtype == DTRAIN_DTYPE_BF16)
        ((uint16_t *)values)[at] = dt_f32_to_bf16(value);
    else
        ((float *)values)[at] = value;
}

static float get_value(const void *values, dtrain_dtype_t dtype, int64_t at)
{
    if (dtype == DTRAIN_DTYPE_F64)
        return (float)((const double *)values)[at];
    if (dtype == DTRAIN_DTYPE_BF16)
        return dt_bf16_to_f32(((const uint16_t *)values)[at]);
    return ((const float *)values)[at];
}

static void train(engine_rank_t *self)
{
    training_t *training = self->argument;
    dtrain_dtype_t dtype = training->dtype ? training->dtype : DTRAIN_DTYPE_F32;
    dtrain_gradset_t *set = training_make_set(self, training);
    dtrain_optimizer_t *optimizer = NULL;
    if (!set || !ENGINE_OK(self, dt_optimizer_create(set, &training->desc, &optimizer)))
        return;
    for (int i = 0; i < MODEL_PARAMS && self->rank == 0; i++) {
        for (int64_t e = 0; e < model_counts[i]; e++)
            put_value(optimizer->data[i], dtype, e, start_value(i, e));
    }
    ENGINE_OK(self, dt_optimizer_broadcast(optimizer, 0));
    dtrain_step_info_t info = {.struct_size = sizeof info};
    int skipped = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int i = MODEL_PARAMS - 1; i >= 0; i--) {
            training_write(set, training, self->rank, step, i);
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        }
        if (training->waits)
            ENGINE_OK(self, dt_gradset_wait(set));
        ENGINE_OK(self, dt_optimizer_step(optimizer, 1e-3, &info));
        skipped += info.skipped;
    }
    int64_t at = 0, differ = 0;
    static float first[TRAINING_TOTAL]; /* rank 0's, between two meetings */
    for (int i = 0; i < MODEL_PARAMS && self->rank == 0; i++) {
        for (int64_t e = 0; e < model_counts[i]; e++)
            first[at++] = get_value(optimizer->data[i], dtype, e);
    }
    engine_meet(self);
    at = 0;
    for (int i = 0; i < MODEL_PARAMS; i++) {
        for (int64_t e = 0; e < model_counts[i]; e++) {
            float value = get_value(optimizer->data[i], dtype, e);
            differ += value != first[at++];
        }
    }
    ENGINE_CHECK(self, differ == 0);
    if (self->rank == 0) {
        memcpy(training->values, first, sizeof first);
        training->last = info;
        training->num_skipped = skipped;
        training->state_bytes = optimizer->state_bytes;
    }
    engine_meet(self);
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static int has_changed(const training_t *training)
{
    int64_t at = 0, same = 0;
    for (int i = 0; i < MODEL_PARAMS; i++) {
        for (int64_t e = 0; e < model_counts[i]; e++)
            same += training->values[at++] == start_value(i, e);
    }
    return same < TRAINING_TOTAL / 10;
}

/* The same training in several ways ends with the same bits. */
static void compare_ways(training_t *training, int size)
{
    training_t *other = malloc(sizeof *other);
    assert_non_null(other);
    training->desc.sharded = 0;
    engine_run(size, NULL, train, training);
    assert_true(has_changed(training));
    for (int way = 1; way < 16; way += way < 4 ? 1 : 3) {
        *other = *training;
        memset(other->values, 0, sizeof other->values);
        other->desc.sharded = way & 1;
        other->own_memory = (way >> 1) & 1;
        other->waits = (way >> 2) & 1;
        other->bucket_bytes = way & 8 ? 1 : 1 << 20;
        engine_run(size, NULL, train, other);
        assert_memory_equal(other->values, training->values, sizeof training->values);
        assert_true(other->last.norm == training->last.norm);
    }
    free(other);
}

static void test_optimizer_sharded_or_not_gives_the_same_bits(void **state)
{
    (void)state;
    static training_t training;
    for (int size = 1; size <= 4; size++) {
        training = training_plain(DTRAIN_RULE_SGD);
        training.desc.momentum = 0.9;
        training.desc.nesterov = 1;
        compare_ways(&training, size);
        training = training_plain(DTRAIN_RULE_ADAMW);
        compare_ways(&training, size);
    }
    training = training_plain(DTRAIN_RULE_ADAM);
    compare_ways(&training, 3);
    training = training_plain(DTRAIN_RULE_SGD);
    compare_ways(&training, 2);
}

static void test_optimizer_sharded_keeps_a_share_of_the_state(void **state)
{
    (void)state;
    static training_t training;
    training = training_plain(DTRAIN_RULE_ADAM);
    training.bucket_bytes = 1 << 20;
    engine_run(4, NULL, train, &training);
    int64_t whole = training.state_bytes;
    assert_true(whole >= 2 * 4 * TRAINING_TOTAL);
    training.desc.sharded = 1;
    engine_run(4, NULL, train, &training);
    assert_true(training.state_bytes < whole / 2);
}

/* ---- Clipping and loss scaling --------------------------------------------------------------- */

static void test_optimizer_clips_by_the_norm_over_all_ranks(void **state)
{
    (void)state;
    static training_t training;
    for (int size = 1; size <= 3; size++) {
        double squares = 0;
        for (int i = 0; i < MODEL_PARAMS; i++) {
            for (int64_t e = 0; e < model_counts[i]; e++) {
                float sum = 0;
                for (int r = 0; r < size; r++)
                    sum += 1e-10f * model_value(r, STEPS - 1, i, e);
                squares += (double)sum * sum;
            }
        }
        training = training_plain(DTRAIN_RULE_SGD);
        training.desc.max_norm = 0.01;
        compare_ways(&training, size);
        assert_true(fabs(training.last.norm / sqrt(squares) - 1) < 1e-5);
        assert_true(fabs(training.last.clip * training.last.norm / 0.01 - 1) < 1e-3);
        training.desc.max_norm = 1e9;
        engine_run(size, NULL, train, &training);
        assert_true(training.last.clip == 1);
    }
}

static void test_optimizer_skips_a_step_that_is_not_finite_on_one_rank(void **state)
{
    (void)state;
    static training_t training;
    for (int size = 1; size <= 3; size++) {
        training = training_plain(DTRAIN_RULE_ADAM);
        training.desc.loss_scale = 1024;
        training.desc.growth_interval = 5;
        training.gradient_scale = 1024;
        training.bad_step = 1;
        training.bad_rank = size - 1;
        compare_ways(&training, size);
        assert_int_equal(training.num_skipped, 1);
        assert_int_equal(training.last.step, STEPS - 1);
        /* Halved at the second step, doubled after five good ones, and one more. */
        assert_true(training.last.loss_scale == 1024);
    }
}

static void test_optimizer_divides_by_the_loss_scale(void **state)
{
    (void)state;
    static training_t scaled, plainly;
    scaled = training_plain(DTRAIN_RULE_ADAM);
    plainly = scaled;
    scaled.desc.loss_scale = 65536;
    scaled.gradient_scale = 65536;
    engine_run(2, NULL, train, &scaled);
    engine_run(2, NULL, train, &plainly);
    /* A power of two rounds nothing. */
    assert_memory_equal(scaled.values, plainly.values, sizeof scaled.values);
}

/* ---- Types and rules ---------------------------------------------------------------------------
 */

static void test_optimizer_of_rounded_parameters_keeps_them_exact(void **state)
{
    (void)state;
    static training_t rounded, exact;
    rounded = training_plain(DTRAIN_RULE_ADAM);
    rounded.dtype = DTRAIN_DTYPE_BF16;
    for (int size = 1; size <= 3; size++)
        compare_ways(&rounded, size);
    /* Steps that are too small to be seen in one: they add up. */
    exact = training_plain(DTRAIN_RULE_ADAM);
    engine_run(3, NULL, train, &exact);
    int64_t far = 0;
    for (int64_t i = 0; i < TRAINING_TOTAL; i++)
        far += fabsf(rounded.values[i] - exact.values[i]) > 1e-3f;
    assert_true(far < TRAINING_TOTAL / 100);
}

static void test_optimizer_of_doubles_gives_the_same_bits_both_ways(void **state)
{
    (void)state;
    static training_t training;
    training = training_plain(DTRAIN_RULE_ADAM);
    training.dtype = DTRAIN_DTYPE_F64;
    training.gradient_scale = 0; /* the gradients are written as floats: zeros are zeros */
    training.desc.weight_decay = 0.5;
    compare_ways(&training, 2);
}

/* SGD with momentum, as a user would write it. */
static void momentum_rule(const dtrain_update_t *update, void *user)
{
    const float *gradients = update->gradients;
    float *values = update->values, *velocity = update->states[0];
    float momentum = *(const float *)user;
    for (int64_t i = 0; i < update->count; i++) {
        velocity[i] = momentum * velocity[i] + gradients[i] * (float)update->scale;
        values[i] -= (float)update->learning_rate * velocity[i];
    }
}

static void test_optimizer_of_the_users_rule_updates_as_it_says(void **state)
{
    (void)state;
    static training_t own, library;
    float momentum = 0.9f;
    own = training_plain(DTRAIN_RULE_USER);
    own.desc.num_states = 1;
    own.desc.update = momentum_rule;
    own.desc.user = &momentum;
    library = training_plain(DTRAIN_RULE_SGD);
    library.desc.weight_decay = 0;
    library.desc.momentum = momentum;
    for (int size = 1; size <= 3; size += 2) {
        compare_ways(&own, size);
        engine_run(size, NULL, train, &library);
        assert_memory_equal(own.values, library.values, sizeof own.values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer_sharded_or_not_gives_the_same_bits),
        cmocka_unit_test(test_optimizer_sharded_keeps_a_share_of_the_state),
        cmocka_unit_test(test_optimizer_clips_by_the_norm_over_all_ranks),
        cmocka_unit_test(test_optimizer_skips_a_step_that_is_not_finite_on_one_rank),
        cmocka_unit_test(test_optimizer_divides_by_the_loss_scale),
        cmocka_unit_test(test_optimizer_of_rounded_parameters_keeps_them_exact),
        cmocka_unit_test(test_optimizer_of_doubles_gives_the_same_bits_both_ways),
        cmocka_unit_test(test_optimizer_of_the_users_rule_updates_as_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
