/* Optimizers when something is wrong on one rank: all ranks learn of it, and go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/status.h"
#include "engine_world.h"
#include "optimizer_training.h"

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
    dtrain_gradset_t *set = training_make_set(self, training);
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
    training = training_plain(DTRAIN_RULE_ADAM);
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
            training_write(set, training, self->rank, step, i);
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
    training = training_plain(DTRAIN_RULE_ADAM);
    engine_run(2, NULL, stay_away, &training);
    training.desc.sharded = 1;
    engine_run(3, NULL, stay_away, &training);
}

/* A rank that has joined is missed where each has a share, and nowhere else. */
static void join_early(engine_rank_t *self)
{
    const training_t *training = self->argument;
    dtrain_gradset_t *set = training_make_set(self, training);
    dtrain_optimizer_t *optimizer = NULL;
    int last, is_sharded = training->desc.sharded;
    if (!set || !ENGINE_OK(self, dt_optimizer_create(set, &training->desc, &optimizer)))
        return;
    for (int step = 0; step < 3 && (step < 2 || self->rank > 0); step++) {
        for (int i = 0; i < MODEL_PARAMS; i++) {
            training_write(set, training, self->rank, step, i);
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
    training = training_plain(DTRAIN_RULE_ADAM);
    engine_run(3, NULL, join_early, &training);
    training.desc.sharded = 1;
    engine_run(3, NULL, join_early, &training);
}

/* The first rank leaves one step of the optimizer out; then all have done the same steps. */
static void skip_a_step(engine_rank_t *self)
{
    const int *sharded = self->argument;
    const dtrain_optimizer_desc_t desc = {.struct_size = sizeof desc,
                                          .rule = DTRAIN_RULE_ADAM,
                                          .sharded = sharded[0],
                                          .max_norm = sharded[1]};
    const training_t training = training_plain(DTRAIN_RULE_ADAM);
    dtrain_gradset_t *set = training_make_set(self, &training);
    dtrain_optimizer_t *optimizer = NULL;
    if (!set || !ENGINE_OK(self, dt_optimizer_create(set, &desc, &optimizer)))
        return;
    for (int step = 0; step < 6; step++) {
        int is_refused = self->rank == 0 && step == 3;
        for (int i = 0; i < MODEL_PARAMS; i++)
            ENGINE_STATUS(self, dt_gradset_mark(set, i, 1, NULL),
                          is_refused ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_OK);
        if (self->rank == 0 && step == 2)
            continue;
        ENGINE_STATUS(self, dt_optimizer_step(optimizer, 0.1, NULL),
                      step == 3 ? DTRAIN_ERR_MISMATCH : DTRAIN_OK);
        if (step == 3)
            ENGINE_TEXT(self, dt_last_error(), "rank 0: 4 (marked before step 3 was ended)");
    }
    int differs = 1;
    ENGINE_CHECK(self, optimizer->step == 5);
    for (int i = 0; i < MODEL_PARAMS; i++) {
        size_t bytes = (size_t)model_counts[i] * sizeof(float);
        ENGINE_OK(self, dt_talk_compare(&set->talk, dt_hash(optimizer->data[i], bytes), &differs));
        ENGINE_CHECK(self, !differs);
    }
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_optimizer_whose_step_a_rank_leaves_out_has_the_same_steps_on_all(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        int options[2] = {i % 2, i / 2};
        for (int size = 2; size <= 4; size++)
            engine_run(size, NULL, skip_a_step, options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer_that_one_rank_is_refused_fails_on_all),
        cmocka_unit_test(test_optimizer_of_integers_is_unsupported),
        cmocka_unit_test(test_optimizer_sharded_of_a_set_with_a_codec_is_unsupported),
        cmocka_unit_test(test_optimizer_whose_gradients_fail_leaves_parameters_and_goes_on),
        cmocka_unit_test(test_optimizer_sharded_says_that_a_rank_has_joined),
        cmocka_unit_test(test_optimizer_whose_step_a_rank_leaves_out_has_the_same_steps_on_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
