/* report.h - what the user sees: a progress line on a terminal, a line an epoch, the result. */
#ifndef MLP_REPORT_H
#define MLP_REPORT_H

#include <stdint.h>
#include <stdio.h>

/* Times of some steps, added up, in seconds. */
typedef struct timing {
    int64_t steps;
    int64_t samples; /* over all ranks */
    double total;    /* whole steps */
    double comm;     /* first submission to end of the last reduction */
    double exposed;  /* the part of comm spent in waiting */
} timing_t;

typedef struct result {
    int ranks;
    int64_t epochs; /* that were begun */
    double test_accuracy;
    double train_loss; /* mean of the last epoch */
    timing_t timing;
    int buckets;            /* that gradients travel in */
    int64_t gradient_bytes; /* of a step */
    uint64_t param_checksum;
} result_t;

/* Seconds of a monotonic clock. */
double report_clock(void);

void timing_add(timing_t *sum, const timing_t *part);

/*
 * Shows how far an epoch is, on one line that the next one overwrites: only when both stdout and
 * stderr are terminals (under Open MPI's launcher stdout always looks like one), ten times a
 * second at most. report_epoch clears it.
 */
void report_progress(int64_t epoch, int64_t step, int64_t steps_per_epoch);

void report_epoch(FILE *out, int64_t epoch, int64_t epochs, double loss, double accuracy,
                  const timing_t *timing);

/* The part of communication, 0 to 1, that went on while something was computed. */
double report_overlap(const timing_t *timing);

/* What an algorithm that moves each byte no more often than it must has moved through each rank's
 * link, in GB/s: as nccl-tests has it. */
double report_bus_rate(const result_t *result);

/* RESULT and one JSON object on a line. What is not a finite number is written as null. */
void report_result(FILE *out, const result_t *result);

#endif
