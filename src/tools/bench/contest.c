#include "tools/bench/contest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int complain(const char *what)
{
    fprintf(stderr, "dtrain-bench: rank %d: %s: %s\n", dtrain_rank(), what, dtrain_last_error());
    return -1;
}

/* ---- The workload ------------------------------------------------------------------------- */

static void *new_buffer(const bench_options_t *options, size_t bytes)
{
    void *buffer = NULL;
    if (options->library_buffers) {
        if (dtrain_mem_alloc(&buffer, bytes, DTRAIN_DEVICE_CPU) != DTRAIN_OK)
            return NULL;
    } else if (posix_memalign(&buffer, 4096, bytes) != 0) {
        return NULL;
    }
    memset(buffer, 0, bytes);
    return buffer;
}

static void free_buffer(const bench_options_t *options, void *buffer)
{
    if (options->library_buffers)
        dtrain_mem_free(buffer);
    else
        free(buffer);
}

/* Buffers and sizes for `count` elements or, where ranks have shares, a few more. 0, or -1. */
static int make_tensor(bench_tensor_t *tensor, const bench_options_t *options, int64_t count)
{
    const bench_traits_t *traits = bench_traits(options->kind);
    int64_t size = dtrain_size();
    size_t element = dtrain_dtype_size(options->dtype);
    int has_shares =
        traits->has_shared_in || traits->has_shared_out || options->kind == BENCH_ALLTOALL;
    tensor->share = (count + size - 1) / size;
    tensor->count = has_shares ? tensor->share * size : count;
    tensor->bytes = (size_t)tensor->count * element;
    tensor->in_bytes = traits->has_shared_in ? (size_t)tensor->share * element : tensor->bytes;
    tensor->out_bytes = traits->has_shared_out ? (size_t)tensor->share * element : tensor->bytes;
    tensor->in = new_buffer(options, tensor->in_bytes);
    tensor->out = options->in_place ? tensor->in : new_buffer(options, tensor->out_bytes);
    return tensor->in && tensor->out ? 0 : -1;
}

int bench_workload_make(bench_workload_t *workload, const bench_options_t *options,
                        const int64_t *counts, int num_tensors)
{
    memset(workload, 0, sizeof *workload);
    workload->options = options;
    workload->tensors = calloc((size_t)num_tensors, sizeof *workload->tensors);
    workload->handles = calloc((size_t)num_tensors, sizeof *workload->handles);
    int failed = !workload->tensors || !workload->handles ||
                 bench_pattern_make(&workload->pattern, options->dtype, options->op, dtrain_size());
    for (int i = 0; !failed && i < num_tensors; i++) {
        bench_tensor_t *tensor = &workload->tensors[workload->num_tensors++];
        snprintf(tensor->name, sizeof tensor->name, "bench.%d.%lld", i, (long long)counts[i]);
        failed = make_tensor(tensor, options, counts[i]);
        workload->bytes += (int64_t)tensor->bytes;
        workload->coded_bytes += options->codec
                                     ? options->codec->coded_bytes(options->codec, tensor->count)
                                     : (int64_t)tensor->bytes;
    }
    if (failed) {
        bench_workload_free(workload);
        return complain("no memory for the tensors");
    }
    return 0;
}

void bench_workload_free(bench_workload_t *workload)
{
    for (int i = 0; workload->tensors && i < workload->num_tensors; i++) {
        bench_tensor_t *tensor = &workload->tensors[i];
        if (tensor->out && tensor->out != tensor->in)
            free_buffer(workload->options, tensor->out);
        if (tensor->in)
            free_buffer(workload->options, tensor->in);
    }
    bench_pattern_free(&workload->pattern);
    free(workload->tensors);
    free(workload->handles);
}

static void refill(bench_workload_t *workload)
{
    for (int i = 0; i < workload->num_tensors; i++)
        bench_fill(&workload->pattern, dtrain_rank(), workload->tensors[i].in,
                   workload->tensors[i].in_bytes);
}

/* Wrong elements of what came from one rank, which lies at its place in the output. */
static int64_t count_part(const bench_workload_t *workload, const bench_tensor_t *tensor, int from)
{
    size_t element = dtrain_dtype_size(workload->options->dtype);
    size_t bytes = (size_t)tensor->share * element;
    size_t offset = workload->options->kind == BENCH_ALLTOALL ? (size_t)dtrain_rank() * bytes : 0;
    return bench_count_errors(&workload->pattern, workload->pattern.inputs[from], offset,
                              (const char *)tensor->out + (size_t)from * bytes, bytes, element);
}

static int64_t count_tensor(const bench_workload_t *workload, const bench_tensor_t *tensor)
{
    const bench_traits_t *traits = bench_traits(workload->options->kind);
    const bench_pattern_t *pattern = &workload->pattern;
    size_t element = dtrain_dtype_size(workload->options->dtype);
    int64_t errors = 0;
    if (traits->root_only && dtrain_rank() != BENCH_ROOT)
        return 0;
    if (traits->has_shared_in || workload->options->kind == BENCH_ALLTOALL) {
        for (int from = 0; from < dtrain_size(); from++)
            errors += count_part(workload, tensor, from);
        return errors;
    }
    size_t offset = traits->has_shared_out ? (size_t)dtrain_rank() * tensor->out_bytes : 0;
    const unsigned char *part = traits->reduces ? pattern->reduced : pattern->inputs[BENCH_ROOT];
    return bench_count_errors(pattern, part, offset, tensor->out, tensor->out_bytes, element);
}

static int64_t count_errors(const bench_workload_t *workload)
{
    int64_t errors = 0;
    for (int i = 0; i < workload->num_tensors; i++)
        errors += count_tensor(workload, &workload->tensors[i]);
    return errors;
}

/* ---- The contestants ---------------------------------------------------------------------- */

/* `extent` outlives what is returned. */
static dtrain_tensor_t describe(const bench_workload_t *workload, int i, int64_t *extent)
{
    const bench_options_t *options = workload->options;
    const bench_tensor_t *tensor = &workload->tensors[i];
    *extent = bench_traits(options->kind)->has_shared_in ? tensor->share : tensor->count;
    dtrain_tensor_t described = {.struct_size = sizeof described,
                                 .ndim = 1,
                                 .name = tensor->name,
                                 .in = tensor->in,
                                 .out = tensor->out,
                                 .shape = extent,
                                 .dtype = options->dtype,
                                 .out_bytes = (int64_t)tensor->out_bytes};
    return described;
}

static int run_one(const bench_workload_t *workload)
{
    int64_t extent;
    dtrain_tensor_t tensor = describe(workload, 0, &extent);
    dtrain_status_t status =
        bench_kind_run(workload->options->kind, &tensor, workload->options->op);
    return status == DTRAIN_OK ? 0 : complain("the operation failed");
}

static int submit(const bench_workload_t *workload, int i)
{
    int64_t extent;
    dtrain_tensor_t tensor = describe(workload, i, &extent);
    dtrain_options_t how = {
        .struct_size = sizeof how, .op = workload->options->op, .codec = workload->options->codec};
    dtrain_status_t status =
        bench_kind_submit(workload->options->kind, &tensor, &how, &workload->handles[i]);
    return status == DTRAIN_OK ? 0 : complain("submitting failed");
}

static int run_ours(const bench_workload_t *workload)
{
    if (workload->num_tensors == 1 && !workload->options->codec)
        return run_one(workload);
    for (int i = 0; i < workload->num_tensors; i++) {
        if (submit(workload, i))
            return -1;
    }
    if (dtrain_wait_all(workload->handles, workload->num_tensors, NULL) != DTRAIN_OK)
        return complain("an operation failed");
    for (int i = 0; i < workload->num_tensors; i++)
        dtrain_release(workload->handles[i]);
    return 0;
}

/* The floor: each input read once and each output written once, into a buffer of the peer's. */
static char *copy_target;

static int run_memcpy(const bench_workload_t *workload)
{
    char *to = copy_target;
    for (int i = 0; i < workload->num_tensors; i++) {
        memcpy(to, workload->tensors[i].in, workload->tensors[i].in_bytes);
        to += workload->tensors[i].in_bytes;
    }
    return 0;
}

/* ---- The contest -------------------------------------------------------------------------- */

typedef struct contestant {
    int (*run)(const bench_workload_t *workload);
    int is_checked;
    double *times;
} contestant_t;

/* Many short operations are timed together, and one that is long alone. */
static int repeats(const bench_workload_t *workload)
{
    return workload->bytes <= 4096 ? 50 : workload->bytes <= 65536 ? 10 : 1;
}

/*
 * Ranks begin at the same time: one that had less to check has fallen asleep in the first barrier,
 * and comes out of it when it has been woken; the second one finds all awake.
 */
static int line_up(void)
{
    return dtrain_barrier() != DTRAIN_OK || dtrain_barrier() != DTRAIN_OK ? -1 : 0;
}

static int one_round(bench_workload_t *workload, const contestant_t *contestant, int round,
                     int64_t *errors)
{
    int count = repeats(workload);
    refill(workload);
    if (line_up())
        return complain("the barrier failed");
    double start = now();
    for (int i = 0; i < count; i++) {
        /* In place the result has replaced the input; so little is filled in no time. */
        if (i > 0 && workload->options->in_place)
            refill(workload);
        if (contestant->run(workload))
            return -1;
    }
    double time = (now() - start) / count;
    if (round >= 0)
        contestant->times[round] = time;
    if (contestant->is_checked)
        *errors += count_errors(workload);
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int summarize(double *times, int rounds, bench_times_t *summary)
{
    if (dtrain_allreduce("bench.times", times, times, rounds, DTRAIN_DTYPE_F64, DTRAIN_OP_MAX) !=
        DTRAIN_OK)
        return complain("gathering the times failed");
    qsort(times, (size_t)rounds, sizeof *times, compare);
    summary->median = times[rounds / 2];
    summary->least = times[0];
    return 0;
}

static int choose_rounds(const bench_workload_t *workload)
{
    if (workload->options->iterations > 0)
        return workload->options->iterations;
    return workload->bytes <= 65536        ? 200
           : workload->bytes <= (4 << 20)  ? 100
           : workload->bytes <= (64 << 20) ? 25
                                           : 15;
}

static int run_rounds(bench_workload_t *workload, contestant_t *contestants, int n, int rounds,
                      int64_t *errors)
{
    for (int round = -workload->options->warmup; round < rounds; round++) {
        for (int i = 0; i < n; i++) {
            if (one_round(workload, &contestants[i], round, errors))
                return -1;
        }
    }
    return 0;
}

int bench_contest(bench_workload_t *workload, bench_result_t *result)
{
    int rounds = choose_rounds(workload);
    bench_times_t *summaries[3] = {&result->ours};
    contestant_t contestants[3] = {{.run = run_ours, .is_checked = !workload->options->is_lossy}};
    int n = 1;
    if (workload->options->vs_mpi) {
        summaries[n] = &result->mpi;
        contestants[n++] = (contestant_t){.run = bench_mpi_run, .is_checked = 1};
    }
    if (workload->options->vs_memcpy) {
        summaries[n] = &result->memcpy;
        contestants[n++] = (contestant_t){.run = run_memcpy};
        copy_target = new_buffer(workload->options, (size_t)workload->bytes);
    }
    int failed = workload->options->vs_memcpy && !copy_target;
    for (int i = 0; i < n; i++) {
        contestants[i].times = calloc((size_t)rounds, sizeof(double));
        failed |= !contestants[i].times;
    }
    memset(result, 0, sizeof *result);
    failed = failed || run_rounds(workload, contestants, n, rounds, &result->errors);
    for (int i = 0; i < n; i++) {
        failed = failed || summarize(contestants[i].times, rounds, summaries[i]);
        free(contestants[i].times);
    }
    if (copy_target)
        free_buffer(workload->options, copy_target);
    copy_target = NULL;
    if (!failed && dtrain_allreduce("bench.errors", &result->errors, &result->errors, 1,
                                    DTRAIN_DTYPE_I64, DTRAIN_OP_SUM) != DTRAIN_OK)
        return complain("counting the errors failed");
    if (workload->options->is_lossy && result->errors == 0)
        result->errors = -1;
    return failed ? -1 : 0;
}
