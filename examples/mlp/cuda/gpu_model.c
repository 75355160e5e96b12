#include "gpu_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define WORKSPACE_BYTES ((size_t)32 << 20)

/* Of operands, which cuBLASLt may count on: the library's parameters have it. */
#define ALIGNMENT 64

int gpu_check(cudaError_t status, const char *what, mlp_error_t *error)
{
    if (status == cudaSuccess)
        return 0;
    return mlp_fail(error, "%s: %s", what, cudaGetErrorString(status));
}

static int check_blas(cublasStatus_t status, const char *what, mlp_error_t *error)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return mlp_fail(error, "%s: %s", what, cublasLtGetStatusString(status));
}

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- Products ---------------------------------------------------------------------------------
 *
 * A matrix that is row after row is, column after column, its transpose; so D^T = B^T A^T is what
 * cuBLASLt is asked for, and no matrix is transposed in memory. */

static void product_free(gpu_product_t *product)
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

typedef struct shape {
    int m, n, k; /* D is m x n, column after column */
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias; /* NULL: none */
    const void *mask; /* NULL: none; m bits a column, rounded up */
} shape_t;

static cublasStatus_t set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(operation, attribute, value, bytes);
}

static int describe(const gpu_model_t *model, const shape_t *shape, gpu_product_t *product,
                    mlp_error_t *error)
{
    cudaDataType_t type = model->type == GPU_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cublasComputeType_t compute =
        model->precision == GPU_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    int64_t mask_ld = round_up(shape->m, 128);
    int a_rows = shape->a == CUBLAS_OP_N ? shape->m : shape->k;
    int b_rows = shape->b == CUBLAS_OP_N ? shape->k : shape->n;
    cublasStatus_t status = cublasLtMatmulDescCreate(&product->operation, compute, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(product->operation, CUBLASLT_MATMUL_DESC_TRANSA, &shape->a, sizeof shape->a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(product->operation, CUBLASLT_MATMUL_DESC_TRANSB, &shape->b, sizeof shape->b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(product->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &shape->epilogue,
                     sizeof shape->epilogue);
    if (status == CUBLAS_STATUS_SUCCESS && shape->bias)
        status = set(product->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &shape->bias,
                     sizeof shape->bias);
    if (status == CUBLAS_STATUS_SUCCESS && shape->mask)
        status = set(product->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &shape->mask,
                     sizeof shape->mask);
    if (status == CUBLAS_STATUS_SUCCESS && shape->mask)
        status =
            set(product->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &mask_ld, sizeof mask_ld);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->a, type, (uint64_t)a_rows,
                                            (uint64_t)(shape->m + shape->k - a_rows), a_rows);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->b, type, (uint64_t)b_rows,
                                            (uint64_t)(shape->k + shape->n - b_rows), b_rows);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&product->d, type, (uint64_t)shape->m,
                                            (uint64_t)shape->n, shape->m);
    return check_blas(status, "cuBLASLt", error);
}

static int choose_algorithm(const gpu_model_t *model, gpu_product_t *product, mlp_error_t *error)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    size_t workspace = WORKSPACE_BYTES;
    int count = 0;
    if (check_blas(cublasLtMatmulPreferenceCreate(&preference), "cuBLASLt", error) != 0)
        return -1;
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t alignment = ALIGNMENT;
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment,
                                                      sizeof alignment);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            cublasLtMatmulAlgoGetHeuristic(model->blas, product->operation, product->a, product->b,
                                           product->d, product->d, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && count == 0)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS)
        product->algorithm = found.algo;
    return check_blas(status, "no algorithm of cuBLASLt fits a layer", error);
}

static int plan_product(const gpu_model_t *model, const shape_t *shape, gpu_product_t *product,
                        mlp_error_t *error)
{
    product_free(product);
    return describe(model, shape, product, error) == 0 ? choose_algorithm(model, product, error)
                                                       : -1;
}

static int multiply(const gpu_model_t *model, const gpu_product_t *product, const void *a,
                    const void *b, void *d, mlp_error_t *error)
{
    const float one = 1, zero = 0;
    return check_blas(cublasLtMatmul(model->blas, product->operation, &one, a, product->a, b,
                                     product->b, &zero, d, product->d, d, product->d,
                                     &product->algorithm, model->workspace, WORKSPACE_BYTES,
                                     model->stream),
                      "cublasLtMatmul", error);
}

/* The products of all layers for so many rows: once for the usual batch, again for an epoch's last.
 */
static int plan(gpu_model_t *model, int rows, mlp_error_t *error)
{
    if (model->rows == rows)
        return 0;
    for (int i = 0; i < model->layer_count; i++) {
        gpu_layer_t *layer = &model->layers[i];
        int is_last = i == model->layer_count - 1;
        shape_t forward = {.m = layer->outputs,
                           .n = rows,
                           .k = layer->inputs,
                           .a = CUBLAS_OP_N,
                           .b = CUBLAS_OP_N,
                           .epilogue =
                               is_last ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
                           .bias = layer->bias,
                           .mask = is_last ? NULL : layer->mask};
        shape_t by_weight = {.m = layer->outputs,
                             .n = layer->inputs,
                             .k = rows,
                             .a = CUBLAS_OP_N,
                             .b = CUBLAS_OP_T,
                             .epilogue = CUBLASLT_EPILOGUE_BGRADA,
                             .bias = layer->bias_gradient};
        shape_t by_input = {.m = layer->inputs,
                            .n = rows,
                            .k = layer->outputs,
                            .a = CUBLAS_OP_T,
                            .b = CUBLAS_OP_N,
                            .epilogue = CUBLASLT_EPILOGUE_DRELU,
                            .mask = i > 0 ? model->layers[i - 1].mask : NULL};
        if (plan_product(model, &forward, &layer->forward, error) != 0 ||
            plan_product(model, &by_weight, &layer->by_weight, error) != 0 ||
            (i > 0 && plan_product(model, &by_input, &layer->by_input, error) != 0))
            return -1;
    }
    model->rows = rows;
    return 0;
}

/* ---- Making -----------------------------------------------------------------------------------
 */

static int allocate(void **memory, size_t bytes, mlp_error_t *error)
{
    if (gpu_check(cudaMalloc(memory, bytes), "cudaMalloc", error) != 0)
        return -1;
    return gpu_check(cudaMemset(*memory, 0, bytes), "cudaMemset", error);
}

static int allocate_layers(gpu_model_t *model, const int *sizes, mlp_error_t *error)
{
    for (int i = 0; i < model->layer_count; i++) {
        gpu_layer_t *layer = &model->layers[i];
        layer->inputs = sizes[i];
        layer->outputs = sizes[i + 1];
        model->parameter_count += (int64_t)(sizes[i] + 1) * sizes[i + 1];
        size_t rows = (size_t)model->capacity;
        size_t mask_bytes = (size_t)round_up(layer->outputs, 128) / 8 * rows;
        if (allocate(&layer->output, rows * (size_t)layer->outputs * model->element, error) != 0 ||
            allocate(&layer->mask, mask_bytes, error) != 0)
            return -1;
    }
    return 0;
}

static int allocate_rest(gpu_model_t *model, const int *sizes, mlp_error_t *error)
{
    size_t rows = (size_t)model->capacity;
    int widest = 0;
    for (int i = 0; i <= model->layer_count; i++)
        widest = sizes[i] > widest ? sizes[i] : widest;
    if (allocate((void **)&model->inputs, rows * (size_t)sizes[0] * sizeof(float), error) != 0 ||
        allocate((void **)&model->labels, rows, error) != 0 ||
        allocate((void **)&model->losses, rows * sizeof(float), error) != 0 ||
        allocate((void **)&model->correct, rows * sizeof(int), error) != 0 ||
        allocate((void **)&model->numbers, rows * sizeof *model->numbers, error) != 0 ||
        allocate(&model->workspace, WORKSPACE_BYTES, error) != 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        if (allocate(&model->deltas[i], rows * (size_t)widest * model->element, error) != 0)
            return -1;
    }
    return 0;
}

int gpu_model_create(const int *sizes, int count, int capacity, gpu_precision_t precision,
                     gpu_model_t *out, mlp_error_t *error)
{
    memset(out, 0, sizeof *out);
    out->precision = precision;
    out->type = precision == GPU_PRECISION_BF16 ? GPU_BF16 : GPU_F32;
    out->element = precision == GPU_PRECISION_BF16 ? 2 : sizeof(float);
    out->layer_count = count - 1;
    out->capacity = capacity;
    out->layers = calloc((size_t)count, sizeof *out->layers);
    if (!out->layers)
        return mlp_fail(error, "no memory for the layers");
    if (gpu_check(cudaStreamCreateWithFlags(&out->stream, cudaStreamNonBlocking), "a stream",
                  error) != 0 ||
        check_blas(cublasLtCreate(&out->blas), "cublasLtCreate", error) != 0)
        return -1;
    return allocate_layers(out, sizes, error) == 0 ? allocate_rest(out, sizes, error) : -1;
}

void gpu_model_free(gpu_model_t *model)
{
    for (int i = 0; model->layers && i < model->layer_count; i++) {
        gpu_layer_t *layer = &model->layers[i];
        product_free(&layer->forward);
        product_free(&layer->by_weight);
        product_free(&layer->by_input);
        cudaFree(layer->output);
        cudaFree(layer->mask);
    }
    void *const arrays[] = {model->inputs,  model->numbers,   model->labels,    model->losses,
                            model->correct, model->workspace, model->deltas[0], model->deltas[1]};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        cudaFree(arrays[i]);
    if (model->blas)
        cublasLtDestroy(model->blas);
    if (model->stream)
        cudaStreamDestroy(model->stream);
    free(model->layers);
    memset(model, 0, sizeof *model);
}

/* ---- To and from the host ----------------------------------------------------------------------
 */

/* `scratch` has room for the weights in fp32, on the GPU. */
static int initialize_layer(gpu_model_t *model, const gpu_layer_t *layer, random_stream_t *random,
                            float *host, float *scratch, mlp_error_t *error)
{
    int64_t count = (int64_t)layer->inputs * layer->outputs;
    float deviation = sqrtf(2.0f / (float)layer->inputs);
    for (int64_t i = 0; i < count; i++)
        host[i] = deviation * random_normal(random);
    if (gpu_check(cudaMemcpyAsync(scratch, host, (size_t)count * sizeof *host,
                                  cudaMemcpyHostToDevice, model->stream),
                  "copying weights", error) != 0)
        return -1;
    gpu_convert(model->type, layer->weight, scratch, count, model->stream);
    return gpu_check(cudaStreamSynchronize(model->stream), "converting weights", error);
}

int gpu_model_initialize(gpu_model_t *model, uint64_t seed, mlp_error_t *error)
{
    random_stream_t random = random_begin(seed, RANDOM_WEIGHTS);
    int status = 0;
    for (int i = 0; i < model->layer_count && status == 0; i++) {
        const gpu_layer_t *layer = &model->layers[i];
        size_t bytes = (size_t)layer->inputs * (size_t)layer->outputs * sizeof(float);
        float *host = malloc(bytes), *scratch = NULL;
        status = host ? allocate((void **)&scratch, bytes, error)
                      : mlp_fail(error, "no memory for a layer's weights");
        if (host && status == 0)
            status = initialize_layer(model, layer, &random, host, scratch, error);
        cudaFree(scratch);
        free(host);
    }
    return status; /* biases are 0 */
}

int gpu_model_checksum(gpu_model_t *model, uint64_t *sum, mlp_error_t *error)
{
    int status = gpu_check(cudaStreamSynchronize(model->stream), "the last step", error);
    for (int i = 0; i < 2 * model->layer_count && status == 0; i++) {
        const gpu_layer_t *layer = &model->layers[i / 2];
        size_t bytes = (size_t)layer->outputs * model->element;
        bytes *= i % 2 ? 1 : (size_t)layer->inputs;
        void *host = malloc(bytes);
        status = host ? gpu_check(cudaMemcpy(host, i % 2 ? layer->bias : layer->weight, bytes,
                                             cudaMemcpyDeviceToHost),
                                  "copying parameters", error)
                      : mlp_fail(error, "no memory for a layer's parameters");
        if (status == 0)
            *sum = checksum_bytes(*sum, host, bytes);
        free(host);
    }
    return status;
}

int gpu_samples_create(const samples_t *samples, gpu_samples_t *out, mlp_error_t *error)
{
    size_t count = (size_t)samples->count, bytes = count * (size_t)samples->features;
    out->features = samples->features;
    if (allocate((void **)&out->pixels, bytes, error) != 0 ||
        allocate((void **)&out->labels, count, error) != 0 ||
        gpu_check(cudaMemcpy(out->pixels, samples->pixels, bytes, cudaMemcpyHostToDevice),
                  "copying samples", error) != 0)
        return -1;
    return gpu_check(cudaMemcpy(out->labels, samples->labels, count, cudaMemcpyHostToDevice),
                     "copying labels", error);
}

void gpu_samples_free(gpu_samples_t *samples)
{
    cudaFree(samples->pixels);
    cudaFree(samples->labels);
}

int gpu_model_load(gpu_model_t *model, const gpu_samples_t *samples, const int64_t *numbers,
                   int rows, mlp_error_t *error)
{
    if (gpu_check(cudaMemcpyAsync(model->numbers, numbers, (size_t)rows * sizeof *numbers,
                                  cudaMemcpyHostToDevice, model->stream),
                  "copying the numbers of samples", error) != 0)
        return -1;
    gpu_gather(model->type, model->inputs, model->labels, samples->pixels, samples->labels,
               model->numbers, rows, samples->features, 1.0f / (255.0f * PIXEL_DEVIATION),
               -PIXEL_MEAN / PIXEL_DEVIATION, model->stream);
    return plan(model, rows, error);
}

/* ---- A step ------------------------------------------------------------------------------------
 */

int gpu_model_forward(gpu_model_t *model, int rows, mlp_error_t *error)
{
    const void *input = model->inputs;
    if (plan(model, rows, error) != 0)
        return -1;
    for (int i = 0; i < model->layer_count; i++) {
        gpu_layer_t *layer = &model->layers[i];
        if (multiply(model, &layer->forward, layer->weight, input, layer->output, error) != 0)
            return -1;
        input = layer->output;
    }
    return 0;
}

void gpu_model_loss(gpu_model_t *model, int rows, float scale)
{
    gpu_layer_t *last = &model->layers[model->layer_count - 1];
    gpu_loss(model->type, last->output, model->labels, rows, last->outputs, scale, model->losses,
             model->correct, model->stream);
}

int gpu_model_backward(gpu_model_t *model, int index, int rows, mlp_error_t *error)
{
    gpu_layer_t *layer = &model->layers[index];
    int is_last = index == model->layer_count - 1;
    void *delta = is_last ? layer->output : model->deltas[index % 2];
    const void *input = index > 0 ? model->layers[index - 1].output : model->inputs;
    if (plan(model, rows, error) != 0 ||
        multiply(model, &layer->by_weight, delta, input, layer->weight_gradient, error) != 0)
        return -1;
    if (index == 0)
        return 0;
    return multiply(model, &layer->by_input, layer->weight, delta, model->deltas[(index - 1) % 2],
                    error);
}

/* Copies an array of `rows` numbers of 4 bytes to the host, and clears it. */
static int take(gpu_model_t *model, void *host, void *device, mlp_error_t *error)
{
    size_t bytes = (size_t)model->capacity * 4;
    if (gpu_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, model->stream),
                  "copying counts", error) != 0 ||
        gpu_check(cudaMemsetAsync(device, 0, bytes, model->stream), "cudaMemsetAsync", error) != 0)
        return -1;
    return gpu_check(cudaStreamSynchronize(model->stream), "the step", error);
}

int gpu_model_counted(gpu_model_t *model, double *loss, int64_t *correct, mlp_error_t *error)
{
    size_t rows = (size_t)model->capacity;
    float *losses = calloc(rows, sizeof *losses);
    int *hits = calloc(rows, sizeof *hits);
    int status = -1;
    if (!losses || !hits)
        mlp_fail(error, "no memory for the losses");
    else if (take(model, losses, model->losses, error) == 0)
        status = take(model, hits, model->correct, error);
    *loss = 0;
    *correct = 0;
    for (size_t i = 0; status == 0 && i < rows; i++) {
        *loss += losses[i];
        *correct += hits[i];
    }
    free(losses);
    free(hits);
    return status;
}
