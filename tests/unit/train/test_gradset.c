/* Gradient sets on ranks that are threads: results, order, clipping, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>

#include "base/status.h"
#include "engine_world.h"
#include "gradset_model.h"
#include "train/grad_norm.h"

#define STEPS 6

static const int sizes[] = {1, 2, 3, 4};

static void on_all_sizes(engine_fn_t fn, void *argument)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        engine_run(sizes[i], NULL, fn, argument);
}

static dtrain_gradset_desc_t small_buckets(void)
{
    return (dtrain_gradset_desc_t){.struct_size = sizeof(dtrain_gradset_desc_t),
                                   .first_bucket_bytes = 4096,
                                   .bucket_bytes = 40000};
}

static dtrain_gradset_t *make_set(engine_rank_t *self, const dtrain_gradset_desc_t *desc)
{
    model_t model;
    model_fill(&model);
    dtrain_gradset_t *set = NULL;
    ENGINE_OK(self, dt_gradset_create(self->runtime, desc, model.params, MODEL_PARAMS, &set));
    return set;
}

static void mark(engine_rank_t *self, dtrain_gradset_t *set, int step, int index)
{
    model_write(set, self->rank, step, index);
    ENGINE_OK(self, dt_gradset_mark(set, index, 1, NULL));
}

static void check_all(engine_rank_t *self, dtrain_gradset_t *set, int step)
{
    for (int i = 0; i < MODEL_PARAMS; i++)
        ENGINE_CHECK(self, model_wrong(set, self->size, step, i, 0, model_counts[i]) == 0);
}

/* ---- Results ------------------------------------------------------------------------------ */

static void train(engine_rank_t *self)
{
    const dtrain_gradset_desc_t *desc = self->argument;
    dtrain_gradset_t *set = make_set(self, desc);
    for (int step = 0; set && step < STEPS; step++) {
        for (int i = MODEL_PARAMS - 1; i >= 0; i--)
            mark(self, set, step, i);
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step);
    }
    if (set)
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_steps_have_the_bits_of_an_allreduce_for_any_buckets(void **state)
{
    (void)state;
    const int64_t bytes[][2] = {{0, 0}, {1, 1}, {1, 1 << 20}, {40000, 40000}};
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        dtrain_gradset_desc_t desc = {.struct_size = sizeof desc,
                                      .first_bucket_bytes = bytes[i][0],
                                      .bucket_bytes = bytes[i][1]};
        on_all_sizes(train, &desc);
    }
}

static void average(engine_rank_t *self)
{
    dtrain_gradset_desc_t desc = {
        .struct_size = sizeof desc, .op = DTRAIN_OP_AVERAGE, .prescale = 2, .postscale = 0.25};
    dtrain_gradset_t *set = make_set(self, &desc);
    for (int step = 0; set && step < 3; step++) {
        float *scalar = dt_gradset_buffer(set, 4);
        *scalar = (float)(4 * self->rank);
        for (int i = 0; i < MODEL_PARAMS; i++)
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        ENGINE_OK(self, dt_gradset_wait(set));
        ENGINE_CHECK(self, *scalar == (float)(self->size - 1));
    }
    if (set)
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_average_and_scales_are_applied(void **state)
{
    (void)state;
    on_all_sizes(average, NULL);
}

/* ---- Codecs ------------------------------------------------------------------------------- */

/* The whole of each step's sum comes in the end, some of it late. */
static void travel_encoded(engine_rank_t *self)
{
    static const char *const names[] = {"bf16", "int8", "topk:0.5"};
    for (int c = 0; c < 3; c++) {
        dtrain_gradset_desc_t desc = small_buckets();
        dtrain_codec_t *codec = NULL;
        ENGINE_OK(self, dtrain_codec_create(names[c], &codec));
        desc.codec = codec;
        dtrain_gradset_t *set = make_set(self, &desc);
        dtrain_codec_destroy(codec);
        double sums[3] = {0};
        int steps = 60, is_exact = 1;
        for (int step = 0; set && step < steps; step++) {
            for (int i = 0; i < MODEL_PARAMS; i++) {
                float *gradient = dt_gradset_buffer(set, i);
                for (int64_t e = 0; e < model_counts[i]; e++)
                    gradient[e] = (float)(e % 7) + 1.0123f + 0.3f * (float)self->rank;
                ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
            }
            ENGINE_OK(self, dt_gradset_wait(set));
            const float *first = dt_gradset_buffer(set, 0);
            for (int e = 0; e < 3; e++) {
                float whole = (float)self->size * ((float)e + 1.0123f) +
                              0.15f * (float)(self->size * (self->size - 1));
                sums[e] += (double)(first[e] / whole) / steps;
                is_exact &= first[e] > whole * 0.9999f && first[e] < whole * 1.0001f;
            }
        }
        for (int e = 0; e < 3; e++)
            ENGINE_CHECK(self, sums[e] > 0.75 && sums[e] < 1.25);
        ENGINE_CHECK(self, !is_exact || self->size == 1);
        if (set)
            ENGINE_OK(self, dt_gradset_destroy(set, 1));
    }
}

static void test_gradset_with_a_codec_brings_all_in_the_end(void **state)
{
    (void)state;
    engine_run(1, NULL, travel_encoded, NULL);
    engine_run(3, NULL, travel_encoded, NULL);
}

/* ---- Order -------------------------------------------------------------------------------- */

static void observe(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = small_buckets();
    dtrain_gradset_t *set = make_set(self, &desc);
    if (!set)
        return;
    for (int step = 0; step < STEPS; step++) {
        /* Rank 0 forwards, the others backwards. */
        for (int i = 0; i < MODEL_PARAMS; i++)
            mark(self, set, step, self->rank == 0 ? i : MODEL_PARAMS - 1 - i);
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step);
        ENGINE_CHECK(self, set->is_frozen);
        ENGINE_CHECK(self, set->plan_number == (self->size > 1));
    }
    /* The first bucket is now where rank 0 begins: what it marks first lies last. */
    if (self->size > 1)
        ENGINE_CHECK(self, set->plan.runs[0].first_block > set->plan.runs[1].first_block ||
                               set->plan.runs[0].first_block > 0);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_after_the_first_step_takes_the_first_ranks_order(void **state)
{
    (void)state;
    on_all_sizes(observe, NULL);
}

static void keep(engine_rank_t *self)
{
    dtrain_gradset_desc_t desc = small_buckets();
    desc.fixed_order = 1;
    dtrain_gradset_t *set = make_set(self, &desc);
    for (int step = 0; set && step < 3; step++) {
        for (int i = 0; i < MODEL_PARAMS; i++)
            mark(self, set, step, i);
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step);
        ENGINE_CHECK(self, set->plan_number == 0 && set->plan.runs[0].first_block == 0);
    }
    if (set)
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_of_a_fixed_order_keeps_its_plan(void **state)
{
    (void)state;
    on_all_sizes(keep, NULL);
}

/* ---- Several sets, memory of the caller, process sets --------------------------------------- */

static void two_sets(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = small_buckets();
    dtrain_gradset_t *a = make_set(self, &desc), *b = make_set(self, &desc);
    for (int step = 0; a && b && step < STEPS; step++) {
        for (int i = 0; i < MODEL_PARAMS; i++) {
            mark(self, a, step, i);
            mark(self, b, step + 100, MODEL_PARAMS - 1 - i);
        }
        /* A rank may wait for them in an order of its own. */
        ENGINE_OK(self, dt_gradset_wait(a));
        ENGINE_OK(self, dt_gradset_wait(b));
        check_all(self, a, step);
        check_all(self, b, step + 100);
    }
    if (a)
        ENGINE_OK(self, dt_gradset_destroy(a, 1));
    if (b)
        ENGINE_OK(self, dt_gradset_destroy(b, 1));
}

static void test_gradset_of_the_same_names_as_another_does_not_meet_it(void **state)
{
    (void)state;
    on_all_sizes(two_sets, NULL);
}

static void own_memory(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = small_buckets();
    model_t model;
    dtrain_gradset_t *set = NULL;
    model_fill(&model);
    for (int i = 0; i < MODEL_PARAMS; i += 2)
        model.params[i].gradient = engine_buffer(self, (size_t)model_counts[i] * 4 + 4);
    ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set));
    for (int step = 0; set && step < 4; step++) {
        for (int i = 0; i < MODEL_PARAMS; i++)
            mark(self, set, step, i);
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step);
        ENGINE_CHECK(self, dt_gradset_buffer(set, 0) == model.params[0].gradient);
    }
    if (set)
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_of_callers_memory_reduces_it(void **state)
{
    (void)state;
    on_all_sizes(own_memory, NULL);
}

static void on_a_pset(engine_rank_t *self)
{
    const int members[2] = {2, 0};
    dtrain_pset_t pset;
    dtrain_gradset_desc_t desc = small_buckets();
    if (!ENGINE_OK(self, engine_pset_add(self, members, 2, &pset)) || self->rank == 1)
        return;
    desc.pset = pset;
    dtrain_gradset_t *set = make_set(self, &desc);
    int number = self->rank == 2 ? 0 : 1;
    for (int step = 0; set && step < 4; step++) {
        for (int i = 0; i < MODEL_PARAMS; i++) {
            model_write(set, number, step, i);
            ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
        }
        ENGINE_OK(self, dt_gradset_wait(set));
        for (int i = 0; i < MODEL_PARAMS; i++)
            ENGINE_CHECK(self, model_wrong(set, 2, step, i, 0, model_counts[i]) == 0);
    }
    if (set)
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_on_a_process_set_needs_its_members_alone(void **state)
{
    (void)state;
    engine_run(3, NULL, on_a_pset, NULL);
}

/* ---- Clipping -------------------------------------------------------------------------------- */

static void clip(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = small_buckets();
    model_t model;
    dtrain_gradset_t *set = NULL;
    double norm = 0, squares = 0;
    model_fill(&model);
    model.params[0].gradient = engine_buffer(self, (size_t)model_counts[0] * sizeof(float));
    if (!ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set)))
        return;
    for (int i = 0; i < MODEL_PARAMS; i++)
        mark(self, set, 1, i);
    ENGINE_OK(self, dt_gradset_wait(set));
    for (int i = 0; i < MODEL_PARAMS; i++) {
        for (int64_t e = 0; e < model_counts[i]; e++) {
            double sum = model_sum(0, self->size, 1, i, e);
            squares += sum * sum;
        }
    }
    /* Clipped once, and not reduced again: a second time finds nothing to do. */
    ENGINE_OK(self, dt_grad_clip(set, 10, &norm));
    ENGINE_CHECK(self, fabs(norm / sqrt(squares) - 1) < 1e-6);
    const float *own = dt_gradset_buffer(set, 0), *other = dt_gradset_buffer(set, 3);
    float factor = (float)(10 / (norm + 1e-6));
    for (int64_t e = 0; e < model_counts[0]; e += 11)
        ENGINE_CHECK(self, own[e] == model_sum(0, self->size, 1, 0, e) * factor &&
                               other[e] == model_sum(0, self->size, 1, 3, e) * factor);
    ENGINE_OK(self, dt_grad_clip(set, 11, &norm));
    ENGINE_CHECK(self, fabs(norm - 10) < 1e-3);
    /* Not finite on one rank. */
    for (int i = 0; i < MODEL_PARAMS; i++) {
        float *buffer = dt_gradset_buffer(set, i);
        if (i == 5 && self->rank == 0)
            buffer[17] = NAN;
        ENGINE_OK(self, dt_gradset_mark(set, i, 1, NULL));
    }
    ENGINE_STATUS(self, dt_grad_clip(set, 1, &norm), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_gradset_wait(set));
    ENGINE_OK(self, dt_grad_clip(set, 1, &norm));
    ENGINE_CHECK(self, isnan(norm));
    ENGINE_STATUS(self, dt_grad_clip(set, self->rank ? 1 : -1, &norm), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_clip_scales_by_the_norm_of_all_gradients(void **state)
{
    (void)state;
    on_all_sizes(clip, NULL);
}

/* ---- Overlap, threads ------------------------------------------------------------------------ */

static void one_by_one(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = small_buckets();
    dtrain_gradset_t *set = make_set(self, &desc);
    for (int step = 0; set && step < 3; step++) {
        ENGINE_STATUS(self, dt_gradset_wait_one(set, 6), DTRAIN_IN_PROGRESS);
        for (int i = MODEL_PARAMS - 1; i >= 3; i--)
            mark(self, set, step, i);
        /* The others are not even computed. */
        ENGINE_OK(self, dt_gradset_wait_one(set, 6));
        ENGINE_CHECK(self, model_wrong(set, self->size, step, 6, 0, model_counts[6]) == 0);
        ENGINE_STATUS(self, dt_gradset_wait_one(set, 0), DTRAIN_IN_PROGRESS);
        for (int i = 2; i >= 0; i--)
            mark(self, set, step, i);
        ENGINE_OK(self, dt_gradset_wait_one(set, 0));
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step);
    }
    if (set)
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_buckets_are_reduced_while_others_are_still_to_come(void **state)
{
    (void)state;
    on_all_sizes(one_by_one, NULL);
}

typedef struct marker {
    engine_rank_t *self;
    dtrain_gradset_t *set;
    int step, first;
} marker_t;

static void *mark_some(void *argument)
{
    marker_t *marker = argument;
    for (int i = marker->first; i < MODEL_PARAMS; i += 3)
        mark(marker->self, marker->set, marker->step, i);
    return NULL;
}

static void from_threads(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = small_buckets();
    dtrain_gradset_t *set = make_set(self, &desc);
    for (int step = 0; set && step < STEPS; step++) {
        pthread_t threads[3];
        marker_t markers[3];
        for (int i = 0; i < 3; i++) {
            markers[i] = (marker_t){.self = self, .set = set, .step = step, .first = i};
            ENGINE_CHECK(self, !pthread_create(&threads[i], NULL, mark_some, &markers[i]));
        }
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        ENGINE_OK(self, dt_gradset_wait(set));
        check_all(self, set, step);
    }
    if (set)
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_marks_from_several_threads_count(void **state)
{
    (void)state;
    on_all_sizes(from_threads, NULL);
}

/* A set of its own for each of two threads, with all that ranks tell each other besides. */
static void *train_beside(void *argument)
{
    marker_t *marker = argument;
    for (int step = 0; step < STEPS; step++) {
        double norm;
        for (int i = 0; i < MODEL_PARAMS; i++)
            mark(marker->self, marker->set, step + marker->first, i);
        ENGINE_OK(marker->self, dt_gradset_wait(marker->set));
        check_all(marker->self, marker->set, step + marker->first);
        ENGINE_OK(marker->self, dt_grad_clip(marker->set, 1, &norm));
    }
    return NULL;
}

static void beside(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = small_buckets();
    pthread_t threads[2];
    marker_t markers[2];
    for (int i = 0; i < 2; i++)
        markers[i] = (marker_t){.self = self, .set = make_set(self, &desc), .first = 100 * i};
    if (!markers[0].set || !markers[1].set)
        return;
    for (int i = 0; i < 2; i++)
        ENGINE_CHECK(self, !pthread_create(&threads[i], NULL, train_beside, &markers[i]));
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        ENGINE_OK(self, dt_gradset_destroy(markers[i].set, 1));
    }
}

static void test_gradset_of_two_threads_each_do_not_meet(void **state)
{
    (void)state;
    on_all_sizes(beside, NULL);
}

static void nothing(engine_rank_t *self)
{
    const dtrain_gradset_desc_t desc = small_buckets();
    dtrain_gradset_t *set = NULL;
    ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, NULL, 0, &set));
    for (int step = 0; set && step < 3; step++)
        ENGINE_OK(self, dt_gradset_wait(set));
    if (set)
        ENGINE_OK(self, dt_gradset_destroy(set, 1));
}

static void test_gradset_without_parameters_does_nothing(void **state)
{
    (void)state;
    on_all_sizes(nothing, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradset_steps_have_the_bits_of_an_allreduce_for_any_buckets),
        cmocka_unit_test(test_gradset_average_and_scales_are_applied),
        cmocka_unit_test(test_gradset_with_a_codec_brings_all_in_the_end),
        cmocka_unit_test(test_gradset_after_the_first_step_takes_the_first_ranks_order),
        cmocka_unit_test(test_gradset_of_a_fixed_order_keeps_its_plan),
        cmocka_unit_test(test_gradset_of_the_same_names_as_another_does_not_meet_it),
        cmocka_unit_test(test_gradset_of_callers_memory_reduces_it),
        cmocka_unit_test(test_gradset_on_a_process_set_needs_its_members_alone),
        cmocka_unit_test(test_gradset_clip_scales_by_the_norm_of_all_gradients),
        cmocka_unit_test(test_gradset_buckets_are_reduced_while_others_are_still_to_come),
        cmocka_unit_test(test_gradset_marks_from_several_threads_count),
        cmocka_unit_test(test_gradset_of_two_threads_each_do_not_meet),
        cmocka_unit_test(test_gradset_without_parameters_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
