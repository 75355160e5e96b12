#include "gpt_model.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define QKV (3 * GPT_WIDTH)

int gpt_shape(int index, int64_t shape[2])
{
    static const int layer[GPT_LAYER_PARAMS][2] = {[GPT_NORM1] = {GPT_WIDTH, 1},
                                                   [GPT_QKV] = {GPT_WIDTH, QKV},
                                                   [GPT_PROJECTION] = {GPT_WIDTH, GPT_WIDTH},
                                                   [GPT_NORM2] = {GPT_WIDTH, 1},
                                                   [GPT_UP] = {GPT_WIDTH, GPT_HIDDEN},
                                                   [GPT_DOWN] = {GPT_HIDDEN, GPT_WIDTH}};
    static const int first[2] = {GPT_TOKENS, GPT_LENGTH}, last[2] = {1, GPT_TOKENS};
    int rows = GPT_WIDTH, columns = GPT_WIDTH;
    if (index < GPT_FIRST_LAYER) {
        rows = first[index];
    } else if (index >= GPT_NORM) {
        columns = last[index - GPT_NORM];
    } else {
        rows = layer[(index - GPT_FIRST_LAYER) % GPT_LAYER_PARAMS][0];
        columns = layer[(index - GPT_FIRST_LAYER) % GPT_LAYER_PARAMS][1];
    }
    shape[0] = rows;
    shape[1] = columns;
    return columns == 1 ? 1 : 2;
}

const char *gpt_name(int index, char name[32])
{
    static const char *const layer[] = {"norm1", "qkv", "projection", "norm2", "up", "down"};
    static const char *const first[] = {"token", "position"}, *const last[] = {"norm", "head"};
    if (index < GPT_FIRST_LAYER)
        snprintf(name, 32, "%s", first[index]);
    else if (index >= GPT_NORM)
        snprintf(name, 32, "%s", last[index - GPT_NORM]);
    else
        snprintf(name, 32, "layer%d.%s", (index - GPT_FIRST_LAYER) / GPT_LAYER_PARAMS + 1,
                 layer[(index - GPT_FIRST_LAYER) % GPT_LAYER_PARAMS]);
    return name;
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* Deals out `count` floats of the memory, or, before there is any, only counts them. */
static float *deal(const gpt_model_t *model, size_t *used, size_t count)
{
    float *at = model->memory ? model->memory + *used : NULL;
    *used += count;
    return at;
}

static size_t deal_all(gpt_model_t *model)
{
    size_t rows = (size_t)model->sequences * GPT_LENGTH, used = 0;
    size_t scores = rows * GPT_HEADS * GPT_LENGTH;
    for (int l = 0; l < GPT_LAYERS; l++) {
        gpt_layer_t *layer = &model->layers[l];
        layer->input = deal(model, &used, rows * GPT_WIDTH);
        layer->normal1 = deal(model, &used, rows * GPT_WIDTH);
        layer->qkv = deal(model, &used, rows * QKV);
        layer->weights = deal(model, &used, scores);
        layer->mixed = deal(model, &used, rows * GPT_WIDTH);
        layer->middle = deal(model, &used, rows * GPT_WIDTH);
        layer->normal2 = deal(model, &used, rows * GPT_WIDTH);
        layer->hidden = deal(model, &used, rows * GPT_HIDDEN);
    }
    model->last = deal(model, &used, rows * GPT_WIDTH);
    model->normal = deal(model, &used, rows * GPT_WIDTH);
    model->logits = deal(model, &used, rows * GPT_TOKENS);
    model->delta = deal(model, &used, rows * GPT_WIDTH);
    model->branch = deal(model, &used, rows * GPT_WIDTH);
    model->wide = deal(model, &used, rows * GPT_HIDDEN);
    model->scores = deal(model, &used, GPT_LENGTH * GPT_LENGTH);
    return used;
}

int gpt_create(gpt_model_t *model, int sequences)
{
    *model = (gpt_model_t){.sequences = sequences};
    model->texts = malloc((size_t)sequences * sizeof *model->texts);
    model->memory = malloc(deal_all(model) * sizeof(float));
    if (!model->texts || !model->memory) {
        gpt_free(model);
        return -1;
    }
    deal_all(model);
    return 0;
}

void gpt_free(gpt_model_t *model)
{
    free(model->texts);
    free(model->memory);
    *model = (gpt_model_t){0};
}

/* Gains are 1; all else is small, and what is added to x smaller the more often that is done. */
void gpt_initialize(gpt_model_t *model, uint64_t seed)
{
    random_stream_t random = random_begin(seed, RANDOM_WEIGHTS);
    for (int i = 0; i < GPT_PARAMS; i++) {
        int64_t shape[2];
        int ndim = gpt_shape(i, shape);
        int place =
            i >= GPT_NORM || i < GPT_FIRST_LAYER ? -1 : (i - GPT_FIRST_LAYER) % GPT_LAYER_PARAMS;
        float deviation = i < GPT_FIRST_LAYER ? 0.1f : 1 / sqrtf((float)shape[0]);
        if (place == GPT_PROJECTION || place == GPT_DOWN)
            deviation /= sqrtf(2.0f * GPT_LAYERS);
        for (int64_t k = 0; k < shape[0] * shape[1]; k++)
            model->values[i][k] = ndim == 1 ? 1 : deviation * random_normal(&random);
    }
}

/* ---- Products ----------------------------------------------------------------------------- */

/* out (rows x columns) = in (rows x inner) * weight, plus `keep` times what out had. */
static void multiply(int rows, int columns, int inner, const float *in, const float *weight,
                     float keep, float *out)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, 1, in, inner,
                weight, columns, keep, out, columns);
}

/* From the gradient of such a product (rows x columns) those of its weight and of its input. */
static void multiply_backward(int rows, int columns, int inner, const float *in,
                              const float *weight, const float *delta, float *weight_gradient,
                              float *in_delta)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, inner, columns, rows, 1, in, inner, delta,
                columns, 0, weight_gradient, columns);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, inner, columns, 1, delta, columns,
                weight, columns, 0, in_delta, inner);
}

/* ---- Norm --------------------------------------------------------------------------------- */

static float inverse_deviation(const float *row)
{
    float sum = 0;
    for (int k = 0; k < GPT_WIDTH; k++)
        sum += row[k] * row[k];
    return 1 / sqrtf(sum / GPT_WIDTH + 1e-5f);
}

static void normalize(int rows, const float *in, const float *gain, float *out)
{
    for (int i = 0; i < rows; i++, in += GPT_WIDTH, out += GPT_WIDTH) {
        float factor = inverse_deviation(in);
        for (int k = 0; k < GPT_WIDTH; k++)
            out[k] = in[k] * factor * gain[k];
    }
}

/* Adds the gradient by the norm's input to in_delta. */
static void normalize_backward(int rows, const float *in, const float *gain, const float *delta,
                               float *gain_gradient, float *in_delta)
{
    memset(gain_gradient, 0, GPT_WIDTH * sizeof *gain_gradient);
    for (int i = 0; i < rows; i++, in += GPT_WIDTH, delta += GPT_WIDTH, in_delta += GPT_WIDTH) {
        float factor = inverse_deviation(in), sum = 0;
        for (int k = 0; k < GPT_WIDTH; k++) {
            gain_gradient[k] += delta[k] * in[k] * factor;
            sum += delta[k] * gain[k] * in[k];
        }
        sum *= factor * factor / GPT_WIDTH;
        for (int k = 0; k < GPT_WIDTH; k++)
            in_delta[k] += factor * (delta[k] * gain[k] - sum * in[k]);
    }
}

/* ---- Attention ---------------------------------------------------------------------------- */

/* Softmax of what a position may look back at: itself and those before it. */
static void soften(float *row, int position)
{
    float largest = row[0], sum = 0;
    for (int k = 1; k <= position; k++)
        largest = fmaxf(largest, row[k]);
    for (int k = 0; k <= position; k++)
        sum += row[k] = expf(row[k] - largest);
    for (int k = 0; k < GPT_LENGTH; k++)
        row[k] = k <= position ? row[k] / sum : 0;
}

/* One head of one sequence: weights = softmax(q k'), out = weights v. */
static void attend(const float *qkv, float *weights, float *out)
{
    const float *q = qkv, *k = qkv + GPT_WIDTH, *v = qkv + 2 * GPT_WIDTH;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, GPT_LENGTH, GPT_LENGTH, GPT_HEAD_WIDTH,
                1 / sqrtf(GPT_HEAD_WIDTH), q, QKV, k, QKV, 0, weights, GPT_LENGTH);
    for (int i = 0; i < GPT_LENGTH; i++)
        soften(weights + i * GPT_LENGTH, i);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, GPT_LENGTH, GPT_HEAD_WIDTH, GPT_LENGTH,
                1, weights, GPT_LENGTH, v, QKV, 0, out, GPT_WIDTH);
}

/* From the gradient of `out` that of q, k and v. */
static void attend_backward(const float *qkv, const float *weights, const float *delta,
                            float *scores, float *qkv_delta)
{
    const float *q = qkv, *k = qkv + GPT_WIDTH, *v = qkv + 2 * GPT_WIDTH;
    float scale = 1 / sqrtf(GPT_HEAD_WIDTH);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, GPT_LENGTH, GPT_HEAD_WIDTH, GPT_LENGTH, 1,
                weights, GPT_LENGTH, delta, GPT_WIDTH, 0, qkv_delta + 2 * GPT_WIDTH, QKV);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, GPT_LENGTH, GPT_LENGTH, GPT_HEAD_WIDTH, 1,
                delta, GPT_WIDTH, v, QKV, 0, scores, GPT_LENGTH);
    for (int i = 0; i < GPT_LENGTH; i++) {
        const float *weight = weights + i * GPT_LENGTH;
        float *score = scores + i * GPT_LENGTH, sum = 0;
        for (int j = 0; j <= i; j++)
            sum += weight[j] * score[j];
        for (int j = 0; j < GPT_LENGTH; j++)
            score[j] = weight[j] * (score[j] - sum); /* 0 where it may not look */
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, GPT_LENGTH, GPT_HEAD_WIDTH, GPT_LENGTH,
                scale, scores, GPT_LENGTH, k, QKV, 0, qkv_delta, QKV);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, GPT_LENGTH, GPT_HEAD_WIDTH, GPT_LENGTH,
                scale, scores, GPT_LENGTH, q, QKV, 0, qkv_delta + GPT_WIDTH, QKV);
}

/* Where a head's part of a sequence begins in rows of `width`. */
static size_t part(int sequence, int head, int width)
{
    return (size_t)sequence * GPT_LENGTH * (size_t)width + (size_t)head * GPT_HEAD_WIDTH;
}

static float *weights_of(const gpt_layer_t *layer, int sequence, int head)
{
    return layer->weights + ((size_t)sequence * GPT_HEADS + (size_t)head) * GPT_LENGTH * GPT_LENGTH;
}

/* ---- Forward ------------------------------------------------------------------------------ */

static void layer_forward(gpt_model_t *model, int l, int count, float *out)
{
    const gpt_layer_t *layer = &model->layers[l];
    float *const *values = model->values + GPT_LAYER(l);
    int rows = count * GPT_LENGTH;
    size_t bytes = (size_t)rows * GPT_WIDTH * sizeof(float);
    normalize(rows, layer->input, values[GPT_NORM1], layer->normal1);
    multiply(rows, QKV, GPT_WIDTH, layer->normal1, values[GPT_QKV], 0, layer->qkv);
    for (int i = 0; i < count * GPT_HEADS; i++) {
        int sequence = i / GPT_HEADS, head = i % GPT_HEADS;
        attend(layer->qkv + part(sequence, head, QKV), weights_of(layer, sequence, head),
               layer->mixed + part(sequence, head, GPT_WIDTH));
    }
    memcpy(layer->middle, layer->input, bytes);
    multiply(rows, GPT_WIDTH, GPT_WIDTH, layer->mixed, values[GPT_PROJECTION], 1, layer->middle);
    normalize(rows, layer->middle, values[GPT_NORM2], layer->normal2);
    multiply(rows, GPT_HIDDEN, GPT_WIDTH, layer->normal2, values[GPT_UP], 0, layer->hidden);
    for (int64_t k = 0; k < (int64_t)rows * GPT_HIDDEN; k++)
        layer->hidden[k] = fmaxf(layer->hidden[k], 0);
    memcpy(out, layer->middle, bytes);
    multiply(rows, GPT_WIDTH, GPT_HIDDEN, layer->hidden, values[GPT_DOWN], 1, out);
}

void gpt_forward(gpt_model_t *model, int count)
{
    int rows = count * GPT_LENGTH;
    for (int i = 0; i < rows; i++) {
        const float *token = model->values[GPT_TOKEN] +
                             (size_t)model->texts[i / GPT_LENGTH][i % GPT_LENGTH] * GPT_WIDTH;
        const float *position = model->values[GPT_POSITION] + (size_t)(i % GPT_LENGTH) * GPT_WIDTH;
        for (int k = 0; k < GPT_WIDTH; k++)
            model->layers[0].input[i * GPT_WIDTH + k] = token[k] + position[k];
    }
    for (int l = 0; l < GPT_LAYERS; l++)
        layer_forward(model, l, count,
                      l + 1 < GPT_LAYERS ? model->layers[l + 1].input : model->last);
    normalize(rows, model->last, model->values[GPT_NORM], model->normal);
    multiply(rows, GPT_TOKENS, GPT_WIDTH, model->normal, model->values[GPT_HEAD], 0, model->logits);
}

double gpt_loss(gpt_model_t *model, int count, float scale)
{
    double loss = 0;
    for (int i = 0; i < count * GPT_LENGTH; i++) {
        float *row = model->logits + (size_t)i * GPT_TOKENS, largest = row[0], sum = 0;
        int next = model->texts[i / GPT_LENGTH][i % GPT_LENGTH + 1];
        for (int k = 1; k < GPT_TOKENS; k++)
            largest = fmaxf(largest, row[k]);
        float wanted = row[next] - largest;
        for (int k = 0; k < GPT_TOKENS; k++)
            sum += row[k] = expf(row[k] - largest);
        loss += logf(sum) - wanted;
        for (int k = 0; k < GPT_TOKENS; k++)
            row[k] = scale * (row[k] / sum - (k == next));
    }
    return loss;
}

/* ---- Backward ----------------------------------------------------------------------------- */

/* model->delta is the gradient by the layer's output, and becomes that by its input. */
static void layer_backward(gpt_model_t *model, int l, int count, void (*ready)(int, void *),
                           void *user)
{
    const gpt_layer_t *layer = &model->layers[l];
    float *const *values = model->values + GPT_LAYER(l);
    float *const *gradients = model->gradients + GPT_LAYER(l);
    int rows = count * GPT_LENGTH;
    multiply_backward(rows, GPT_WIDTH, GPT_HIDDEN, layer->hidden, values[GPT_DOWN], model->delta,
                      gradients[GPT_DOWN], model->wide);
    ready(GPT_LAYER(l) + GPT_DOWN, user);
    for (int64_t k = 0; k < (int64_t)rows * GPT_HIDDEN; k++)
        model->wide[k] = layer->hidden[k] > 0 ? model->wide[k] : 0;
    multiply_backward(rows, GPT_HIDDEN, GPT_WIDTH, layer->normal2, values[GPT_UP], model->wide,
                      gradients[GPT_UP], model->branch);
    ready(GPT_LAYER(l) + GPT_UP, user);
    normalize_backward(rows, layer->middle, values[GPT_NORM2], model->branch, gradients[GPT_NORM2],
                       model->delta);
    ready(GPT_LAYER(l) + GPT_NORM2, user);
    multiply_backward(rows, GPT_WIDTH, GPT_WIDTH, layer->mixed, values[GPT_PROJECTION],
                      model->delta, gradients[GPT_PROJECTION], model->branch);
    ready(GPT_LAYER(l) + GPT_PROJECTION, user);
    for (int i = 0; i < count * GPT_HEADS; i++) {
        int sequence = i / GPT_HEADS, head = i % GPT_HEADS;
        attend_backward(layer->qkv + part(sequence, head, QKV), weights_of(layer, sequence, head),
                        model->branch + part(sequence, head, GPT_WIDTH), model->scores,
                        model->wide + part(sequence, head, QKV));
    }
    multiply_backward(rows, QKV, GPT_WIDTH, layer->normal1, values[GPT_QKV], model->wide,
                      gradients[GPT_QKV], model->branch);
    ready(GPT_LAYER(l) + GPT_QKV, user);
    normalize_backward(rows, layer->input, values[GPT_NORM1], model->branch, gradients[GPT_NORM1],
                       model->delta);
    ready(GPT_LAYER(l) + GPT_NORM1, user);
}

void gpt_backward(gpt_model_t *model, int count, void (*ready)(int index, void *user), void *user)
{
    int rows = count * GPT_LENGTH;
    float *token = model->gradients[GPT_TOKEN], *position = model->gradients[GPT_POSITION];
    multiply_backward(rows, GPT_TOKENS, GPT_WIDTH, model->normal, model->values[GPT_HEAD],
                      model->logits, model->gradients[GPT_HEAD], model->branch);
    ready(GPT_HEAD, user);
    memset(model->delta, 0, (size_t)rows * GPT_WIDTH * sizeof(float));
    normalize_backward(rows, model->last, model->values[GPT_NORM], model->branch,
                       model->gradients[GPT_NORM], model->delta);
    ready(GPT_NORM, user);
    for (int l = GPT_LAYERS - 1; l >= 0; l--)
        layer_backward(model, l, count, ready, user);
    memset(token, 0, GPT_TOKENS * GPT_WIDTH * sizeof *token);
    memset(position, 0, GPT_LENGTH * GPT_WIDTH * sizeof *position);
    for (int i = 0; i < rows; i++) {
        size_t byte = model->texts[i / GPT_LENGTH][i % GPT_LENGTH], place = (size_t)i % GPT_LENGTH;
        for (int k = 0; k < GPT_WIDTH; k++) {
            token[byte * GPT_WIDTH + (size_t)k] += model->delta[i * GPT_WIDTH + k];
            position[place * GPT_WIDTH + (size_t)k] += model->delta[i * GPT_WIDTH + k];
        }
    }
    ready(GPT_POSITION, user);
    ready(GPT_TOKEN, user);
}
