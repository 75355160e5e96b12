#include "gpu_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

/* ---- Plans ------------------------------------------------------------------------------------
 *
 * A matrix that is row after row is, column after column, its transpose; so D^T = B^T A^T is what
 * cuBLASLt is asked for, and no matrix is transposed in memory. */

static void plan_free(gpu_model_t *model, gpu_plan_t *plan)
{
    for (int i = 0; plan->layers && i < model->layer_count; i++) {
        gpu_product_free(&plan->layers[i].forward);
        gpu_product_free(&plan->layers[i].by_weight);
        gpu_product_free(&plan->layers[i].by_input);
    }
    free(plan->layers);
    memset(plan, 0, sizeof *plan);
}

/* Where the loss's gradient by the layer's output is: the last layer's takes the output's place. */
static void *delta_of(const gpu_model_t *model, int index)
{
    return index == model->layer_count - 1 ? model->layers[index].output : model->deltas[index % 2];
}

static const void *input_of(const gpu_model_t *model, int index)
{
    return index == 0 ? model->inputs : model->layers[index - 1].output;
}

/* The three products of a layer. */
static int plan_layer(const gpu_model_t *model, int index, int rows, gpu_plan_t *plan,
                      mlp_error_t *error)
{
    const gpu_layer_t *layer = &model->layers[index];
    gpu_layer_plan_t *out = &plan->layers[index];
    int is_last = index == model->layer_count - 1;
    gpu_shape_t forward = {.m = layer->outputs,
                           .n = rows,
                           .k = layer->inputs,
                           .a = layer->weight,
                           .b = input_of(model, index),
                           .d = layer->output,
                           .epilogue =
                               is_last ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
                           .bias = layer->bias,
                           .mask = is_last ? NULL : layer->mask};
    gpu_shape_t by_weight = {.m = layer->outputs,
                             .n = layer->inputs,
                             .k = rows,
                             .op_b = CUBLAS_OP_T,
                             .a = delta_of(model, index),
                             .b = input_of(model, index),
                             .d = layer->weight_gradient,
                             .epilogue = CUBLASLT_EPILOGUE_BGRADA,
                             .bias = layer->bias_gradient};
    if (gpu_product_create(&model->blas, &forward, &out->forward, error) != 0 ||
        gpu_product_create(&model->blas, &by_weight, &out->by_weight, error) != 0)
        return -1;
    if (index == 0)
        return 0;
    /* A mask there is only where the layer before has written one. */
    int has_mask = plan->layers[index - 1].forward.is_fused;
    gpu_shape_t by_input = {.m = layer->inputs,
                            .n = rows,
                            .k = layer->outputs,
                            .op_a = CUBLAS_OP_T,
                            .a = layer->weight,
                            .b = delta_of(model, index),
                            .d = delta_of(model, index - 1),
                            .epilogue =
                                has_mask ? CUBLASLT_EPILOGUE_DRELU : CUBLASLT_EPILOGUE_DEFAULT,
                            .mask = has_mask ? model->layers[index - 1].mask : NULL};
    return gpu_product_create(&model->blas, &by_input, &out->by_input, error);
}

/* The one for so many rows; the one that was not used for longest makes room. */
static gpu_plan_t *find_plan(gpu_model_t *model, int rows)
{
    gpu_plan_t *oldest = &model->plans[0];
    for (int i = 0; i < GPU_PLANS; i++) {
        if (model->plans[i].rows == rows)
            return &model->plans[i];
        if (model->plans[i].used < oldest->used)
            oldest = &model->plans[i];
    }
    plan_free(model, oldest);
    return oldest;
}

static int make_plan(gpu_model_t *model, int rows, mlp_error_t *error)
{
    gpu_plan_t *plan = find_plan(model, rows);
    plan->used = ++model->num_loads;
    model->plan = plan;
    if (plan->rows == rows)
        return 0;
    plan->layers = calloc((size_t)model->layer_count, sizeof *plan->layers);
    if (!plan->layers)
        return mlp_fail(error, "no memory for a plan");
    for (int i = 0; i < model->layer_count; i++) {
        if (plan_layer(model, i, rows, plan, error) != 0)
            return -1;
    }
    plan->rows = rows;
    return 0;
}

/* ---- Making -----------------------------------------------------------------------------------
 */

static int allocate_layers(gpu_model_t *model, const int *sizes, mlp_error_t *error)
{
    for (int i = 0; i < model->layer_count; i++) {
        gpu_layer_t *layer = &model->layers[i];
        layer->inputs = sizes[i];
        layer->outputs = sizes[i + 1];
        model->parameter_count += (int64_t)(sizes[i] + 1) * sizes[i + 1];
        size_t rows = (size_t)model->capacity;
        size_t mask_bytes = (size_t)gpu_mask_ld(layer->outputs) / 8 * rows;
        if (gpu_allocate(&layer->output, rows * (size_t)layer->outputs * model->element, error) !=
                0 ||
            gpu_allocate(&layer->mask, mask_bytes, error) != 0)
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
    if (gpu_allocate((void **)&model->inputs, rows * (size_t)sizes[0] * sizeof(float), error) !=
            0 ||
        gpu_allocate((void **)&model->labels, rows, error) != 0 ||
        gpu_allocate((void **)&model->losses, rows * sizeof(float), error) != 0 ||
        gpu_allocate((void **)&model->correct, rows * sizeof(int), error) != 0 ||
        gpu_allocate((void **)&model->numbers, rows * sizeof *model->numbers, error) != 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        if (gpu_allocate(&model->deltas[i], rows * (size_t)widest * model->element, error) != 0)
            return -1;
    }
    return 0;
}

int gpu_model_create(const int *sizes, int count, int capacity, gpu_precision_t precision,
                     int tunes, gpu_model_t *out, mlp_error_t *error)
{
    memset(out, 0, sizeof *out);
    out->type = precision == GPU_PRECISION_BF16 ? GPU_BF16 : GPU_F32;
    out->element = precision == GPU_PRECISION_BF16 ? 2 : sizeof(float);
    out->layer_count = count - 1;
    out->capacity = capacity;
    out->layers = calloc((size_t)count, sizeof *out->layers);
    if (!out->layers)
        return mlp_fail(error, "no memory for the layers");
    if (gpu_blas_create(precision, tunes, &out->blas, error) != 0)
        return -1;
    out->stream = out->blas.stream;
    return allocate_layers(out, sizes, error) == 0 ? allocate_rest(out, sizes, error) : -1;
}

void gpu_model_free(gpu_model_t *model)
{
    for (int i = 0; i < GPU_PLANS; i++)
        plan_free(model, &model->plans[i]);
    for (int i = 0; model->layers && i < model->layer_count; i++) {
        cudaFree(model->layers[i].output);
        cudaFree(model->layers[i].mask);
    }
    void *const arrays[] = {model->inputs,  model->numbers,   model->labels,   model->losses,
                            model->correct, model->deltas[0], model->deltas[1]};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        cudaFree(arrays[i]);
    gpu_blas_free(&model->blas);
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
        status = host ? gpu_allocate((void **)&scratch, bytes, error)
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
    if (gpu_allocate((void **)&out->pixels, bytes, error) != 0 ||
        gpu_allocate((void **)&out->labels, count, error) != 0 ||
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
    return make_plan(model, rows, error);
}

/* ---- A step ------------------------------------------------------------------------------------
 */

int gpu_model_forward(gpu_model_t *model, mlp_error_t *error)
{
    const gpu_plan_t *plan = model->plan;
    for (int i = 0; i < model->layer_count; i++) {
        const gpu_layer_t *layer = &model->layers[i];
        const gpu_product_t *product = &plan->layers[i].forward;
        if (gpu_product_run(&model->blas, product, error) != 0)
            return -1;
        if (!product->is_fused)
            gpu_add_bias(model->type, layer->output, layer->bias, plan->rows, layer->outputs,
                         i < model->layer_count - 1, model->stream);
    }
    return 0;
}

void gpu_model_loss(gpu_model_t *model, float scale)
{
    gpu_layer_t *last = &model->layers[model->layer_count - 1];
    gpu_loss(model->type, last->output, model->labels, model->plan->rows, last->outputs, scale,
             model->losses, model->correct, model->stream);
}

int gpu_model_backward(gpu_model_t *model, int index, mlp_error_t *error)
{
    const gpu_layer_t *layer = &model->layers[index];
    const gpu_layer_plan_t *products = &model->plan->layers[index];
    int rows = model->plan->rows;
    if (gpu_product_run(&model->blas, &products->by_weight, error) != 0)
        return -1;
    if (!products->by_weight.is_fused)
        gpu_sum_rows(model->type, delta_of(model, index), layer->bias_gradient, rows,
                     layer->outputs, model->stream);
    if (index == 0)
        return 0;
    if (gpu_product_run(&model->blas, &products->by_input, error) != 0)
        return -1;
    if (!products->by_input.is_fused)
        gpu_relu_gradient(model->type, delta_of(model, index - 1), input_of(model, index),
                          (int64_t)rows * layer->inputs, model->stream);
    return 0;
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
