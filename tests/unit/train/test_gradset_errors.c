/* Gradient sets when something is wrong on one rank: all ranks learn of it, and go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "engine_world.h"
#include "gradset_model.h"

static dtrain_gradset_desc_t plain(void)
{
    return (dtrain_gradset_desc_t){.struct_size = sizeof(dtrain_gradset_desc_t),
                                   .first_bucket_bytes = 4096,
                                   .bucket_bytes = 40000};
}

static void train_a_step(engine_rank_t *self, dtrain_gradset_t *set, int step)
{
    for (int i = 0; i < MODEL_PARAMS; i++) {
        model_write(set, self->rank, step, i);
        ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
    }
    ENGINE_OK(self, dt_gradset_wait(set));
    for (int i = 0; i < MODEL_PARAMS; i++)
        ENGINE_CHECK(self, model_wrong(set, self->size, step, i, 0, model_counts[i]) == 0);
}

/* Creation fails on all ranks with this text; then it works. */
static void expect(engine_rank_t *self, const dtrain_gradset_desc_t *desc,
                   const dtrain_param_t *params, dtrain_status_t status, const char *part)
{
    dtrain_gradset_t *set = NULL;
    ENGINE_STATUS(self, dt_gradset_create(self->runtime, desc, params, MODEL_PARAMS, &set), status);
    ENGINE_TEXT(self, dt_last_error(), part);
    model_t model;
    model_fill(&model);
    const dtrain_gradset_desc_t good = plain();
    if (ENGINE_OK(self,
                  dt_gradset_create(self->runtime, &good, model.params, MODEL_PARAMS, &set))) {
        train_a_step(self, set, 0);
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
    }
}

static void differ(engine_rank_t *self)
{
    static const int64_t other = 34;
    model_t model;
    dtrain_gradset_desc_t desc = plain();
    int is_last = self->rank == self->size - 1;
    char text[128];
    snprintf(text, sizeof text, "tensor 'p1': shape is [34] on rank %d, and [33] on rank 0",
             self->size - 1);
    model_fill(&model);
    if (is_last)
        model.params[1].shape = &other;
    expect(self, &desc, model.params, DTRAIN_ERR_MISMATCH, text);
    model_fill(&model);
    if (is_last)
        desc.op = DTRAIN_OP_AVERAGE;
    expect(self, &desc, model.params, DTRAIN_ERR_MISMATCH, "op is average on rank");
    dtrain_codec_t *codec = NULL;
    ENGINE_OK(self, dtrain_codec_create("topk:0.5", &codec));
    desc = plain();
    desc.codec = is_last ? codec : NULL;
    expect(self, &desc, model.params, DTRAIN_ERR_MISMATCH, "codec is topk:0.5 on rank");
    dtrain_codec_t bad = *codec;
    bad.name = NULL;
    desc.codec = is_last ? &bad : NULL;
    expect(self, &desc, model.params, DTRAIN_ERR_INVALID_ARGUMENT, "a codec needs a name");
    dtrain_codec_destroy(codec);
}

static void test_gradset_of_other_layouts_is_a_mismatch_that_names_the_tensor(void **state)
{
    (void)state;
    engine_run(2, NULL, differ, NULL);
    engine_run(4, NULL, differ, NULL);
}

static void refused(engine_rank_t *self)
{
    model_t model;
    dtrain_gradset_desc_t desc = plain();
    int is_last = self->rank == self->size - 1;
    model_fill(&model);
    if (is_last)
        model.params[2].name = "";
    expect(self, &desc, model.params, DTRAIN_ERR_INVALID_ARGUMENT, "parameter 2 has no name");
    model_fill(&model);
    if (is_last)
        desc.op = DTRAIN_OP_MAX;
    expect(self, &desc, model.params, DTRAIN_ERR_UNSUPPORTED, "adds up or averages");
    desc = plain();
    expect(self, is_last ? NULL : &desc, model.params, DTRAIN_ERR_INVALID_ARGUMENT,
           "description of the gradient set is NULL");
    if (is_last)
        desc.bucket_bytes = -1;
    expect(self, &desc, model.params, DTRAIN_ERR_INVALID_ARGUMENT, "size of buckets");
    desc = plain();
    if (is_last)
        desc.pset = 77;
    expect(self, &desc, model.params, DTRAIN_ERR_INVALID_ARGUMENT, "process set 77");
}

static void test_gradset_that_one_rank_is_refused_fails_on_all(void **state)
{
    (void)state;
    engine_run(1, NULL, refused, NULL);
    engine_run(2, NULL, refused, NULL);
    engine_run(3, NULL, refused, NULL);
}

/* The last rank does not take part in a step: the others' buckets pass their deadline there. What
 * it submits later is of an older step than theirs, and not added to it. */
static void late(engine_rank_t *self)
{
    model_t model;
    dtrain_gradset_desc_t desc = plain();
    dtrain_gradset_t *set;
    desc.timeout_ms = 200;
    model_fill(&model);
    if (!ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set)))
        return;
    train_a_step(self, set, 0);
    engine_meet(self);
    if (self->rank < self->size - 1) {
        for (int i = 0; i < MODEL_PARAMS; i++)
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        ENGINE_STATUS(self, dt_gradset_wait(set), DTRAIN_ERR_TIMEOUT);
        ENGINE_TEXT(self, dt_last_error(), "gradients: ");
        ENGINE_TEXT(self, dt_last_error(), "p");
    }
    engine_meet(self);
    for (int i = 0; i < MODEL_PARAMS; i++)
        ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
    ENGINE_STATUS(self, dt_gradset_wait(set), DTRAIN_ERR_MISMATCH);
    char late_step[32];
    snprintf(late_step, sizeof late_step, "rank %d: 2", self->size - 1);
    ENGINE_TEXT(self, dt_last_error(), "the ranks' steps differ: rank");
    ENGINE_TEXT(self, dt_last_error(), late_step);
    ENGINE_TEXT(self, dt_last_error(), ": 3");
    train_a_step(self, set, 3);
    train_a_step(self, set, 4);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_whose_rank_stays_away_times_out_and_goes_on(void **state)
{
    (void)state;
    engine_run(2, NULL, late, NULL);
    engine_run(3, NULL, late, NULL);
}

/* The world ends while buckets are on their way. */
static void abort_in_a_step(engine_rank_t *self)
{
    model_t model;
    const dtrain_gradset_desc_t desc = plain();
    dtrain_gradset_t *set;
    model_fill(&model);
    self->end = DTRAIN_ERR_ABORTED;
    if (!ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set)))
        return;
    train_a_step(self, set, 0);
    engine_meet(self);
    if (self->rank == self->size - 1) {
        ENGINE_OK(self, dt_gradset_mark(set, 3, 1, NULL));
        ENGINE_OK(self, dt_runtime_abort(self->runtime, 5, "enough"));
    } else {
        for (int i = 1; i < MODEL_PARAMS; i++)
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
    }
    ENGINE_STATUS(self, dt_gradset_wait(set), DTRAIN_ERR_ABORTED);
    ENGINE_TEXT(self, dt_last_error(), "enough");
    ENGINE_STATUS(self, dt_gradset_wait(set), DTRAIN_ERR_ABORTED);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_of_a_world_that_ended_fails_at_once(void **state)
{
    (void)state;
    engine_run(2, NULL, abort_in_a_step, NULL);
    engine_run(4, NULL, abort_in_a_step, NULL);
}

/* A rank that has joined takes no part, and its gradients are not missed. */
static void joined(engine_rank_t *self)
{
    model_t model;
    const dtrain_gradset_desc_t desc = plain();
    dtrain_gradset_t *set;
    int last;
    model_fill(&model);
    if (!ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set)))
        return;
    train_a_step(self, set, 0);
    if (self->rank < self->size - 1) {
        for (int step = 1; step < 4; step++) {
            for (int i = 0; i < MODEL_PARAMS; i++) {
                model_write(set, self->rank, step, i);
                ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
            }
            ENGINE_OK(self, dt_gradset_wait(set));
            ENGINE_CHECK(self, model_wrong(set, self->size - 1, step, 3, 0, model_counts[3]) == 0);
        }
    }
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
    train_a_step(self, set, 5);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_goes_on_without_ranks_that_have_joined(void **state)
{
    (void)state;
    engine_run(2, NULL, joined, NULL);
    engine_run(3, NULL, joined, NULL);
}

static void destroy_in_flight(engine_rank_t *self)
{
    model_t model;
    const dtrain_gradset_desc_t desc = plain();
    dtrain_gradset_t *set;
    model_fill(&model);
    for (int round = 0; round < 5; round++) {
        if (!ENGINE_OK(self,
                       dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set)))
            return;
        for (int i = 0; i < MODEL_PARAMS - round; i++)
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
    }
    engine_check_works(self, "after");
}

static void test_gradset_that_is_destroyed_in_a_step_waits_for_its_buckets(void **state)
{
    (void)state;
    engine_run(1, NULL, destroy_in_flight, NULL);
    engine_run(3, NULL, destroy_in_flight, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradset_of_other_layouts_is_a_mismatch_that_names_the_tensor),
        cmocka_unit_test(test_gradset_that_one_rank_is_refused_fails_on_all),
        cmocka_unit_test(test_gradset_whose_rank_stays_away_times_out_and_goes_on),
        cmocka_unit_test(test_gradset_of_a_world_that_ended_fails_at_once),
        cmocka_unit_test(test_gradset_goes_on_without_ranks_that_have_joined),
        cmocka_unit_test(test_gradset_that_is_destroyed_in_a_step_waits_for_its_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
