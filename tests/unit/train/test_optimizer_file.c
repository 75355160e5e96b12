/* Optimizers to files and back: one file and shards, other numbers of ranks, one reader, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/status.h"
#include "engine_world.h"
#include "gradset_model.h"
#include "train/optimizer_state.h"

#define TOTAL (5000 + 33 + 20000 + 1 + 4096 + 257)

/* Two trainings of one kind: the first goes through, the second stops, is saved, and is gone on
 * with by another world. */
typedef struct journey {
    dtrain_optimizer_desc_t desc;
    dtrain_dtype_t dtype; /* of parameters */
    int64_t bucket_bytes;
    int from, to;  /* steps */
    int load_root; /* -2: does not load */
    int save;      /* 0: no; 1: one file; 2: in shards */
    char path[128];
    float values[TOTAL]; /* at the end */
    int64_t step;
} journey_t;

static char folder[64];

/* The mean over ranks is the same for any number of them. */
static void train_step(engine_rank_t *self, dtrain_gradset_t *set, dtrain_optimizer_t *optimizer,
                       int step)
{
    for (int i = 0; i < MODEL_PARAMS; i++) {
        float *buffer = dt_gradset_buffer(set, i);
        for (int64_t e = 0; e < model_counts[i]; e++)
            buffer[e] = 1e-10f * model_value(0, step, i, e);
        ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
    }
    ENGINE_OK(self, dt_optimizer_step(optimizer, 1e-3, NULL));
}

static void take_values(const dtrain_optimizer_t *optimizer, journey_t *journey)
{
    float *at = journey->values;
    for (int i = 0; i < MODEL_PARAMS; i++) {
        size_t size = journey->dtype == DTRAIN_DTYPE_BF16 ? 2 : 4;
        memset(at, 0, (size_t)model_counts[i] * sizeof *at);
        memcpy(at, optimizer->data[i], (size_t)model_counts[i] * size);
        at += model_counts[i];
    }
    journey->step = optimizer->step;
}

static dtrain_optimizer_t *make(engine_rank_t *self, const journey_t *journey)
{
    model_t model;
    dtrain_gradset_t *set = NULL;
    dtrain_optimizer_t *optimizer = NULL;
    /* A power of two of equal values is averaged without rounding. */
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc,
                                        .op = DTRAIN_OP_AVERAGE,
                                        .first_bucket_bytes = 4096,
                                        .bucket_bytes = journey->bucket_bytes};
    model_fill(&model);
    for (int i = 0; i < MODEL_PARAMS; i++) {
        model.params[i].gradient_dtype = DTRAIN_DTYPE_F32;
        if (journey->dtype)
            model.params[i].dtype = journey->dtype;
    }
    if (ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set)))
        ENGINE_OK(self, dt_optimizer_create(set, &journey->desc, &optimizer));
    return optimizer;
}

static void travel(engine_rank_t *self)
{
    journey_t *journey = self->argument;
    dtrain_optimizer_t *optimizer = make(self, journey);
    if (!optimizer)
        return;
    dtrain_gradset_t *set = optimizer->set;
    if (journey->load_root >= -1)
        ENGINE_OK(self, dt_optimizer_load(optimizer, journey->path, journey->load_root));
    for (int step = journey->from; step < journey->to; step++)
        train_step(self, set, optimizer, step);
    if (journey->save)
        ENGINE_OK(self, dt_optimizer_save(optimizer, journey->path, journey->save == 2));
    if (self->rank == 0)
        take_values(optimizer, journey);
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static journey_t plain(void)
{
    journey_t journey = {.desc = {.struct_size = sizeof(dtrain_optimizer_desc_t),
                                  .rule = DTRAIN_RULE_ADAM,
                                  .loss_scale = 1,
                                  .growth_interval = -1,
                                  .weight_decay = 0.01},
                         .bucket_bytes = 40000,
                         .to = 6,
                         .load_root = -2};
    return journey;
}

/* Six steps at once, and three and three with a save between. */
static void compare(dtrain_dtype_t dtype, int save, int save_size, int save_sharded, int load_size,
                    int load_sharded, int load_root)
{
    static journey_t whole, first, second;
    whole = plain();
    whole.dtype = dtype;
    engine_run(2, NULL, travel, &whole);
    first = plain();
    first.dtype = dtype;
    first.desc.sharded = save_sharded;
    first.to = 3;
    first.save = save;
    snprintf(first.path, sizeof first.path, "%s/save", folder);
    engine_run(save_size, NULL, travel, &first);
    second = first;
    second.desc.sharded = load_sharded;
    second.bucket_bytes = 8192;
    second.from = 3;
    second.to = 6;
    second.save = 0;
    second.load_root = load_root;
    engine_run(load_size, NULL, travel, &second);
    assert_int_equal(second.step, 6);
    assert_memory_equal(second.values, whole.values, sizeof whole.values);
}

static void test_optimizer_that_was_saved_goes_on_at_any_number_of_ranks(void **state)
{
    (void)state;
    compare(DTRAIN_DTYPE_F32, 1, 2, 0, 2, 0, -1);
    compare(DTRAIN_DTYPE_F32, 1, 4, 1, 2, 1, -1);
    compare(DTRAIN_DTYPE_F32, 2, 4, 1, 1, 0, -1);
    compare(DTRAIN_DTYPE_F32, 2, 1, 0, 4, 1, -1);
    compare(DTRAIN_DTYPE_F32, 2, 2, 0, 4, 1, -1);
    compare(DTRAIN_DTYPE_BF16, 1, 2, 1, 4, 1, -1);
    compare(DTRAIN_DTYPE_BF16, 2, 4, 1, 2, 0, -1);
}

static void test_optimizer_that_one_rank_loads_is_loaded_on_all(void **state)
{
    (void)state;
    compare(DTRAIN_DTYPE_F32, 1, 2, 1, 2, 0, 1);
    compare(DTRAIN_DTYPE_F32, 1, 2, 1, 4, 1, 3);
    compare(DTRAIN_DTYPE_BF16, 1, 2, 1, 2, 1, 0);
}

/* ---- What goes wrong ------------------------------------------------------------------------- */

static void load_wrong(engine_rank_t *self)
{
    journey_t *journey = self->argument;
    dtrain_optimizer_t *optimizer = make(self, journey);
    char path[160];
    if (!optimizer)
        return;
    int is_last = self->rank == self->size - 1;
    snprintf(path, sizeof path, "%s%s", journey->path, is_last ? ".none" : "");
    ENGINE_STATUS(self, dt_optimizer_load(optimizer, path, -1), DTRAIN_ERR_FILE);
    ENGINE_TEXT(self, dt_last_error(), "No such file");
    ENGINE_STATUS(self, dt_optimizer_load(optimizer, path, self->size - 1), DTRAIN_ERR_FILE);
    ENGINE_STATUS(self, dt_optimizer_load(optimizer, is_last ? NULL : path, -1),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_STATUS(self, dt_optimizer_save(optimizer, "/nowhere/at/all", 1), DTRAIN_ERR_FILE);
    ENGINE_STATUS(self, dt_optimizer_save(optimizer, "/nowhere/at/all", 0), DTRAIN_ERR_FILE);
    ENGINE_STATUS(self, dt_optimizer_save(optimizer, is_last ? "" : path, 0),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_optimizer_load(optimizer, journey->path, -1));
    dtrain_gradset_t *set = optimizer->set;
    train_step(self, set, optimizer, 7);
    ENGINE_CHECK(self, optimizer->step == 4);
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void other_rule(engine_rank_t *self)
{
    const journey_t *journey = self->argument;
    dtrain_optimizer_t *optimizer = make(self, journey);
    if (!optimizer)
        return;
    dtrain_gradset_t *set = optimizer->set;
    ENGINE_STATUS(self, dt_optimizer_load(optimizer, journey->path, -1), DTRAIN_ERR_FILE);
    ENGINE_TEXT(self, dt_last_error(), "rule 2 with 2 arrays of state");
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_optimizer_load_that_fails_on_one_rank_fails_on_all(void **state)
{
    (void)state;
    static journey_t journey;
    journey = plain();
    journey.to = 3;
    journey.save = 1;
    snprintf(journey.path, sizeof journey.path, "%s/wrong", folder);
    engine_run(2, NULL, travel, &journey);
    engine_run(1, NULL, load_wrong, &journey);
    engine_run(3, NULL, load_wrong, &journey);
    journey.desc.rule = DTRAIN_RULE_SGD;
    engine_run(2, NULL, other_rule, &journey);
}

/* The ranks name saves of different steps. */
static void load_different(engine_rank_t *self)
{
    const journey_t *journeys = self->argument;
    dtrain_optimizer_t *optimizer = make(self, &journeys[0]);
    if (!optimizer)
        return;
    dtrain_gradset_t *set = optimizer->set;
    ENGINE_STATUS(self, dt_optimizer_load(optimizer, journeys[self->rank % 2].path, -1),
                  DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(), "different saves");
    dt_optimizer_destroy(optimizer, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_optimizer_load_of_different_saves_is_a_mismatch(void **state)
{
    (void)state;
    static journey_t journeys[2];
    for (int i = 0; i < 2; i++) {
        journeys[i] = plain();
        journeys[i].to = 1 + i;
        journeys[i].save = 1;
        snprintf(journeys[i].path, sizeof journeys[i].path, "%s/step%d", folder, i);
        engine_run(2, NULL, travel, &journeys[i]);
    }
    engine_run(2, NULL, load_different, journeys);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_optimizer_file.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer_that_was_saved_goes_on_at_any_number_of_ranks),
        cmocka_unit_test(test_optimizer_that_one_rank_loads_is_loaded_on_all),
        cmocka_unit_test(test_optimizer_load_that_fails_on_one_rank_fails_on_all),
        cmocka_unit_test(test_optimizer_load_of_different_saves_is_a_mismatch),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
