#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

double report_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void timing_add(timing_t *sum, const timing_t *part)
{
    sum->steps += part->steps;
    sum->samples += part->samples;
    sum->total += part->total;
    sum->comm += part->comm;
    sum->exposed += part->exposed;
}

static double step_ms(const timing_t *timing, double seconds)
{
    return 1e3 * seconds / (double)timing->steps;
}

static int on_terminal(void)
{
    return isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
}

void report_progress(int64_t epoch, int64_t step, int64_t steps_per_epoch)
{
    static double shown;
    double now = report_clock();
    if (now - shown < 0.1 || !on_terminal())
        return;
    shown = now;
    fprintf(stderr, "\repoch %" PRId64 "  step %" PRId64 "/%" PRId64 "\033[K", epoch, step,
            steps_per_epoch);
}

void report_epoch(FILE *out, int64_t epoch, int64_t epochs, double loss, double accuracy,
                  const timing_t *timing)
{
    if (on_terminal())
        fprintf(stderr, "\r\033[K");
    fprintf(out,
            "epoch %2" PRId64 "/%" PRId64 "  loss %.4f  test accuracy %.4f  %.0f samples/s  "
            "step %.2f ms  comm %.2f ms  exposed comm %.2f ms\n",
            epoch, epochs, loss, accuracy, (double)timing->samples / timing->total,
            step_ms(timing, timing->total), step_ms(timing, timing->comm),
            step_ms(timing, timing->exposed));
    fflush(out);
}

double report_overlap(const timing_t *timing)
{
    return timing->comm > 0 ? 1 - timing->exposed / timing->comm : 0;
}

double report_bus_rate(const result_t *result)
{
    const timing_t *timing = &result->timing;
    double passes = 2.0 * (result->ranks - 1) / result->ranks;
    double bytes = (double)result->gradient_bytes * (double)timing->steps * passes;
    return timing->comm > 0 ? 1e-9 * bytes / timing->comm : 0;
}

static void print_number(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, ",\"%s\":%.6g", name, value);
    else
        fprintf(out, ",\"%s\":null", name);
}

void report_result(FILE *out, const result_t *result)
{
    const timing_t *timing = &result->timing;
    fprintf(out, "RESULT {\"ranks\":%d,\"epochs\":%" PRId64, result->ranks, result->epochs);
    print_number(out, "test_accuracy", result->test_accuracy);
    print_number(out, "train_loss", result->train_loss);
    print_number(out, "samples_per_s", (double)timing->samples / timing->total);
    print_number(out, "step_ms", step_ms(timing, timing->total));
    print_number(out, "comm_ms", step_ms(timing, timing->comm));
    print_number(out, "exposed_comm_ms", step_ms(timing, timing->exposed));
    print_number(out, "overlap", report_overlap(timing));
    print_number(out, "bus_gb_per_s", report_bus_rate(result));
    fprintf(out, ",\"buckets\":%d,\"gradient_bytes\":%" PRId64, result->buckets,
            result->gradient_bytes);
    fprintf(out, ",\"param_checksum\":\"%016" PRIx64 "\"}\n", result->param_checksum);
    fflush(out);
}
