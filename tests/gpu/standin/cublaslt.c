/*
 * cublaslt.c - the stand-in for cuBLASLt: descriptors, the choice of an algorithm, and the product.
 * It knows what the trainers use: matrices of fp32 or bf16, column after column, alike in type, and
 * four epilogues. What the real one is said to demand of them it demands; and since that one may
 * have no algorithm with an epilogue for some shape, type or GPU, this one has none where a column
 * is not a multiple of 16 bytes long and tensor cores compute, nor for the epilogues (BIAS,
 * RELU_AUX_BIAS, DRELU, BGRADA) whose names are in STANDIN_NO_EPILOGUE.
 */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"
#include "standin.h"

#define WORKSPACE_BYTES 4096 /* what an algorithm asks for */
#define MARK UINT64_C(0x5374616e642d696e)

struct cublasLtContext {
    int unused;
};

/* What the descriptors that cublasLt.h declares hold here. */
typedef struct operation {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t a, b; /* cublasOperation_t */
    uint32_t epilogue;
    void *bias, *mask;
    int64_t mask_ld;
} operation_t;

typedef struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
} layout_t;

typedef struct preference {
    uint64_t workspace;
    uint32_t alignments[4]; /* of A, B, C and D, in bytes */
} preference_t;

/* Of a cublasLtMatmulAlgo_t: what it was proposed for. */
typedef struct algorithm {
    uint64_t mark;
    int64_t m, n, k;
    uint32_t epilogue, type, compute, transposed;
    uint64_t workspace;
    uint16_t alignments[4];
} algorithm_t;

_Static_assert(sizeof(algorithm_t) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm has room");

STANDIN_API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    struct cublasLtContext *made = calloc(1, sizeof *made);
    if (standin_begin("cublasLtCreate") != cudaSuccess || !made) {
        free(made);
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *handle = made;
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
        return "CUBLAS_STATUS of another kind";
    }
}

/* ---- Descriptors ---------------------------------------------------------------------------- */

STANDIN_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                                    cublasComputeType_t compute,
                                                    cudaDataType_t scale)
{
    operation_t *made = calloc(1, sizeof(cublasLtMatmulDescOpaque_t));
    if (!made)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *made =
        (operation_t){.compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    *out = (cublasLtMatmulDesc_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    free(operation);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *field, size_t field_bytes, const void *value, size_t bytes)
{
    if (!value || bytes != field_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                                          cublasLtMatmulDescAttributes_t attribute,
                                                          const void *value, size_t bytes)
{
    operation_t *operation = (operation_t *)descriptor;
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&operation->a, sizeof operation->a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&operation->b, sizeof operation->b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&operation->epilogue, sizeof operation->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&operation->bias, sizeof operation->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&operation->mask, sizeof operation->mask, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&operation->mask_ld, sizeof operation->mask_ld, value, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

STANDIN_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out,
                                                      cudaDataType_t type, uint64_t rows,
                                                      uint64_t columns, int64_t ld)
{
    layout_t *made = calloc(1, sizeof(cublasLtMatrixLayoutOpaque_t));
    if (!made)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *made = (layout_t){.type = type, .rows = rows, .columns = columns, .ld = ld};
    *out = (cublasLtMatrixLayout_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    preference_t *made = calloc(1, sizeof(cublasLtMatmulPreferenceOpaque_t));
    if (!made)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *made = (preference_t){.alignments = {256, 256, 256, 256}};
    *out = (cublasLtMatmulPreference_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

STANDIN_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t descriptor, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t bytes)
{
    preference_t *preference = (preference_t *)descriptor;
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&preference->workspace, sizeof preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(&preference->alignments[0], sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(&preference->alignments[1], sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(&preference->alignments[2], sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&preference->alignments[3], sizeof(uint32_t), value, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* ---- A product that is asked for ------------------------------------------------------------ */

static const struct epilogue {
    uint32_t number;
    const char *name;
    standin_epilogue_t kind;
    int has_bias, has_mask;
} epilogues[] = {
    {CUBLASLT_EPILOGUE_DEFAULT, "DEFAULT", STANDIN_PLAIN, 0, 0},
    {CUBLASLT_EPILOGUE_BIAS, "BIAS", STANDIN_BIAS, 1, 0},
    {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, "RELU_AUX_BIAS", STANDIN_RELU_AUX_BIAS, 1, 1},
    {CUBLASLT_EPILOGUE_DRELU, "DRELU", STANDIN_DRELU, 0, 1},
    {CUBLASLT_EPILOGUE_BGRADA, "BGRADA", STANDIN_BGRADA, 1, 0},
};

static const struct epilogue *find_epilogue(uint32_t number)
{
    for (size_t i = 0; i < sizeof epilogues / sizeof epilogues[0]; i++) {
        if (epilogues[i].number == number)
            return &epilogues[i];
    }
    return NULL;
}

static int is_valid(const layout_t *layout, int64_t rows, int64_t columns)
{
    return layout->rows == (uint64_t)rows && layout->columns == (uint64_t)columns && rows > 0 &&
           columns > 0 && layout->ld >= rows;
}

/* Types that go together. */
static int is_known(const operation_t *operation, const layout_t *a, const layout_t *b,
                    const layout_t *c, const layout_t *d)
{
    int is_tf32 = operation->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return (a->type == CUDA_R_32F || (a->type == CUDA_R_16BF && !is_tf32)) && b->type == a->type &&
           c->type == a->type && d->type == a->type && operation->scale == CUDA_R_32F &&
           (is_tf32 || operation->compute == CUBLAS_COMPUTE_32F);
}

/* The pointers of matrices stay NULL. */
static cublasStatus_t describe(const operation_t *operation, const layout_t *a, const layout_t *b,
                               const layout_t *c, const layout_t *d, standin_product_t *out)
{
    const struct epilogue *epilogue = find_epilogue(operation->epilogue);
    int a_transposed = operation->a != CUBLAS_OP_N, b_transposed = operation->b != CUBLAS_OP_N;
    int64_t m = (int64_t)d->rows, n = (int64_t)d->columns;
    int64_t k = (int64_t)(a_transposed ? a->rows : a->columns);
    if (!epilogue || !is_known(operation, a, b, c, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!is_valid(a, a_transposed ? k : m, a_transposed ? m : k) ||
        !is_valid(b, b_transposed ? n : k, b_transposed ? k : n) || !is_valid(c, m, n) ||
        !is_valid(d, m, n))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((epilogue->has_bias && !operation->bias) ||
        (epilogue->has_mask && (!operation->mask || (uintptr_t)operation->mask % 16 != 0 ||
                                operation->mask_ld % 128 != 0 || operation->mask_ld < m)))
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = (standin_product_t){.type = a->type,
                               .rounds_to_tf32 = operation->compute == CUBLAS_COMPUTE_32F_FAST_TF32,
                               .m = m,
                               .n = n,
                               .k = k,
                               .a_transposed = a_transposed,
                               .b_transposed = b_transposed,
                               .lda = a->ld,
                               .ldb = b->ld,
                               .ldc = c->ld,
                               .ldd = d->ld,
                               .epilogue = epilogue->kind,
                               .bias = epilogue->has_bias ? operation->bias : NULL,
                               .mask = epilogue->has_mask ? operation->mask : NULL,
                               .mask_ld = operation->mask_ld};
    return CUBLAS_STATUS_SUCCESS;
}

/* 1: `name` is one of the words of the setting. */
static int is_switched_off(const char *name)
{
    const char *at = getenv("STANDIN_NO_EPILOGUE");
    size_t length = strlen(name);
    for (; at && *at; at += strcspn(at, ","), at += *at == ',') {
        if (strcspn(at, ",") == length && strncmp(at, name, length) == 0)
            return 1;
    }
    return 0;
}

static int has_algorithm(const standin_product_t *product, uint32_t epilogue)
{
    size_t element = product->type == CUDA_R_16BF ? 2 : 4;
    int has_tensor_cores = product->type == CUDA_R_16BF || product->rounds_to_tf32;
    int64_t lds[] = {product->lda, product->ldb, product->ldc, product->ldd};
    for (int i = 0; i < 4; i++) {
        if (product->epilogue != STANDIN_PLAIN && has_tensor_cores &&
            (size_t)lds[i] * element % 16 != 0)
            return 0;
    }
    return product->epilogue == STANDIN_PLAIN || !is_switched_off(find_epilogue(epilogue)->name);
}

/* ---- Algorithms ----------------------------------------------------------------------------- */

static algorithm_t propose(const operation_t *operation, const standin_product_t *product)
{
    return (algorithm_t){
        .mark = MARK,
        .m = product->m,
        .n = product->n,
        .k = product->k,
        .epilogue = operation->epilogue,
        .type = (uint32_t)product->type,
        .compute = (uint32_t)operation->compute,
        .transposed = (uint32_t)(2 * product->a_transposed + product->b_transposed),
    };
}

/* Two, of which the better one wants a workspace. */
STANDIN_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preferred, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int *count)
{
    const operation_t *operation = (const operation_t *)descriptor;
    const preference_t *preference = (const preference_t *)preferred;
    standin_product_t product;
    *count = 0;
    if (!handle || wanted <= 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (standin_fault("cublasLtMatmulAlgoGetHeuristic") != STANDIN_NONE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    cublasStatus_t status =
        describe(operation, (layout_t *)a, (layout_t *)b, (layout_t *)c, (layout_t *)d, &product);
    if (status != CUBLAS_STATUS_SUCCESS || !has_algorithm(&product, operation->epilogue))
        return status;
    algorithm_t algorithm = propose(operation, &product);
    for (int i = 0; i < 4; i++)
        algorithm.alignments[i] = (uint16_t)preference->alignments[i];
    for (int i = preference->workspace < WORKSPACE_BYTES; i < 2 && *count < wanted; i++) {
        algorithm.workspace = i == 0 ? WORKSPACE_BYTES : 0;
        results[*count] = (cublasLtMatmulHeuristicResult_t){
            .workspaceSize = algorithm.workspace, .state = CUBLAS_STATUS_SUCCESS, .wavesCount = 1};
        memcpy(&results[(*count)++].algo, &algorithm, sizeof algorithm);
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* 1: the algorithm was proposed for this product, and finds what it counts on. */
static int fits(const algorithm_t *algorithm, const algorithm_t *asked,
                const standin_product_t *product, const void *workspace, size_t workspace_bytes)
{
    const void *pointers[] = {product->a, product->b, product->c, product->d};
    for (int i = 0; i < 4; i++) {
        if ((uintptr_t)pointers[i] % algorithm->alignments[i] != 0)
            return 0;
    }
    if (algorithm->workspace > workspace_bytes ||
        (algorithm->workspace > 0 && ((uintptr_t)workspace % 16 != 0 ||
                                      standin_room(workspace) < (size_t)algorithm->workspace)))
        return 0;
    return algorithm->mark == MARK && algorithm->m == asked->m && algorithm->n == asked->n &&
           algorithm->k == asked->k && algorithm->epilogue == asked->epilogue &&
           algorithm->type == asked->type && algorithm->compute == asked->compute &&
           algorithm->transposed == asked->transposed;
}

STANDIN_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                                          const void *alpha, const void *a,
                                          cublasLtMatrixLayout_t a_layout, const void *b,
                                          cublasLtMatrixLayout_t b_layout, const void *beta,
                                          const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                          cublasLtMatrixLayout_t d_layout,
                                          const cublasLtMatmulAlgo_t *chosen, void *workspace,
                                          size_t workspace_bytes, cudaStream_t stream)
{
    const operation_t *operation = (const operation_t *)descriptor;
    standin_product_t product;
    algorithm_t algorithm;
    if (!handle || !alpha || !beta || !a || !b || !d || !chosen)
        return CUBLAS_STATUS_INVALID_VALUE;
    standin_fault_t fault = standin_fault("cublasLtMatmul");
    if (fault == STANDIN_OOM)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    cublasStatus_t status = describe(operation, (layout_t *)a_layout, (layout_t *)b_layout,
                                     (layout_t *)c_layout, (layout_t *)d_layout, &product);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    product.alpha = *(const float *)alpha;
    product.beta = *(const float *)beta;
    product.a = a;
    product.b = b;
    product.c = c;
    product.d = d;
    algorithm_t asked = propose(operation, &product);
    memcpy(&algorithm, chosen, sizeof algorithm);
    if (!fits(&algorithm, &asked, &product, workspace, workspace_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (fault == STANDIN_ERROR || standin_begin("cublasLtMatmul in a stream") != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    standin_product_check(&product);
    standin_enqueue(stream, standin_product_run, &product, sizeof product);
    return CUBLAS_STATUS_SUCCESS;
}
