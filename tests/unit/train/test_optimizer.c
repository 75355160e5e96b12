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
#include "gradset_model.h"
#include "reduce/half.h"
#include "train/optimizer_state.h"

#define STEPS 8
#define TOTAL (5000 + 33 + 20000 + 1 + 4096 + 257)

/* What a training is to be, and what came of it. */
typedef struct training {
    dtrain_optimizer_desc_t desc;
    int own_memory;       /* of the caller, for every other parameter */
    dtrain_dtype_t dtype; /* of parameters; 0: float32 */
    int64_t bucket_bytes;
    int waits;              /* the program calls the wait itself */
    int bad_step, bad_rank; /* whose gradients are not finite; bad_rank -1: nobody's */
    float gradient_scale;
    float values[TOTAL]; /* of rank 0 at the end, as float32 */
    dtrain_step_info_t last;
    int num_skipped;
    int64_t state_bytes; /* of rank 0 */
} training_t;

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

static void write_gradient(const dtrain_gradset_t *set, const training_t *training, int rank,
                           int step, int index)
{
    float *buffer = dt_gradset_buffer(set, index);
    for (int64_t e = 0; e < model_counts[index]; e++)
        buffer[e] = training->gradient_scale * 1e-10f * model_value(rank, step, index, e);
    if (step == training->bad_step && rank == training->bad_rank && index == 3)
        buffer[12345] = INFINITY;
}

static dtrain_gradset_t *make_set(engine_rank_t *self, const training_t *training)
{
    model_t model;
    dtrain_gradset_t *set = NULL;
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc,
                                        .first_bucket_bytes = 4096,
                                        .bucket_bytes = training->bucket_bytes};
    model_fill(&model);
    for (int i = 0; i < MODEL_PARAMS; i++) {
        model.params[i].gradient_dtype = DTRAIN_DTYPE_F32;
        if (training->dtype)
            model.params[i].dtype = training->dtype;
        if (training->dtype == DTRAIN_DTYPE_F64)
            model.params[i].gradient_dtype = DTRAIN_DTYPE_F64;
        if (training->own_memory && i % 2)
            model.params[i].data = engine_buffer(self, (size_t)model_counts[i] * 8 + 8);
    }
    ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set));
    return set;
}

static void train(engine_rank_t *self)
{
    training_t *training = self->argument;
    dtrain_dtype_t dtype = training->dtype ? training->dtype : DTRAIN_DTYPE_F32;
    dtrain_gradset_t *set = make_set(self, training);
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
            write_gradient(set, training, self->rank, step, i);
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        }
        if (training->waits)
            ENGINE_OK(self, dt_gradset_wait(set));
        ENGINE_OK(self, dt_optimizer_step(optimizer, 1e-3, &info));
        skipped += info.skipped;
    }
    int64_t at = 0, differ = 0;
    static float first[TOTAL]; /* rank 0's, between two meetings */
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

static training_t plain(int rule)
{
    return (training_t){.desc = {.struct_size = sizeof(dtrain_optimizer_desc_t),
                                 .rule = rule,
                                 .weight_decay = 0.01},
                        .bucket_bytes = 40000,
                        .bad_rank = -1,
                        .gradient_scale = 1};
}

static int has_changed(const training_t *training)
{
    int64_t at = 0, same = 0;
    for (int i = 0; i < MODEL_PARAMS; i++) {
        for (int64_t e = 0; e < model_counts[i]; e++)
            same += training->values[at++] == start_value(i, e);
    }
    return same < TOTAL / 10;
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
        training = plain(DTRAIN_RULE_SGD);
        training.desc.momentum = 0.9;
        training.desc.nesterov = 1;
        compare_ways(&training, size);
        training = plain(DTRAIN_RULE_ADAMW);
        compare_ways(&training, size);
    }
    training = plain(DTRAIN_RULE_ADAM);
    compare_ways(&training, 3);
    training = plain(DTRAIN_RULE_SGD);
    compare_ways(&training, 2);
}

static void test_optimizer_sharded_keeps_a_share_of_the_state(void **state)
{
    (void)state;
    static training_t training;
    training = plain(DTRAIN_RULE_ADAM);
    training.bucket_bytes = 1 << 20;
    engine_run(4, NULL, train, &training);
    int64_t whole = training.state_bytes;
    assert_true(whole >= 2 * 4 * TOTAL);
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
        training = plain(DTRAIN_RULE_SGD);
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
        training = plain(DTRAIN_RULE_ADAM);
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
    scaled = plain(DTRAIN_RULE_ADAM);
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
    rounded = plain(DTRAIN_RULE_ADAM);
    rounded.dtype = DTRAIN_DTYPE_BF16;
    for (int size = 1; size <= 3; size++)
        compare_ways(&rounded, size);
    /* Steps that are too small to be seen in one: they add up. */
    exact = plain(DTRAIN_RULE_ADAM);
    engine_run(3, NULL, train, &exact);
    int64_t far = 0;
    for (int64_t i = 0; i < TOTAL; i++)
        far += fabsf(rounded.values[i] - exact.values[i]) > 1e-3f;
    assert_true(far < TOTAL / 100);
}

static void test_optimizer_of_doubles_gives_the_same_bits_both_ways(void **state)
{
    (void)state;
    static training_t training;
    training = plain(DTRAIN_RULE_ADAM);
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
    own = plain(DTRAIN_RULE_USER);
    own.desc.num_states = 1;
    own.desc.update = momentum_rule;
    own.desc.user = &momentum;
    library = plain(DTRAIN_RULE_SGD);
    library.desc.weight_decay = 0;
    library.desc.momentum = momentum;
    for (int size = 1; size <= 3; size += 2) {
        compare_ways(&own, size);
        engine_run(size, NULL, train, &library);
        assert_memory_equal(own.values, library.values, sizeof own.values);
    }
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void expect(engine_rank_t *self, dtrain_gradset_t *set, const dtrain_optimizer_desc_t *desc,
                   dtrain_status_t status, const char *part)
{
    dtrain_optimizer_t *optimizer = NULL;
    ENGINE_STATUS(self, dt_optimizer_create(set, desc, &optimizer), status);
    ENGINE_TEXT(self, dt_last_error(), part);
    ENGINE_CHECK(self, !optimizer);
}

static void refuse(engine_rank_t *self)
{
    const training_t *training = self->argument;
    dtrain_gradset_t *set = make_set(self, training);
    const dtrain_optimizer_desc_t good = training->desc;
    dtrain_optimizer_desc_t bad = good;
    dtrain_optimizer_t *optimizer;
    int is_last = self->rank == self->size - 1;
    if (!set)
        return;
    if (is_last)
        bad.rule = 9;
    expect(self, set, &bad, DTRAIN_ERR_INVALID_ARGUMENT, "9 is no rule");
    bad = good;
    if (is_last)
        bad.beta2 = 1;
    expect(self, set, &bad, DTRAIN_ERR_INVALID_ARGUMENT, "beta2 is 1");
    bad = good;
    if (is_last)
        bad.rule = DTRAIN_RULE_USER;
    expect(self, set, &bad, DTRAIN_ERR_INVALID_ARGUMENT, "update is NULL");
    expect(self, set, is_last ? NULL : &good, DTRAIN_ERR_INVALID_ARGUMENT, "is NULL");
    bad = good;
    if (is_last)
        bad.max_norm = NAN;
    expect(self, set, &bad, DTRAIN_ERR_INVALID_ARGUMENT, "max_norm is");
    bad = good;
    bad.weight_decay = self->rank;
    if (self->size > 1)
        expect(self, set, &bad, DTRAIN_ERR_MISMATCH, "weight_decay is 1 here, and 0 on rank 0");
    if (!ENGINE_OK(self, dt_optimizer_create(set, &good, &optimizer)))
        return;
    expect(self, set, &good, DTRAIN_ERR_INVALID_ARGUMENT, "has an optimizer");
    ENGINE_STATUS(self, dt_optimizer_step(optimizer, -1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_STATUS(self, dt_gradset_destroy(set, 1), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_gradset_enable_sync(set, 0));
    ENGINE_STATUS(self, dt_optimizer_step(optimizer, 1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_gradset_enable_sync(set, 1));
    ENGINE_OK(self, dt_optimizer_step(optimizer, 1, NULL));
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_optimizer_that_one_rank_is_refused_fails_on_all(void **state)
{
    (void)state;
    static training_t training;
    training = plain(DTRAIN_RULE_ADAM);
    training.desc.weight_decay = 0;
    for (int size = 1; size <= 3; size++)
        engine_run(size, NULL, refuse, &training);
}

static void refuse_types(engine_rank_t *self)
{
    model_t model;
    dtrain_gradset_t *set = NULL;
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc};
    const dtrain_optimizer_desc_t rule = {.struct_size = sizeof rule, .rule = DTRAIN_RULE_SGD};
    model_fill(&model);
    model.params[5].dtype = DTRAIN_DTYPE_I32;
    ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set));
    if (!set)
        return;
    expect(self, set, &rule, DTRAIN_ERR_UNSUPPORTED, "parameter 'p5': int32");
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_optimizer_of_integers_is_unsupported(void **state)
{
    (void)state;
    engine_run(1, NULL, refuse_types, NULL);
    engine_run(2, NULL, refuse_types, NULL);
}

static void refuse_codec(engine_rank_t *self)
{
    model_t model;
    dtrain_gradset_t *set = NULL;
    dtrain_codec_t *codec = NULL;
    dtrain_optimizer_t *optimizer = NULL;
    dtrain_optimizer_desc_t rule = {
        .struct_size = sizeof rule, .rule = DTRAIN_RULE_SGD, .sharded = 1};
    ENGINE_OK(self, dtrain_codec_create("int8", &codec));
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc, .codec = codec};
    model_fill(&model);
    ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set));
    dtrain_codec_destroy(codec);
    if (!set)
        return;
    expect(self, set, &rule, DTRAIN_ERR_UNSUPPORTED, "codec int8");
    rule.sharded = 0;
    if (ENGINE_OK(self, dt_optimizer_create(set, &rule, &optimizer)))
        dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_optimizer_sharded_of_a_set_with_a_codec_is_unsupported(void **state)
{
    (void)state;
    engine_run(1, NULL, refuse_codec, NULL);
    engine_run(2, NULL, refuse_codec, NULL);
}

/* The last rank stays away from one step: the others' time out there, and all see in the next that
 * they are not at the same one. Neither changes anything. */
static void stay_away(engine_rank_t *self)
{
    const training_t *training = self->argument;
    model_t model;
    dtrain_gradset_t *set = NULL;
    dtrain_optimizer_t *optimizer = NULL;
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc, .timeout_ms = 200};
    model_fill(&model);
    ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set));
    if (!set || !ENGINE_OK(self, dt_optimizer_create(set, &training->desc, &optimizer)))
        return;
    for (int step = 0; step < 6; step++) {
        dtrain_status_t status = step == 2   ? DTRAIN_ERR_TIMEOUT
                                 : step == 3 ? DTRAIN_ERR_MISMATCH
                                             : DTRAIN_OK;
        engine_meet(self);
        float *values = optimizer->data[0];
        float before = values[7];
        if (step == 2 && self->rank == self->size - 1)
            continue;
        for (int i = 0; i < MODEL_PARAMS; i++) {
            write_gradient(set, training, self->rank, step, i);
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        }
        ENGINE_STATUS(self, dt_optimizer_step(optimizer, 0.5, NULL), status);
        ENGINE_CHECK(self, (values[7] == before) == (status != DTRAIN_OK));
    }
    ENGINE_CHECK(self, optimizer->step == 4);
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_optimizer_whose_gradients_fail_leaves_parameters_and_goes_on(void **state)
{
    (void)state;
    static training_t training;
    training = plain(DTRAIN_RULE_ADAM);
    engine_run(2, NULL, stay_away, &training);
    training.desc.sharded = 1;
    engine_run(3, NULL, stay_away, &training);
}

/* A rank that has joined is missed where each has a share, and nowhere else. */
static void join_early(engine_rank_t *self)
{
    const training_t *training = self->argument;
    dtrain_gradset_t *set = make_set(self, training);
    dtrain_optimizer_t *optimizer = NULL;
    int last, is_sharded = training->desc.sharded;
    if (!set || !ENGINE_OK(self, dt_optimizer_create(set, &training->desc, &optimizer)))
        return;
    for (int step = 0; step < 3 && (step < 2 || self->rank > 0); step++) {
        for (int i = 0; i < MODEL_PARAMS; i++) {
            write_gradient(set, training, self->rank, step, i);
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        }
        dtrain_status_t status = dt_optimizer_step(optimizer, 1e-3, NULL);
        int is_missed = step == 2 && is_sharded;
        ENGINE_STATUS(self, status, is_missed ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_OK);
        if (is_missed)
            ENGINE_TEXT(self, dt_last_error(), "some have joined: rank 0");
    }
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_optimizer_sharded_says_that_a_rank_has_joined(void **state)
{
    (void)state;
    static training_t training;
    training = plain(DTRAIN_RULE_ADAM);
    engine_run(3, NULL, join_early, &training);
    training.desc.sharded = 1;
    engine_run(3, NULL, join_early, &training);
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
        cmocka_unit_test(test_optimizer_that_one_rank_is_refused_fails_on_all),
        cmocka_unit_test(test_optimizer_of_integers_is_unsupported),
        cmocka_unit_test(test_optimizer_sharded_of_a_set_with_a_codec_is_unsupported),
        cmocka_unit_test(test_optimizer_whose_gradients_fail_leaves_parameters_and_goes_on),
        cmocka_unit_test(test_optimizer_sharded_says_that_a_rank_has_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
