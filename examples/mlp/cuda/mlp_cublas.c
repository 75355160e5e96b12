/*
 * mlp_cublas.c - how little it takes: two layers, plain cuBLAS, and libdtrain, on made-up data,
 * with each GPU's mean gradient averaged over all. Run it with mpirun -np GPUS. For a trainer with
 * data, options and speed see mlp_cuda.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include <cublas_v2.h>

#include <dtrain/dtrain_cuda.h>

#include "gpu_kernels.h"

#define ROWS 128
#define INPUTS 256
#define HIDDEN 512
#define CLASSES 10
#define PARAMETERS (INPUTS * HIDDEN + HIDDEN * CLASSES)
#define STEPS 100

/* Ends the program; the other ranks learn of it. */
#define CHECK(ok, text)                                \
    do {                                               \
        if (!(ok)) {                                   \
            fprintf(stderr, "mlp_cublas: %s\n", text); \
            dtrain_abort(1, text);                     \
            exit(1);                                   \
        }                                              \
    } while (0)
#define CUDA(call) CHECK((call) == cudaSuccess, #call)
#define BLAS(call) CHECK((call) == CUBLAS_STATUS_SUCCESS, #call)
#define DTRAIN(call) CHECK((call) == DTRAIN_OK, dtrain_last_error())

static cublasHandle_t blas;
static cudaStream_t stream;

/* Row after row: c[m x n] = a[m x k] b[k x n], with a or b transposed. */
static void multiply(int ta, int tb, int m, int n, int k, const float *a, const float *b, float *c)
{
    const float one = 1, zero = 0;
    BLAS(cublasSgemm(blas, tb ? CUBLAS_OP_T : CUBLAS_OP_N, ta ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k,
                     &one, b, tb ? k : n, a, ta ? m : k, &zero, c, n));
}

static void *device_memory(size_t count, const float *host)
{
    void *memory;
    DTRAIN(dtrain_mem_alloc(&memory, count * sizeof(float), DTRAIN_DEVICE_CUDA));
    if (host)
        CUDA(cudaMemcpy(memory, host, count * sizeof(float), cudaMemcpyHostToDevice));
    return memory;
}

int main(void)
{
    static float host[PARAMETERS], samples[ROWS * INPUTS], losses[ROWS];
    static uint8_t labels[ROWS];
    int device;
    int64_t count = PARAMETERS;
    DTRAIN(dtrain_init(NULL));
    DTRAIN(dtrain_cuda_device(&device));
    CUDA(cudaSetDevice(device));
    CUDA(cudaStreamCreate(&stream));
    BLAS(cublasCreate(&blas));
    BLAS(cublasSetStream(blas, stream));

    srand(1); /* the same parameters on all ranks, and other samples */
    for (int i = 0; i < PARAMETERS; i++)
        host[i] = 0.1f * ((float)rand() / (float)RAND_MAX - 0.5f);
    srand(2 + (unsigned)dtrain_rank());
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (uint8_t)(rand() % CLASSES);
        for (int k = 0; k < INPUTS; k++)
            samples[i * INPUTS + k] = (k % CLASSES == labels[i]) + (float)rand() / (float)RAND_MAX;
    }
    float *w = device_memory(PARAMETERS, host), *velocity = device_memory(PARAMETERS, NULL);
    float *x = device_memory(ROWS * INPUTS, samples), *h = device_memory(ROWS * HIDDEN, NULL);
    float *y = device_memory(ROWS * CLASSES, NULL), *dh = device_memory(ROWS * HIDDEN, NULL);
    float *gradients = device_memory(PARAMETERS, NULL), *loss = device_memory(ROWS, NULL);
    float *rate = device_memory(1, &(float){0.05f});
    int *correct = device_memory(ROWS, NULL);
    uint8_t *y_labels = device_memory(ROWS, NULL);
    CUDA(cudaMemcpy(y_labels, labels, ROWS, cudaMemcpyHostToDevice));
    const float *w2 = w + INPUTS * HIDDEN;

    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = "gradients",
                              .ndim = 1,
                              .in = gradients,
                              .out = gradients,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32,
                              .device = DTRAIN_DEVICE_CUDA,
                              .stream = stream};
    dtrain_options_t average = {.struct_size = sizeof average, .op = DTRAIN_OP_AVERAGE};
    for (int step = 0; step < STEPS; step++) {
        dtrain_handle_t handle;
        multiply(0, 0, ROWS, HIDDEN, INPUTS, x, w, h);
        multiply(0, 0, ROWS, CLASSES, HIDDEN, h, w2, y);
        CUDA(cudaMemsetAsync(loss, 0, ROWS * sizeof *loss, stream));
        gpu_loss(GPU_F32, y, y_labels, ROWS, CLASSES, 1.0f / ROWS, loss, correct, stream);
        multiply(1, 0, HIDDEN, CLASSES, ROWS, h, y, gradients + INPUTS * HIDDEN);
        multiply(0, 1, ROWS, HIDDEN, CLASSES, y, w2, dh);
        multiply(1, 0, INPUTS, HIDDEN, ROWS, x, dh, gradients);
        DTRAIN(dtrain_allreduce_async(&tensor, &average, &handle));
        DTRAIN(dtrain_stream_wait(handle, stream));
        gpu_sgd(GPU_F32, w, velocity, gradients, NULL, PARAMETERS, 0.9f, rate, stream);
        DTRAIN(dtrain_wait(handle));
        DTRAIN(dtrain_release(handle));
    }
    CUDA(cudaMemcpyAsync(losses, loss, sizeof losses, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    double mean = 0;
    for (int i = 0; i < ROWS; i++)
        mean += losses[i] / (double)ROWS;
    printf("rank %d of %d on GPU %d: loss %.4f after %d steps\n", dtrain_rank(), dtrain_size(),
           device, mean, STEPS);
    BLAS(cublasDestroy(blas));
    DTRAIN(dtrain_shutdown());
    return 0;
}
