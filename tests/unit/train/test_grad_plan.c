#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "train/grad_plan.h"

#define BLOCK_BYTES (4096 * 4)
#define MOST 40

typedef struct model {
    dtrain_param_t params[MOST];
    char names[MOST][16];
    int64_t counts[MOST];
    dt_grad_layout_t layout;
    int32_t order[MOST];
} model_t;

/* In the order of their numbers, one dimension each. */
static void make_model(model_t *model, const int64_t *counts, int n)
{
    for (int i = 0; i < n; i++) {
        snprintf(model->names[i], sizeof model->names[i], "p%d", i);
        model->counts[i] = counts[i];
        model->order[i] = i;
        model->params[i] = (dtrain_param_t){.struct_size = sizeof model->params[i],
                                            .name = model->names[i],
                                            .ndim = 1,
                                            .shape = &model->counts[i],
                                            .dtype = DTRAIN_DTYPE_F32};
    }
    assert_int_equal(dt_grad_layout_make(&model->layout, model->params, n, model->order),
                     DTRAIN_OK);
}

/* Each block is in one run; each parameter knows the runs that have elements of it, and no others.
 */
static void check_plan(const dt_grad_plan_t *plan, const dt_grad_layout_t *layout)
{
    int32_t *run_of = malloc(((size_t)layout->num_blocks + 1) * sizeof *run_of);
    int *slices = calloc((size_t)plan->num_runs + 1, sizeof *slices);
    assert_non_null(run_of);
    assert_non_null(slices);
    for (int64_t block = 0; block < layout->num_blocks; block++)
        run_of[block] = -1;
    for (int i = 0; i < plan->num_runs; i++) {
        const dt_grad_run_t *run = &plan->runs[i];
        assert_true(run->num_blocks > 0 && run->num_slices > 0);
        assert_true(i == 0 || run->bucket >= plan->runs[i - 1].bucket);
        assert_ptr_equal(dt_grad_region_of(layout, run->first_block),
                         dt_grad_region_of(layout, run->first_block + run->num_blocks - 1));
        for (int64_t k = 0; k < run->num_blocks; k++) {
            assert_int_equal(run_of[run->first_block + k], -1);
            run_of[run->first_block + k] = i;
        }
    }
    for (int i = 0; i < layout->n; i++) {
        const dt_grad_slice_t *slice = &layout->slices[i];
        int32_t at = plan->runs_begin[i];
        for (int64_t e = slice->first; e < slice->first + slice->count; e++) {
            int32_t run = run_of[e / 4096];
            assert_true(run >= 0);
            while (at < plan->runs_begin[i + 1] && plan->runs_of[at] != run)
                at++;
            assert_true(at < plan->runs_begin[i + 1]);
        }
        assert_true(slice->count == 0 || at == plan->runs_begin[i + 1] - 1);
        for (int32_t k = plan->runs_begin[i]; k < plan->runs_begin[i + 1]; k++)
            slices[plan->runs_of[k]]++;
    }
    for (int i = 0; i < plan->num_runs; i++)
        assert_int_equal(slices[i], plan->runs[i].num_slices);
    free(run_of);
    free(slices);
}

static void test_grad_plan_in_the_order_of_places_has_one_run_a_bucket(void **state)
{
    (void)state;
    model_t model = {0};
    const int64_t counts[4] = {4096 * 3, 100, 4096 * 5, 0};
    make_model(&model, counts, 4);
    dt_grad_plan_t plan;
    const dt_grad_policy_t policy = {.first_bucket_bytes = BLOCK_BYTES,
                                     .bucket_bytes = 3 * BLOCK_BYTES};
    assert_int_equal(dt_grad_plan_make(&plan, &model.layout, model.order, &policy), DTRAIN_OK);
    check_plan(&plan, &model.layout);
    assert_int_equal(plan.num_runs, plan.num_buckets);
    assert_int_equal(plan.num_runs, 4);
    assert_int_equal(plan.runs[0].num_blocks, 1);
    assert_int_equal(plan.runs[1].num_blocks, 3);
    assert_int_equal(plan.runs[1].num_slices, 3);
    assert_int_equal(plan.runs[3].num_blocks, 2);
    assert_int_equal(plan.runs_begin[3], plan.runs_begin[4]); /* an empty one is in none */
    dt_grad_plan_free(&plan);
    dt_grad_layout_free(&model.layout);
}

static void test_grad_plan_in_another_order_begins_with_what_is_ready_first(void **state)
{
    (void)state;
    model_t model = {0};
    const int64_t counts[4] = {4096 * 2, 4096 * 2, 4096 * 2, 4096 * 2};
    const int32_t order[4] = {2, 0, 3, 1};
    make_model(&model, counts, 4);
    dt_grad_plan_t plan;
    const dt_grad_policy_t policy = {.first_bucket_bytes = 4 * BLOCK_BYTES,
                                     .bucket_bytes = 4 * BLOCK_BYTES};
    assert_int_equal(dt_grad_plan_make(&plan, &model.layout, order, &policy), DTRAIN_OK);
    check_plan(&plan, &model.layout);
    assert_int_equal(plan.num_buckets, 2);
    assert_int_equal(plan.num_runs, 4);
    /* 0 and 2 are in the first bucket, though not neighbours; 1 and 3 in the second. */
    assert_int_equal(plan.runs[0].first_block, 0);
    assert_int_equal(plan.runs[1].first_block, 4);
    assert_int_equal(plan.runs[2].first_block, 2);
    assert_int_equal(plan.runs[3].first_block, 6);
    dt_grad_plan_free(&plan);
    dt_grad_layout_free(&model.layout);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void test_grad_plan_of_random_models_covers_each_block_once(void **state)
{
    (void)state;
    uint32_t random = 7;
    for (int round = 0; round < 60; round++) {
        model_t model = {0};
        int64_t counts[MOST];
        int32_t order[MOST];
        int n = 1 + (int)(next_random(&random) % MOST);
        for (int i = 0; i < n; i++) {
            counts[i] = next_random(&random) % (round % 2 ? 200 : 20000);
            order[i] = i;
        }
        make_model(&model, counts, n);
        for (int i = n - 1; i > 0; i--) {
            int k = (int)(next_random(&random) % (uint32_t)(i + 1));
            int32_t swapped = order[i];
            order[i] = order[k];
            order[k] = swapped;
        }
        dt_grad_plan_t plan;
        const dt_grad_policy_t policy = {.first_bucket_bytes = BLOCK_BYTES,
                                         .bucket_bytes =
                                             (int64_t)(1 + next_random(&random) % 9) * BLOCK_BYTES};
        assert_int_equal(dt_grad_plan_make(&plan, &model.layout, order, &policy), DTRAIN_OK);
        check_plan(&plan, &model.layout);
        dt_grad_plan_free(&plan);
        dt_grad_layout_free(&model.layout);
    }
}

static void test_grad_plan_of_nothing_has_no_runs(void **state)
{
    (void)state;
    model_t model = {0};
    make_model(&model, NULL, 0);
    dt_grad_plan_t plan;
    const dt_grad_policy_t policy = {.first_bucket_bytes = 1, .bucket_bytes = 1};
    assert_int_equal(dt_grad_plan_make(&plan, &model.layout, model.order, &policy), DTRAIN_OK);
    assert_int_equal(plan.num_runs, 0);
    dt_grad_plan_free(&plan);
    dt_grad_layout_free(&model.layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grad_plan_in_the_order_of_places_has_one_run_a_bucket),
        cmocka_unit_test(test_grad_plan_in_another_order_begins_with_what_is_ready_first),
        cmocka_unit_test(test_grad_plan_of_random_models_covers_each_block_once),
        cmocka_unit_test(test_grad_plan_of_nothing_has_no_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
