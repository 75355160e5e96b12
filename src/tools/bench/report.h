/* report.h - results as a table on stdout and as JSON in a file; rank 0 alone writes. */
#ifndef DT_BENCH_REPORT_H
#define DT_BENCH_REPORT_H

#include <stdio.h>

#include "tools/bench/contest.h"

typedef struct bench_report {
    const bench_options_t *options;
    FILE *json; /* or NULL */
    int rows;
} bench_report_t;

/* 0, or -1 with a text on stderr: the JSON file cannot be written. */
int bench_report_open(bench_report_t *report, const bench_options_t *options);
void bench_report_row(bench_report_t *report, const bench_workload_t *workload,
                      const bench_result_t *result);
int bench_report_close(bench_report_t *report);

#endif
