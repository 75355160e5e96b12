#include "model.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

/* How many floats the parameters, and the outputs of one row, take. */
static void count_floats(const int *sizes, int count, int64_t *parameters, int64_t *row)
{
    *parameters = 0;
    *row = 0;
    for (int i = 1; i < count; i++) {
        *parameters += ((int64_t)sizes[i - 1] + 1) * sizes[i];
        *row += sizes[i];
    }
}

/* Deals the outputs and deltas out to the layers. */
static void place_layers(model_t *model, const int *sizes)
{
    float *work = model->work;
    for (int i = 0; i < model->layer_count; i++) {
        layer_t *layer = &model->layers[i];
        size_t activations = (size_t)model->capacity * (size_t)sizes[i + 1];
        layer->inputs = sizes[i];
        layer->outputs = sizes[i + 1];
        layer->output = work;
        layer->delta = work + activations;
        work += 2 * activations;
    }
}

int model_create(const int *sizes, int count, int capacity, model_t *out, mlp_error_t *error)
{
    if (count < 2)
        return mlp_fail(error, "a model has two layers or more, not %d", count);
    int64_t row;
    model_t model = {.layer_count = count - 1, .capacity = capacity};
    count_floats(sizes, count, &model.parameter_count, &row);
    size_t rows = (size_t)capacity;
    model.layers = calloc((size_t)model.layer_count, sizeof *model.layers);
    model.work = calloc(rows * 2 * (size_t)row, sizeof(float));
    model.inputs = calloc(rows * (size_t)sizes[0], sizeof(float));
    model.labels = calloc(rows, 1);
    if (model.layers == NULL || model.work == NULL || model.inputs == NULL ||
        model.labels == NULL) {
        model_free(&model);
        return mlp_fail(error, "no memory for a model of %" PRId64 " parameters",
                        model.parameter_count);
    }
    place_layers(&model, sizes);
    *out = model;
    return 0;
}

void model_free(model_t *model)
{
    free(model->layers);
    free(model->work);
    free(model->inputs);
    free(model->labels);
    model->layers = NULL;
    model->work = model->inputs = NULL;
    model->labels = NULL;
}

void model_initialize(model_t *model, uint64_t seed)
{
    random_stream_t random = random_begin(seed, RANDOM_WEIGHTS);
    for (int i = 0; i < model->layer_count; i++) {
        layer_t *layer = &model->layers[i];
        int64_t weights = (int64_t)layer->inputs * layer->outputs;
        float deviation = sqrtf(2.0f / (float)layer->inputs);
        for (int64_t j = 0; j < weights; j++)
            layer->weight[j] = deviation * random_normal(&random);
        memset(layer->bias, 0, (size_t)layer->outputs * sizeof(float));
    }
}

static const float *layer_input(const model_t *model, int layer)
{
    return layer == 0 ? model->inputs : model->layers[layer - 1].output;
}

void model_forward(model_t *model, int rows)
{
    if (rows == 0)
        return;
    for (int i = 0; i < model->layer_count; i++) {
        const layer_t *layer = &model->layers[i];
        size_t outputs = (size_t)layer->outputs;
        for (int r = 0; r < rows; r++)
            memcpy(layer->output + (size_t)r * outputs, layer->bias, outputs * sizeof(float));
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, layer->outputs, layer->inputs,
                    1.0f, layer_input(model, i), layer->inputs, layer->weight, layer->outputs, 1.0f,
                    layer->output, layer->outputs);
        if (i == model->layer_count - 1)
            break;
        for (size_t j = 0; j < (size_t)rows * outputs; j++)
            layer->output[j] = layer->output[j] > 0.0f ? layer->output[j] : 0.0f;
    }
}

double model_loss(model_t *model, int rows, float scale)
{
    const layer_t *last = &model->layers[model->layer_count - 1];
    double loss = 0.0;
    for (int r = 0; r < rows; r++) {
        const float *output = last->output + (size_t)r * (size_t)last->outputs;
        float *delta = last->delta + (size_t)r * (size_t)last->outputs;
        int label = model->labels[r];
        float highest = output[0];
        for (int j = 1; j < last->outputs; j++)
            highest = output[j] > highest ? output[j] : highest;
        float sum = 0.0f;
        for (int j = 0; j < last->outputs; j++) {
            delta[j] = expf(output[j] - highest);
            sum += delta[j];
        }
        for (int j = 0; j < last->outputs; j++)
            delta[j] *= scale / sum;
        delta[label] -= scale;
        loss += (double)(logf(sum) + highest - output[label]);
    }
    return loss;
}

int model_correct(const model_t *model, int rows)
{
    const layer_t *last = &model->layers[model->layer_count - 1];
    int correct = 0;
    for (int r = 0; r < rows; r++) {
        const float *output = last->output + (size_t)r * (size_t)last->outputs;
        int label = model->labels[r];
        int above = 0;
        for (int j = 0; j < last->outputs; j++)
            above += output[label] > output[j];
        correct += above == last->outputs - 1;
    }
    return correct;
}

void model_backward_parameters(model_t *model, int layer, int rows)
{
    const layer_t *self = &model->layers[layer];
    size_t outputs = (size_t)self->outputs;
    memset(self->bias_gradient, 0, outputs * sizeof(float));
    if (rows == 0) {
        memset(self->weight_gradient, 0, (size_t)self->inputs * outputs * sizeof(float));
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, self->inputs, self->outputs, rows, 1.0f,
                layer_input(model, layer), self->inputs, self->delta, self->outputs, 0.0f,
                self->weight_gradient, self->outputs);
    for (int r = 0; r < rows; r++) {
        for (size_t j = 0; j < outputs; j++)
            self->bias_gradient[j] += self->delta[(size_t)r * outputs + j];
    }
}

void model_backward_input(model_t *model, int layer, int rows)
{
    if (rows == 0)
        return;
    const layer_t *self = &model->layers[layer];
    const layer_t *before = &model->layers[layer - 1];
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, self->inputs, self->outputs, 1.0f,
                self->delta, self->outputs, self->weight, self->outputs, 0.0f, before->delta,
                before->outputs);
    /* ReLU passes a gradient on where it passed its input on. */
    for (size_t j = 0; j < (size_t)rows * (size_t)before->outputs; j++)
        before->delta[j] = before->output[j] > 0.0f ? before->delta[j] : 0.0f;
}
