#include "course.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "agree.h"
#include "random.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Before the first step ---------------------------------------------------------------- */

void course_list_params(const options_t *options, dtrain_dtype_t dtype, course_params_t *list)
{
    list->count = 2 * (options->layer_count - 1);
    for (int i = 0; i < list->count; i++) {
        int layer = i / 2, is_bias = i % 2;
        list->shapes[layer][0] = options->layers[layer];
        list->shapes[layer][1] = options->layers[layer + 1];
        snprintf(list->names[i], sizeof list->names[i], "layer%d.%s", layer + 1,
                 is_bias ? "bias" : "weight");
        list->params[i] = (dtrain_param_t){.struct_size = sizeof list->params[i],
                                           .name = list->names[i],
                                           .ndim = is_bias ? 1 : 2,
                                           .shape = list->shapes[layer] + is_bias,
                                           .dtype = dtype};
    }
}

static int load_data(course_t *course, mlp_error_t *error)
{
    const options_t *options = &course->options;
    const int *layers = options->layers;
    if (options->synthetic)
        return dataset_synthesize(options->samples, layers[0], layers[options->layer_count - 1],
                                  (uint64_t)options->seed, &course->data, error);
    if (dataset_load(options->data, &course->data, error) != 0)
        return -1;
    return options_check_layers(options, course->data.features, course->data.classes, error);
}

static int create_samplers(course_t *course, int64_t batch, int evaluation_rows, mlp_error_t *error)
{
    const dataset_t *data = &course->data;
    if (batch > data->train.count)
        return mlp_fail(error,
                        "--batch: %" PRId64 " samples of a step are more than the %" PRId64
                        " of the training set",
                        batch, data->train.count);
    dtrain_sampler_desc_t train = {.struct_size = sizeof train,
                                   .num_samples = data->train.count,
                                   .global_batch = batch,
                                   .seed = (uint64_t)course->options.seed};
    dtrain_sampler_desc_t test = {.struct_size = sizeof test,
                                  .num_samples = data->test.count,
                                  .global_batch = (int64_t)evaluation_rows * course->ranks,
                                  .order = DTRAIN_SAMPLER_SEQUENTIAL};
    if (dtrain_sampler_create(&train, &course->train) != DTRAIN_OK ||
        dtrain_sampler_create(&test, &course->test) != DTRAIN_OK)
        return agree_library_error(error);
    return 0;
}

int course_load(course_t *course, int evaluation_rows, int *rows, mlp_error_t *error)
{
    const options_t *options = &course->options;
    int64_t batch = options_global_batch(options, course->ranks);
    if (load_data(course, error) != 0 ||
        create_samplers(course, batch, evaluation_rows, error) != 0)
        return -1;
    int64_t largest = (batch + course->ranks - 1) / course->ranks;
    *rows = largest > evaluation_rows ? (int)largest : evaluation_rows;
    course->batches = (course->data.train.count + batch - 1) / batch;
    course->steps_total = options->epochs * course->batches;
    if (options->steps > 0)
        course->steps_total = smaller(options->steps, course->steps_total);
    return 0;
}

void course_unload(course_t *course)
{
    dtrain_sampler_destroy(course->train);
    dtrain_sampler_destroy(course->test);
    dataset_free(&course->data);
}

void course_print_plan(const course_t *course, int64_t parameters)
{
    const options_t *options = &course->options;
    printf("%d rank%s, layers %d", course->ranks, course->ranks == 1 ? "" : "s",
           options->layers[0]);
    for (int i = 1; i < options->layer_count; i++)
        printf("-%d", options->layers[i]);
    printf(" (%" PRId64 " parameters), %" PRId64 " training and %" PRId64 " test samples from %s, "
           "batch %" PRId64 "\n",
           parameters, course->data.train.count, course->data.test.count,
           options->synthetic ? "the seed" : options->data,
           options_global_batch(options, course->ranks));
    fflush(stdout);
}

/* ---- Epochs ------------------------------------------------------------------------------- */

double course_learning_rate(const course_t *course)
{
    double done = (double)course->steps_done / (double)course->steps_total;
    return course->options.learning_rate * 0.5 * (1.0 + cos(M_PI * done));
}

/* Takes what was trained so far into account, but for the time. */
static int end_warmup(const course_ops_t *ops, void *trainer, double *loss, int64_t *samples,
                      timing_t *timing, mlp_error_t *error)
{
    double part = 0.0;
    if (ops->finish(trainer, &part, timing, error) != 0)
        return -1;
    *loss += part;
    *samples += timing->samples;
    *timing = (timing_t){0};
    return 0;
}

/* One epoch, or what is left of it before the last step; *loss is the mean over all ranks. */
static int train_epoch(course_t *course, const course_ops_t *ops, void *trainer, int64_t epoch,
                       double *loss, timing_t *timing, mlp_error_t *error)
{
    int64_t steps = smaller(course->batches, course->steps_total - course->steps_done);
    int64_t samples = 0;
    double sum = 0.0, part = 0.0, begin = report_clock();
    for (int64_t step = 0; step < steps; step++) {
        if (ops->step(trainer, timing, error) != 0)
            return -1;
        course->steps_done++;
        timing->steps++;
        if (course->rank == 0)
            report_progress(epoch, step + 1, course->batches);
        if (course->steps_done == course->warmup_steps && step + 1 < steps) {
            if (end_warmup(ops, trainer, &sum, &samples, timing, error) != 0)
                return -1;
            begin = report_clock();
        }
    }
    if (ops->finish(trainer, &part, timing, error) != 0)
        return -1;
    timing->total = report_clock() - begin; /* a host may run ahead of its GPU within an epoch */
    sum += part;
    samples += timing->samples;
    if (dtrain_allreduce("loss", &sum, &sum, 1, DTRAIN_DTYPE_F64, DTRAIN_OP_SUM) != DTRAIN_OK)
        return agree_library_error(error);
    *loss = sum / (double)samples;
    if (isfinite(*loss))
        return 0;
    mlp_fail(error,
             "the loss is not a finite number after step %" PRId64 ": a smaller --lr may help",
             course->steps_done);
    error->same_everywhere = 1;
    return -1;
}

/* Each rank counts on its part of the test set; the counts are added. */
static int evaluate(const course_t *course, const course_ops_t *ops, void *trainer,
                    double *accuracy, mlp_error_t *error)
{
    int64_t correct = 0;
    if (ops->count(trainer, &correct, error) != 0)
        return -1;
    if (dtrain_allreduce("correct", &correct, &correct, 1, DTRAIN_DTYPE_I64, DTRAIN_OP_SUM) !=
        DTRAIN_OK)
        return agree_library_error(error);
    *accuracy = (double)correct / (double)course->data.test.count;
    return 0;
}

int course_run(course_t *course, const course_ops_t *ops, void *trainer, result_t *result,
               mlp_error_t *error)
{
    *result = (result_t){.ranks = course->ranks, .param_checksum = CHECKSUM_START};
    for (int64_t epoch = 1; course->steps_done < course->steps_total; epoch++) {
        timing_t timing = {0};
        if (train_epoch(course, ops, trainer, epoch, &result->train_loss, &timing, error) != 0 ||
            evaluate(course, ops, trainer, &result->test_accuracy, error) != 0)
            return -1;
        if (course->steps_done > course->warmup_steps || course->steps_done == course->steps_total)
            timing_add(&result->timing, &timing);
        result->epochs = epoch;
        if (course->rank == 0)
            report_epoch(stdout, epoch, course->options.epochs, result->train_loss,
                         result->test_accuracy, &timing);
    }
    /* Every rank must have ended with the same parameters, to the last bit. */
    if (agree_on_success(ops->checksum(trainer, &result->param_checksum, error), error) != 0)
        return -1;
    return agree_on_number(result->param_checksum, "the parameters after training", error);
}

int course_add_traffic(dtrain_gradset_t *gradients, result_t *result, mlp_error_t *error)
{
    dtrain_gradset_stats_t stats = {.struct_size = sizeof stats};
    if (dtrain_gradset_get_stats(gradients, &stats) != DTRAIN_OK)
        return agree_library_error(error);
    result->buckets = stats.num_buckets;
    result->gradient_bytes = stats.bytes;
    return 0;
}
