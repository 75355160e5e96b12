/* What the trainers' layers are made of, one part at a time, against loops: products with each
 * epilogue, or with the kernels in its place, and the other kernels. On a GPU it shows whether
 * cuBLASLt means by an epilogue what the trainers and the stand-in take it for. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu_kernels.h"
#include "gpu_product.h"
#include "reduce/half.h"

static uint64_t state = 1;

/* A multiple of 1/8 from -1 to 1: no type rounds it, and fp32 no sum of products of it. */
static float random_value(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((int)(state >> 40) % 9) / 8 * ((state >> 63) ? 1 : -1);
}

#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)

/* ---- Arrays of either type ------------------------------------------------------------------ */

typedef struct array {
    float *host;
    void *device;
    int64_t count;
} array_t;

static void send(gpu_type_t type, const array_t *array)
{
    uint16_t *narrow = malloc((size_t)array->count * sizeof *narrow);
    assert_non_null(narrow);
    for (int64_t i = 0; i < array->count; i++)
        narrow[i] = dt_f32_to_bf16(array->host[i]);
    size_t bytes = (size_t)array->count * (type == GPU_BF16 ? 2 : 4);
    CUDA_OK(cudaMemcpy(array->device, type == GPU_BF16 ? (void *)narrow : array->host, bytes,
                       cudaMemcpyHostToDevice));
    CUDA_OK(cudaDeviceSynchronize());
    free(narrow);
}

static array_t make_array(gpu_type_t type, int64_t count)
{
    array_t array = {.host = malloc((size_t)count * sizeof(float)), .count = count};
    assert_non_null(array.host);
    CUDA_OK(cudaMalloc(&array.device, (size_t)count * sizeof(float)));
    for (int64_t i = 0; i < count; i++)
        array.host[i] = random_value();
    send(type, &array);
    return array;
}

static void free_array(array_t *array)
{
    free(array->host);
    CUDA_OK(cudaFree(array->device));
}

/* The device's values are those of the host but for one rounding. */
static void check_array(gpu_type_t type, const array_t *array, const char *what)
{
    size_t bytes = (size_t)array->count * (type == GPU_BF16 ? 2 : 4);
    float *values = malloc((size_t)array->count * sizeof *values);
    assert_non_null(values);
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(values, array->device, bytes, cudaMemcpyDeviceToHost));
    for (int64_t i = array->count - 1; i >= 0 && type == GPU_BF16; i--) {
        uint16_t narrow;
        memcpy(&narrow, (char *)values + 2 * i, sizeof narrow);
        values[i] = dt_bf16_to_f32(narrow);
    }
    for (int64_t i = 0; i < array->count; i++) {
        float bound = (type == GPU_BF16 ? 0x1p-7f : 1e-5f) * fabsf(array->host[i]) + 1e-6f;
        if (!(fabsf(values[i] - array->host[i]) <= bound))
            fail_msg("%s: element %lld is %g, not %g", what, (long long)i, values[i],
                     array->host[i]);
    }
    free(values);
}

/* ---- Products ------------------------------------------------------------------------------- */

static const int shapes[][3] = {{1, 1, 1},   {10, 5, 7},     {8, 16, 24},
                                {7, 33, 64}, {128, 96, 160}, {256, 100, 784}};
#define NUM_SHAPES (sizeof shapes / sizeof shapes[0])

static gpu_type_t type_of(const gpu_blas_t *blas)
{
    return blas->precision == GPU_PRECISION_BF16 ? GPU_BF16 : GPU_F32;
}

/* Element (i, j) of op(A) op(B), both column after column. */
static float multiply(const gpu_shape_t *shape, const float *a, const float *b, int i, int j)
{
    float sum = 0;
    for (int k = 0; k < shape->k; k++)
        sum += (shape->op_a == CUBLAS_OP_N ? a[k * shape->m + i] : a[i * shape->k + k]) *
               (shape->op_b == CUBLAS_OP_N ? b[j * shape->k + k] : b[k * shape->n + j]);
    return sum;
}

/* A layer's three products. `outputs` m, `rows` n, `inputs` k. */
typedef struct layer {
    array_t weight, input, bias, output, delta, input_delta, weight_gradient, bias_gradient;
    void *mask;
} layer_t;

static layer_t make_layer(gpu_type_t type, int m, int n, int k)
{
    layer_t layer = {.weight = make_array(type, (int64_t)m * k),
                     .input = make_array(type, (int64_t)k * n),
                     .bias = make_array(type, m),
                     .output = make_array(type, (int64_t)m * n),
                     .delta = make_array(type, (int64_t)m * n),
                     .input_delta = make_array(type, (int64_t)k * n),
                     .weight_gradient = make_array(type, (int64_t)m * k),
                     .bias_gradient = make_array(type, m)};
    CUDA_OK(cudaMalloc(&layer.mask, (size_t)(gpu_mask_ld(m > k ? m : k) * n / 8)));
    return layer;
}

static void free_layer(layer_t *layer)
{
    array_t *arrays[] = {&layer->weight,          &layer->input,        &layer->bias,
                         &layer->output,          &layer->delta,        &layer->input_delta,
                         &layer->weight_gradient, &layer->bias_gradient};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free_array(arrays[i]);
    CUDA_OK(cudaFree(layer->mask));
}

/* 1: the product has its epilogue. */
static int run(const gpu_blas_t *blas, const gpu_shape_t *shape)
{
    gpu_product_t product;
    mlp_error_t error = {.text = ""};
    if (gpu_product_create(blas, shape, &product, &error) != 0 ||
        gpu_product_run(blas, &product, &error) != 0)
        fail_msg("%s", error.text);
    int is_fused = product.is_fused;
    gpu_product_free(&product);
    return is_fused;
}

static void check_forward(const gpu_blas_t *blas, layer_t *layer, gpu_shape_t shape, int has_relu)
{
    shape.a = layer->weight.device;
    shape.b = layer->input.device;
    shape.d = layer->output.device;
    shape.epilogue = has_relu ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS;
    shape.bias = layer->bias.device;
    shape.mask = has_relu ? layer->mask : NULL;
    if (!run(blas, &shape))
        gpu_add_bias(type_of(blas), shape.d, shape.bias, shape.n, shape.m, has_relu, blas->stream);
    for (int j = 0; j < shape.n; j++) {
        for (int i = 0; i < shape.m; i++) {
            float value =
                multiply(&shape, layer->weight.host, layer->input.host, i, j) + layer->bias.host[i];
            layer->output.host[j * shape.m + i] = has_relu && value <= 0 ? 0 : value;
        }
    }
    check_array(type_of(blas), &layer->output, has_relu ? "bias and ReLU" : "bias");
}

/* With the output of a layer of k units before it, whose ReLU has left a mask. */
static void check_by_input(const gpu_blas_t *blas, layer_t *layer, gpu_shape_t shape)
{
    gpu_type_t type = type_of(blas);
    gpu_shape_t before = {.m = shape.k,
                          .n = shape.n,
                          .k = 1,
                          .a = layer->input.device, /* any column */
                          .b = layer->delta.device, /* any row */
                          .d = layer->input_delta.device,
                          .epilogue = CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
                          .bias = layer->input.device,
                          .mask = layer->mask};
    int has_mask = run(blas, &before);
    array_t output = make_array(type, (int64_t)shape.k * shape.n);
    for (int j = 0; j < shape.n; j++) {
        for (int i = 0; i < shape.k; i++) {
            float value = layer->input.host[i] * layer->delta.host[j] + layer->input.host[i];
            output.host[j * shape.k + i] = value > 0 ? value : 0;
        }
    }
    send(type, &output);
    gpu_shape_t back = {.m = shape.k,
                        .n = shape.n,
                        .k = shape.m,
                        .op_a = CUBLAS_OP_T,
                        .a = layer->weight.device,
                        .b = layer->delta.device,
                        .d = layer->input_delta.device,
                        .epilogue = has_mask ? CUBLASLT_EPILOGUE_DRELU : CUBLASLT_EPILOGUE_DEFAULT,
                        .mask = has_mask ? layer->mask : NULL};
    if (!run(blas, &back))
        gpu_relu_gradient(type, back.d, output.device, output.count, blas->stream);
    for (int64_t i = 0; i < output.count; i++)
        layer->input_delta.host[i] = output.host[i] > 0
                                         ? multiply(&back, layer->weight.host, layer->delta.host,
                                                    (int)(i % shape.k), (int)(i / shape.k))
                                         : 0;
    check_array(type, &layer->input_delta, "ReLU's gradient");
    free_array(&output);
}

static void check_by_weight(const gpu_blas_t *blas, layer_t *layer, gpu_shape_t shape)
{
    gpu_shape_t back = {.m = shape.m,
                        .n = shape.k,
                        .k = shape.n,
                        .op_b = CUBLAS_OP_T,
                        .a = layer->delta.device,
                        .b = layer->input.device,
                        .d = layer->weight_gradient.device,
                        .epilogue = CUBLASLT_EPILOGUE_BGRADA,
                        .bias = layer->bias_gradient.device};
    if (!run(blas, &back))
        gpu_sum_rows(type_of(blas), back.a, layer->bias_gradient.device, back.k, back.m,
                     blas->stream);
    for (int i = 0; i < back.m; i++) {
        layer->bias_gradient.host[i] = 0;
        for (int k = 0; k < back.k; k++)
            layer->bias_gradient.host[i] += layer->delta.host[k * back.m + i];
        for (int j = 0; j < back.n; j++)
            layer->weight_gradient.host[j * back.m + i] =
                multiply(&back, layer->delta.host, layer->input.host, i, j);
    }
    check_array(type_of(blas), &layer->weight_gradient, "the weight's gradient");
    check_array(type_of(blas), &layer->bias_gradient, "the bias's gradient");
}

static void check_products(gpu_precision_t precision, int tunes)
{
    gpu_blas_t blas = {0};
    mlp_error_t error = {.text = ""};
    if (gpu_blas_create(precision, tunes, &blas, &error) != 0)
        fail_msg("%s", error.text);
    for (size_t i = 0; i < NUM_SHAPES; i++) {
        gpu_shape_t shape = {.m = shapes[i][0], .n = shapes[i][1], .k = shapes[i][2]};
        layer_t layer = make_layer(type_of(&blas), shape.m, shape.n, shape.k);
        check_forward(&blas, &layer, shape, 0);
        check_forward(&blas, &layer, shape, 1);
        check_by_input(&blas, &layer, shape);
        check_by_weight(&blas, &layer, shape);
        free_layer(&layer);
    }
    gpu_blas_free(&blas);
}

static void test_products_of_fp32_are_those_of_loops(void **unused)
{
    (void)unused;
    check_products(GPU_PRECISION_F32, 0);
}

static void test_products_of_tf32_are_those_of_loops(void **unused)
{
    (void)unused;
    check_products(GPU_PRECISION_TF32, 0);
}

static void test_products_of_bf16_are_those_of_loops(void **unused)
{
    (void)unused;
    check_products(GPU_PRECISION_BF16, 0);
}

static void test_products_of_algorithms_that_were_timed_are_those_of_loops(void **unused)
{
    (void)unused;
    check_products(GPU_PRECISION_BF16, 1);
}

/* ---- Kernels -------------------------------------------------------------------------------- */

/* Rows of `classes` outputs: the loss, what is right, and the gradient. */
static void check_loss(gpu_type_t type, int rows, int classes)
{
    array_t outputs = make_array(type, (int64_t)rows * classes);
    array_t losses = make_array(GPU_F32, rows);
    uint8_t *labels = malloc((size_t)rows);
    void *device_labels, *correct;
    int right = 0, *counted = malloc((size_t)rows * sizeof *counted);
    assert_true(labels && counted);
    CUDA_OK(cudaMalloc(&device_labels, (size_t)rows));
    CUDA_OK(cudaMalloc(&correct, (size_t)rows * sizeof(int)));
    CUDA_OK(cudaMemset(correct, 0, (size_t)rows * sizeof(int)));
    for (int row = 0; row < rows; row++) {
        float *output = outputs.host + (int64_t)row * classes, sum = 0;
        int label = labels[row] = (uint8_t)(row % classes), is_highest = 1;
        for (int i = 0; i < classes; i++) {
            sum += expf(output[i]);
            is_highest &= i == label || output[label] > output[i];
        }
        losses.host[row] += logf(sum) - output[label];
        right += is_highest;
        for (int i = 0; i < classes; i++)
            output[i] = (expf(output[i]) / sum - (float)(i == label)) * 0.5f;
    }
    CUDA_OK(cudaMemcpy(device_labels, labels, (size_t)rows, cudaMemcpyHostToDevice));
    gpu_loss(type, outputs.device, device_labels, rows, classes, 0.5f, losses.device, correct,
             NULL);
    check_array(type, &outputs, "the loss's gradient");
    check_array(GPU_F32, &losses, "the loss");
    CUDA_OK(cudaMemcpy(counted, correct, (size_t)rows * sizeof(int), cudaMemcpyDeviceToHost));
    for (int row = 0; row < rows; row++)
        right -= counted[row];
    assert_int_equal(right, 0);
    CUDA_OK(cudaFree(device_labels));
    CUDA_OK(cudaFree(correct));
    free(labels);
    free(counted);
    free_array(&outputs);
    free_array(&losses);
}

static void test_loss_is_that_of_loops(void **unused)
{
    static const int sizes[][2] = {{1, 1}, {3, 10}, {9, 32}, {100, 33}, {17, 256}};
    (void)unused;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_loss(GPU_F32, sizes[i][0], sizes[i][1]);
        check_loss(GPU_BF16, sizes[i][0], sizes[i][1]);
    }
}

/* The samples with some numbers, as rows. */
static void check_gather(gpu_type_t type, int rows, int features)
{
    enum { SAMPLES = 50 };
    array_t inputs = make_array(type, (int64_t)rows * features);
    uint8_t pixels[SAMPLES * 100], labels[SAMPLES], row_labels[SAMPLES];
    int64_t numbers[SAMPLES];
    void *device[4];
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = (uint8_t)(3 * i + 1);
    for (int i = 0; i < SAMPLES * features; i++)
        pixels[i] = (uint8_t)(37 * i);
    for (int row = 0; row < rows; row++) {
        numbers[row] = (7 * row + 3) % SAMPLES;
        for (int i = 0; i < features; i++)
            inputs.host[row * features + i] = 0.5f * (float)pixels[numbers[row] * features + i] - 1;
    }
    const void *const hosts[] = {pixels, labels, numbers, row_labels};
    const size_t bytes[] = {(size_t)(SAMPLES * features), SAMPLES, (size_t)rows * sizeof *numbers,
                            SAMPLES};
    for (int i = 0; i < 4; i++) {
        CUDA_OK(cudaMalloc(&device[i], bytes[i]));
        if (i < 3)
            CUDA_OK(cudaMemcpy(device[i], hosts[i], bytes[i], cudaMemcpyHostToDevice));
    }
    gpu_gather(type, inputs.device, device[3], device[0], device[1], device[2], rows, features,
               0.5f, -1, NULL);
    check_array(type, &inputs, "samples");
    CUDA_OK(cudaMemcpy(row_labels, device[3], (size_t)rows, cudaMemcpyDeviceToHost));
    for (int row = 0; row < rows; row++)
        assert_int_equal(row_labels[row], labels[numbers[row]]);
    for (int i = 0; i < 4; i++)
        CUDA_OK(cudaFree(device[i]));
    free_array(&inputs);
}

static void test_gather_takes_the_samples_it_is_told(void **unused)
{
    (void)unused;
    check_gather(GPU_F32, 33, 100);
    check_gather(GPU_BF16, 50, 1);
    check_gather(GPU_BF16, 7, 99);
}

static void check_sgd(gpu_type_t type, int64_t count)
{
    array_t parameters = make_array(GPU_F32, count), velocity = make_array(GPU_F32, count);
    array_t gradients = make_array(type, count), copy = make_array(type, count);
    array_t rate = make_array(GPU_F32, 1);
    for (int64_t i = 0; i < count; i++) {
        velocity.host[i] = 0.5f * velocity.host[i] + gradients.host[i];
        parameters.host[i] -= rate.host[0] * velocity.host[i];
        copy.host[i] = parameters.host[i];
    }
    gpu_sgd(type, parameters.device, velocity.device, gradients.device, copy.device, count, 0.5f,
            rate.device, NULL);
    check_array(GPU_F32, &velocity, "velocity");
    check_array(GPU_F32, &parameters, "parameters");
    check_array(type, &copy, "their copy");
    array_t *arrays[] = {&parameters, &velocity, &gradients, &copy, &rate};
    for (int i = 0; i < 5; i++)
        free_array(arrays[i]);
}

static void test_sgd_is_that_of_loops(void **unused)
{
    (void)unused;
    check_sgd(GPU_F32, 1);
    check_sgd(GPU_F32, 1000);
    check_sgd(GPU_BF16, 1234);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_of_fp32_are_those_of_loops),
        cmocka_unit_test(test_products_of_tf32_are_those_of_loops),
        cmocka_unit_test(test_products_of_bf16_are_those_of_loops),
        cmocka_unit_test(test_products_of_algorithms_that_were_timed_are_those_of_loops),
        cmocka_unit_test(test_loss_is_that_of_loops),
        cmocka_unit_test(test_gather_takes_the_samples_it_is_told),
        cmocka_unit_test(test_sgd_is_that_of_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
