#include "gpu_product.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

#define WORKSPACE_BYTES ((size_t)32 << 20)
#define CANDIDATES 8
#define TIMED_RUNS 3

/* Of operands, which cuBLASLt may count on: the library's parameters have it. */
#define ALIGNMENT 64

int gpu_check(cudaError_t status, const char *what, mlp_error_t *error)
{
    if (status == cudaSuccess)
        return 0;
    return mlp_fail(error, "%s: %s", what, cudaGetErrorString(status));
}

int gpu_allocate(void **memory, size_t bytes, mlp_error_t *error)
{
    if (gpu_check(cudaMalloc(memory, bytes), "cudaMalloc", error) != 0 ||
        gpu_check(cudaMemset(*memory, 0, bytes), "cudaMemset", error) != 0)
        return -1;
    /* Nobody waits for that, and a stream that does not block does not either. */
    return gpu_check(cudaDeviceSynchronize(), "clearing memory", error);
}

static int check_blas(cublasStatus_t status, const char *what, mlp_error_t *error)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return mlp_fail(error, "%s: %s", what, cublasLtGetStatusString(status));
}

int gpu_blas_create(gpu_precision_t precision, int tunes, gpu_blas_t *out, mlp_error_t *error)
{
    out->precision = precision;
    out->tunes = tunes;
    if (gpu_allocate(&out->workspace, WORKSPACE_BYTES, error) != 0 ||
        check_blas(cublasLtCreate(&out->handle), "cublasLtCreate", error) != 0)
        return -1;
    return gpu_check(cudaStreamCreateWithFlags(&out->stream, cudaStreamNonBlocking), "a stream",
                     error);
}

void gpu_blas_free(gpu_blas_t *blas)
{
    if (blas->stream)
        cudaStreamDestroy(blas->stream);
    if (blas->handle)
        cublasLtDestroy(blas->handle);
    cudaFree(blas->workspace);
    memset(blas, 0, sizeof *blas);
}

int64_t gpu_mask_ld(int m)
{
    return (m + INT64_C(127)) / 128 * 128;
}

/* ---- Descriptors ---------------------------------------------------------------------------- */

void gpu_product_free(gpu_product_t *product)
{
    if (product->operation)
        cublasLtMatmulDescDestroy(product->operation);
    if (product->a)
        cublasLtMatrixLayoutDestroy(product->a);
    if (product->b)
        cublasLtMatrixLayoutDestroy(product->b);
    if (product->d)
        cublasLtMatrixLayoutDestroy(product->d);
    memset(product, 0, sizeof *product);
}

static cublasStatus_t describe_operation(const gpu_blas_t *blas, const gpu_shape_t *shape,
                                         cublasLtMatmulDesc_t *out)
{
    const int32_t op_a = shape->op_a, op_b = shape->op_b;
    const uint32_t epilogue = shape->epilogue;
    const int64_t mask_ld = gpu_mask_ld(shape->m);
    const struct attribute {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
        int is_wanted;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a, 1},
        {CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b, 1},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, 1},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &shape->bias, sizeof shape->bias, shape->bias != NULL},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &shape->mask, sizeof shape->mask,
         shape->mask != NULL},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &mask_ld, sizeof mask_ld, shape->mask != NULL},
    };
    cublasComputeType_t compute =
        blas->precision == GPU_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t status = cublasLtMatmulDescCreate(out, compute, CUDA_R_32F);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (status == CUBLAS_STATUS_SUCCESS && attributes[i].is_wanted)
            status = cublasLtMatmulDescSetAttribute(*out, attributes[i].name, attributes[i].value,
                                                    attributes[i].bytes);
    }
    return status;
}

static int describe(const gpu_blas_t *blas, gpu_product_t *product, mlp_error_t *error)
{
    const gpu_shape_t *shape = &product->shape;
    cudaDataType_t type = blas->precision == GPU_PRECISION_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    int a_rows = shape->op_a == CUBLAS_OP_N ? shape->m : shape->k;
    int b_rows = shape->op_b == CUBLAS_OP_N ? shape->k : shape->n;
    cublasStatus_t status = describe_operation(blas, shape, &product->operation);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->a, type, (uint64_t)a_rows,
                                            (uint64_t)(shape->m + shape->k - a_rows), a_rows);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->b, type, (uint64_t)b_rows,
                                            (uint64_t)(shape->k + shape->n - b_rows), b_rows);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->d, type, (uint64_t)shape->m,
                                            (uint64_t)shape->n, shape->m);
    return check_blas(status, "a description for cuBLASLt", error);
}

/* ---- Algorithms ----------------------------------------------------------------------------- */

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = WORKSPACE_BYTES;
    const uint32_t alignment = ALIGNMENT;
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment,
                                                      sizeof alignment);
    return status;
}

/* What cuBLASLt proposes, the best first; 0: nothing, which it tells in several ways. */
static int list_candidates(const gpu_blas_t *blas, const gpu_product_t *product,
                           cublasLtMatmulAlgo_t *candidates)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0, usable = 0;
    if (cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (prefer(preference) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoGetHeuristic(blas->handle, product->operation, product->a, product->b,
                                       product->d, product->d, preference, CANDIDATES, found,
                                       &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < count; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            candidates[usable++] = found[i].algo;
    }
    return usable;
}

static cublasStatus_t multiply(const gpu_blas_t *blas, const gpu_product_t *product,
                               const cublasLtMatmulAlgo_t *algorithm)
{
    const float one = 1, zero = 0;
    const gpu_shape_t *shape = &product->shape;
    return cublasLtMatmul(blas->handle, product->operation, &one, shape->a, product->a, shape->b,
                          product->b, &zero, shape->d, product->d, shape->d, product->d, algorithm,
                          blas->workspace, WORKSPACE_BYTES, blas->stream);
}

/* Milliseconds of some runs; events are the only clock of a stream. */
static int time_runs(const gpu_blas_t *blas, const gpu_product_t *product,
                     const cublasLtMatmulAlgo_t *algorithm, float *ms, mlp_error_t *error)
{
    cudaEvent_t begin = NULL, end = NULL;
    cudaError_t status = cudaEventCreate(&begin);
    if (status == cudaSuccess)
        status = cudaEventCreate(&end);
    if (status == cudaSuccess)
        status = cudaEventRecord(begin, blas->stream);
    for (int i = 0; i < TIMED_RUNS && status == cudaSuccess; i++) {
        if (multiply(blas, product, algorithm) != CUBLAS_STATUS_SUCCESS)
            status = cudaErrorUnknown;
    }
    if (status == cudaSuccess)
        status = cudaEventRecord(end, blas->stream);
    if (status == cudaSuccess)
        status = cudaEventSynchronize(end);
    if (status == cudaSuccess)
        status = cudaEventElapsedTime(ms, begin, end);
    if (begin)
        cudaEventDestroy(begin);
    if (end)
        cudaEventDestroy(end);
    return gpu_check(status, "timing a product", error);
}

/* 1: an algorithm that has run; 0: there is none; -1: an error. The first run of an algorithm loads
 * its code, which is not to be timed. */
static int choose(const gpu_blas_t *blas, gpu_product_t *product, mlp_error_t *error)
{
    cublasLtMatmulAlgo_t candidates[CANDIDATES];
    int count = list_candidates(blas, product, candidates), found = 0;
    float best = FLT_MAX;
    for (int i = 0; i < count && (blas->tunes || !found); i++) {
        float ms = 0;
        if (multiply(blas, product, &candidates[i]) != CUBLAS_STATUS_SUCCESS)
            continue;
        if (gpu_check(cudaStreamSynchronize(blas->stream), "trying a product", error) != 0 ||
            (blas->tunes && time_runs(blas, product, &candidates[i], &ms, error) != 0))
            return -1;
        if (!found || ms < best) {
            product->algorithm = candidates[i];
            best = ms;
        }
        found = 1;
    }
    return found;
}

int gpu_product_create(const gpu_blas_t *blas, const gpu_shape_t *shape, gpu_product_t *out,
                       mlp_error_t *error)
{
    gpu_product_t product = {.shape = *shape,
                             .is_fused = shape->epilogue != CUBLASLT_EPILOGUE_DEFAULT};
    int found = describe(blas, &product, error) == 0 ? choose(blas, &product, error) : -1;
    if (found == 0 && product.is_fused) {
        gpu_product_free(&product);
        product.shape = *shape;
        product.shape.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        product.shape.bias = product.shape.mask = NULL;
        found = describe(blas, &product, error) == 0 ? choose(blas, &product, error) : -1;
    }
    if (found == 0)
        mlp_fail(error, "cuBLASLt has no product of %d x %d by %d x %d", shape->m, shape->k,
                 shape->k, shape->n);
    if (found <= 0) {
        gpu_product_free(&product);
        return -1;
    }
    *out = product;
    return 0;
}

int gpu_product_run(const gpu_blas_t *blas, const gpu_product_t *product, mlp_error_t *error)
{
    return check_blas(multiply(blas, product, &product->algorithm), "cublasLtMatmul", error);
}
