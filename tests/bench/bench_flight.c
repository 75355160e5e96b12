/*
 * bench_flight.c - what the flight recorder costs an operation.
 *
 *     bench_flight [OPERATIONS [REPEATS]]
 *
 * Notes all four stages of batches of 64 operations, as the engine does in a step with 64 small
 * tensors, and prints the best and the median nanoseconds an operation; a short name and a long
 * one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/flight.h"

#define BATCH 64
#define REPEATS_MAX 1000

static void run_batch(dt_flight_t *flight, const dt_flight_operation_t *operation, int64_t now_ns)
{
    dt_flight_ref_t refs[BATCH];
    dt_flight_at(flight, now_ns);
    for (int i = 0; i < BATCH; i++)
        refs[i] = dt_flight_submit(flight, operation);
    for (int i = 0; i < BATCH; i++)
        dt_flight_agree(flight, refs[i], (uint64_t)i + 1);
    for (int i = 0; i < BATCH; i++)
        dt_flight_start(flight, refs[i]);
    for (int i = 0; i < BATCH; i++)
        dt_flight_finish(flight, refs[i], DTRAIN_OK);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(dt_flight_t *flight, const char *name, long operations, int repeats)
{
    static double ns[REPEATS_MAX];
    dt_flight_operation_t operation = {
        .name = name, .length = strlen(name), .count = 256, .kind = 1, .dtype = 6};
    long batches = operations / BATCH + 1;
    for (int repeat = 0; repeat < repeats; repeat++) {
        int64_t begin_ns = dt_now_ns();
        for (long i = 0; i < batches; i++)
            run_batch(flight, &operation, begin_ns + i);
        ns[repeat] = (double)(dt_now_ns() - begin_ns) / (double)(batches * BATCH);
    }
    qsort(ns, (size_t)repeats, sizeof *ns, by_value);
    printf("name of %2zu bytes: best %5.1f ns, median %5.1f ns an operation\n", strlen(name), ns[0],
           ns[repeats / 2]);
}

int main(int argc, char **argv)
{
    long operations = argc > 1 ? strtol(argv[1], NULL, 10) : 1000000;
    int repeats = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 9;
    dt_flight_board_t *board = dt_alloc_aligned(_Alignof(dt_flight_board_t), sizeof *board);
    if (operations < 1 || repeats < 1 || repeats > REPEATS_MAX || !board) {
        fprintf(stderr, "bench_flight [OPERATIONS [REPEATS, at most %d]]\n", REPEATS_MAX);
        dt_free(board);
        return 2;
    }
    memset(board, 0, sizeof *board);
    dt_flight_t flight;
    dt_flight_init(&flight, board);
    measure(&flight, "layer3.weight", operations, repeats);
    measure(&flight, "model.decoder.layers.31.self_attn.out_proj.weight.p", operations, repeats);
    dt_free(board);
    return 0;
}
