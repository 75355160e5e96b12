/*
 * gpu_model.h - the multilayer perceptron on a GPU: each layer is one cuBLASLt product forward,
 * with bias and ReLU in its epilogue, and two backward, with the bias's gradient and ReLU's in
 * theirs, or in kernels where cuBLASLt has no such product. Everything goes into one stream, and
 * but for the first batch of a size nothing waits for it.
 */
#ifndef MLP_GPU_MODEL_H
#define MLP_GPU_MODEL_H

#include "dataset.h"
#include "error.h"
#include "gpu_kernels.h"
#include "gpu_product.h"

#define GPU_PLANS 8 /* sizes of batches: few, also where ranks take turns with a sample more */

/* One layer. Matrices are row after row, as the CPU's. */
typedef struct gpu_layer {
    int inputs, outputs;
    /* The library's, set by whoever declares them, before the first product. */
    void *weight, *bias, *weight_gradient, *bias_gradient;
    void *output; /* rows x outputs; backward it becomes the loss's gradient by it */
    void *mask;   /* of ReLU: a bit an output */
} gpu_layer_t;

typedef struct gpu_layer_plan {
    gpu_product_t forward, by_weight, by_input; /* the first layer's by_input is none */
} gpu_layer_plan_t;

/* The products of all layers for batches of so many rows. */
typedef struct gpu_plan {
    int rows; /* 0: not there yet */
    int64_t used;
    gpu_layer_plan_t *layers;
} gpu_plan_t;

typedef struct gpu_model {
    gpu_blas_t blas;
    gpu_type_t type;
    size_t element;
    cudaStream_t stream;
    int layer_count, capacity;
    gpu_layer_t *layers;
    gpu_plan_t plans[GPU_PLANS], *plan; /* plan: for the batch that was loaded last */
    int64_t num_loads;
    int64_t parameter_count;
    void *inputs; /* rows x inputs of the first layer */
    void *deltas[2];
    uint8_t *labels;
    int64_t *numbers; /* of the samples of a batch */
    float *losses;
    int *correct;
} gpu_model_t;

/* Everything but parameters and gradients. */
int gpu_model_create(const int *sizes, int count, int capacity, gpu_precision_t precision,
                     int tunes, gpu_model_t *out, mlp_error_t *error);
void gpu_model_free(gpu_model_t *model);

/* Fills the weights in as the model on the CPU does, so that both begin alike. */
int gpu_model_initialize(gpu_model_t *model, uint64_t seed, mlp_error_t *error);
/* Goes on with *sum over all parameters, as they are on the GPU. */
int gpu_model_checksum(gpu_model_t *model, uint64_t *sum, mlp_error_t *error);

/* A set of samples as it is, in device memory. */
typedef struct gpu_samples {
    uint8_t *pixels, *labels;
    int features;
} gpu_samples_t;

int gpu_samples_create(const samples_t *samples, gpu_samples_t *out, mlp_error_t *error);
void gpu_samples_free(gpu_samples_t *samples);

/* Makes a batch of the samples with these numbers, which are in pinned memory of the host. The
 * first of so many rows changes outputs and gradients, and waits for the stream. */
int gpu_model_load(gpu_model_t *model, const gpu_samples_t *samples, const int64_t *numbers,
                   int rows, mlp_error_t *error);

/* With the batch that was loaded last: */
int gpu_model_forward(gpu_model_t *model, mlp_error_t *error);
void gpu_model_loss(gpu_model_t *model, float scale);
/* Backward from layer `index`'s output: its gradients, then what the layer before it needs. */
int gpu_model_backward(gpu_model_t *model, int index, mlp_error_t *error);

/* Sums up what gpu_model_loss has counted, and sets it to 0. Waits for the stream. */
int gpu_model_counted(gpu_model_t *model, double *loss, int64_t *correct, mlp_error_t *error);

#endif
