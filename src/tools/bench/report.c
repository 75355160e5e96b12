#include "tools/bench/report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *kind_name(const bench_options_t *options)
{
    return bench_traits(options->kind)->name;
}

int bench_report_open(bench_report_t *report, const bench_options_t *options)
{
    memset(report, 0, sizeof *report);
    report->options = options;
    if (options->json) {
        report->json = fopen(options->json, "w");
        if (!report->json) {
            fprintf(stderr, "dtrain-bench: cannot write %s: %s\n", options->json, strerror(errno));
            return -1;
        }
        fputs("[", report->json);
    }
    printf("# libdtrain %s, %s, %d rank(s), %d on this node, %s buffers, %s\n",
           dtrain_version_string(), kind_name(options), dtrain_size(), dtrain_local_size(),
           options->library_buffers ? "library" : "private",
           options->in_place ? "in place" : "out of place");
    printf("%12s %8s %12s %9s %8s %12s %12s %9s %9s %7s", "bytes", "tensors", "count", "type", "op",
           "median us", "min us", "algbw", "busbw", "errors");
    if (options->codec)
        printf(" %12s %12s %6s", "codec", "wire bytes", "saved");
    if (options->vs_mpi)
        printf(" %12s %7s", "mpi us", "vs.mpi");
    if (options->vs_memcpy)
        printf(" %12s %9s", "memcpy us", "vs.memcpy");
    printf("\n");
    return 0;
}

static double bus_factor(const bench_options_t *options)
{
    int n = dtrain_size(), turns = bench_traits(options->kind)->bus_turns;
    return turns > 0 ? turns * (n - 1.0) / n : 1;
}

/* What a codec loses is not checked. */
static void describe_errors(const bench_result_t *result, const char *unknown, char *text,
                            size_t cap)
{
    if (result->errors < 0)
        snprintf(text, cap, "%s", unknown);
    else
        snprintf(text, cap, "%" PRId64, result->errors);
}

static void write_peer(FILE *json, const char *name, const bench_times_t *theirs, double ours,
                       const char *separator)
{
    fprintf(json, "%s\"%s\": {\"median_us\": %.3f, \"ratio\": %.4f}", separator, name,
            theirs->median * 1e6, ours / theirs->median);
}

static void write_json(bench_report_t *report, const bench_workload_t *workload,
                       const bench_result_t *result, double algbw)
{
    const bench_options_t *options = report->options;
    char errors[24];
    describe_errors(result, "null", errors, sizeof errors);
    fprintf(report->json,
            "%s\n{\"op\": \"%s\", \"reduction\": \"%s\", \"dtype\": \"%s\", \"bytes\": %" PRId64
            ", \"tensors\": %d, \"model\": \"%s\", \"buffers\": \"%s\", \"in_place\": %s, "
            "\"ranks\": %d, \"median_us\": %.3f, \"min_us\": %.3f, \"algbw_gbps\": %.4f, "
            "\"busbw_gbps\": %.4f, \"codec\": \"%s\", \"wire_bytes\": %" PRId64
            ", \"errors\": %s, \"vs\": {",
            report->rows ? "," : "", kind_name(options), dtrain_op_name(options->op),
            dtrain_dtype_name(options->dtype), workload->bytes, workload->num_tensors,
            options->model ? options->model : "", options->library_buffers ? "library" : "private",
            options->in_place ? "true" : "false", dtrain_size(), result->ours.median * 1e6,
            result->ours.least * 1e6, algbw, algbw * bus_factor(options),
            options->codec ? options->codec->name : "", workload->coded_bytes, errors);
    if (options->vs_mpi)
        write_peer(report->json, "mpi", &result->mpi, result->ours.median, "");
    if (options->vs_memcpy)
        write_peer(report->json, "memcpy", &result->memcpy, result->ours.median,
                   options->vs_mpi ? ", " : "");
    fputs("}}", report->json);
}

void bench_report_row(bench_report_t *report, const bench_workload_t *workload,
                      const bench_result_t *result)
{
    const bench_options_t *options = report->options;
    double algbw = (double)workload->bytes / result->ours.median / 1e9;
    int64_t count = workload->bytes / (int64_t)dtrain_dtype_size(options->dtype);
    char errors[24];
    describe_errors(result, "-", errors, sizeof errors);
    printf("%12" PRId64 " %8d %12" PRId64 " %9s %8s %12.2f %12.2f %9.3f %9.3f %7s", workload->bytes,
           workload->num_tensors, count, dtrain_dtype_name(options->dtype),
           bench_traits(options->kind)->reduces ? dtrain_op_name(options->op) : "-",
           result->ours.median * 1e6, result->ours.least * 1e6, algbw, algbw * bus_factor(options),
           errors);
    if (options->codec)
        printf(" %12s %12" PRId64 " %5.1f%%", options->codec->name, workload->coded_bytes,
               100 * (1 - (double)workload->coded_bytes / (double)workload->bytes));
    if (options->vs_mpi)
        printf(" %12.2f %7.3f", result->mpi.median * 1e6, result->ours.median / result->mpi.median);
    if (options->vs_memcpy)
        printf(" %12.2f %9.3f", result->memcpy.median * 1e6,
               result->ours.median / result->memcpy.median);
    printf("\n");
    fflush(stdout);
    if (report->json)
        write_json(report, workload, result, algbw);
    report->rows++;
}

int bench_report_close(bench_report_t *report)
{
    if (!report->json)
        return 0;
    fputs("\n]\n", report->json);
    if (ferror(report->json) | fclose(report->json)) {
        fprintf(stderr, "dtrain-bench: writing %s failed\n", report->options->json);
        return -1;
    }
    return 0;
}
