#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TENSORS_MAX 4096
#define ROUNDS_MAX 200
#define WARMUP 3

/* Seconds for all rounds of a case: slow peers get fewer rounds. */
#define BUDGET 0.4

typedef struct work {
    const bench_peer_t *peer;
    const char *name;
    float **tensors;
    size_t *counts;
    int n;
    size_t bytes;
    float *packed; /* NULL when each tensor is reduced by a call of its own */
} work_t;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- Buffers ------------------------------------------------------------------------------ */

static float *new_buffer(size_t bytes)
{
    void *buffer = NULL;
    if (posix_memalign(&buffer, 4096, bytes) != 0)
        return NULL;
    memset(buffer, 0, bytes);
    return buffer;
}

/* Rank r brings r + 1 in every element, copied from a block that stays in the cache. */
static void fill(const work_t *work)
{
    static float block[16384];
    if (block[0] == 0) {
        for (size_t i = 0; i < 16384; i++)
            block[i] = (float)(work->peer->rank + 1);
    }
    for (int i = 0; i < work->n; i++) {
        char *to = (char *)work->tensors[i];
        for (size_t left = work->counts[i] * 4, part; left > 0; left -= part, to += part) {
            part = left < sizeof block ? left : sizeof block;
            memcpy(to, block, part);
        }
    }
}

static int is_summed(const work_t *work)
{
    float expected = (float)(work->peer->size * (work->peer->size + 1)) / 2;
    for (int i = 0; i < work->n; i++) {
        for (size_t k = 0; k < work->counts[i]; k++) {
            if (work->tensors[i][k] != expected)
                return 0;
        }
    }
    return 1;
}

static int make(work_t *work, size_t *counts, int n)
{
    work->counts = counts;
    work->n = n;
    work->bytes = 0;
    work->packed = NULL;
    work->tensors = calloc((size_t)n, sizeof *work->tensors);
    int failed = !work->tensors;
    for (int i = 0; !failed && i < n; i++) {
        work->bytes += counts[i] * 4;
        work->tensors[i] = new_buffer(counts[i] * 4);
        failed = !work->tensors[i];
    }
    return failed ? -1 : 0;
}

static void destroy(work_t *work)
{
    for (int i = 0; work->tensors && i < work->n; i++)
        free(work->tensors[i]);
    free(work->tensors);
    free(work->packed);
}

/* ---- Rounds ------------------------------------------------------------------------------- */

static int reduce_each(const work_t *work)
{
    for (int i = 0; i < work->n; i++) {
        if (work->peer->sum(work->peer->self, work->tensors[i], work->counts[i]))
            return -1;
    }
    return 0;
}

static int reduce_packed(const work_t *work)
{
    float *at = work->packed;
    for (int i = 0; i < work->n; at += work->counts[i++])
        memcpy(at, work->tensors[i], work->counts[i] * 4);
    if (work->peer->sum(work->peer->self, work->packed, work->bytes / 4))
        return -1;
    at = work->packed;
    for (int i = 0; i < work->n; at += work->counts[i++])
        memcpy(work->tensors[i], at, work->counts[i] * 4);
    return 0;
}

static int one_round(const work_t *work, double *time)
{
    int repeats = work->bytes <= 4096 ? 50 : work->bytes <= 65536 ? 10 : 1;
    double ready = 0;
    fill(work);
    if (work->peer->greatest(work->peer->self, &ready, 1))
        return -1;
    double start = now();
    for (int i = 0; i < repeats; i++) {
        if (i > 0)
            fill(work);
        if (work->packed ? reduce_packed(work) : reduce_each(work))
            return -1;
    }
    *time = (now() - start) / repeats;
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* As many rounds as dtrain-bench, or what the budget allows: the same number on all ranks. */
static int choose_rounds(const work_t *work, double warm_seconds)
{
    int most = work->bytes <= 65536        ? ROUNDS_MAX
               : work->bytes <= (4 << 20)  ? 100
               : work->bytes <= (64 << 20) ? 25
                                           : 15;
    double fit = warm_seconds > 0 ? BUDGET / warm_seconds : most;
    return fit < 5 ? 5 : fit < most ? (int)fit : most;
}

static int measure(const work_t *work, const char *mode)
{
    double times[ROUNDS_MAX], warm = 0;
    for (int i = 0; i < WARMUP; i++) {
        double start = now();
        if (one_round(work, &times[0]))
            return -1;
        warm = now() - start;
    }
    if (!is_summed(work)) {
        fprintf(stderr, "case %s %s: wrong sum\n", work->name, mode);
        return -1;
    }
    if (work->peer->greatest(work->peer->self, &warm, 1))
        return -1;
    int rounds = choose_rounds(work, warm);
    for (int i = 0; i < rounds; i++) {
        if (one_round(work, &times[i]))
            return -1;
    }
    if (work->peer->greatest(work->peer->self, times, (size_t)rounds))
        return -1;
    qsort(times, (size_t)rounds, sizeof *times, compare);
    if (work->peer->rank == 0) {
        printf("{\"case\": \"%s\", \"mode\": \"%s\", \"median_us\": %.3f, \"min_us\": %.3f, "
               "\"rounds\": %d}\n",
               work->name, mode, times[rounds / 2] * 1e6, times[0] * 1e6, rounds);
        fflush(stdout);
    }
    return 0;
}

/* ---- Cases -------------------------------------------------------------------------------- */

static int run_size(const bench_peer_t *peer, const char *name)
{
    work_t work = {.peer = peer, .name = name};
    size_t count = (size_t)strtoull(name, NULL, 10) / 4;
    int failed = count == 0 || make(&work, &count, 1) || measure(&work, "");
    destroy(&work);
    return failed ? -1 : 0;
}

static int read_counts(const char *path, size_t *counts)
{
    int n = 0;
    unsigned long long count;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    while (n < TENSORS_MAX && fscanf(file, "%llu", &count) == 1)
        counts[n++] = (size_t)count;
    fclose(file);
    return n;
}

static int run_set(const bench_peer_t *peer, const char *name)
{
    static size_t counts[TENSORS_MAX];
    work_t work = {.peer = peer, .name = name};
    int n = read_counts(name + strlen("set:"), counts);
    int failed = n == 0 || make(&work, counts, n) || measure(&work, "each");
    if (!failed) {
        work.packed = new_buffer(work.bytes);
        failed = !work.packed || measure(&work, "packed");
    }
    destroy(&work);
    return failed ? -1 : 0;
}

int bench_run(const bench_peer_t *peer, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int is_set = strncmp(argv[i], "set:", 4) == 0;
        if (is_set ? run_set(peer, argv[i]) : run_size(peer, argv[i])) {
            fprintf(stderr, "rank %d: case %s failed\n", peer->rank, argv[i]);
            return 1;
        }
    }
    return 0;
}
