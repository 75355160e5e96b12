/*
 * bench_overhead.c [LARGEST_BYTES] - dtrain_allreduce_async beside a bare ncclAllReduce of the same
 * bytes in the same place, alternating, each submitted and waited for: median times of rank 0, and
 * their difference. In memory of cudaMalloc's, which nobody registers, and in the library's, which
 * both communicators have registered. Every result is checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <nccl.h>

#include "check.h"
#include "device.h"

#define ROUNDS 51

static ncclComm_t comm;
static cudaStream_t stream;

static void check_nccl(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "bench_overhead: %s: %s\n", what, ncclGetErrorString(result));
    exit(1);
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double run_bare(float *memory, int64_t count)
{
    double begin = seconds();
    check_nccl(ncclAllReduce(memory, memory, (size_t)count, ncclFloat32, ncclSum, comm, stream),
               "ncclAllReduce");
    CUDA_OK(cudaStreamSynchronize(stream));
    return seconds() - begin;
}

static double run_ours(float *memory, int64_t count)
{
    dtrain_handle_t handle = 0;
    dtrain_tensor_t tensor = device_tensor("overhead", memory, memory, &count, DTRAIN_DTYPE_F32);
    tensor.stream = stream;
    double begin = seconds();
    CHECK_OK(dtrain_allreduce_async(&tensor, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    double end = seconds();
    CHECK_OK(dtrain_release(handle));
    return end - begin;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void connect(void)
{
    ncclUniqueId id;
    if (dtrain_rank() == 0)
        check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    CHECK_OK(dtrain_broadcast("id", &id, (int64_t)sizeof id, DTRAIN_DTYPE_U8, 0));
    check_nccl(ncclCommInitRank(&comm, dtrain_size(), id, dtrain_rank()), "ncclCommInitRank");
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

static void measure(const char *what, float *memory, int64_t count)
{
    double bare[ROUNDS], ours[ROUNDS];
    float value = 0;
    CUDA_OK(cudaMemset(memory, 0, (size_t)count * sizeof *memory));
    for (int i = 0; i < 3; i++) { /* so that a name has its id, and NCCL its connections */
        run_bare(memory, count);
        run_ours(memory, count);
    }
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = run_bare(memory, count);
        ours[i] = run_ours(memory, count);
    }
    value = 1;
    device_write(memory, &value, sizeof value);
    run_ours(memory, count);
    device_read(&value, memory, sizeof value);
    CHECK(value == (float)dtrain_size());
    qsort(bare, ROUNDS, sizeof bare[0], by_size);
    qsort(ours, ROUNDS, sizeof ours[0], by_size);
    if (dtrain_rank() == 0)
        printf(
            "%10lld bytes  %-12s  ncclAllReduce %9.1f us  libdtrain %9.1f us  more by %7.1f us\n",
            (long long)count * 4, what, 1e6 * bare[ROUNDS / 2], 1e6 * ours[ROUNDS / 2],
            1e6 * (ours[ROUNDS / 2] - bare[ROUNDS / 2]));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int64_t largest = argc > 1 ? strtoll(argv[1], NULL, 10) / 4 : (int64_t)64 << 20;
    int device;
    check_begin("bench_overhead", 300);
    if (!CHECK_OK(check_init(60000)))
        return check_end();
    CHECK_OK(dtrain_cuda_device(&device));
    CUDA_OK(cudaSetDevice(device));
    connect();
    size_t bytes = (size_t)largest * sizeof(float);
    float *registered = device_new(bytes), *plain = NULL;
    void *handle = NULL;
    CUDA_OK(cudaMalloc((void **)&plain, bytes));
    check_nccl(ncclCommRegister(comm, registered, bytes, &handle), "ncclCommRegister");
    for (int64_t count = 1; count <= largest; count *= 16) {
        measure("unregistered", plain, count);
        measure("registered", registered, count);
    }
    check_nccl(ncclCommDeregister(comm, handle), "ncclCommDeregister");
    check_nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    CUDA_OK(cudaFree(plain));
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
