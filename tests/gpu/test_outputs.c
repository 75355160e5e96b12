/* Outputs in device memory that the library provides, of sizes that no rank knows before. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "device.h"

static int rank, size;

/* A value that tells who brought it, and from which place. */
static int32_t value_of(int of_rank, int64_t i)
{
    return (int32_t)(1000 * of_rank + i);
}

static int32_t *values_from(int64_t count)
{
    int32_t *host = malloc((size_t)(count + 1) * sizeof *host);
    for (int64_t i = 0; i < count; i++)
        host[i] = value_of(rank, i);
    int32_t *memory = device_copy_of(host, (size_t)count * sizeof *host);
    free(host);
    return memory;
}

/* The output of an operation that is done, or all in a stream, copied to host memory. NULL when it
 * is empty. `rows` is checked. */
static int32_t *read_output(dtrain_handle_t handle, int64_t rows, int64_t columns)
{
    const void *data = NULL;
    int64_t shape[DTRAIN_NDIM_MAX] = {0};
    int ndim = 0;
    CHECK_OK(dtrain_output(handle, &data, shape, &ndim));
    CHECK(ndim == 2 && shape[0] == rows && shape[1] == columns);
    if (rows * columns == 0)
        return NULL;
    struct cudaPointerAttributes attributes;
    CUDA_OK(cudaPointerGetAttributes(&attributes, data));
    CHECK(attributes.type == cudaMemoryTypeDevice);
    int32_t *host = malloc((size_t)(rows * columns) * sizeof *host);
    device_read(host, data, (size_t)(rows * columns) * sizeof *host);
    return host;
}

static dtrain_tensor_t matrix(const char *name, const void *in, const int64_t *shape)
{
    dtrain_tensor_t tensor = device_tensor(name, in, NULL, shape, DTRAIN_DTYPE_I32);
    tensor.ndim = 2;
    return tensor;
}

/* ---- Sizes that differ ---------------------------------------------------------------------- */

/* Rank r brings `base + r` rows of 3, or none where that is negative. */
static int64_t rows_of(int of_rank, int base)
{
    return base + of_rank > 0 ? base + of_rank : 0;
}

static void check_rows_of_all(const int32_t *host, int base)
{
    int64_t at = 0;
    for (int r = 0; r < size; r++) {
        for (int64_t i = 0; i < rows_of(r, base) * 3; i++)
            CHECK(host[at++] == value_of(r, i));
    }
}

static void check_gathered(dtrain_handle_t handle, int base)
{
    int64_t total = 0, splits[16];
    for (int r = 0; r < size; r++)
        total += rows_of(r, base);
    int32_t *host = read_output(handle, total, 3);
    if (host)
        check_rows_of_all(host, base);
    CHECK_OK(dtrain_recv_splits(handle, splits, size));
    for (int r = 0; r < size; r++)
        CHECK(splits[r] == rows_of(r, base));
    free(host);
}

static void test_allgather(int base)
{
    char name[32];
    dtrain_handle_t handle = 0;
    int64_t shape[2] = {rows_of(rank, base), 3};
    int32_t *in = values_from(shape[0] * 3);
    snprintf(name, sizeof name, "allgather %d", base);
    dtrain_tensor_t tensor = matrix(name, in, shape);
    CHECK_OK(dtrain_allgather_async(&tensor, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    check_gathered(handle, base);
    CHECK_OK(dtrain_release(handle));
    CHECK_OK(dtrain_mem_free(in));
}

static void test_gather(void)
{
    int root = size - 1;
    dtrain_handle_t handle = 0;
    int64_t shape[2] = {rows_of(rank, 2), 3};
    int32_t *in = values_from(shape[0] * 3);
    dtrain_tensor_t tensor = matrix("gather", in, shape);
    CHECK_OK(dtrain_gather_async(&tensor, root, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    if (rank == root)
        check_gathered(handle, 2);
    else
        CHECK(!read_output(handle, 0, 3));
    CHECK_OK(dtrain_release(handle));
    CHECK_OK(dtrain_mem_free(in));
}

/* Rank r sends r + s rows of 2 to rank s. */
static void test_alltoall(void)
{
    int64_t splits[16], received[16], shape[2] = {0, 2}, total = 0, at = 0;
    dtrain_handle_t handle = 0;
    for (int r = 0; r < size; r++) {
        splits[r] = rank + r;
        shape[0] += rank + r;
        total += rank + r;
    }
    int32_t *in = values_from(shape[0] * 2);
    dtrain_tensor_t tensor = matrix("alltoall", in, shape);
    CHECK_OK(dtrain_alltoall_async(&tensor, splits, size, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    int32_t *host = read_output(handle, total, 2);
    for (int r = 0; r < size; r++) {
        int64_t before = 0; /* rows of rank r for those below this one */
        for (int s = 0; s < rank; s++)
            before += r + s;
        for (int64_t i = 0; i < (r + rank) * 2; i++)
            CHECK(host[at++] == value_of(r, before * 2 + i));
    }
    CHECK_OK(dtrain_recv_splits(handle, received, size));
    CHECK(received[size - 1] == rank + size - 1);
    CHECK_OK(dtrain_release(handle));
    CHECK_OK(dtrain_mem_free(in));
    free(host);
}

/* Some ranks bring memory for the output, the others want the library's. */
static void test_mixed(void)
{
    dtrain_handle_t handle = 0;
    int64_t shape[2] = {rows_of(rank, 1), 3}, total = 0;
    for (int r = 0; r < size; r++)
        total += rows_of(r, 1);
    int32_t *in = values_from(shape[0] * 3), *out = device_new((size_t)total * 12);
    dtrain_tensor_t tensor = matrix("mixed", in, shape);
    if (rank % 2 == 0) {
        tensor.out = out;
        tensor.out_bytes = total * 12;
    }
    CHECK_OK(dtrain_allgather_async(&tensor, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    check_gathered(handle, 1);
    CHECK_OK(dtrain_release(handle));
    /* Too little room on one rank: an error on all, and what was provided is given back. */
    tensor.name = "mixed, without room";
    if (rank == 0)
        tensor.out_bytes = 4;
    CHECK_OK(dtrain_allgather_async(&tensor, NULL, &handle));
    CHECK_STATUS(dtrain_wait(handle), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("rank 0: the output has room for 4 bytes");
    CHECK_OK(dtrain_release(handle));
    CHECK_OK(dtrain_mem_free(in));
    CHECK_OK(dtrain_mem_free(out));
}

/* ---- Sizes that follow from the call -------------------------------------------------------- */

static void test_reducescatter(void)
{
    int64_t rows = 3 * size + 1, mine = rows / size + (rank < rows % size), before = 0;
    int64_t shape[2] = {rows, 2};
    dtrain_handle_t handle = 0;
    for (int r = 0; r < rank; r++)
        before += rows / size + (r < rows % size);
    int32_t *in = values_from(rows * 2);
    dtrain_tensor_t tensor = matrix("reducescatter", in, shape);
    CHECK_OK(dtrain_reducescatter_async(&tensor, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    int32_t *host = read_output(handle, mine, 2);
    for (int64_t i = 0; i < mine * 2; i++)
        CHECK(host[i] == 1000 * size * (size - 1) / 2 + size * (before * 2 + i));
    CHECK_OK(dtrain_release(handle));
    free(host);
    tensor.name = "scatter";
    CHECK_OK(dtrain_scatter_async(&tensor, size - 1, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    host = read_output(handle, mine, 2);
    for (int64_t i = 0; i < mine * 2; i++)
        CHECK(host[i] == value_of(size - 1, before * 2 + i));
    CHECK_OK(dtrain_release(handle));
    CHECK_OK(dtrain_mem_free(in));
    free(host);
}

static void test_groups(void)
{
    int64_t shapes[2][2] = {{rows_of(rank, 1), 3}, {rows_of(rank, 0), 3}};
    dtrain_handle_t handles[2];
    int32_t *in = values_from(shapes[0][0] * 3);
    dtrain_tensor_t tensors[2] = {matrix("grouped 0", in, shapes[0]),
                                  matrix("grouped 1", in, shapes[1])};
    CHECK_OK(dtrain_grouped_allgather_async(tensors, 2, NULL, handles));
    CHECK_OK(dtrain_wait_all(handles, 2, NULL));
    check_gathered(handles[0], 1);
    check_gathered(handles[1], 0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(dtrain_release(handles[i]));
    CHECK_OK(dtrain_mem_free(in));
}

/* ---- Streams and lives ---------------------------------------------------------------------- */

/* The output is used in a stream before the host knows the operation to be done. */
static void test_stream(void)
{
    cudaStream_t stream;
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 0; round < 3; round++) {
        int64_t shape[2] = {rows_of(rank, 40), 3}, extents[DTRAIN_NDIM_MAX];
        const void *data;
        int32_t *host;
        dtrain_handle_t handle = 0;
        int32_t *in = values_from(shape[0] * 3);
        dtrain_tensor_t tensor = matrix("streamed", in, shape);
        tensor.stream = stream;
        CHECK_OK(dtrain_allgather_async(&tensor, NULL, &handle));
        CHECK_OK(dtrain_stream_wait(handle, stream));
        CHECK_OK(dtrain_output(handle, &data, extents, NULL));
        size_t bytes = (size_t)(extents[0] * extents[1]) * sizeof *host;
        CUDA_OK(cudaHostAlloc((void **)&host, bytes, 0));
        CUDA_OK(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK_OK(dtrain_wait(handle));
        CHECK_OK(dtrain_release(handle)); /* waits for the copy */
        CUDA_OK(cudaStreamSynchronize(stream));
        check_rows_of_all(host, 40);
        CUDA_OK(cudaFreeHost(host));
        CHECK_OK(dtrain_mem_free(in));
    }
    CUDA_OK(cudaStreamDestroy(stream));
}

typedef struct released {
    dtrain_status_t done, released;
    _Atomic int is_called; /* release: the two above are set */
} released_t;

static void release(uint64_t handle, dtrain_status_t status, void *user)
{
    released_t *released = user;
    released->done = status;
    released->released = dtrain_release(handle);
    atomic_store(&released->is_called, 1);
}

/* A callback gives the handle back: the memory goes with the next one that is released outside. */
static void test_release_in_callback(void)
{
    released_t released = {.done = DTRAIN_IN_PROGRESS};
    dtrain_handle_t handle = 0;
    int64_t shape[2] = {rows_of(rank, 2), 3};
    int32_t *in = values_from(shape[0] * 3);
    dtrain_tensor_t tensor = matrix("released in its callback", in, shape);
    dtrain_options_t options = {
        .struct_size = sizeof options, .callback = release, .user = &released};
    CHECK_OK(dtrain_allgather_async(&tensor, &options, &handle));
    while (!atomic_load(&released.is_called))
        usleep(100);
    CHECK_OK(released.done);
    CHECK_OK(released.released);
    test_allgather(3);
    CHECK_OK(dtrain_mem_free(in));
}

/* A rank that has joined brings no rows, and has room for the others' all the same. */
static void test_join(void)
{
    int last;
    if (rank == 0) {
        dtrain_handle_t handle = 0;
        int64_t shape[2] = {2, 3};
        int32_t *in = values_from(6);
        dtrain_tensor_t tensor = matrix("while others have joined", in, shape);
        CHECK_OK(dtrain_allgather_async(&tensor, NULL, &handle));
        CHECK_OK(dtrain_wait(handle));
        int32_t *host = read_output(handle, 2, 3);
        for (int i = 0; i < 6; i++)
            CHECK(host[i] == i);
        CHECK_OK(dtrain_release(handle));
        CHECK_OK(dtrain_mem_free(in));
        free(host);
    }
    CHECK_OK(dtrain_join(&last));
}

int main(void)
{
    int device = -1;
    check_begin("test_outputs", 100);
    if (!CHECK_OK(check_init(20000)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    CHECK_OK(dtrain_cuda_device(&device));
    CUDA_OK(cudaSetDevice(device));
    test_allgather(1);
    test_allgather(0);
    test_allgather(-size); /* nobody has any */
    test_gather();
    test_alltoall();
    test_mixed();
    test_reducescatter();
    test_groups();
    test_stream();
    test_release_in_callback();
    test_join();
    check_works("of the host, at the end");
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
