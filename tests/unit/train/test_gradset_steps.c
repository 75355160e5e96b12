/* The steps of gradient sets: passes, sync, what is missing, and ranks whose steps differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"
#include "engine_world.h"
#include "gradset_model.h"

static const int sizes[] = {1, 2, 3, 4};

static void on_all_sizes(engine_fn_t fn, void *argument)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        engine_run(sizes[i], NULL, fn, argument);
}

static dtrain_gradset_t *make_set(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = {
        .struct_size = sizeof desc, .first_bucket_bytes = 4096, .bucket_bytes = 40000};
    model_t model;
    model_fill(&model);
    dtrain_gradset_t *set = NULL;
    ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set));
    return set;
}

static void mark(engine_rank_t *self, dtrain_gradset_t *set, int step, int index)
{
    model_write(set, self->rank, step, index);
    ENGINE_OK(self, dt_gradset_mark(set, index, 1, NULL));
}

static void mark_all(engine_rank_t *self, dtrain_gradset_t *set, int step)
{
    for (int i = 0; i < MODEL_PARAMS; i++)
        mark(self, set, step, i);
}

static void check_all(engine_rank_t *self, dtrain_gradset_t *set, int step)
{
    for (int i = 0; i < MODEL_PARAMS; i++)
        ENGINE_CHECK(self, model_wrong(set, self->size, step, i, 0, model_counts[i]) == 0);
}

/* ---- Passes, sync, what is missing -------------------------------------------------------- */

static void accumulate(engine_rank_t *self)
{
    dtrain_gradset_t *set = make_set(self);
    if (!set)
        return;
    ENGINE_OK(self, dt_gradset_set_accumulation(set, 3));
    float *scalar = dt_gradset_buffer(set, 4);
    for (int step = 0; step < 3; step++) {
        *scalar = 0;
        for (int pass = 0; pass < 3; pass++) {
            *scalar += (float)(self->rank + 1);
            for (int i = 0; i < MODEL_PARAMS; i++)
                ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
            if (pass == 0)
                ENGINE_STATUS(self, dt_gradset_set_accumulation(set, 1),
                              DTRAIN_ERR_INVALID_ARGUMENT);
        }
        ENGINE_STATUS(self, dt_gradset_mark(set, 4, 1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "'p4' is marked 4 times in a step of 3 passes");
        ENGINE_OK(self, dt_gradset_wait(set));
        ENGINE_CHECK(self, *scalar == (float)(3 * self->size * (self->size + 1) / 2));
    }
    ENGINE_OK(self, dt_gradset_set_accumulation(set, 1));
    ENGINE_STATUS(self, dt_gradset_set_accumulation(set, 0), DTRAIN_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < MODEL_PARAMS; i++)
        mark(self, set, 9, i);
    ENGINE_OK(self, dt_gradset_wait(set));
    check_all(self, set, 9);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_of_several_passes_is_reduced_after_the_last(void **state)
{
    (void)state;
    on_all_sizes(accumulate, NULL);
}

static void without_sync(engine_rank_t *self)
{
    dtrain_gradset_t *set = make_set(self);
    if (!set)
        return;
    float *scalar = dt_gradset_buffer(set, 4);
    ENGINE_OK(self, dt_gradset_enable_sync(set, 0));
    for (int step = 0; step < 3; step++) {
        *scalar = 5;
        for (int i = 0; i < MODEL_PARAMS; i++)
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        ENGINE_OK(self, dt_gradset_wait(set));
        ENGINE_CHECK(self, *scalar == 5);
    }
    ENGINE_OK(self, dt_gradset_enable_sync(set, 1));
    for (int i = 0; i < MODEL_PARAMS; i++)
        mark(self, set, 1, i);
    ENGINE_STATUS(self, dt_gradset_enable_sync(set, 0), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_gradset_wait(set));
    check_all(self, set, 1);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_with_sync_off_leaves_gradients_alone(void **state)
{
    (void)state;
    on_all_sizes(without_sync, NULL);
}

/* The last rank leaves 'p3' out, and says so of 'p5'. */
static void miss(engine_rank_t *self)
{
    dtrain_gradset_t *set = make_set(self);
    int misses = self->rank == self->size - 1;
    if (!set)
        return;
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < MODEL_PARAMS; i++) {
            model_write(set, self->rank, step, i);
            if (!misses || (i != 3 && i != 5))
                ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
            else if (i == 5)
                ENGINE_OK(self, dt_gradset_mark(set, i, 0, NULL));
        }
        ENGINE_OK(self, dt_gradset_wait(set));
        const float *left_out = dt_gradset_buffer(set, 3), *unused = dt_gradset_buffer(set, 5);
        for (int64_t e = 0; e < model_counts[3]; e += 7)
            ENGINE_CHECK(self,
                         left_out[e] ==
                             (self->size == 1 ? 0 : model_sum(0, self->size - 1, step, 3, e)));
        for (int64_t e = 0; e < model_counts[5]; e += 7)
            ENGINE_CHECK(self,
                         unused[e] ==
                             (self->size == 1 ? 0 : model_sum(0, self->size - 1, step, 5, e)));
        ENGINE_CHECK(self, model_wrong(set, self->size, step, 0, 0, model_counts[0]) == 0);
    }
    ENGINE_CHECK(self, set->missed == (misses ? 4 : 0));
    ENGINE_CHECK(self, set->slots[3].was_missed == misses && !set->slots[5].was_missed);
    if (misses)
        ENGINE_CHECK(self, engine_log_wait(self, "step 0 ends without the gradient of 'p3'"));
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_of_a_missing_gradient_takes_zeros(void **state)
{
    (void)state;
    const int some[] = {1, 2, 3, 4, 5};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        engine_run(some[i], NULL, miss, NULL);
}

/* ---- Ranks whose steps differ --------------------------------------------------------------- */

typedef enum slip {
    SLIP_WAITS_ONCE_MORE,
    SLIP_WAITS_ONCE_LESS,
    SLIP_SYNC_OFF,
    SLIP_OTHER_PASSES,
    SLIP_COUNT
} slip_t;

/* What the text says of the rank that slipped, in place of its step alone. */
static const char *const said[SLIP_COUNT] = {
    [SLIP_WAITS_ONCE_MORE] = "(with no gradient marked)",
    [SLIP_WAITS_ONCE_LESS] = "(marked before step ",
    [SLIP_SYNC_OFF] = "",
    [SLIP_OTHER_PASSES] = "(of 2 passes)",
};

typedef struct slipping {
    slip_t slip;
    int rank;       /* who slips */
    int good_steps; /* before */
} slipping_t;

/* The rank that slips, up to the error that all see. */
static dtrain_status_t slip(engine_rank_t *self, dtrain_gradset_t *set, slip_t slip, int step)
{
    if (slip == SLIP_WAITS_ONCE_LESS) {
        mark_all(self, set, step++);
        for (int i = 0; i < MODEL_PARAMS; i++)
            ENGINE_STATUS(self, dt_gradset_mark(set, i, 1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    } else if (slip == SLIP_SYNC_OFF) {
        ENGINE_OK(self, dt_gradset_enable_sync(set, 0));
        mark_all(self, set, step);
        ENGINE_OK(self, dt_gradset_wait(set));
        ENGINE_OK(self, dt_gradset_enable_sync(set, 1));
        mark_all(self, set, step);
    } else if (slip == SLIP_OTHER_PASSES) {
        ENGINE_OK(self, dt_gradset_set_accumulation(set, 2));
        mark_all(self, set, step);
        mark_all(self, set, step);
    }
    return dt_gradset_wait(set);
}

/* The others, whose gradients stay as they are: nothing is added to them. */
static dtrain_status_t meet(engine_rank_t *self, dtrain_gradset_t *set, slip_t slip, int step)
{
    if (slip == SLIP_WAITS_ONCE_LESS) {
        mark_all(self, set, step);
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step++);
    }
    mark_all(self, set, step);
    dtrain_status_t status = dt_gradset_wait(set);
    for (int i = 0; i < MODEL_PARAMS; i++) {
        const float *buffer = dt_gradset_buffer(set, i);
        int64_t changed = 0;
        for (int64_t e = 0; e < model_counts[i]; e++)
            changed += buffer[e] != model_value(self->rank, step, i, e);
        ENGINE_CHECK(self, changed == 0);
    }
    return status;
}

static void slip_once(engine_rank_t *self)
{
    const slipping_t *slipping = self->argument;
    int who = slipping->rank < 0 ? self->size - 1 : slipping->rank, slips = self->rank == who;
    dtrain_gradset_t *set = make_set(self);
    if (!set)
        return;
    for (int step = 0; step < slipping->good_steps; step++) {
        mark_all(self, set, step);
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step);
    }
    int step = slipping->good_steps;
    dtrain_status_t status = (slips ? slip : meet)(self, set, slipping->slip, step);
    char text[32];
    snprintf(text, sizeof text, "rank %d: ", who);
    ENGINE_STATUS(self, status, DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(), "gradient set 'gradients': ");
    ENGINE_TEXT(self, dt_last_error(), "the ranks' steps differ: rank");
    ENGINE_TEXT(self, dt_last_error(), text);
    ENGINE_TEXT(self, dt_last_error(), said[slipping->slip]);
    if (slips && slipping->slip == SLIP_OTHER_PASSES)
        ENGINE_OK(self, dt_gradset_set_accumulation(set, 1));
    for (step = 20; step < 23; step++) {
        mark_all(self, set, step);
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step);
    }
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

/* Before the plan is frozen, as it has just been, and after it has an id. */
static void test_gradset_whose_ranks_differ_in_their_steps_fails_on_all_and_goes_on(void **state)
{
    (void)state;
    for (int i = 0; i < SLIP_COUNT; i++) {
        for (int good = 0; good < 5; good++) {
            slipping_t slipping = {
                .slip = (slip_t)i, .rank = good % 2 ? 0 : -1, .good_steps = good};
            for (int size = 2; size <= 4; size++)
                engine_run(size, NULL, slip_once, &slipping);
        }
    }
}

/* All forget the same wait: nothing differs, and it is an error all the same. */
static void forget(engine_rank_t *self)
{
    dtrain_gradset_t *set = make_set(self);
    if (!set)
        return;
    mark_all(self, set, 0);
    for (int i = 0; i < MODEL_PARAMS; i++)
        ENGINE_STATUS(self, dt_gradset_mark(set, i, 1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_STATUS(self, dt_gradset_wait(set), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "step 2 was marked before step 1 was ended");
    mark_all(self, set, 2);
    ENGINE_OK(self, dt_gradset_wait(set));
    check_all(self, set, 2);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_whose_wait_all_forget_is_an_error(void **state)
{
    (void)state;
    on_all_sizes(forget, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradset_of_several_passes_is_reduced_after_the_last),
        cmocka_unit_test(test_gradset_with_sync_off_leaves_gradients_alone),
        cmocka_unit_test(test_gradset_of_a_missing_gradient_takes_zeros),
        cmocka_unit_test(test_gradset_whose_ranks_differ_in_their_steps_fails_on_all_and_goes_on),
        cmocka_unit_test(test_gradset_whose_wait_all_forget_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
