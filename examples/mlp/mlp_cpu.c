/*
 * mlp_cpu.c - trains a multilayer perceptron on the CPU, on one rank or on many.
 *
 * All of the training across ranks is here: main joins the world, declare() makes the set of
 * gradients and the optimizer, step() marks each layer's gradients as soon as they are known and
 * lets the optimizer step. course.c is the loop over epochs; but for two sums in it the rest of the
 * folder would be the same for one process.
 */
#include <stdio.h>
#include <stdlib.h>

#include <dtrain/dtrain.h>

#include "agree.h"
#include "blas.h"
#include "course.h"
#include "model.h"
#include "random.h"

#define EVALUATION_ROWS 256

typedef struct trainer {
    course_t course;
    int64_t *samples; /* this rank's of a batch; as many as the model has rows */
    model_t model;
    dtrain_gradset_t *gradients; /* of layer i: 2 i the weights', 2 i + 1 the biases' */
    dtrain_optimizer_t *optimizer;
    double loss; /* of this rank's part of the epoch */
} trainer_t;

/* ---- Before the first step ------------------------------------------------------------ */

/* What each rank does alone and may fail at: data and memory. */
static int load(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->course.options;
    int rows;
    if (course_load(&trainer->course, EVALUATION_ROWS, &rows, error) != 0)
        return -1;
    trainer->samples = malloc((size_t)rows * sizeof *trainer->samples);
    if (trainer->samples == NULL)
        return mlp_fail(error, "no memory for the numbers of a batch's samples");
    return model_create(options->layers, options->layer_count, rows, &trainer->model, error);
}

static void unload(trainer_t *trainer)
{
    dtrain_optimizer_destroy(trainer->optimizer);
    dtrain_gradset_destroy(trainer->gradients);
    model_free(&trainer->model);
    free(trainer->samples);
    course_unload(&trainer->course);
}

/* Where the library keeps a layer's parameter, and its gradient. */
static int place(trainer_t *trainer, int index, float **values, float **gradient,
                 mlp_error_t *error)
{
    if (dtrain_optimizer_param(trainer->optimizer, index, (void **)values) != DTRAIN_OK ||
        dtrain_gradset_buffer(trainer->gradients, index, (void **)gradient) != DTRAIN_OK)
        return agree_library_error(error);
    return 0;
}

/* Declares the parameters: with that the library knows all of the model that it needs. */
static int declare(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->course.options;
    model_t *model = &trainer->model;
    course_params_t list;
    course_list_params(options, DTRAIN_DTYPE_F32, &list);
    /* Scaled by the global batch, the sum over ranks is the mean, however uneven the shards. */
    dtrain_gradset_desc_t set = {.struct_size = sizeof set, .op = DTRAIN_OP_SUM, .name = "mlp"};
    dtrain_optimizer_desc_t optimizer = {.struct_size = sizeof optimizer,
                                         .rule = DTRAIN_RULE_SGD,
                                         .momentum = options->momentum,
                                         .sharded = options->sharded};
    dtrain_codec_t *codec = NULL;
    dtrain_status_t status = DTRAIN_OK;
    if (options->codec)
        status = dtrain_codec_create(options->codec, &codec);
    if (agree_on_success(status == DTRAIN_OK ? 0 : mlp_fail(error, "%s", dtrain_last_error()),
                         error) != 0)
        return -1;
    set.codec = codec;
    status = dtrain_gradset_create(&set, list.params, list.count, &trainer->gradients);
    dtrain_codec_destroy(codec);
    if (status != DTRAIN_OK ||
        dtrain_optimizer_create(trainer->gradients, &optimizer, &trainer->optimizer) != DTRAIN_OK)
        return agree_library_error(error);
    for (int i = 0; i < model->layer_count; i++) {
        layer_t *layer = &model->layers[i];
        if (place(trainer, 2 * i, &layer->weight, &layer->weight_gradient, error) != 0 ||
            place(trainer, 2 * i + 1, &layer->bias, &layer->bias_gradient, error) != 0)
            return -1;
    }
    return 0;
}

/* Loads, makes sure that all ranks did and that they agree, and gives all rank 0's parameters. */
static int prepare(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->course.options;
    if (agree_on_number(options_fingerprint(options), "the options", error) != 0 ||
        agree_on_success(load(trainer, error), error) != 0 ||
        agree_on_number(dataset_fingerprint(&trainer->course.data), "the data", error) != 0 ||
        declare(trainer, error) != 0)
        return -1;
    if (trainer->course.rank == 0)
        model_initialize(&trainer->model, (uint64_t)options->seed);
    if (dtrain_optimizer_broadcast(trainer->optimizer, 0) != DTRAIN_OK)
        return agree_library_error(error);
    return 0;
}

/* ---- One step --------------------------------------------------------------------------- */

/* Takes this rank's part of the next batch. */
static int take_batch(trainer_t *trainer, dtrain_sampler_t *sampler, const samples_t *set,
                      dtrain_batch_t *batch, mlp_error_t *error)
{
    model_t *model = &trainer->model;
    batch->struct_size = sizeof *batch;
    if (dtrain_sampler_next(sampler, trainer->samples, model->capacity, batch) != DTRAIN_OK)
        return agree_library_error(error);
    samples_gather(set, trainer->samples, (int)batch->count, model->inputs, model->labels);
    return 0;
}

/* Marks each layer's gradients while the next one's are computed. */
static int backward(trainer_t *trainer, int rows, mlp_error_t *error)
{
    model_t *model = &trainer->model;
    for (int i = model->layer_count - 1; i >= 0; i--) {
        model_backward_parameters(model, i, rows);
        /* In the order that a set expects: backwards. */
        if (dtrain_gradset_ready(trainer->gradients, 2 * i + 1, NULL) != DTRAIN_OK ||
            dtrain_gradset_ready(trainer->gradients, 2 * i, NULL) != DTRAIN_OK)
            return agree_library_error(error);
        if (i > 0)
            model_backward_input(model, i, rows);
    }
    return 0;
}

/* How long this rank has waited for others so far, in seconds. */
static double waited(const trainer_t *trainer)
{
    dtrain_gradset_stats_t set = {.struct_size = sizeof set};
    dtrain_optimizer_stats_t optimizer = {.struct_size = sizeof optimizer};
    dtrain_gradset_get_stats(trainer->gradients, &set);
    dtrain_optimizer_get_stats(trainer->optimizer, &optimizer);
    return 1e-9 * (double)(set.waited_ns + optimizer.gathered_ns);
}

static int step(void *context, timing_t *timing, mlp_error_t *error)
{
    trainer_t *trainer = context;
    course_t *course = &trainer->course;
    model_t *model = &trainer->model;
    dtrain_batch_t batch;
    double waited_before = waited(trainer);
    if (take_batch(trainer, course->train, &course->data.train, &batch, error) != 0)
        return -1;
    int rows = (int)batch.count;
    model_forward(model, rows);
    trainer->loss += model_loss(model, rows, 1.0f / (float)batch.global_count);
    double computed = report_clock();
    if (backward(trainer, rows, error) != 0)
        return -1;
    if (dtrain_optimizer_step(trainer->optimizer, course_learning_rate(course), NULL) != DTRAIN_OK)
        return agree_library_error(error);
    timing_add(timing, &(timing_t){.samples = batch.global_count,
                                   .comm = report_clock() - computed,
                                   .exposed = waited(trainer) - waited_before});
    return 0;
}

/* ---- The rest of an epoch ----------------------------------------------------------------- */

static int finish(void *context, double *loss, timing_t *timing, mlp_error_t *error)
{
    trainer_t *trainer = context;
    (void)timing;
    (void)error;
    *loss = trainer->loss;
    trainer->loss = 0.0;
    return 0;
}

static int count(void *context, int64_t *correct, mlp_error_t *error)
{
    trainer_t *trainer = context;
    course_t *course = &trainer->course;
    dtrain_batch_t batch = {.num_batches = 1};
    for (int64_t i = 0; i < batch.num_batches; i++) {
        if (take_batch(trainer, course->test, &course->data.test, &batch, error) != 0)
            return -1;
        model_forward(&trainer->model, (int)batch.count);
        *correct += model_correct(&trainer->model, (int)batch.count);
    }
    return 0;
}

static int checksum(void *context, uint64_t *sum, mlp_error_t *error)
{
    const model_t *model = &((const trainer_t *)context)->model;
    (void)error;
    for (int i = 0; i < model->layer_count; i++) {
        const layer_t *layer = &model->layers[i];
        size_t outputs = (size_t)layer->outputs;
        *sum = checksum_bytes(*sum, layer->weight, (size_t)layer->inputs * outputs * sizeof(float));
        *sum = checksum_bytes(*sum, layer->bias, outputs * sizeof(float));
    }
    return 0;
}

static int run(trainer_t *trainer, int argc, char **argv, mlp_error_t *error)
{
    static const course_ops_t ops = {
        .step = step, .finish = finish, .count = count, .checksum = checksum};
    course_t *course = &trainer->course;
    result_t result;
    if (agree_on_success(options_parse(argc, argv, &course->options, error), error) != 0)
        return -1;
    if (course->options.help) {
        if (course->rank == 0)
            options_print_help(stdout, "mlp_cpu");
        return 0;
    }
    const char *kernels = blas_begin();
    if (kernels != NULL && course->rank == 0)
        fprintf(stderr,
                "mlp_cpu: OpenBLAS does not know this processor and computes slowly; "
                "OPENBLAS_CORETYPE=%s in the environment helps\n",
                kernels);
    if (prepare(trainer, error) != 0)
        return -1;
    if (course->rank == 0)
        course_print_plan(course, trainer->model.parameter_count);
    if (course_run(course, &ops, trainer, &result, error) != 0 ||
        course_add_traffic(trainer->gradients, &result, error) != 0)
        return -1;
    if (course->rank == 0)
        report_result(stdout, &result);
    return 0;
}

int main(int argc, char **argv)
{
    if (dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "mlp_cpu: %s\n", dtrain_last_error());
        return 1;
    }
    trainer_t trainer = {.course = {.rank = dtrain_rank(), .ranks = dtrain_size()}};
    mlp_error_t error = {.text = ""};
    int status = run(&trainer, argc, argv, &error);
    if (status != 0 && (trainer.course.rank == 0 || !error.same_everywhere))
        fprintf(stderr, "mlp_cpu: %s\n", error.text);

    if (dtrain_shutdown() != DTRAIN_OK && status == 0) {
        fprintf(stderr, "mlp_cpu: rank %d: %s\n", trainer.course.rank, dtrain_last_error());
        status = -1;
    }
    unload(&trainer);
    return status == 0 ? 0 : 1;
}
