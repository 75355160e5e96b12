/*
 * bench_optim.c - how near the kernels of optimizers come to the speed of memory.
 *
 *     bench_optim [MIB [REPEATS]]
 *
 * For parameters of MIB MiB of float32 and each instruction set of this machine: the best and the
 * median time of a pass, and the bytes read and written a second, beside those of memcpy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/isa.h"
#include "base/memory.h"
#include "optim/norm.h"
#include "optim/update.h"

typedef struct bench {
    size_t count;
    int repeats;
    double *seconds;
    float *gradients, *parameters, *first, *second;
    double check; /* so that no pass is without effect */
} bench_t;

typedef void (*pass_fn_t)(bench_t *bench);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void copy_pass(bench_t *bench)
{
    memcpy(bench->first, bench->gradients, bench->count * sizeof(float));
}

static void norm_pass(bench_t *bench)
{
    dt_norm_t norm = dt_norm_begin(0);
    dt_norm_add(&norm, DTRAIN_DTYPE_F32, bench->gradients, bench->count);
    bench->check += dt_norm_total(&norm);
}

static void update_pass(bench_t *bench, const dt_update_settings_t *settings)
{
    dt_update_range_t range = {.count = bench->count,
                               .dtype = DTRAIN_DTYPE_F32,
                               .gradient_dtype = DTRAIN_DTYPE_F32,
                               .gradients = bench->gradients,
                               .parameters = bench->parameters,
                               .first = bench->first,
                               .second = bench->second};
    dt_update(settings, 10, 1, &range);
}

static void sgd_pass(bench_t *bench)
{
    dt_update_settings_t settings = {.rule = DT_UPDATE_SGD, .learning_rate = 1e-3};
    update_pass(bench, &settings);
}

static void momentum_pass(bench_t *bench)
{
    dt_update_settings_t settings = {.rule = DT_UPDATE_SGD, .learning_rate = 1e-3, .momentum = 0.9};
    update_pass(bench, &settings);
}

static void adam_pass(bench_t *bench)
{
    dt_update_settings_t settings = {.rule = DT_UPDATE_ADAM,
                                     .learning_rate = 1e-3,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .epsilon = 1e-8};
    update_pass(bench, &settings);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `words` floats are moved for each parameter. */
static void measure(bench_t *bench, const char *isa, const char *name, pass_fn_t pass, int words)
{
    pass(bench);
    for (int i = 0; i < bench->repeats; i++) {
        double start = now();
        pass(bench);
        bench->seconds[i] = now() - start;
    }
    qsort(bench->seconds, (size_t)bench->repeats, sizeof(double), ascending);
    double bytes = (double)bench->count * words * sizeof(float);
    double best = bench->seconds[0], median = bench->seconds[bench->repeats / 2];
    printf("%-7s %-9s %8.3f %8.3f ms %6.1f GB/s\n", isa, name, 1e3 * best, 1e3 * median,
           1e-9 * bytes / median);
}

static void measure_isa(bench_t *bench, const char *isa)
{
    dt_isa_set_cap(isa);
    if (strcmp(dt_isa_name(), isa) != 0)
        return;
    measure(bench, isa, "norm", norm_pass, 1);
    measure(bench, isa, "sgd", sgd_pass, 3);
    measure(bench, isa, "momentum", momentum_pass, 5);
    measure(bench, isa, "adam", adam_pass, 7);
}

static int run(bench_t *bench)
{
    float *memory = dt_alloc_aligned(4096, 4 * bench->count * sizeof(float));
    bench->seconds = dt_alloc((size_t)bench->repeats * sizeof(double));
    if (!memory || !bench->seconds) {
        fprintf(stderr, "bench_optim: no memory\n");
        dt_free(memory);
        dt_free(bench->seconds);
        return 1;
    }
    for (size_t i = 0; i < 4 * bench->count; i++)
        memory[i] = 1e-3f * (float)(i % 1000 + 1);
    bench->gradients = memory;
    bench->parameters = memory + bench->count;
    bench->first = memory + 2 * bench->count;
    bench->second = memory + 3 * bench->count;

    printf("%zu parameters of float32; best, median, bytes moved in the median\n", bench->count);
    measure(bench, "-", "memcpy", copy_pass, 2);
    static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        measure_isa(bench, isas[i]);
    dt_free(memory);
    dt_free(bench->seconds);
    return bench->check > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    double mib = argc > 1 ? strtod(argv[1], NULL) : 64;
    bench_t bench = {.count = (size_t)(mib * 262144),
                     .repeats = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 15};
    if (bench.count < 1 || bench.repeats < 1) {
        fprintf(stderr, "usage: bench_optim [MIB [REPEATS]]\n");
        return 2;
    }
    return run(&bench);
}
