/* What ranks agree on under names of the library's own: stopping, and that tensors are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "core/agree.h"
#include "engine_world.h"

/* ---- Stopping ------------------------------------------------------------------------------ */

static void agree_on_stops(engine_rank_t *self)
{
    int any = 7;
    for (int who = -1; who < self->size; who++) {
        ENGINE_OK(self, dt_agree_stop(self->runtime, self->rank == who ? -3 : 0, &any));
        ENGINE_CHECK(self, any == (who >= 0));
    }
    ENGINE_OK(self, dt_agree_stop(self->runtime, 1, &any));
    ENGINE_CHECK(self, any == 1);
    ENGINE_STATUS(self, dt_agree_stop(self->runtime, 1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    engine_check_works(self, "after");
}

static void test_engine_agree_stop_tells_all_what_one_wants(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++)
        engine_run(size, NULL, agree_on_stops, NULL);
}

/* A rank that has run out of data wants to stop no less and no more than it did. */
static void agree_beside_joined(engine_rank_t *self)
{
    int any = 7, last_rank;
    if (self->rank == 0) {
        ENGINE_OK(self, dt_agree_stop(self->runtime, 0, &any));
        ENGINE_CHECK(self, any == 0);
        ENGINE_OK(self, dt_agree_stop(self->runtime, 1, &any));
        ENGINE_CHECK(self, any == 1);
    }
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last_rank));
}

static void test_engine_agree_stop_does_not_wait_for_ranks_that_have_joined(void **state)
{
    (void)state;
    engine_run(3, NULL, agree_beside_joined, NULL);
}

static void agree_after_abort(engine_rank_t *self)
{
    int any = 7;
    self->end = DTRAIN_ERR_ABORTED;
    if (self->rank == 1)
        ENGINE_OK(self, dt_runtime_abort(self->runtime, 1, "out of disk"));
    ENGINE_STATUS(self, dt_agree_stop(self->runtime, 0, &any), DTRAIN_ERR_ABORTED);
    ENGINE_TEXT(self, dt_last_error(), "out of disk");
    ENGINE_CHECK(self, any == 7);
}

static void test_engine_agree_stop_in_a_world_that_ended_is_its_error(void **state)
{
    (void)state;
    engine_run(2, NULL, agree_after_abort, NULL);
}

/* ---- Tensors that should be the same --------------------------------------------------------- */

#define NUM 3

typedef struct model {
    float weight[5];
    double bias;
    uint8_t mask[3];
    dtrain_tensor_t tensors[NUM];
} model_t;

static const int64_t shapes[NUM] = {5, 0, 3};

static void make(model_t *model)
{
    static const char *const names[NUM] = {"weight", "bias", "mask"};
    static const dtrain_dtype_t dtypes[NUM] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F64, DTRAIN_DTYPE_U8};
    memset(model, 0, sizeof *model);
    const void *const data[NUM] = {model->weight, &model->bias, model->mask};
    for (int i = 0; i < 5; i++)
        model->weight[i] = (float)i;
    for (int i = 0; i < NUM; i++)
        model->tensors[i] = (dtrain_tensor_t){.struct_size = sizeof model->tensors[i],
                                              .name = names[i],
                                              .in = data[i],
                                              .dtype = dtypes[i],
                                              .ndim = i != 1,
                                              .shape = &shapes[i]};
}

static dtrain_status_t compare(engine_rank_t *self, const model_t *model, int n)
{
    return dt_check_equal(self->runtime, model->tensors, n, NULL);
}

static void compare_models(engine_rank_t *self)
{
    model_t model;
    make(&model);
    ENGINE_OK(self, compare(self, &model, NUM));
    if (self->rank == 2)
        model.bias = -0.0; /* other bits, though an equal number */
    if (self->rank == 1)
        model.mask[2] = 1;
    ENGINE_STATUS(self, compare(self, &model, NUM), DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(),
                "'bias' (tensor 2 of 3) is not the same on all ranks: rank 2 "
                "differs from the others; 2 tensor(s) differ in all");
    model.bias = 0;
    ENGINE_STATUS(self, compare(self, &model, NUM), DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(), "'mask' (tensor 3 of 3)");
    ENGINE_TEXT(self, dt_last_error(), "rank 1 differs");
    ENGINE_OK(self, compare(self, &model, 2)); /* without the mask */
    engine_check_works(self, "after");
}

static void test_engine_equal_names_the_first_tensor_and_the_fewest_ranks(void **state)
{
    (void)state;
    engine_run(4, NULL, compare_models, NULL);
}

static void compare_two(engine_rank_t *self)
{
    model_t model;
    make(&model);
    model.weight[4] += (float)self->rank;
    ENGINE_STATUS(self, compare(self, &model, 1), DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(), "'weight' (tensor 1 of 1)");
    ENGINE_TEXT(self, dt_last_error(), "rank 1 differs");
}

static void test_engine_equal_of_two_ranks_takes_the_lower_as_the_measure(void **state)
{
    (void)state;
    engine_run(2, NULL, compare_two, NULL);
}

static void compare_alone(engine_rank_t *self)
{
    model_t model;
    make(&model);
    ENGINE_OK(self, compare(self, &model, NUM));
    ENGINE_STATUS(self, compare(self, &model, 0), DTRAIN_ERR_INVALID_ARGUMENT);
}

static void test_engine_equal_of_one_rank_is_equal(void **state)
{
    (void)state;
    engine_run(1, NULL, compare_alone, NULL);
}

/* Ranks that compare different things. */
static void compare_different_lists(engine_rank_t *self)
{
    model_t model;
    make(&model);
    if (self->rank == 2)
        model.tensors[1].name = "Bias";
    ENGINE_STATUS(self, compare(self, &model, NUM), DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(),
                "tensor 2 of 3 has another name, type or length on rank 2 than on the others");
    make(&model);
    ENGINE_STATUS(self, compare(self, &model, self->rank == 1 ? 2 : NUM), DTRAIN_ERR_MISMATCH);
    ENGINE_TEXT(self, dt_last_error(), "rank 0 gave 3 tensors, rank 1 2");
    engine_check_works(self, "after");
}

static void test_engine_equal_of_different_lists_says_so(void **state)
{
    (void)state;
    engine_run(3, NULL, compare_different_lists, NULL);
}

/* A call that is refused on one rank leaves no other waiting. */
static void refuse_one(engine_rank_t *self)
{
    model_t model;
    for (int what = 0; what < 5; what++) {
        make(&model);
        int is_wrong = self->rank == what % self->size;
        if (is_wrong && what == 0)
            model.tensors[0].name = NULL;
        if (is_wrong && what == 1)
            model.tensors[0].dtype = (dtrain_dtype_t)77;
        if (is_wrong && what == 2)
            model.tensors[2].ndim = -1;
        if (is_wrong && what == 3)
            model.tensors[0].in = NULL;
        if (is_wrong && what == 4)
            model.tensors[0].device = 3;
        ENGINE_STATUS(self, compare(self, &model, NUM), DTRAIN_ERR_INVALID_ARGUMENT);
        char told[64];
        snprintf(told, sizeof told, "rank %d: dtrain_check_equal: ", what % self->size);
        if (!is_wrong)
            ENGINE_TEXT(self, dt_last_error(), told);
    }
    engine_check_works(self, "after");
}

static void test_engine_equal_refused_on_one_rank_fails_on_all(void **state)
{
    (void)state;
    engine_run(3, NULL, refuse_one, NULL);
}

static void compare_in_a_set(engine_rank_t *self)
{
    static const int some[] = {2, 0};
    dtrain_pset_t pset;
    model_t model;
    make(&model);
    ENGINE_OK(self, engine_pset_add(self, some, 2, &pset));
    model.weight[0] = (float)self->rank;
    dtrain_options_t options = {.struct_size = sizeof options, .pset = pset};
    if (self->rank != 1) {
        ENGINE_STATUS(self, dt_check_equal(self->runtime, model.tensors, NUM, &options),
                      DTRAIN_ERR_MISMATCH);
        ENGINE_TEXT(self, dt_last_error(),
                    "rank 0 differs from the others"); /* second in the set */
    }
    options.pset = 99;
    ENGINE_STATUS(self, dt_check_equal(self->runtime, model.tensors, NUM, &options),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    engine_check_works(self, "after");
}

static void test_engine_equal_in_a_process_set_names_ranks_of_the_world(void **state)
{
    (void)state;
    engine_run(3, NULL, compare_in_a_set, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_agree_stop_tells_all_what_one_wants),
        cmocka_unit_test(test_engine_agree_stop_does_not_wait_for_ranks_that_have_joined),
        cmocka_unit_test(test_engine_agree_stop_in_a_world_that_ended_is_its_error),
        cmocka_unit_test(test_engine_equal_names_the_first_tensor_and_the_fewest_ranks),
        cmocka_unit_test(test_engine_equal_of_two_ranks_takes_the_lower_as_the_measure),
        cmocka_unit_test(test_engine_equal_of_one_rank_is_equal),
        cmocka_unit_test(test_engine_equal_of_different_lists_says_so),
        cmocka_unit_test(test_engine_equal_refused_on_one_rank_fails_on_all),
        cmocka_unit_test(test_engine_equal_in_a_process_set_names_ranks_of_the_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
