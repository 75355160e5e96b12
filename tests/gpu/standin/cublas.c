/* cublas.c - the stand-in for cuBLAS: handles, their stream, and the product in fp32. */
#include <cublas_v2.h>
#include <stdlib.h>

#include "product.h"
#include "standin.h"

struct cublasContext {
    cudaStream_t stream;
};

STANDIN_API cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    struct cublasContext *made = calloc(1, sizeof *made);
    if (standin_begin("cublasCreate") != cudaSuccess || !made) {
        free(made);
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *handle = made;
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

static int is_short(int ld, int rows)
{
    return ld < (rows > 1 ? rows : 1);
}

STANDIN_API cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const float *alpha, const float *a, int lda,
                                          const float *b, int ldb, const float *beta, float *c,
                                          int ldc)
{
    if (m < 0 || n < 0 || k < 0 || op_a > CUBLAS_OP_C || op_b > CUBLAS_OP_C ||
        is_short(lda, op_a == CUBLAS_OP_N ? m : k) || is_short(ldb, op_b == CUBLAS_OP_N ? k : n) ||
        is_short(ldc, m) || !alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (standin_begin("cublasSgemm") != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    standin_product_t product = {.type = CUDA_R_32F,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .a_transposed = op_a != CUBLAS_OP_N,
                                 .b_transposed = op_b != CUBLAS_OP_N,
                                 .alpha = *alpha,
                                 .beta = *beta,
                                 .a = a,
                                 .b = b,
                                 .c = c,
                                 .d = c,
                                 .lda = lda,
                                 .ldb = ldb,
                                 .ldc = ldc,
                                 .ldd = ldc};
    if (m == 0 || n == 0 || k == 0)
        return CUBLAS_STATUS_NOT_SUPPORTED; /* the real one takes them; nobody here asks for it */
    standin_product_check(&product);
    standin_enqueue(handle->stream, standin_product_run, &product, sizeof product);
    return CUBLAS_STATUS_SUCCESS;
}
