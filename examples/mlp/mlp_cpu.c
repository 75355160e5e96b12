/*
 * mlp_cpu.c - trains a multilayer perceptron on the CPU, on one rank or on many.
 *
 * All of the training across ranks is here: main joins the world, declare() makes the set of
 * gradients and the optimizer, train_step() marks each layer's gradients as soon as they are known
 * and lets the optimizer step, evaluate() adds up what each rank counted on its part of the test
 * set. The rest of the folder would be the same for one process.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <dtrain/dtrain.h>

#include "agree.h"
#include "blas.h"
#include "dataset.h"
#include "model.h"
#include "options.h"
#include "random.h"
#include "report.h"

#define EVALUATION_ROWS 256

typedef struct trainer {
    options_t options;
    int rank;
    int ranks;
    dataset_t data;
    dtrain_sampler_t *train; /* the training set, in another order each epoch */
    dtrain_sampler_t *test;  /* the test set, in its own */
    int64_t *samples;        /* this rank's of a batch; as many as the model has rows */
    model_t model;
    dtrain_gradset_t *gradients; /* of layer i: 2 i the weights', 2 i + 1 the biases' */
    dtrain_optimizer_t *optimizer;
    int64_t batches; /* of an epoch */
    int64_t steps_total;
    int64_t steps_done;
} trainer_t;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Before the first step ------------------------------------------------------------ */

static int load_data(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->options;
    const int *layers = options->layers;
    if (options->synthetic)
        return dataset_synthesize(layers[0], layers[options->layer_count - 1],
                                  (uint64_t)options->seed, &trainer->data, error);
    if (dataset_load(options->data, &trainer->data, error) != 0)
        return -1;
    return options_check_layers(options, trainer->data.features, trainer->data.classes, error);
}

static int create_samplers(trainer_t *trainer, int64_t batch, mlp_error_t *error)
{
    if (batch > trainer->data.train.count)
        return mlp_fail(error,
                        "--batch: %" PRId64 " samples of a step are more than the %" PRId64
                        " of the training set",
                        batch, trainer->data.train.count);
    dtrain_sampler_desc_t train = {.struct_size = sizeof train,
                                   .num_samples = trainer->data.train.count,
                                   .global_batch = batch,
                                   .seed = (uint64_t)trainer->options.seed};
    dtrain_sampler_desc_t test = {.struct_size = sizeof test,
                                  .num_samples = trainer->data.test.count,
                                  .global_batch = (int64_t)EVALUATION_ROWS * trainer->ranks,
                                  .order = DTRAIN_SAMPLER_SEQUENTIAL};
    if (dtrain_sampler_create(&train, &trainer->train) != DTRAIN_OK ||
        dtrain_sampler_create(&test, &trainer->test) != DTRAIN_OK)
        return agree_library_error(error);
    trainer->batches = (trainer->data.train.count + batch - 1) / batch;
    return 0;
}

/* What each rank does alone and may fail at: data and memory. */
static int load(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->options;
    int64_t batch = options_global_batch(options, trainer->ranks);
    if (load_data(trainer, error) != 0 || create_samplers(trainer, batch, error) != 0)
        return -1;
    int64_t rows = (batch + trainer->ranks - 1) / trainer->ranks;
    if (rows < EVALUATION_ROWS)
        rows = EVALUATION_ROWS;
    trainer->samples = malloc((size_t)rows * sizeof *trainer->samples);
    if (trainer->samples == NULL)
        return mlp_fail(error, "no memory for the numbers of a batch's samples");
    return model_create(options->layers, options->layer_count, (int)rows, &trainer->model, error);
}

static void unload(trainer_t *trainer)
{
    dtrain_optimizer_destroy(trainer->optimizer);
    dtrain_gradset_destroy(trainer->gradients);
    model_free(&trainer->model);
    free(trainer->samples);
    dtrain_sampler_destroy(trainer->train);
    dtrain_sampler_destroy(trainer->test);
    dataset_free(&trainer->data);
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
    const options_t *options = &trainer->options;
    model_t *model = &trainer->model;
    dtrain_param_t params[2 * OPTIONS_LAYERS_MAX];
    char names[2 * OPTIONS_LAYERS_MAX][32];
    int64_t shapes[OPTIONS_LAYERS_MAX][2];
    for (int i = 0; i < 2 * model->layer_count; i++) {
        const layer_t *layer = &model->layers[i / 2];
        int is_bias = i % 2;
        shapes[i / 2][0] = layer->inputs;
        shapes[i / 2][1] = layer->outputs;
        snprintf(names[i], sizeof names[i], "layer%d.%s", i / 2 + 1, is_bias ? "bias" : "weight");
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = names[i],
                                     .ndim = is_bias ? 1 : 2,
                                     .shape = shapes[i / 2] + is_bias,
                                     .dtype = DTRAIN_DTYPE_F32};
    }
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
    status = dtrain_gradset_create(&set, params, 2 * model->layer_count, &trainer->gradients);
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
    const options_t *options = &trainer->options;
    if (agree_on_number(options_fingerprint(options), "the options", error) != 0 ||
        agree_on_success(load(trainer, error), error) != 0 ||
        agree_on_number(dataset_fingerprint(&trainer->data), "the data", error) != 0 ||
        declare(trainer, error) != 0)
        return -1;
    int64_t steps = options->epochs * trainer->batches;
    trainer->steps_total = options->steps > 0 ? smaller(options->steps, steps) : steps;
    if (trainer->rank == 0)
        model_initialize(&trainer->model, (uint64_t)options->seed);
    if (dtrain_optimizer_broadcast(trainer->optimizer, 0) != DTRAIN_OK)
        return agree_library_error(error);
    return 0;
}

static void print_plan(const trainer_t *trainer)
{
    const options_t *options = &trainer->options;
    printf("%d rank%s, layers %d", trainer->ranks, trainer->ranks == 1 ? "" : "s",
           options->layers[0]);
    for (int i = 1; i < options->layer_count; i++)
        printf("-%d", options->layers[i]);
    printf(" (%" PRId64 " parameters), %" PRId64 " training and %" PRId64 " test samples from %s, "
           "batch %" PRId64 "\n",
           trainer->model.parameter_count, trainer->data.train.count, trainer->data.test.count,
           options->synthetic ? "the seed" : options->data,
           options_global_batch(options, trainer->ranks));
    fflush(stdout);
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

/* Half a cosine, from the peak to 0. */
static double learning_rate(const trainer_t *trainer)
{
    double done = (double)trainer->steps_done / (double)trainer->steps_total;
    return trainer->options.learning_rate * 0.5 * (1.0 + cos(3.14159265358979323846 * done));
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

/* Adds the rank's part of the loss to *loss and the step's times to *timing. */
static int train_step(trainer_t *trainer, double *loss, timing_t *timing, mlp_error_t *error)
{
    model_t *model = &trainer->model;
    dtrain_batch_t batch;
    double begin = report_clock(), waited_before = waited(trainer);
    if (take_batch(trainer, trainer->train, &trainer->data.train, &batch, error) != 0)
        return -1;
    int rows = (int)batch.count;
    model_forward(model, rows);
    *loss += model_loss(model, rows, 1.0f / (float)batch.global_count);
    double computed = report_clock();
    if (backward(trainer, rows, error) != 0)
        return -1;
    if (dtrain_optimizer_step(trainer->optimizer, learning_rate(trainer), NULL) != DTRAIN_OK)
        return agree_library_error(error);
    trainer->steps_done++;
    double end = report_clock();
    timing_add(timing, &(timing_t){.steps = 1,
                                   .samples = batch.global_count,
                                   .total = end - begin,
                                   .comm = end - computed,
                                   .exposed = waited(trainer) - waited_before});
    return 0;
}

/* ---- Epochs ----------------------------------------------------------------------------- */

/* Each rank counts on its part of the test set; the counts are added. */
static int evaluate(trainer_t *trainer, double *accuracy, mlp_error_t *error)
{
    model_t *model = &trainer->model;
    int64_t correct = 0;
    dtrain_batch_t batch = {.num_batches = 1};
    for (int64_t i = 0; i < batch.num_batches; i++) {
        if (take_batch(trainer, trainer->test, &trainer->data.test, &batch, error) != 0)
            return -1;
        model_forward(model, (int)batch.count);
        correct += model_correct(model, (int)batch.count);
    }
    if (dtrain_allreduce("correct", &correct, &correct, 1, DTRAIN_DTYPE_I64, DTRAIN_OP_SUM) !=
        DTRAIN_OK)
        return agree_library_error(error);
    *accuracy = (double)correct / (double)trainer->data.test.count;
    return 0;
}

/* One epoch, or what is left of it before the last step; *loss is the mean over all ranks. */
static int train_epoch(trainer_t *trainer, int64_t epoch, double *loss, timing_t *timing,
                       mlp_error_t *error)
{
    int64_t steps = smaller(trainer->batches, trainer->steps_total - trainer->steps_done);
    double sum = 0.0;
    for (int64_t step = 0; step < steps; step++) {
        if (train_step(trainer, &sum, timing, error) != 0)
            return -1;
        if (trainer->rank == 0)
            report_progress(epoch, step + 1, trainer->batches);
    }
    if (dtrain_allreduce("loss", &sum, &sum, 1, DTRAIN_DTYPE_F64, DTRAIN_OP_SUM) != DTRAIN_OK)
        return agree_library_error(error);
    *loss = sum / (double)timing->samples;
    if (!isfinite(*loss)) {
        mlp_fail(error,
                 "the loss is not a finite number after step %" PRId64 ": a smaller --lr may help",
                 trainer->steps_done);
        error->same_everywhere = 1;
        return -1;
    }
    return 0;
}

/* Makes sure that every rank ended with the same parameters, to the last bit. */
static int compare_parameters(const trainer_t *trainer, uint64_t *checksum, mlp_error_t *error)
{
    *checksum = CHECKSUM_START;
    for (int i = 0; i < trainer->model.layer_count; i++) {
        const layer_t *layer = &trainer->model.layers[i];
        size_t outputs = (size_t)layer->outputs;
        *checksum = checksum_bytes(*checksum, layer->weight,
                                   (size_t)layer->inputs * outputs * sizeof(float));
        *checksum = checksum_bytes(*checksum, layer->bias, outputs * sizeof(float));
    }
    return agree_on_number(*checksum, "the parameters after training", error);
}

static int train(trainer_t *trainer, mlp_error_t *error)
{
    result_t result = {.ranks = trainer->ranks};
    for (int64_t epoch = 1; trainer->steps_done < trainer->steps_total; epoch++) {
        timing_t timing = {0};
        if (train_epoch(trainer, epoch, &result.train_loss, &timing, error) != 0 ||
            evaluate(trainer, &result.test_accuracy, error) != 0)
            return -1;
        timing_add(&result.timing, &timing);
        result.epochs = epoch;
        if (trainer->rank == 0)
            report_epoch(stdout, epoch, trainer->options.epochs, result.train_loss,
                         result.test_accuracy, &timing);
    }
    if (compare_parameters(trainer, &result.param_checksum, error) != 0)
        return -1;
    if (trainer->rank == 0)
        report_result(stdout, &result);
    return 0;
}

static int run(trainer_t *trainer, int argc, char **argv, mlp_error_t *error)
{
    if (agree_on_success(options_parse(argc, argv, &trainer->options, error), error) != 0)
        return -1;
    if (trainer->options.help) {
        if (trainer->rank == 0)
            options_print_help(stdout, "mlp_cpu");
        return 0;
    }
    const char *kernels = blas_begin();
    if (kernels != NULL && trainer->rank == 0)
        fprintf(stderr,
                "mlp_cpu: OpenBLAS does not know this processor and computes slowly; "
                "OPENBLAS_CORETYPE=%s in the environment helps\n",
                kernels);
    if (prepare(trainer, error) != 0)
        return -1;
    if (trainer->rank == 0)
        print_plan(trainer);
    return train(trainer, error);
}

int main(int argc, char **argv)
{
    if (dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "mlp_cpu: %s\n", dtrain_last_error());
        return 1;
    }
    trainer_t trainer = {.rank = dtrain_rank(), .ranks = dtrain_size()};
    mlp_error_t error = {.text = ""};
    int status = run(&trainer, argc, argv, &error);
    if (status != 0 && (trainer.rank == 0 || !error.same_everywhere))
        fprintf(stderr, "mlp_cpu: %s\n", error.text);

    if (dtrain_shutdown() != DTRAIN_OK && status == 0) {
        fprintf(stderr, "mlp_cpu: rank %d: %s\n", trainer.rank, dtrain_last_error());
        status = -1;
    }
    unload(&trainer);
    return status == 0 ? 0 : 1;
}
