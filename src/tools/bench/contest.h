/* contest.h - one workload (a set of tensors) and those who are timed on it, in turn. */
#ifndef DT_BENCH_CONTEST_H
#define DT_BENCH_CONTEST_H

#include "tools/bench/data.h"
#include "tools/bench/options.h"

typedef struct bench_tensor {
    char name[32];
    void *in, *out;
    int64_t count; /* of the whole: divisible by the ranks where they have shares */
    int64_t share; /* of one rank */
    size_t bytes;  /* of the whole */
    size_t in_bytes, out_bytes;
} bench_tensor_t;

typedef struct bench_workload {
    const bench_options_t *options;
    bench_tensor_t *tensors;
    int num_tensors;
    int64_t bytes;       /* of all tensors */
    int64_t coded_bytes; /* ditto, as they travel */
    dtrain_handle_t *handles;
    bench_pattern_t pattern;
} bench_workload_t;

/* Times in seconds over the repetitions; every one is the slowest rank's. */
typedef struct bench_times {
    double median, least;
} bench_times_t;

typedef struct bench_result {
    bench_times_t ours, mpi, memcpy;
    int64_t errors; /* wrong elements of ours and of MPI's results, on all ranks; -1: unknown */
} bench_result_t;

/* One tensor a count; 0, or -1 with a text on stderr. */
int bench_workload_make(bench_workload_t *workload, const bench_options_t *options,
                        const int64_t *counts, int num_tensors);
void bench_workload_free(bench_workload_t *workload);

/* Runs the contest; the same result on all ranks. 0, or -1 with a text on stderr. */
int bench_contest(bench_workload_t *workload, bench_result_t *result);

/* MPI's own call on the workload, a call a tensor: 0, or -1 (bench_mpi.c; or, in a build without
 * MPI, bench_mpi_absent.c). */
int bench_mpi_is_there(void);
int bench_mpi_run(const bench_workload_t *workload);

#endif
