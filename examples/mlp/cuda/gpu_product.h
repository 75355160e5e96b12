/*
 * gpu_product.h - a product of matrices by cuBLASLt, with what follows it in its epilogue. Which
 * epilogues there are for a type, a shape and a GPU only cuBLASLt knows; without one the product is
 * plain, and is_fused says that the rest is left to the caller.
 */
#ifndef MLP_GPU_PRODUCT_H
#define MLP_GPU_PRODUCT_H

#include <cublasLt.h>

#include "error.h"

typedef enum gpu_precision {
    GPU_PRECISION_F32 = 0,
    GPU_PRECISION_TF32 = 1, /* fp32, but products of 10 bits of mantissa */
    GPU_PRECISION_BF16 = 2  /* bf16; the optimizer keeps parameters and momenta in fp32 */
} gpu_precision_t;

/* What all products of a stream share. */
typedef struct gpu_blas {
    cublasLtHandle_t handle;
    cudaStream_t stream;
    void *workspace;
    gpu_precision_t precision;
    int tunes; /* several algorithms are timed; otherwise cuBLASLt's first one is taken */
} gpu_blas_t;

/* D = A B, column after column; D is m x n. */
typedef struct gpu_shape {
    int m, n, k;
    cublasOperation_t op_a, op_b;
    const void *a, *b;
    void *d;
    cublasLtEpilogue_t epilogue;
    const void *bias; /* m elements; NULL: none */
    const void *mask; /* a bit an element, gpu_mask_ld(m) of them a column; NULL: none */
} gpu_shape_t;

typedef struct gpu_product {
    gpu_shape_t shape;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    int is_fused;
} gpu_product_t;

int gpu_blas_create(gpu_precision_t precision, int tunes, gpu_blas_t *out, mlp_error_t *error);
void gpu_blas_free(gpu_blas_t *blas);

int64_t gpu_mask_ld(int m);

/* Plans a product, and tries it: D and the epilogue's outputs change. Waits for the stream; not
 * while it is captured. */
int gpu_product_create(const gpu_blas_t *blas, const gpu_shape_t *shape, gpu_product_t *out,
                       mlp_error_t *error);
void gpu_product_free(gpu_product_t *product); /* nothing for zeros */
int gpu_product_run(const gpu_blas_t *blas, const gpu_product_t *product, mlp_error_t *error);

/* -1 with the text of an error of CUDA's. */
int gpu_check(cudaError_t status, const char *what, mlp_error_t *error);

/* Device memory of zeros. */
int gpu_allocate(void **memory, size_t bytes, mlp_error_t *error);

#endif
