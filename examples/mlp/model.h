/* model.h - a multilayer perceptron: ReLU between layers, softmax and cross-entropy at the end. */
#ifndef MLP_MODEL_H
#define MLP_MODEL_H

#include <stdint.h>

#include "error.h"

/* One layer: output = input * weight + bias. */
typedef struct layer {
    int inputs;
    int outputs;
    float
        *weight; /* inputs x outputs, as all matrices row after row; the caller's, as the next 3 */
    float *bias; /* outputs */
    float *weight_gradient;
    float *bias_gradient;
    float *output; /* rows x outputs; after ReLU, except in the last layer */
    float *delta;  /* rows x outputs; the loss's gradient by the sum before ReLU */
} layer_t;

typedef struct model {
    int layer_count;
    layer_t *layers;
    int64_t parameter_count;
    float *work;     /* outputs and deltas */
    float *inputs;   /* rows x inputs of the first layer: the caller fills it */
    uint8_t *labels; /* rows: so does the caller */
    int capacity;    /* most rows at once */
} model_t;

/* `sizes` are the units of `count` layers, the input being the first. The caller then gives each
 * layer memory for its weights, biases and their gradients. */
int model_create(const int *sizes, int count, int capacity, model_t *out, mlp_error_t *error);

/* Nothing for a model_t of zeros. */
void model_free(model_t *model);

/* Weights as He et al. proposed for ReLU: normal, variance 2 / inputs. Biases 0. */
void model_initialize(model_t *model, uint64_t seed);

/* Computes every layer's output for the first `rows` rows of model->inputs. */
void model_forward(model_t *model, int rows);

/*
 * After model_forward: adds up the rows' cross-entropy, and makes the last layer's delta, each
 * row's part times `scale`.
 */
double model_loss(model_t *model, int rows, float scale);

/* After model_forward: how many rows have their label's output above all others. */
int model_correct(const model_t *model, int rows);

/* From a layer's delta: the gradients of its weights and biases. */
void model_backward_parameters(model_t *model, int layer, int rows);

/* From a layer's delta: the delta of the layer before it. Not for layer 0. */
void model_backward_input(model_t *model, int layer, int rows);

#endif
