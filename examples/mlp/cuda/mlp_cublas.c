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

/* The same parameters on all ranks, and other samples. */
static void make_data(float *parameters, float *samples, uint8_t *labels)
{
    srand(1);
    for (int i = 0; i < PARAMETERS; i++)
        parameters[i] = 0.1f * ((float)rand() / (float)RAND_MAX - 0.5f);
    srand(2 + (unsigned)dtrain_rank());
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (uint8_t)(rand() % CLASSES);
        for (int k = 0; k < INPUTS; k++)
            samples[i * INPUTS + k] = (k % CLASSES == labels[i]) + (float)rand() / (float)RAND_MAX;
    }
}

/* Everything that training needs, in device memory. */
typedef struct net {
    float *w, *velocity, *gradients, *rate; /* w: of both layers, behind each other */
    float *x, *h, *y, *dh, *loss;
    int *correct;
    uint8_t *labels;
} net_t;

/* Leaves the step's gradients, of this rank's mean loss. */
static void compute(const net_t *net)
{
    const float *w2 = net->w + INPUTS * HIDDEN;
    multiply(0, 0, ROWS, HIDDEN, INPUTS, net->x, net->w, net->h);
    multiply(0, 0, ROWS, CLASSES, HIDDEN, net->h, w2, net->y);
    CUDA(cudaMemsetAsync(net->loss, 0, ROWS * sizeof *net->loss, stream));
    gpu_loss(GPU_F32, net->y, net->labels, ROWS, CLASSES, 1.0f / ROWS, net->loss, net->correct,
             stream);
    multiply(1, 0, HIDDEN, CLASSES, ROWS, net->h, net->y, net->gradients + INPUTS * HIDDEN);
    multiply(0, 1, ROWS, HIDDEN, CLASSES, net->y, w2, net->dh);
    multiply(1, 0, INPUTS, HIDDEN, ROWS, net->x, net->dh, net->gradients);
}

static void train(const net_t *net)
{
    int64_t count = PARAMETERS;
    dtrain_handle_t handle;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = "gradients",
                              .ndim = 1,
                              .in = net->gradients,
                              .out = net->gradients,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32,
                              .device = DTRAIN_DEVICE_CUDA,
                              .stream = stream};
    dtrain_options_t average = {.struct_size = sizeof average, .op = DTRAIN_OP_AVERAGE};
    for (int step = 0; step < STEPS; step++) {
        compute(net);
        DTRAIN(dtrain_allreduce_async(&tensor, &average, &handle));
        DTRAIN(dtrain_stream_wait(handle, stream));
        gpu_sgd(GPU_F32, net->w, net->velocity, net->gradients, NULL, PARAMETERS, 0.9f, net->rate,
                stream);
        DTRAIN(dtrain_wait(handle));
        DTRAIN(dtrain_release(handle));
    }
}

int main(void)
{
    static float parameters[PARAMETERS], samples[ROWS * INPUTS], losses[ROWS];
    static uint8_t labels[ROWS];
    int device;
    DTRAIN(dtrain_init(NULL));
    DTRAIN(dtrain_cuda_device(&device));
    CUDA(cudaSetDevice(device));
    CUDA(cudaStreamCreate(&stream));
    BLAS(cublasCreate(&blas));
    BLAS(cublasSetStream(blas, stream));
    make_data(parameters, samples, labels);
    net_t net = {.w = device_memory(PARAMETERS, parameters),
                 .velocity = device_memory(PARAMETERS, NULL),
                 .gradients = device_memory(PARAMETERS, NULL),
                 .rate = device_memory(1, &(float){0.05f}),
                 .x = device_memory(ROWS * INPUTS, samples),
                 .h = device_memory(ROWS * HIDDEN, NULL),
                 .y = device_memory(ROWS * CLASSES, NULL),
                 .dh = device_memory(ROWS * HIDDEN, NULL),
                 .loss = device_memory(ROWS, NULL),
                 .correct = device_memory(ROWS, NULL),
                 .labels = device_memory(ROWS, NULL)};
    CUDA(cudaMemcpy(net.labels, labels, ROWS, cudaMemcpyHostToDevice));
    train(&net);
    CUDA(cudaMemcpyAsync(losses, net.loss, sizeof losses, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    double mean = 0;
    for (int i = 0; i < ROWS; i++)
        mean += losses[i] / (double)ROWS;
    DTRAIN(dtrain_allreduce("loss", &mean, &mean, 1, DTRAIN_DTYPE_F64, DTRAIN_OP_AVERAGE));
    if (dtrain_rank() == 0)
        printf("loss %.4f after %d steps on %d GPUs\n", mean, STEPS, dtrain_size());
    BLAS(cublasDestroy(blas));
    DTRAIN(dtrain_shutdown());
    return 0;
}
