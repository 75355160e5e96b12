/* gpu_kernels.h - what the trainers compute on a GPU besides matrix products. Each function puts
 * one kernel into `stream`; an error shows in cudaGetLastError. */
#ifndef MLP_GPU_KERNELS_H
#define MLP_GPU_KERNELS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types of activations and gradients. */
typedef enum gpu_type { GPU_F32 = 0, GPU_BF16 = 1 } gpu_type_t;

/* Row i of `inputs` becomes the sample numbers[i] of `pixels`, times `scale` and plus `shift`, and
 * row_labels[i] its label. All is in device memory. */
void gpu_gather(gpu_type_t type, void *inputs, uint8_t *row_labels, const uint8_t *pixels,
                const uint8_t *labels, const int64_t *numbers, int rows, int features, float scale,
                float shift, cudaStream_t stream);

/* to[i] = from[i], rounded to `type`. */
void gpu_convert(gpu_type_t type, void *to, const float *from, int64_t count, cudaStream_t stream);

/*
 * Softmax and cross-entropy of rows of outputs, which are replaced by the loss's gradient times
 * `scale`. What a row's loss is, and whether its label has the highest output, is added to
 * losses[row] and correct[row]. scale 0: the outputs stay.
 */
void gpu_loss(gpu_type_t type, void *outputs, const uint8_t *labels, int rows, int classes,
              float scale, float *losses, int *correct, cudaStream_t stream);

/* What the epilogue of a product does otherwise: adds `bias` to each of `rows` rows of outputs, and
 * takes ReLU of the sums if `has_relu`. */
void gpu_add_bias(gpu_type_t type, void *outputs, const void *bias, int rows, int columns,
                  int has_relu, cudaStream_t stream);

/* Sets each of `count` elements of `delta` to 0 whose output ReLU has set to 0. */
void gpu_relu_gradient(gpu_type_t type, void *delta, const void *outputs, int64_t count,
                       cudaStream_t stream);

/* gradient[i] = the sum of column i over all rows. */
void gpu_sum_rows(gpu_type_t type, const void *delta, void *gradient, int rows, int columns,
                  cudaStream_t stream);

/* velocity = momentum * velocity + gradient; parameter -= *rate * velocity; and the parameters once
 * more, rounded to `type`, unless `copy` is NULL. `rate` is in device memory. */
void gpu_sgd(gpu_type_t type, float *parameters, float *velocity, const void *gradients, void *copy,
             int64_t count, float momentum, const float *rate, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
