/*
 * bench_move.c - how fast the pack and unpack kernels are beside cudaMemcpyAsync, alternating: one
 * tensor of 256 MiB, and the 161 gradients of ResNet-50. Every result is checked. A line each:
 * what, GB/s of the copy, of packing and of unpacking (bytes read and written), and their shares.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "comm/nccl/nccl_device.h"
#include "comm/nccl/nccl_host.h"

#define ROUNDS 21
#define PIECES_MAX 200

static dtrain_status_t fail(dtrain_status_t status, const char *text)
{
    fprintf(stderr, "bench_move: %s\n", text);
    exit(status == DTRAIN_ERR_UNSUPPORTED ? 77 : 1);
}

static const char *no_error(void)
{
    return "";
}

static void log_line(dtrain_log_level_t level, const char *subsystem, const char *text)
{
    (void)level;
    (void)subsystem;
    (void)text;
}

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "bench_move: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

/* Elements of each parameter: convolutions of bottlenecks with their batch norms, and the end. */
static int resnet50(int64_t *counts)
{
    static const int blocks[4] = {3, 4, 6, 3};
    int n = 0, in = 64;
    counts[n++] = 64 * 3 * 49;
    counts[n++] = 64;
    counts[n++] = 64;
    for (int stage = 0; stage < 4; stage++) {
        int width = 64 << stage, out = 4 * width;
        for (int block = 0; block < blocks[stage]; block++) {
            const int64_t convolutions[4] = {(int64_t)in * width, (int64_t)width * width * 9,
                                             (int64_t)width * out, (int64_t)in * out};
            const int norms[4] = {width, width, out, out};
            for (int k = 0; k < (block == 0 ? 4 : 3); k++) {
                counts[n++] = convolutions[k];
                counts[n++] = norms[k];
                counts[n++] = norms[k];
            }
            in = out;
        }
    }
    counts[n++] = 2048 * 1000;
    counts[n++] = 1000;
    return n;
}

typedef struct bench {
    dt_nccl_device_t *device;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    dt_piece_t pieces[PIECES_MAX];
    int n;
    float *tensors, *buffer;
    int64_t elements;
} bench_t;

typedef enum kind { COPY, PACK, UNPACK, KINDS } kind_t;

static double seconds_of(bench_t *bench, kind_t kind)
{
    float ms = 0;
    dt_nccl_move_t move = {.buffer = bench->buffer,
                           .unpacks = kind == UNPACK,
                           .dtype = DTRAIN_DTYPE_F32,
                           .buffer_dtype = DTRAIN_DTYPE_F32,
                           .divisor = 1,
                           .scale = 1};
    check(cudaEventRecord(bench->begin, bench->stream), "an event");
    if (kind == COPY)
        check(cudaMemcpyAsync(bench->buffer, bench->tensors,
                              (size_t)bench->elements * sizeof(float), cudaMemcpyDeviceToDevice,
                              bench->stream),
              "cudaMemcpyAsync");
    else
        dt_nccl_move(bench->device, bench->stream, &move, bench->pieces, bench->n);
    check(cudaEventRecord(bench->end, bench->stream), "an event");
    check(cudaEventSynchronize(bench->end), "the kernel");
    check(cudaEventElapsedTime(&ms, bench->begin, bench->end), "an event");
    return 1e-3 * ms;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What was packed and unpacked is what was there. */
static int count_wrong(bench_t *bench)
{
    size_t bytes = (size_t)bench->elements * sizeof(float);
    float *host = malloc(bytes);
    int wrong = 0;
    for (int64_t i = 0; i < bench->elements; i++)
        host[i] = (float)(i % 1000003);
    check(cudaMemcpy(bench->tensors, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    seconds_of(bench, PACK);
    check(cudaMemset(bench->tensors, 0, bytes), "cudaMemset");
    seconds_of(bench, UNPACK);
    check(cudaMemcpy(host, bench->tensors, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (int i = 0; i < bench->n; i++) {
        int64_t first = (const float *)bench->pieces[i].in - bench->tensors;
        for (int64_t k = first; k < first + bench->pieces[i].count; k++)
            wrong += host[k] != (float)(k % 1000003);
    }
    free(host);
    return wrong;
}

static void run(bench_t *bench, const char *what)
{
    double times[KINDS][ROUNDS], rates[KINDS];
    int64_t moved = 0;
    for (int i = 0; i < bench->n; i++)
        moved += bench->pieces[i].count;
    int wrong = count_wrong(bench);
    for (int round = 0; round < ROUNDS; round++) {
        for (int kind = 0; kind < KINDS; kind++)
            times[kind][round] = seconds_of(bench, (kind_t)kind);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        qsort(times[kind], ROUNDS, sizeof times[kind][0], by_size);
        double bytes = 2.0 * sizeof(float) * (double)(kind == COPY ? bench->elements : moved);
        rates[kind] = bytes / times[kind][ROUNDS / 2] / 1e9;
    }
    printf("%-24s copy %8.1f GB/s  pack %8.1f (%5.1f%%)  unpack %8.1f (%5.1f%%)  %s\n", what,
           rates[COPY], rates[PACK], 100 * rates[PACK] / rates[COPY], rates[UNPACK],
           100 * rates[UNPACK] / rates[COPY], wrong ? "WRONG" : "right");
    if (wrong)
        exit(1);
}

static void add_piece(bench_t *bench, int64_t count)
{
    float *at = bench->tensors + bench->elements;
    bench->pieces[bench->n++] = (dt_piece_t){.in = at, .out = at, .count = count};
    bench->elements += (count + 31) / 32 * 32;
}

int main(int argc, char **argv)
{
    static bench_t bench;
    const dt_device_host_t host = {
        .version = DT_DEVICE_VERSION, .fail = fail, .last_error = no_error, .log = log_line};
    int64_t counts[PIECES_MAX], single = argc > 1 ? strtoll(argv[1], NULL, 10) : (int64_t)64 << 20;
    void *memory;
    dt_nccl_set_host(&host);
    dt_nccl_device_create(&dt_cuda_real, NULL, NULL, 0, &bench.device);
    check(cudaSetDevice(bench.device->number), "cudaSetDevice");
    dt_nccl_stream_create(bench.device, &bench.stream);
    check(cudaEventCreate(&bench.begin), "an event");
    check(cudaEventCreate(&bench.end), "an event");
    size_t room = (size_t)(single > (32 << 20) ? single : 32 << 20) * sizeof(float);
    check(cudaMalloc(&memory, room), "cudaMalloc");
    bench.tensors = memory;
    check(cudaMalloc(&memory, room), "cudaMalloc");
    bench.buffer = memory;
    add_piece(&bench, single);
    run(&bench, "one tensor");
    bench.n = 0;
    bench.elements = 0;
    int n = resnet50(counts);
    for (int i = 0; i < n; i++)
        add_piece(&bench, counts[i]);
    run(&bench, "ResNet-50's gradients");
    return 0;
}
