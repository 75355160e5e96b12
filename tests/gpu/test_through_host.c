/* What only the host can do, on tensors of a GPU: each result has the bits of the same operation on
 * tensors of the host, fused or not, round after round. Codecs that only round go over NCCL, where
 * there is one, and come near it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"

static int rank, size;

/* Values of many sizes and both signs, the same in each run; different for each rank. */
static float value_of(int of_rank, int64_t i, int round)
{
    uint32_t bits = (uint32_t)(i * 2654435761u) ^ (uint32_t)(of_rank * 40503u + round * 97u);
    bits ^= bits >> 15;
    bits *= 2246822519u;
    bits ^= bits >> 13;
    return ((float)(bits & 0xffff) - 32768.0F) / (float)(1 + (bits >> 28));
}

static void fill(void *to, dtrain_dtype_t dtype, int64_t count, int round)
{
    for (int64_t i = 0; i < count; i++)
        values_store(dtype, to, i, value_of(rank, i, round));
}

/* ---- Dense tensors -------------------------------------------------------------------------- */

#define MANY 5

/* A few tensors of the host and, with other names, the same ones on the GPU. */
typedef struct pair {
    char names[2][48];
    void *host, *device;
    int64_t count;
    size_t bytes;
    dtrain_handle_t handles[2];
} pair_t;

static void open_pair(pair_t *pair, const char *name, int k, dtrain_dtype_t dtype, int64_t count,
                      int round)
{
    snprintf(pair->names[0], sizeof pair->names[0], "%s %d, host", name, k);
    snprintf(pair->names[1], sizeof pair->names[1], "%s %d, device", name, k);
    pair->count = count;
    pair->bytes = (size_t)count * dtrain_dtype_size(dtype);
    pair->host = malloc(pair->bytes + 1);
    fill(pair->host, dtype, count, round + k);
    /* One element off a border that words have. */
    pair->device = (char *)device_new(pair->bytes + 8) + dtrain_dtype_size(dtype);
    device_write(pair->device, pair->host, pair->bytes);
}

static void submit_pair(pair_t *pair, dtrain_dtype_t dtype, const dtrain_options_t *options)
{
    dtrain_tensor_t tensor =
        device_tensor(pair->names[0], pair->host, pair->host, &pair->count, dtype);
    tensor.device = DTRAIN_DEVICE_CPU;
    CHECK_OK(dtrain_allreduce_async(&tensor, options, &pair->handles[0]));
    tensor = device_tensor(pair->names[1], pair->device, pair->device, &pair->count, dtype);
    CHECK_OK(dtrain_allreduce_async(&tensor, options, &pair->handles[1]));
}

static int is_near(const float *a, const float *b, int64_t count, float tolerance)
{
    for (int64_t i = 0; i < count; i++) {
        if (!(fabsf(a[i] - b[i]) <= tolerance))
            return 0;
    }
    return 1;
}

/* `tolerance` 0: the same bits; else of float32. */
static void close_pair(pair_t *pair, dtrain_dtype_t dtype, float tolerance)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(check_finish(pair->handles[i]));
    char *copy = malloc(pair->bytes + 1);
    device_read(copy, pair->device, pair->bytes);
    int is_same = tolerance > 0
                      ? is_near((float *)copy, (float *)pair->host, pair->count, tolerance)
                      : memcmp(copy, pair->host, pair->bytes) == 0;
    if (!CHECK(is_same))
        fprintf(stderr, "%s: not the host's result\n", pair->names[1]);
    CHECK_OK(dtrain_mem_free((char *)pair->device - dtrain_dtype_size(dtype)));
    free(pair->host);
    free(copy);
}

static void check_dense(const char *name, dtrain_dtype_t dtype, const dtrain_options_t *options,
                        int64_t longest, float tolerance)
{
    pair_t pairs[MANY];
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < MANY; k++)
            open_pair(&pairs[k], name, k, dtype,
                      k == 0   ? longest
                      : k == 1 ? 0
                               : 100 * k + 1,
                      round);
        for (int k = 0; k < MANY; k++)
            submit_pair(&pairs[k], dtype, options);
        for (int k = 0; k < MANY; k++)
            close_pair(&pairs[k], dtype, tolerance);
    }
}

static void test_adasum(void)
{
    static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F16, DTRAIN_DTYPE_BF16, DTRAIN_DTYPE_F32,
                                            DTRAIN_DTYPE_F64};
    dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_ADASUM};
    for (int t = 0; t < 4; t++) {
        char name[32];
        snprintf(name, sizeof name, "adasum %d", (int)dtypes[t]);
        options.prescale = t == 2 ? 0.5 : 0;
        check_dense(name, dtypes[t], &options, 5003, 0);
    }
}

static void test_codecs(void)
{
    static const char *const names[] = {"fp16", "bf16", "int8", "topk:0.1"};
    /* Each of up to `size` additions rounds values of up to size * 2^15 by half a unit. */
    static const float units[] = {0x1p-11F, 0x1p-8F, 0, 0};
    const char *gpu = getenv("DTRAIN_GPU");
    int is_staged = gpu && strcmp(gpu, "staged") == 0;
    for (int c = 0; c < 4; c++) {
        float tolerance = is_staged ? 0 : units[c] * 0x1p15F * (float)(2 * size);
        dtrain_codec_t *codec = NULL;
        if (!CHECK_OK(dtrain_codec_create(names[c], &codec)))
            continue;
        dtrain_options_t options = {
            .struct_size = sizeof options, .op = DTRAIN_OP_AVERAGE, .codec = codec};
        check_dense(names[c], DTRAIN_DTYPE_F32, &options, 70001, tolerance);
        dtrain_codec_destroy(codec);
    }
}

/* A stream of the caller's uses the result; the host waits for nothing. */
static void test_stream(void)
{
    enum { COUNT = 50000 };
    cudaStream_t stream;
    float *in, *out, *expected = malloc(COUNT * sizeof *expected), *memory;
    int64_t count = COUNT;
    size_t bytes = COUNT * sizeof(float);
    memory = device_new(bytes);
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaHostAlloc((void **)&in, bytes, 0));
    CUDA_OK(cudaHostAlloc((void **)&out, bytes, 0));
    for (int round = 0; round < 3; round++) {
        dtrain_handle_t handle = 0;
        fill(in, DTRAIN_DTYPE_F32, COUNT, round);
        CHECK_OK(dtrain_allreduce("streamed, host", in, expected, COUNT, DTRAIN_DTYPE_F32,
                                  DTRAIN_OP_ADASUM));
        CUDA_OK(cudaMemcpyAsync(memory, in, bytes, cudaMemcpyHostToDevice, stream));
        dtrain_tensor_t tensor =
            device_tensor("streamed, device", memory, memory, &count, DTRAIN_DTYPE_F32);
        dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_ADASUM};
        tensor.stream = stream;
        CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle));
        CHECK_OK(dtrain_stream_wait(handle, stream));
        CUDA_OK(cudaMemcpyAsync(out, memory, bytes, cudaMemcpyDeviceToHost, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        CHECK(memcmp(out, expected, bytes) == 0);
        CHECK_OK(check_finish(handle));
    }
    CUDA_OK(cudaFreeHost(in));
    CUDA_OK(cudaFreeHost(out));
    CUDA_OK(cudaStreamDestroy(stream));
    CHECK_OK(dtrain_mem_free(memory));
    free(expected);
}

/* ---- Sparse tensors ------------------------------------------------------------------------- */

#define COLUMNS 5

static dtrain_sparse_t sparse_of(const char *name, const int64_t *shape, const int64_t *indices,
                                 const float *values, int64_t nnz)
{
    return (dtrain_sparse_t){.struct_size = sizeof(dtrain_sparse_t),
                             .ndim = 2,
                             .name = name,
                             .shape = shape,
                             .indices = indices,
                             .values = values,
                             .nnz = nnz,
                             .dtype = DTRAIN_DTYPE_F32};
}

/* The output on the GPU is the host's. */
static void compare_outputs(dtrain_handle_t host, dtrain_handle_t device)
{
    const int64_t *indices[2];
    const void *values[2];
    int64_t nnz[2] = {-1, -2};
    CHECK_OK(dtrain_sparse_output(host, &indices[0], &values[0], &nnz[0]));
    CHECK_OK(dtrain_sparse_output(device, &indices[1], &values[1], &nnz[1]));
    if (!CHECK(nnz[0] == nnz[1] && !indices[0] == !indices[1]) || nnz[0] == 0)
        return;
    size_t bytes = (size_t)nnz[0] * COLUMNS * sizeof(float);
    void *copy = malloc(bytes);
    device_read(copy, values[1], bytes);
    CHECK(memcmp(copy, values[0], bytes) == 0);
    free(copy);
    if (!indices[0])
        return;
    bytes = (size_t)nnz[0] * sizeof(int64_t);
    copy = malloc(bytes);
    device_read(copy, indices[1], bytes);
    CHECK(memcmp(copy, indices[0], bytes) == 0);
    free(copy);
}

/* `nnz` rows of each rank, some of them twice, of `rows`. */
static void check_sparse(int64_t rows, int64_t nnz, int waits)
{
    static int number;
    char names[2][48];
    int64_t shape[2] = {rows, COLUMNS};
    number++;
    int64_t *indices = malloc((size_t)(nnz + 1) * sizeof *indices);
    float *values = malloc((size_t)(nnz + 1) * COLUMNS * sizeof *values);
    dtrain_handle_t handles[2];
    for (int64_t i = 0; i < nnz; i++)
        indices[i] = (i * 7 + rank) % rows;
    fill(values, DTRAIN_DTYPE_F32, nnz * COLUMNS, 0);
    int64_t *device_indices = device_copy_of(indices, (size_t)nnz * sizeof *indices);
    float *device_values = device_copy_of(values, (size_t)nnz * COLUMNS * sizeof *values);
    for (int i = 0; i < 2; i++)
        snprintf(names[i], sizeof names[i], "sparse %d, %d", number, i);

    dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_AVERAGE};
    dtrain_sparse_t sparse = sparse_of(names[0], shape, indices, values, nnz);
    CHECK_OK(dtrain_sparse_allreduce_async(&sparse, &options, &handles[0]));
    sparse = sparse_of(names[1], shape, device_indices, device_values, nnz);
    sparse.device = DTRAIN_DEVICE_CUDA;
    CHECK_OK(dtrain_sparse_allreduce_async(&sparse, &options, &handles[1]));
    if (waits)
        CHECK_OK(dtrain_stream_wait(handles[1], NULL));
    CHECK_OK(dtrain_wait_all(handles, 2, NULL));
    compare_outputs(handles[0], handles[1]);
    for (int i = 0; i < 2; i++)
        CHECK_OK(dtrain_release(handles[i]));
    CHECK_OK(dtrain_mem_free(device_indices));
    CHECK_OK(dtrain_mem_free(device_values));
    free(indices);
    free(values);
}

static void test_sparse(void)
{
    check_sparse(1000, 9, 0);
    check_sparse(1000, 9, 1);
    check_sparse(20, 18, 0); /* as long as the whole tensor */
    check_sparse(20, 18, 1);
    check_sparse(1000, rank == 0 ? 5 : 0, 0);
    check_sparse(1000, 0, 0);
    /* A row that there is not, and host memory: both on all ranks. */
    int64_t shape[2] = {4, COLUMNS}, index = rank == size - 1 ? 4 : 1;
    float values[COLUMNS] = {0};
    dtrain_handle_t handle = 0;
    int64_t *device_index = device_copy_of(&index, sizeof index);
    float *device_values = device_copy_of(values, sizeof values);
    dtrain_sparse_t sparse = sparse_of("beyond", shape, device_index, device_values, 1);
    sparse.device = DTRAIN_DEVICE_CUDA;
    dtrain_status_t status = dtrain_sparse_allreduce_async(&sparse, NULL, &handle);
    if (rank == size - 1)
        CHECK_STATUS(status, DTRAIN_ERR_INVALID_ARGUMENT);
    else if (CHECK_OK(status))
        CHECK_STATUS(check_finish(handle), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("index 4");
    sparse = sparse_of("of the host", shape, &index, values, 1);
    sparse.device = DTRAIN_DEVICE_CUDA;
    CHECK_STATUS(dtrain_sparse_allreduce_async(&sparse, NULL, &handle),
                 DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("the memory is the host's");
    CHECK_OK(dtrain_mem_free(device_index));
    CHECK_OK(dtrain_mem_free(device_values));
}

/* ---- Parameters ----------------------------------------------------------------------------- */

static void test_parameters(void)
{
    float host[40];
    int64_t counts[2] = {33, 7};
    dtrain_param_t params[2];
    dtrain_tensor_t tensors[2];
    fill(host, DTRAIN_DTYPE_F32, 40, 0);
    float *memory = device_copy_of(host, sizeof host);
    for (int i = 0; i < 2; i++) {
        float *data = memory + (i == 0 ? 0 : 33);
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .ndim = 1,
                                     .name = i == 0 ? "weight" : "bias",
                                     .shape = &counts[i],
                                     .dtype = DTRAIN_DTYPE_F32,
                                     .data = data};
        tensors[i] = device_tensor(params[i].name, data, NULL, &counts[i], DTRAIN_DTYPE_F32);
    }
    if (size > 1) {
        CHECK_STATUS(dtrain_check_equal(tensors, 2, NULL), DTRAIN_ERR_MISMATCH);
        CHECK_ERROR_HAS("'weight' (tensor 1 of 2)");
    }
    CHECK_OK(dtrain_cuda_broadcast_params(params, 2, size - 1, NULL));
    device_read(host, memory, sizeof host);
    for (int i = 0; i < 40; i++)
        CHECK(host[i] == value_of(size - 1, i, 0));
    CHECK_OK(dtrain_check_equal(tensors, 2, NULL));
    params[1].data = host;
    CHECK_STATUS(dtrain_cuda_broadcast_params(params, 2, 0, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("the memory is the host's");
    tensors[1].in = host;
    CHECK_STATUS(dtrain_check_equal(tensors, 2, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("'bias': the memory is the host's");
    CHECK_OK(dtrain_mem_free(memory));
}

int main(void)
{
    int device = -1;
    check_begin("test_through_host", 100);
    if (!CHECK_OK(check_init(20000)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    CHECK_OK(dtrain_cuda_device(&device));
    CUDA_OK(cudaSetDevice(device));
    test_adasum();
    test_codecs();
    test_stream();
    test_sparse();
    test_parameters();
    check_works("of the host, at the end");
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
