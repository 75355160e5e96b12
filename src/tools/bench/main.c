/* main.c - dtrain-bench: how long operations take, beside MPI and beside a plain copy. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/bench/contest.h"
#include "tools/bench/models.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"

static int bench(const bench_options_t *options, bench_report_t *report, const int64_t *counts,
                 int num_tensors)
{
    bench_workload_t workload;
    bench_result_t result;
    if (bench_workload_make(&workload, options, counts, num_tensors))
        return -1;
    int failed = bench_contest(&workload, &result);
    if (!failed && dtrain_rank() == 0)
        bench_report_row(report, &workload, &result);
    bench_workload_free(&workload);
    return failed || result.errors > 0 ? -1 : 0;
}

static int bench_sizes(const bench_options_t *options, bench_report_t *report)
{
    int64_t element = (int64_t)dtrain_dtype_size(options->dtype);
    int64_t *counts = calloc((size_t)options->tensors, sizeof *counts);
    int failed = !counts;
    for (int64_t bytes = options->min_bytes; !failed && bytes <= options->max_bytes;
         bytes *= options->factor) {
        for (int i = 0; i < options->tensors; i++)
            counts[i] = (bytes + element - 1) / element;
        failed = bench(options, report, counts, options->tensors);
        if (options->factor < 2)
            break;
    }
    free(counts);
    return failed ? -1 : 0;
}

static int run(const bench_options_t *options)
{
    bench_report_t report = {0};
    if (options->vs_mpi && !bench_mpi_is_there()) {
        fprintf(stderr, "dtrain-bench: --vs mpi: this is no MPI job, start it with mpirun\n");
        return -1;
    }
    /* Ranks agree before the first operation whether rank 0 can write. */
    int32_t opened = dtrain_rank() != 0 || bench_report_open(&report, options) == 0;
    if (dtrain_allreduce("bench.open", &opened, &opened, 1, DTRAIN_DTYPE_I32, DTRAIN_OP_MIN) !=
            DTRAIN_OK ||
        !opened)
        return -1;
    int failed;
    if (options->model) {
        int64_t counts[BENCH_MODEL_TENSORS_MAX];
        failed = bench(options, &report, counts, bench_model_sizes(options->model, counts));
    } else {
        failed = bench_sizes(options, &report);
    }
    if (dtrain_rank() == 0)
        failed |= bench_report_close(&report);
    return failed ? -1 : 0;
}

int main(int argc, char **argv)
{
    if (dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "dtrain-bench: %s\n", dtrain_last_error());
        return 1;
    }
    bench_options_t options;
    int parsed = bench_options_parse(&options, argc, argv, dtrain_rank() == 0);
    int code = parsed < 0 ? 2 : 0;
    if (parsed == 0 && run(&options))
        code = 1;
    dtrain_codec_destroy(options.codec);
    if (dtrain_shutdown() != DTRAIN_OK) {
        fprintf(stderr, "dtrain-bench: %s\n", dtrain_last_error());
        code = 1;
    }
    return code;
}
