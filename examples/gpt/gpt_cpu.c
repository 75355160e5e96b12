/*
 * gpt_cpu.c - trains a small GPT to continue a text, byte by byte, on one rank or on many.
 *
 *     gpt_cpu TEXT [STEPS [BATCH]]
 *     mpirun -np 2 gpt_cpu TEXT          the same batches, so the same curve but for rounding
 *
 * What it takes to train on many ranks is in this file; gpt_model.c would be the same for one. The
 * loop is that of any other model: take this rank's part of the batch, mark each gradient as the
 * backward pass brings it, step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dtrain/dtrain.h>

#include "blas.h"
#include "gpt_model.h"
#include "random.h"

#define SEED 1
#define LEARNING_RATE 3e-3
#define REPORT_STEPS 20

typedef struct trainer {
    uint8_t *text;
    int64_t length;
    int64_t steps, batch;
    dtrain_sampler_t *sampler; /* of sequences of the text */
    int64_t *samples;          /* this rank's of a batch */
    gpt_model_t model;
    dtrain_gradset_t *gradients;
    dtrain_optimizer_t *optimizer;
} trainer_t;

/* Any failure ends this rank, and thereby the others' waiting. */
static void fail(const char *what, const char *why)
{
    fprintf(stderr, "gpt_cpu: rank %d: %s: %s\n", dtrain_rank(), what, why);
    exit(1);
}

static void check(dtrain_status_t status)
{
    if (status != DTRAIN_OK)
        fail("libdtrain", dtrain_last_error());
}

/* ---- Before the first step ---------------------------------------------------------------- */

static void read_text(trainer_t *trainer, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0 || (trainer->length = ftell(file)) < 0)
        fail(path, "cannot be read");
    rewind(file);
    trainer->text = malloc((size_t)trainer->length + 1);
    if (!trainer->text ||
        fread(trainer->text, 1, (size_t)trainer->length, file) != (size_t)trainer->length)
        fail(path, "cannot be read");
    fclose(file);
    if (trainer->length < trainer->batch * GPT_LENGTH + 1)
        fail(path, "is too short for a batch");
}

/* Declares the parameters, which then lie in the library's memory, as their gradients do. */
static void declare(trainer_t *trainer)
{
    dtrain_param_t params[GPT_PARAMS];
    char names[GPT_PARAMS][32];
    int64_t shapes[GPT_PARAMS][2];
    for (int i = 0; i < GPT_PARAMS; i++)
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = gpt_name(i, names[i]),
                                     .ndim = gpt_shape(i, shapes[i]),
                                     .shape = shapes[i],
                                     .dtype = DTRAIN_DTYPE_F32};
    dtrain_gradset_desc_t set = {.struct_size = sizeof set, .op = DTRAIN_OP_SUM, .name = "gpt"};
    dtrain_optimizer_desc_t optimizer = {.struct_size = sizeof optimizer,
                                         .rule = DTRAIN_RULE_ADAMW,
                                         .weight_decay = 0.01,
                                         .max_norm = 1,
                                         .sharded = 1};
    check(dtrain_gradset_create(&set, params, GPT_PARAMS, &trainer->gradients));
    check(dtrain_optimizer_create(trainer->gradients, &optimizer, &trainer->optimizer));
    for (int i = 0; i < GPT_PARAMS; i++) {
        check(dtrain_optimizer_param(trainer->optimizer, i, (void **)&trainer->model.values[i]));
        check(dtrain_gradset_buffer(trainer->gradients, i, (void **)&trainer->model.gradients[i]));
    }
    if (dtrain_rank() == 0)
        gpt_initialize(&trainer->model, SEED);
    check(dtrain_optimizer_broadcast(trainer->optimizer, 0));
}

static void prepare(trainer_t *trainer, const char *path)
{
    read_text(trainer, path);
    dtrain_sampler_desc_t desc = {.struct_size = sizeof desc,
                                  .num_samples = (trainer->length - 1) / GPT_LENGTH,
                                  .global_batch = trainer->batch,
                                  .seed = SEED,
                                  .last_batch = DTRAIN_SAMPLER_LAST_DROPPED};
    check(dtrain_sampler_create(&desc, &trainer->sampler));
    int64_t rows = (trainer->batch + dtrain_size() - 1) / dtrain_size();
    trainer->samples = malloc((size_t)rows * sizeof *trainer->samples);
    if (!trainer->samples || gpt_create(&trainer->model, (int)rows) != 0)
        fail("the model", "no memory");
    declare(trainer);
}

/* ---- Training ----------------------------------------------------------------------------- */

static void mark(int index, void *user)
{
    check(dtrain_gradset_ready(((trainer_t *)user)->gradients, index, NULL));
}

/* Returns this rank's part of the batch's mean loss. */
static double step(trainer_t *trainer)
{
    gpt_model_t *model = &trainer->model;
    dtrain_batch_t batch = {.struct_size = sizeof batch};
    check(
        dtrain_sampler_next(trainer->sampler, trainer->samples, trainer->model.sequences, &batch));
    for (int64_t i = 0; i < batch.count; i++)
        model->texts[i] = trainer->text + trainer->samples[i] * GPT_LENGTH;
    /* Of the mean over all ranks' positions: the ranks' gradients add up. */
    float scale = 1 / (float)(batch.global_count * GPT_LENGTH);
    double loss = 0;
    if (batch.count > 0) {
        gpt_forward(model, (int)batch.count);
        loss = scale * gpt_loss(model, (int)batch.count, scale);
        gpt_backward(model, (int)batch.count, mark, trainer);
    } else { /* more ranks than sequences */
        for (int i = 0; i < GPT_PARAMS; i++)
            check(dtrain_gradset_unused(trainer->gradients, i));
    }
    check(dtrain_optimizer_step(trainer->optimizer, LEARNING_RATE, NULL));
    return loss;
}

/* The mean loss over the steps since the last time, and over all ranks. */
static void report(int64_t number, double *loss, int steps)
{
    check(dtrain_allreduce("loss", loss, loss, 1, DTRAIN_DTYPE_F64, DTRAIN_OP_SUM));
    if (dtrain_rank() == 0)
        printf("step %4d  loss %.4f\n", (int)number, *loss / steps);
    fflush(stdout);
    *loss = 0;
}

static void train(trainer_t *trainer)
{
    double loss = 0;
    int steps = 0;
    for (int64_t number = 1; number <= trainer->steps; number++) {
        loss += step(trainer);
        steps++;
        if (number % REPORT_STEPS == 0 || number == trainer->steps) {
            report(number, &loss, steps);
            steps = 0;
        }
    }
}

/* ---- What has been learnt ------------------------------------------------------------------ */

/* Every rank must have the same parameters, to the last bit. */
static void compare(const trainer_t *trainer)
{
    dtrain_tensor_t tensors[GPT_PARAMS];
    char names[GPT_PARAMS][32];
    int64_t shapes[GPT_PARAMS][2];
    for (int i = 0; i < GPT_PARAMS; i++)
        tensors[i] = (dtrain_tensor_t){.struct_size = sizeof tensors[i],
                                       .name = gpt_name(i, names[i]),
                                       .ndim = gpt_shape(i, shapes[i]),
                                       .shape = shapes[i],
                                       .in = trainer->model.values[i],
                                       .dtype = DTRAIN_DTYPE_F32};
    check(dtrain_check_equal(tensors, GPT_PARAMS, NULL));
}

/* Goes on with the text's first bytes, by the most likely one each time. */
static void continue_text(trainer_t *trainer)
{
    enum { GIVEN = GPT_LENGTH / 2 };
    uint8_t text[GPT_LENGTH + 1] = {0};
    trainer->model.texts[0] = text;
    memcpy(text, trainer->text, GIVEN);
    for (int at = GIVEN; at < GPT_LENGTH; at++) {
        gpt_forward(&trainer->model, 1);
        const float *row = trainer->model.logits + (size_t)(at - 1) * GPT_TOKENS;
        for (int k = 0; k < GPT_TOKENS; k++)
            text[at] = row[k] > row[text[at]] ? (uint8_t)k : text[at];
    }
    printf("%.*s|%s\n", GIVEN, (const char *)text, (const char *)text + GIVEN);
}

/* A number from 1 to 100,000, or 0. */
static int64_t number(const char *text)
{
    char *end;
    int64_t value = strtoll(text, &end, 10);
    return end != text && *end == '\0' && value >= 1 && value <= 100000 ? value : 0;
}

int main(int argc, char **argv)
{
    trainer_t trainer = {.steps = argc > 2 ? number(argv[2]) : 400,
                         .batch = argc > 3 ? number(argv[3]) : 16};
    if (argc < 2 || argc > 4 || trainer.steps == 0 || trainer.batch == 0) {
        fprintf(stderr, "usage: gpt_cpu TEXT [STEPS [BATCH]]\n");
        return 2;
    }
    check(dtrain_init(NULL));
    blas_begin();
    prepare(&trainer, argv[1]);
    train(&trainer);
    compare(&trainer);
    if (dtrain_rank() == 0)
        continue_text(&trainer);

    dtrain_sampler_destroy(trainer.sampler);
    dtrain_optimizer_destroy(trainer.optimizer);
    check(dtrain_gradset_destroy(trainer.gradients));
    gpt_free(&trainer.model);
    free(trainer.samples);
    free(trainer.text);
    return dtrain_shutdown() != DTRAIN_OK;
}
