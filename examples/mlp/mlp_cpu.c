/*
 * mlp_cpu.c - trains a multilayer perceptron on the CPU, on one rank or on many.
 *
 * All of the training across ranks is here: main joins the world, prepare() loads the data and
 * broadcasts the parameters, train_step() submits each layer's gradients as soon as they are
 * known and waits for their sums, evaluate() adds up what each rank counted on its part of the
 * test set. The rest of the folder would be the same for one process.
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
#include "sampler.h"
#include "sgd.h"

#define EVALUATION_ROWS 256
#define GRADIENTS_MAX (2 * OPTIONS_LAYERS_MAX)

typedef struct trainer {
    options_t options;
    int rank;
    int ranks;
    dataset_t data;
    sampler_t sampler;
    model_t model;
    sgd_t sgd;
    uint32_t *everything; /* 0, 1, 2...: the test set's samples in their order */
    int64_t steps_total;
    int64_t steps_done;
    dtrain_handle_t handles[GRADIENTS_MAX]; /* the gradients in flight */
    int in_flight;
} trainer_t;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Before the first step ------------------------------------------------------------ */

/* What each rank does alone and may fail at: data and memory. */
static int load(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->options;
    const int *layers = options->layers;
    int64_t batch = options_global_batch(options, trainer->ranks);
    uint64_t seed = (uint64_t)options->seed;
    if (options->synthetic) {
        if (dataset_synthesize(layers[0], layers[options->layer_count - 1], seed, &trainer->data,
                               error) != 0)
            return -1;
    } else if (dataset_load(options->data, &trainer->data, error) != 0 ||
               options_check_layers(options, trainer->data.features, trainer->data.classes,
                                    error) != 0) {
        return -1;
    }
    if (sampler_create(trainer->data.train.count, batch, seed, &trainer->sampler, error) != 0)
        return -1;
    int64_t rows = (batch + trainer->ranks - 1) / trainer->ranks;
    if (rows < EVALUATION_ROWS)
        rows = EVALUATION_ROWS;
    if (model_create(layers, options->layer_count, (int)rows, &trainer->model, error) != 0 ||
        sgd_create(trainer->model.parameter_count, options->momentum, &trainer->sgd, error) != 0)
        return -1;

    int64_t tests = trainer->data.test.count;
    trainer->everything = malloc((size_t)tests * sizeof *trainer->everything);
    if (trainer->everything == NULL)
        return mlp_fail(error, "no memory for the order of the test set");
    for (int64_t i = 0; i < tests; i++)
        trainer->everything[i] = (uint32_t)i;
    return 0;
}

static void unload(trainer_t *trainer)
{
    free(trainer->everything);
    sgd_free(&trainer->sgd);
    model_free(&trainer->model);
    sampler_free(&trainer->sampler);
    dataset_free(&trainer->data);
}

/* Loads, makes sure that all ranks did and that they agree, and gives all rank 0's parameters. */
static int prepare(trainer_t *trainer, mlp_error_t *error)
{
    const options_t *options = &trainer->options;
    model_t *model = &trainer->model;
    if (agree_on_number(options_fingerprint(options), "the options", error) != 0 ||
        agree_on_success(load(trainer, error), error) != 0 ||
        agree_on_number(dataset_fingerprint(&trainer->data), "the data", error) != 0)
        return -1;

    int64_t steps = options->epochs * sampler_steps_per_epoch(&trainer->sampler);
    trainer->steps_total = options->steps > 0 ? smaller(options->steps, steps) : steps;
    if (trainer->rank == 0)
        model_initialize(model, (uint64_t)options->seed);
    if (dtrain_broadcast("parameters", model->parameters, model->parameter_count, DTRAIN_DTYPE_F32,
                         0) != DTRAIN_OK)
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
           options->synthetic ? "the seed" : options->data, trainer->sampler.batch);
    fflush(stdout);
}

/* ---- One step --------------------------------------------------------------------------- */

/* Submits a sum over all ranks, in place. Names are those of the layer, the same every step. */
static int submit(trainer_t *trainer, int layer, const char *part, float *gradient, int64_t count,
                  mlp_error_t *error)
{
    char name[64];
    snprintf(name, sizeof name, "layer%d.%s", layer + 1, part);
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = name,
                              .in = gradient,
                              .out = gradient,
                              .ndim = 1,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32};
    if (dtrain_allreduce_async(&tensor, NULL, &trainer->handles[trainer->in_flight]) != DTRAIN_OK)
        return agree_library_error(error);
    trainer->in_flight++;
    return 0;
}

static int submit_layer(trainer_t *trainer, int index, mlp_error_t *error)
{
    const layer_t *layer = &trainer->model.layers[index];
    int64_t weights = (int64_t)layer->inputs * layer->outputs;
    if (submit(trainer, index, "weight", layer->weight_gradient, weights, error) != 0)
        return -1;
    return submit(trainer, index, "bias", layer->bias_gradient, layer->outputs, error);
}

static int wait_for_gradients(trainer_t *trainer, mlp_error_t *error)
{
    int status = 0;
    if (dtrain_wait_all(trainer->handles, trainer->in_flight, NULL) != DTRAIN_OK)
        status = agree_library_error(error);
    for (int i = 0; i < trainer->in_flight; i++)
        dtrain_release(trainer->handles[i]);
    trainer->in_flight = 0;
    return status;
}

/* Adds the rank's part of the loss to *loss and the step's times to *timing. */
static int train_step(trainer_t *trainer, int64_t step, double *loss, timing_t *timing,
                      mlp_error_t *error)
{
    model_t *model = &trainer->model;
    double begin = report_clock();
    shard_t shard = sampler_shard(&trainer->sampler, step, trainer->rank, trainer->ranks);
    samples_gather(&trainer->data.train, shard.indices, shard.count, model->inputs, model->labels);
    model_forward(model, shard.count);
    /* Scaled by the global batch, the sum over ranks is the mean, however uneven the shards. */
    *loss += model_loss(model, shard.count, 1.0f / (float)shard.global_count);

    double first_submit = 0.0;
    for (int i = model->layer_count - 1; i >= 0; i--) {
        model_backward_parameters(model, i, shard.count);
        if (i == model->layer_count - 1)
            first_submit = report_clock();
        if (submit_layer(trainer, i, error) != 0)
            return -1;
        if (i > 0)
            model_backward_input(model, i, shard.count);
    }
    double computed = report_clock();
    if (wait_for_gradients(trainer, error) != 0)
        return -1;
    double reduced = report_clock();

    double rate =
        sgd_rate(trainer->options.learning_rate, trainer->steps_done, trainer->steps_total);
    sgd_step(&trainer->sgd, model->parameters, model->gradients, rate);
    trainer->steps_done++;
    timing_add(timing, &(timing_t){.steps = 1,
                                   .samples = shard.global_count,
                                   .total = report_clock() - begin,
                                   .comm = reduced - first_submit,
                                   .exposed = reduced - computed});
    return 0;
}

/* ---- Epochs ----------------------------------------------------------------------------- */

/* Each rank counts on its part of the test set; the counts are added. */
static int evaluate(trainer_t *trainer, double *accuracy, mlp_error_t *error)
{
    model_t *model = &trainer->model;
    const samples_t *test = &trainer->data.test;
    int64_t first;
    int64_t end;
    int64_t correct = 0;
    shard_range(test->count, trainer->rank, trainer->ranks, &first, &end);
    for (int64_t i = first; i < end; i += EVALUATION_ROWS) {
        int rows = (int)smaller(end - i, EVALUATION_ROWS);
        samples_gather(test, trainer->everything + i, rows, model->inputs, model->labels);
        model_forward(model, rows);
        correct += model_correct(model, rows);
    }
    if (dtrain_allreduce("correct", &correct, &correct, 1, DTRAIN_DTYPE_I64, DTRAIN_OP_SUM) !=
        DTRAIN_OK)
        return agree_library_error(error);
    *accuracy = (double)correct / (double)test->count;
    return 0;
}

/* One epoch, or what is left of it before the last step; *loss is the mean over all ranks. */
static int train_epoch(trainer_t *trainer, int64_t epoch, double *loss, timing_t *timing,
                       mlp_error_t *error)
{
    int64_t per_epoch = sampler_steps_per_epoch(&trainer->sampler);
    int64_t steps = smaller(per_epoch, trainer->steps_total - trainer->steps_done);
    double sum = 0.0;
    sampler_shuffle(&trainer->sampler, epoch);
    for (int64_t step = 0; step < steps; step++) {
        if (train_step(trainer, step, &sum, timing, error) != 0)
            return -1;
        if (trainer->rank == 0)
            report_progress(epoch, step + 1, per_epoch);
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
    const model_t *model = &trainer->model;
    *checksum = checksum_bytes(CHECKSUM_START, model->parameters,
                               (size_t)model->parameter_count * sizeof(float));
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

    /* Gradients may still be in flight after an error: their memory is theirs until here. */
    if (dtrain_shutdown() != DTRAIN_OK && status == 0) {
        fprintf(stderr, "mlp_cpu: rank %d: %s\n", trainer.rank, dtrain_last_error());
        status = -1;
    }
    unload(&trainer);
    return status == 0 ? 0 : 1;
}
