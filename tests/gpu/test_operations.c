/* Every operation on tensors in device memory, with all types and reductions, fused, misaligned,
 * and on process sets. Values are small integers, so that results are exact in every type. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "device.h"

static int rank, size;

static const dtrain_dtype_t dtypes[] = {
    DTRAIN_DTYPE_U8,  DTRAIN_DTYPE_I8,  DTRAIN_DTYPE_U16,  DTRAIN_DTYPE_I16, DTRAIN_DTYPE_I32,
    DTRAIN_DTYPE_I64, DTRAIN_DTYPE_F16, DTRAIN_DTYPE_BF16, DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F64};
#define NUM_DTYPES (sizeof dtypes / sizeof dtypes[0])

/* What a rank brings at a place. */
static double value_of(int of_rank, int64_t i)
{
    return (double)(1 + (i + of_rank) % 3);
}

static double expected(dtrain_op_t op, int64_t i)
{
    double result = value_of(0, i);
    for (int r = 1; r < size; r++) {
        double value = value_of(r, i);
        switch (op) {
        case DTRAIN_OP_MIN:
            result = value < result ? value : result;
            break;
        case DTRAIN_OP_MAX:
            result = value > result ? value : result;
            break;
        case DTRAIN_OP_PRODUCT:
            result *= value;
            break;
        default:
            result += value;
            break;
        }
    }
    return result;
}

static dtrain_status_t finish(dtrain_status_t status, const dtrain_handle_t *handle)
{
    return status == DTRAIN_OK ? check_finish(*handle) : status;
}

static dtrain_status_t allreduce(const char *name, const void *in, void *out, int64_t count,
                                 dtrain_dtype_t dtype, const dtrain_options_t *options)
{
    dtrain_handle_t handle = 0;
    dtrain_tensor_t tensor = device_tensor(name, in, out, &count, dtype);
    return finish(dtrain_allreduce_async(&tensor, options, &handle), &handle);
}

/* ---- Allreduce ------------------------------------------------------------------------------ */

static void check_allreduce(dtrain_dtype_t dtype, dtrain_op_t op, int64_t count, int in_place)
{
    char name[64];
    size_t element = dtrain_dtype_size(dtype), bytes = (size_t)count * element;
    char *host = malloc(bytes + element);
    for (int64_t i = 0; i < count; i++)
        values_store(dtype, host, i, value_of(rank, i));
    /* One element off a border that words have. */
    char *in = (char *)device_new(bytes + element) + element;
    char *out = in_place ? in : device_new(bytes);
    device_write(in, host, bytes);
    dtrain_options_t options = {.struct_size = sizeof options, .op = op};
    snprintf(name, sizeof name, "allreduce %d %d %lld %d", (int)dtype, (int)op, (long long)count,
             in_place);
    CHECK_OK(allreduce(name, in, out, count, dtype, &options));
    device_read(host, out, bytes);
    int wrong = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += values_load(dtype, host, i) != expected(op, i);
    if (!CHECK(wrong == 0))
        fprintf(stderr, "%s: %d wrong\n", name, wrong);
    CHECK_OK(dtrain_mem_free(in - element));
    if (!in_place)
        CHECK_OK(dtrain_mem_free(out));
    free(host);
}

static void test_allreduce(void)
{
    static const dtrain_op_t ops[] = {DTRAIN_OP_SUM, DTRAIN_OP_MIN, DTRAIN_OP_MAX,
                                      DTRAIN_OP_PRODUCT};
    for (size_t t = 0; t < NUM_DTYPES; t++) {
        for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
            check_allreduce(dtypes[t], ops[o], 1000 + (int64_t)t, (int)(o % 2));
    }
    check_allreduce(DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 1, 1);
    check_allreduce(DTRAIN_DTYPE_F32, DTRAIN_OP_SUM, 3000001, 0);
    CHECK_OK(allreduce("empty", NULL, NULL, 0, DTRAIN_DTYPE_F32, NULL));
}

/* The average of what all ranks have alike is that, in every type. */
static void test_average_and_scales(void)
{
    for (size_t t = 0; t < NUM_DTYPES; t++) {
        char name[32], host[8 * 7];
        for (int64_t i = 0; i < 7; i++)
            values_store(dtypes[t], host, i, 100 + (double)i);
        size_t bytes = 7 * dtrain_dtype_size(dtypes[t]);
        void *memory = device_copy_of(host, bytes);
        dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_AVERAGE};
        snprintf(name, sizeof name, "average %d", (int)dtypes[t]);
        CHECK_OK(allreduce(name, memory, memory, 7, dtypes[t], &options));
        device_read(host, memory, bytes);
        for (int64_t i = 0; i < 7; i++)
            CHECK(values_load(dtypes[t], host, i) == 100 + (double)i);
        options.op = DTRAIN_OP_MAX;
        options.prescale = 0.5;
        options.postscale = 2;
        snprintf(name, sizeof name, "scaled %d", (int)dtypes[t]);
        CHECK_OK(allreduce(name, memory, memory, 7, dtypes[t], &options));
        device_read(host, memory, bytes);
        for (int64_t i = 0; i < 7; i += 2) /* even values: halves are exact for integers too */
            CHECK(values_load(dtypes[t], host, i) == 100 + (double)i);
        CHECK_OK(dtrain_mem_free(memory));
    }
}

static void test_bool(void)
{
    uint8_t host[3] = {0, (uint8_t)(rank == 0 ? 7 : 0), 2};
    void *memory = device_copy_of(host, 3);
    CHECK_OK(allreduce("or", memory, memory, 3, DTRAIN_DTYPE_BOOL, NULL));
    device_read(host, memory, 3);
    CHECK(host[0] == 0 && host[1] == 1 && host[2] == 1);
    CHECK_OK(dtrain_mem_free(memory));
}

#define MANY 60

/* Many small tensors at once: they share buckets. */
static void test_fused(void)
{
    dtrain_handle_t handles[MANY];
    float *memory = device_new(MANY * 1000 * sizeof(float)), host[1000];
    for (int k = 0; k < MANY; k++) {
        char name[32];
        int64_t count = 1 + k * 13;
        for (int64_t i = 0; i < count; i++)
            host[i] = (float)value_of(rank, i + k);
        device_write(memory + k * 1000 + k % 5, host, (size_t)count * sizeof(float));
        snprintf(name, sizeof name, "fused %d", k);
        dtrain_tensor_t tensor = device_tensor(name, memory + k * 1000 + k % 5,
                                               memory + k * 1000 + k % 5, &count, DTRAIN_DTYPE_F32);
        CHECK_OK(dtrain_allreduce_async(&tensor, NULL, &handles[k]));
    }
    CHECK_OK(dtrain_wait_all(handles, MANY, NULL));
    for (int k = 0; k < MANY; k++) {
        int64_t count = 1 + k * 13;
        device_read(host, memory + k * 1000 + k % 5, (size_t)count * sizeof(float));
        for (int64_t i = 0; i < count; i++)
            CHECK(host[i] == (float)expected(DTRAIN_OP_SUM, i + k));
        CHECK_OK(dtrain_release(handles[k]));
    }
    CHECK_OK(dtrain_mem_free(memory));
}

static void test_group(void)
{
    float host[2] = {1, 2}, *memory = device_copy_of(host, sizeof host);
    int64_t one = 1;
    dtrain_handle_t handles[2];
    dtrain_tensor_t tensors[2] = {
        device_tensor("group 0", memory, memory, &one, DTRAIN_DTYPE_F32),
        device_tensor("group 1", memory + 1, memory + 1, &one, DTRAIN_DTYPE_F32)};
    CHECK_OK(dtrain_grouped_allreduce_async(tensors, 2, NULL, handles));
    for (int i = 0; i < 2; i++)
        CHECK_OK(check_finish(handles[i]));
    device_read(host, memory, sizeof host);
    CHECK(host[0] == (float)size && host[1] == (float)(2 * size));
    CHECK_OK(dtrain_mem_free(memory));
}

/* ---- The others ----------------------------------------------------------------------------- */

static void test_broadcast_and_reduce(void)
{
    int32_t host[5];
    int64_t count = 5;
    for (int i = 0; i < 5; i++)
        host[i] = 10 * rank + i;
    int32_t *memory = device_copy_of(host, sizeof host), *out = device_new(sizeof host);
    dtrain_handle_t handle = 0;
    dtrain_tensor_t tensor =
        device_tensor("reduce", memory, rank == 0 ? out : NULL, &count, DTRAIN_DTYPE_I32);
    CHECK_OK(finish(dtrain_reduce_async(&tensor, 0, NULL, &handle), &handle));
    device_read(host, out, sizeof host);
    for (int i = 0; i < 5 && rank == 0; i++)
        CHECK(host[i] == 10 * size * (size - 1) / 2 + size * i);
    dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_AVERAGE};
    tensor.name = "reduce average";
    CHECK_OK(finish(dtrain_reduce_async(&tensor, 0, &options, &handle), &handle));
    tensor = device_tensor("broadcast", memory, memory, &count, DTRAIN_DTYPE_I32);
    CHECK_OK(finish(dtrain_broadcast_async(&tensor, size - 1, NULL, &handle), &handle));
    device_read(host, memory, sizeof host);
    for (int i = 0; i < 5; i++)
        CHECK(host[i] == 10 * (size - 1) + i);
    CHECK_OK(dtrain_mem_free(memory));
    CHECK_OK(dtrain_mem_free(out));
}

/* `rows` rows of 3, of which each rank gets its share; also rows that do not divide evenly. */
static void check_reducescatter(int64_t rows, dtrain_op_t op)
{
    char name[32];
    int64_t shape[2] = {rows, 3}, mine = rows / size + (rank < rows % size), before = 0;
    float *host = malloc((size_t)(rows * 3) * sizeof *host);
    for (int r = 0; r < rank; r++)
        before += rows / size + (r < rows % size);
    for (int64_t i = 0; i < rows * 3; i++)
        host[i] = (float)value_of(rank, i);
    float *in = device_copy_of(host, (size_t)(rows * 3) * sizeof *host);
    float *out = device_new((size_t)(mine * 3 + 1) * sizeof *host);
    dtrain_options_t options = {.struct_size = sizeof options, .op = op};
    dtrain_handle_t handle = 0;
    snprintf(name, sizeof name, "reducescatter %lld %d", (long long)rows, (int)op);
    dtrain_tensor_t tensor = device_tensor(name, in, out, shape, DTRAIN_DTYPE_F32);
    tensor.ndim = 2;
    CHECK_OK(finish(dtrain_reducescatter_async(&tensor, &options, &handle), &handle));
    device_read(host, out, (size_t)(mine * 3) * sizeof *host);
    for (int64_t i = 0; i < mine * 3; i++) {
        double sum = expected(DTRAIN_OP_SUM, before * 3 + i);
        CHECK(host[i] == (float)(op == DTRAIN_OP_AVERAGE ? (float)sum / (float)size : sum));
    }
    CHECK_OK(dtrain_mem_free(in));
    CHECK_OK(dtrain_mem_free(out));
    free(host);
}

static void test_allgather(void)
{
    int64_t shape[2] = {rank + 1, 2}, total = 0;
    int64_t host[64];
    dtrain_handle_t handle = 0;
    for (int r = 0; r < size; r++)
        total += r + 1;
    for (int64_t i = 0; i < shape[0] * 2; i++)
        host[i] = 100 * rank + i;
    int64_t *in = device_copy_of(host, (size_t)(shape[0] * 2) * sizeof *host);
    int64_t *out = device_new((size_t)(total * 2) * sizeof *host);
    dtrain_tensor_t tensor = device_tensor("allgather", in, out, shape, DTRAIN_DTYPE_I64);
    tensor.ndim = 2;
    tensor.out_bytes = total * 2 * (int64_t)sizeof *host;
    CHECK_OK(finish(dtrain_allgather_async(&tensor, NULL, &handle), &handle));
    device_read(host, out, (size_t)(total * 2) * sizeof *host);
    int64_t at = 0;
    for (int r = 0; r < size; r++) {
        for (int64_t i = 0; i < (r + 1) * 2; i++)
            CHECK(host[at++] == 100 * r + i);
    }
    tensor.name = "allgather without room";
    tensor.out_bytes = 8;
    CHECK_STATUS(finish(dtrain_allgather_async(&tensor, NULL, &handle), &handle),
                 DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_OK(dtrain_mem_free(in));
    CHECK_OK(dtrain_mem_free(out));
}

static void test_alltoall(void)
{
    int64_t rows = 0, received = 0, splits[8];
    int16_t host[128];
    dtrain_handle_t handle = 0;
    for (int r = 0; r < size; r++) {
        splits[r] = rank + r;
        for (int k = 0; k < rank + r; k++)
            host[rows++] = (int16_t)(100 * rank + r);
        received += rank + r;
    }
    int16_t *in = device_copy_of(host, (size_t)rows * sizeof *host);
    int16_t *out = device_new((size_t)(received + 1) * sizeof *host);
    dtrain_tensor_t tensor = device_tensor("alltoall", in, out, &rows, DTRAIN_DTYPE_I16);
    tensor.out_bytes = (received + 1) * (int64_t)sizeof *host;
    CHECK_OK(finish(dtrain_alltoall_async(&tensor, splits, size, NULL, &handle), &handle));
    device_read(host, out, (size_t)received * sizeof *host);
    int64_t at = 0;
    for (int r = 0; r < size; r++) {
        for (int k = 0; k < rank + r; k++)
            CHECK(host[at++] == 100 * r + rank);
    }
    CHECK_OK(dtrain_mem_free(in));
    CHECK_OK(dtrain_mem_free(out));
}

static void test_transfers(void)
{
    float host[4] = {1, 2, 3, (float)rank};
    int64_t count = 4;
    dtrain_handle_t handle = 0;
    if (size < 2)
        return;
    float *memory = device_copy_of(host, sizeof host);
    dtrain_tensor_t tensor = device_tensor("transfer", memory, memory, &count, DTRAIN_DTYPE_F32);
    if (rank == 1)
        CHECK_OK(finish(dtrain_send_async(&tensor, 0, NULL, &handle), &handle));
    if (rank == 0) {
        CHECK_OK(finish(dtrain_recv_async(&tensor, 1, NULL, &handle), &handle));
        device_read(host, memory, sizeof host);
        CHECK(host[3] == 1);
    }
    CHECK_OK(dtrain_mem_free(memory));
}

/* Rank r brings r + 1 values to a gather, and gets as many as dtrain_scatter_async shares out. */
static void test_gather_and_scatter(void)
{
    float host[64];
    int root = size - 1;
    int64_t count = rank + 1, all = 2 * size + 1;
    dtrain_handle_t handle = 0;
    for (int i = 0; i < 64; i++)
        host[i] = (float)rank;
    float *in = device_copy_of(host, sizeof host), *out = device_new(sizeof host);
    dtrain_tensor_t tensor = device_tensor("gather", in, out, &count, DTRAIN_DTYPE_F32);
    tensor.out_bytes = sizeof host;
    CHECK_OK(finish(dtrain_gather_async(&tensor, root, NULL, &handle), &handle));
    device_read(host, out, sizeof host);
    for (int r = 0, at = 0; r < size && rank == root; r++) {
        for (int i = 0; i <= r; i++)
            CHECK(host[at++] == (float)r);
    }
    for (int i = 0; i < all; i++)
        host[i] = (float)i;
    device_write(in, host, sizeof host);
    tensor = device_tensor("scatter", in, out, &all, DTRAIN_DTYPE_F32);
    CHECK_OK(finish(dtrain_scatter_async(&tensor, root, NULL, &handle), &handle));
    device_read(host, out, sizeof host);
    /* The first rank has one more. */
    CHECK(host[0] == (float)(rank == 0 ? 0 : 2 * rank + 1));
    CHECK(host[1] == host[0] + 1 && (rank > 0 || host[2] == 2));
    CHECK_OK(dtrain_mem_free(in));
    CHECK_OK(dtrain_mem_free(out));
}

static void test_process_set(void)
{
    int ranks[2] = {size - 1, 0};
    dtrain_pset_t pset;
    dtrain_handle_t handle = 0;
    if (size < 2)
        return;
    CHECK_OK(dtrain_pset_add(ranks, 2, &pset));
    if (rank == 0 || rank == size - 1) {
        float value = (float)(rank + 1), *memory = device_copy_of(&value, sizeof value);
        int64_t one = 1;
        dtrain_options_t options = {.struct_size = sizeof options, .pset = pset};
        dtrain_tensor_t tensor = device_tensor("in set", memory, memory, &one, DTRAIN_DTYPE_F32);
        CHECK_OK(finish(dtrain_allreduce_async(&tensor, &options, &handle), &handle));
        device_read(&value, memory, sizeof value);
        CHECK(value == (float)(size + 1));
        CHECK_OK(dtrain_mem_free(memory));
    }
    CHECK_OK(dtrain_barrier());
    CHECK_OK(dtrain_pset_remove(pset));
}

/* Ranks that have joined count as nothing. */
static void test_join(void)
{
    int last;
    if (rank == 0) {
        float value = 5, *memory = device_copy_of(&value, sizeof value);
        dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_AVERAGE};
        CHECK_OK(
            allreduce("while others have joined", memory, memory, 1, DTRAIN_DTYPE_F32, &options));
        device_read(&value, memory, sizeof value);
        CHECK(value == 5);
        CHECK_OK(dtrain_mem_free(memory));
    }
    CHECK_OK(dtrain_join(&last));
}

/* ---- Streams -------------------------------------------------------------------------------- */

#define LONG 200000

/* The input comes to be in a stream, the output is used in it; the host waits for neither. */
static void test_stream(void)
{
    cudaStream_t stream;
    int64_t count = LONG;
    size_t bytes = LONG * sizeof(float);
    float *in, *out, *memory = device_new(bytes);
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaHostAlloc((void **)&in, bytes, 0));
    CUDA_OK(cudaHostAlloc((void **)&out, bytes, 0));
    for (int round = 0; round < 5; round++) {
        dtrain_handle_t handle = 0;
        for (int64_t i = 0; i < LONG; i++)
            in[i] = (float)value_of(rank, i + round);
        CUDA_OK(cudaMemcpyAsync(memory, in, bytes, cudaMemcpyHostToDevice, stream));
        dtrain_tensor_t tensor =
            device_tensor("streamed", memory, memory, &count, DTRAIN_DTYPE_F32);
        tensor.stream = stream;
        CHECK_OK(dtrain_allreduce_async(&tensor, NULL, &handle));
        CHECK_OK(dtrain_stream_wait(handle, stream));
        CUDA_OK(cudaMemcpyAsync(out, memory, bytes, cudaMemcpyDeviceToHost, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        int wrong = 0;
        for (int64_t i = 0; i < LONG; i++)
            wrong += out[i] != (float)expected(DTRAIN_OP_SUM, i + round);
        CHECK(wrong == 0);
        CHECK_OK(check_finish(handle));
    }
    CUDA_OK(cudaFreeHost(in));
    CUDA_OK(cudaFreeHost(out));
    CUDA_OK(cudaStreamDestroy(stream));
    CHECK_OK(dtrain_mem_free(memory));
}

/* Calls that do not say where their vectors lie. */
static void test_blocking(void)
{
    float host[4] = {1, 2, 3, (float)rank}, *in = device_copy_of(host, sizeof host);
    float *out = device_new(sizeof host * (size_t)size), *all = malloc(sizeof host * (size_t)size);
    CHECK_OK(dtrain_allreduce("blocking", in, out, 4, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM));
    device_read(host, out, sizeof host);
    CHECK(host[2] == (float)(3 * size) && host[3] == (float)(size * (size - 1) / 2));
    CHECK_OK(dtrain_allgather("blocking", in, out, 4, DTRAIN_DTYPE_F32));
    device_read(all, out, sizeof host * (size_t)size);
    for (int r = 0; r < size; r++)
        CHECK(all[4 * r + 1] == 2 && all[4 * r + 3] == (float)r);
    CHECK_OK(dtrain_broadcast("blocking", in, 4, DTRAIN_DTYPE_F32, size - 1));
    device_read(host, in, sizeof host);
    CHECK(host[3] == (float)(size - 1));
    CHECK_OK(dtrain_allreduce("blocking, host", host, host, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM));
    CHECK(host[0] == (float)size);
    /* Half of it here and half there. */
    CHECK_STATUS(dtrain_allreduce("torn", in, host, 4, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM),
                 DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("the memory is the host's");
    CHECK_OK(dtrain_mem_free(in));
    CHECK_OK(dtrain_mem_free(out));
    free(all);
}

/* ---- What is refused ------------------------------------------------------------------------ */

static void test_refused(void)
{
    float host[4] = {0}, *memory = device_new(sizeof host);
    int64_t count = 4;
    dtrain_handle_t handle = 0;
    CHECK_STATUS(allreduce("host memory", host, host, 4, DTRAIN_DTYPE_F32, NULL),
                 DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("the memory is the host's");
    if (size > 1) { /* on one rank the tensor is in host memory */
        dtrain_tensor_t tensor =
            device_tensor("here and there", memory, memory, &count, DTRAIN_DTYPE_F32);
        if (rank == size - 1) {
            tensor.device = DTRAIN_DEVICE_CPU;
            tensor.in = tensor.out = host;
        }
        CHECK_STATUS(finish(dtrain_allreduce_async(&tensor, NULL, &handle), &handle),
                     DTRAIN_ERR_MISMATCH);
        CHECK_ERROR_HAS("devices differ");
        CHECK_ERROR_HAS(": GPU");
        CHECK_ERROR_HAS(": host");
    }
    CHECK_OK(check_submit("of the host", host, 4, 20000, &handle));
    CHECK_STATUS(dtrain_stream_wait(handle, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_OK(check_finish(handle));
    CHECK_STATUS(dtrain_stream_wait(handle, NULL), DTRAIN_ERR_INVALID_HANDLE);
    CHECK_OK(dtrain_mem_free(memory));
}

static void take_time(uint64_t handle, dtrain_status_t status, void *is_called)
{
    (void)handle, (void)status;
    atomic_store((_Atomic int *)is_called, 1);
    usleep(50000);
}

/* Nothing of it was ever in a stream: a stream that waits while its callback runs hears of that. */
static void test_stream_waits_for_what_fails(void)
{
    int64_t count = 4 + rank;
    void *memory = device_new((size_t)count * sizeof(float));
    dtrain_tensor_t tensor = device_tensor("differs", memory, memory, &count, DTRAIN_DTYPE_F32);
    _Atomic int is_called = 0;
    dtrain_options_t options = {
        .struct_size = sizeof options, .callback = take_time, .user = &is_called};
    dtrain_handle_t handle;
    CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle));
    while (!atomic_load(&is_called))
        usleep(100);
    CHECK_STATUS(dtrain_stream_wait(handle, NULL), DTRAIN_ERR_MISMATCH);
    CHECK_STATUS(check_finish(handle), DTRAIN_ERR_MISMATCH);
    CHECK_OK(dtrain_mem_free(memory));
}

int main(void)
{
    int device = -1;
    check_begin("test_operations", 100);
    if (!CHECK_OK(check_init(20000)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    CHECK_OK(dtrain_cuda_device(&device));
    CHECK(device >= 0);
    CUDA_OK(cudaSetDevice(device));
    test_allreduce();
    test_average_and_scales();
    test_bool();
    test_fused();
    test_group();
    test_broadcast_and_reduce();
    check_reducescatter(4 * size, DTRAIN_OP_SUM);
    check_reducescatter(4 * size + 1, DTRAIN_OP_SUM);
    check_reducescatter(5, DTRAIN_OP_AVERAGE);
    test_allgather();
    test_alltoall();
    test_transfers();
    test_gather_and_scatter();
    test_process_set();
    test_join();
    test_stream();
    test_blocking();
    if (size > 1)
        test_stream_waits_for_what_fails();
    test_refused();
    check_works("of the host, at the end");
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
