/*
 * bench_train.c - what a step of data-parallel training takes. Speed is no test, so this is run by
 * hand, or by train.py beside others.
 *
 *     bench_train step [--rule sgd|adam] [--sharded] [--steps N] [--layers N,N,…] [--batch N]
 *                      [--bucket KIB]
 *     bench_train ready
 *
 * `step` trains the multilayer perceptron of examples/mlp on one batch a rank, and prints one JSON
 * line: medians over the steps, of rank 0. `ready` prints what a mark takes, in nanoseconds: of
 * marks that complete no bucket, and of all marks of a step, with the ones that do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <dtrain/dtrain.h>

#include "model.h"

#define LAYERS_MAX 16
#define WARMUP 8
#define MARKS 1000
#define ROUNDS 200

typedef struct options {
    int layers[LAYERS_MAX + 1];
    int num_layers, batch, steps, rule, sharded, bucket;
} options_t;

typedef struct training {
    model_t model;
    dtrain_gradset_t *set;
    dtrain_optimizer_t *optimizer;
} training_t;

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void check(dtrain_status_t status)
{
    if (status == DTRAIN_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", dtrain_rank(), dtrain_last_error());
    exit(1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* ---- Steps -------------------------------------------------------------------------------- */

static options_t parse(int argc, char **argv)
{
    options_t options = {.layers = {784, 2048, 2048, 10},
                         .num_layers = 3,
                         .batch = 64,
                         .steps = 100,
                         .rule = DTRAIN_RULE_SGD};
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        int has_value = 1;
        if (strcmp(argv[i], "--rule") == 0) {
            options.rule = strcmp(value, "adam") == 0 ? DTRAIN_RULE_ADAM : DTRAIN_RULE_SGD;
        } else if (strcmp(argv[i], "--steps") == 0) {
            options.steps = (int)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--bucket") == 0) {
            options.bucket = (int)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--batch") == 0) {
            options.batch = (int)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--layers") == 0) {
            char *next = (char *)value;
            for (options.num_layers = -1; *next && options.num_layers < LAYERS_MAX;) {
                options.layers[++options.num_layers] = (int)strtol(next, &next, 10);
                next += *next == ',';
            }
        } else {
            options.sharded |= strcmp(argv[i], "--sharded") == 0;
            has_value = 0;
        }
        i += has_value;
    }
    if (options.steps < 1 || options.batch < 1 || options.num_layers < 1) {
        fprintf(stderr, "bench_train: steps, batch and layers are whole numbers above 0\n");
        exit(2);
    }
    return options;
}

static void declare(training_t *training, const options_t *options)
{
    model_t *model = &training->model;
    dtrain_param_t params[2 * LAYERS_MAX];
    char names[2 * LAYERS_MAX][24];
    int64_t shapes[2 * LAYERS_MAX];
    for (int i = 0; i < 2 * model->layer_count; i++) {
        const layer_t *layer = &model->layers[i / 2];
        snprintf(names[i], sizeof names[i], "%s%d", i % 2 ? "bias" : "weight", i / 2);
        shapes[i] = (int64_t)layer->outputs * (i % 2 ? 1 : layer->inputs);
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = names[i],
                                     .ndim = 1,
                                     .shape = &shapes[i],
                                     .dtype = DTRAIN_DTYPE_F32};
    }
    dtrain_gradset_desc_t set = {.struct_size = sizeof set,
                                 .op = DTRAIN_OP_AVERAGE,
                                 .bucket_bytes = (int64_t)options->bucket << 10};
    dtrain_optimizer_desc_t optimizer = {
        .struct_size = sizeof optimizer, .rule = options->rule, .sharded = options->sharded};
    check(dtrain_gradset_create(&set, params, 2 * model->layer_count, &training->set));
    check(dtrain_optimizer_create(training->set, &optimizer, &training->optimizer));
    for (int i = 0; i < model->layer_count; i++) {
        layer_t *layer = &model->layers[i];
        check(dtrain_optimizer_param(training->optimizer, 2 * i, (void **)&layer->weight));
        check(dtrain_optimizer_param(training->optimizer, 2 * i + 1, (void **)&layer->bias));
        check(dtrain_gradset_buffer(training->set, 2 * i, (void **)&layer->weight_gradient));
        check(dtrain_gradset_buffer(training->set, 2 * i + 1, (void **)&layer->bias_gradient));
    }
}

static void step(training_t *training, int rows)
{
    model_t *model = &training->model;
    model_forward(model, rows);
    model_loss(model, rows, 1.0f / (float)rows);
    for (int i = model->layer_count - 1; i >= 0; i--) {
        model_backward_parameters(model, i, rows);
        check(dtrain_gradset_ready(training->set, 2 * i + 1, NULL));
        check(dtrain_gradset_ready(training->set, 2 * i, NULL));
        if (i > 0)
            model_backward_input(model, i, rows);
    }
    check(dtrain_optimizer_step(training->optimizer, 1e-3, NULL));
}

/* Medians of what is counted, a step. */
typedef struct series {
    double *step, *waited, *gathered, *updated;
} series_t;

static void measure(training_t *training, const options_t *options, series_t *series)
{
    dtrain_gradset_stats_t set[2] = {{.struct_size = sizeof set[0]},
                                     {.struct_size = sizeof set[0]}};
    dtrain_optimizer_stats_t optimizer[2] = {{.struct_size = sizeof optimizer[0]},
                                             {.struct_size = sizeof optimizer[0]}};
    for (int i = -WARMUP; i < options->steps; i++) {
        check(dtrain_gradset_get_stats(training->set, &set[0]));
        check(dtrain_optimizer_get_stats(training->optimizer, &optimizer[0]));
        int64_t begin = now_ns();
        step(training, options->batch);
        int64_t end = now_ns();
        check(dtrain_gradset_get_stats(training->set, &set[1]));
        check(dtrain_optimizer_get_stats(training->optimizer, &optimizer[1]));
        if (i < 0)
            continue;
        series->step[i] = 1e-6 * (double)(end - begin);
        series->waited[i] = 1e-6 * (double)(set[1].waited_ns - set[0].waited_ns);
        series->gathered[i] = 1e-6 * (double)(optimizer[1].gathered_ns - optimizer[0].gathered_ns);
        series->updated[i] = 1e-6 * (double)(optimizer[1].updated_ns - optimizer[0].updated_ns);
    }
}

static double *numbers(int count)
{
    double *made = calloc((size_t)count, sizeof *made);
    if (!made)
        exit(1);
    return made;
}

static void print_result(const training_t *training, const options_t *options, series_t *series)
{
    dtrain_optimizer_stats_t optimizer = {.struct_size = sizeof optimizer};
    dtrain_gradset_stats_t set = {.struct_size = sizeof set};
    struct rusage usage;
    int n = options->steps;
    check(dtrain_optimizer_get_stats(training->optimizer, &optimizer));
    check(dtrain_gradset_get_stats(training->set, &set));
    getrusage(RUSAGE_SELF, &usage);
    if (dtrain_rank() == 0)
        printf("{\"ranks\":%d,\"step_ms\":%.3f,\"waited_ms\":%.3f,\"gathered_ms\":%.3f,"
               "\"updated_ms\":%.3f,\"state_MiB\":%.1f,\"gradients_MiB\":%.1f,\"buckets\":%d,"
               "\"copied_bytes\":%.0f,\"peak_MiB\":%.0f}\n",
               dtrain_size(), median(series->step, n), median(series->waited, n),
               median(series->gathered, n), median(series->updated, n),
               (double)optimizer.state_bytes / 1048576, (double)set.bytes / 1048576,
               set.num_buckets,
               (double)(set.copied_bytes + optimizer.copied_bytes) / (double)set.steps,
               (double)usage.ru_maxrss / 1024);
}

static void run_steps(int argc, char **argv)
{
    options_t options = parse(argc, argv);
    training_t training = {0};
    mlp_error_t error = {.text = ""};
    if (model_create(options.layers, options.num_layers + 1, options.batch, &training.model,
                     &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    declare(&training, &options);
    model_initialize(&training.model, 1);
    for (int i = 0; i < options.batch * options.layers[0]; i++)
        training.model.inputs[i] = (float)((i * 7919 + dtrain_rank()) % 200) / 100 - 1;
    for (int i = 0; i < options.batch; i++)
        training.model.labels[i] = (uint8_t)(i % options.layers[options.num_layers]);
    check(dtrain_optimizer_broadcast(training.optimizer, 0));
    series_t series = {numbers(options.steps), numbers(options.steps), numbers(options.steps),
                       numbers(options.steps)};
    measure(&training, &options, &series);
    print_result(&training, &options, &series);
    free(series.step);
    free(series.waited);
    free(series.gathered);
    free(series.updated);
    dtrain_optimizer_destroy(training.optimizer);
    check(dtrain_gradset_destroy(training.set));
    model_free(&training.model);
}

/* ---- Marks -------------------------------------------------------------------------------- */

static void run_ready(void)
{
    static dtrain_param_t params[MARKS];
    static char names[MARKS][16];
    static const int64_t shape[1] = {1000};
    static double few[ROUNDS], all[ROUNDS];
    for (int i = 0; i < MARKS; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = names[i],
                                     .ndim = 1,
                                     .shape = shape,
                                     .dtype = DTRAIN_DTYPE_F32};
    }
    dtrain_gradset_desc_t desc = {.struct_size = sizeof desc};
    dtrain_gradset_t *set;
    check(dtrain_gradset_create(&desc, params, MARKS, &set));
    for (int round = -2; round < ROUNDS; round++) {
        check(dtrain_barrier());
        int64_t begin = now_ns();
        /* The first bucket has more than 200 of them. */
        for (int i = MARKS - 1; i >= MARKS - 200; i--)
            check(dtrain_gradset_ready(set, i, NULL));
        int64_t middle = now_ns();
        for (int i = MARKS - 201; i >= 0; i--)
            check(dtrain_gradset_ready(set, i, NULL));
        int64_t end = now_ns();
        check(dtrain_gradset_wait(set));
        if (round >= 0) {
            few[round] = (double)(middle - begin) / 200;
            all[round] = (double)(end - begin) / MARKS;
        }
    }
    if (dtrain_rank() == 0)
        printf("{\"ranks\":%d,\"ready_ns\":%.1f,\"ready_with_buckets_ns\":%.1f}\n", dtrain_size(),
               median(few, ROUNDS), median(all, ROUNDS));
    check(dtrain_gradset_destroy(set));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int steps = strcmp(what, "step") == 0;
    if (!steps && strcmp(what, "ready") != 0) {
        fprintf(stderr, "usage: bench_train step [OPTION …] | ready\n");
        return 2;
    }
    check(dtrain_init(NULL));
    if (steps)
        run_steps(argc, argv);
    else
        run_ready();
    return dtrain_shutdown() != DTRAIN_OK;
}
