/*
 * 03_train.c - a whole training: fits y = 3 x0 - 2 x1 + 1 on samples that the ranks share.
 *
 *     03_train                  on one rank
 *     mpirun -np 4 03_train     on four: the same batches, so the same model but for rounding
 *
 * A sampler says which samples are this rank's, a gradient set adds up the ranks' gradients while
 * others are still being computed, and an optimizer updates the parameters.
 */
#include <stdio.h>
#include <stdlib.h>

#include <dtrain/dtrain.h>

#define SAMPLES 1000
#define BATCH 32
#define EPOCHS 10

/* Any library call that fails ends this rank, and thereby the others' waiting. */
static void check(dtrain_status_t status)
{
    if (status == DTRAIN_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", dtrain_rank(), dtrain_last_error());
    exit(1);
}

/* Sample i, the same on all ranks. */
static float make_sample(int64_t i, float x[2])
{
    x[0] = (float)(i * 37 % 101) / 50.0f - 1.0f;
    x[1] = (float)(i * 59 % 103) / 51.0f - 1.0f;
    return 3.0f * x[0] - 2.0f * x[1] + 1.0f;
}

/* What is learnt, and what the library needs for it. */
typedef struct model {
    dtrain_gradset_t *set;
    dtrain_optimizer_t *optimizer;
    float *weight, *bias; /* two, and one */
    float *weight_gradient, *bias_gradient;
} model_t;

/* Declares the parameters once. They and their gradients lie in the library's memory: so nothing
 * has to be copied. They begin as zeros on all ranks; otherwise dtrain_optimizer_broadcast would
 * give all ranks those of one. */
static model_t declare(void)
{
    static const int64_t two[1] = {2};
    const dtrain_param_t params[2] = {
        {.struct_size = sizeof params[0],
         .name = "weight",
         .ndim = 1,
         .shape = two,
         .dtype = DTRAIN_DTYPE_F32},
        {.struct_size = sizeof params[1], .name = "bias", .dtype = DTRAIN_DTYPE_F32}};
    dtrain_gradset_desc_t set = {.struct_size = sizeof set, .op = DTRAIN_OP_SUM};
    dtrain_optimizer_desc_t optimizer = {
        .struct_size = sizeof optimizer, .rule = DTRAIN_RULE_SGD, .momentum = 0.9};
    model_t model;
    check(dtrain_gradset_create(&set, params, 2, &model.set));
    check(dtrain_optimizer_create(model.set, &optimizer, &model.optimizer));
    check(dtrain_optimizer_param(model.optimizer, 0, (void **)&model.weight));
    check(dtrain_optimizer_param(model.optimizer, 1, (void **)&model.bias));
    check(dtrain_gradset_buffer(model.set, 0, (void **)&model.weight_gradient));
    check(dtrain_gradset_buffer(model.set, 1, (void **)&model.bias_gradient));
    return model;
}

static void step(const model_t *model, const int64_t *samples, const dtrain_batch_t *batch)
{
    model->weight_gradient[0] = model->weight_gradient[1] = *model->bias_gradient = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        float x[2], y = make_sample(samples[i], x);
        float error = model->weight[0] * x[0] + model->weight[1] * x[1] + *model->bias - y;
        /* Of the whole batch's mean: the ranks' gradients add up. */
        float slope = 2.0f * error / (float)batch->global_count;
        model->weight_gradient[0] += slope * x[0];
        model->weight_gradient[1] += slope * x[1];
        *model->bias_gradient += slope;
    }
    check(dtrain_gradset_ready(model->set, 1, NULL));
    check(dtrain_gradset_ready(model->set, 0, NULL));
    check(dtrain_optimizer_step(model->optimizer, 0.05, NULL));
}

int main(void)
{
    check(dtrain_init(NULL));
    model_t model = declare();
    dtrain_sampler_desc_t desc = {
        .struct_size = sizeof desc, .num_samples = SAMPLES, .global_batch = BATCH, .seed = 1};
    dtrain_sampler_t *sampler;
    check(dtrain_sampler_create(&desc, &sampler));
    int64_t samples[BATCH];
    dtrain_batch_t batch = {.struct_size = sizeof batch};
    for (;;) {
        check(dtrain_sampler_next(sampler, samples, BATCH, &batch));
        if (batch.epoch == EPOCHS)
            break;
        step(&model, samples, &batch);
    }
    if (dtrain_rank() == 0)
        printf("y = %.3f x0 %+.3f x1 %+.3f\n", model.weight[0], model.weight[1], *model.bias);

    dtrain_sampler_destroy(sampler);
    dtrain_optimizer_destroy(model.optimizer);
    dtrain_gradset_destroy(model.set);
    return dtrain_shutdown() != DTRAIN_OK;
}
