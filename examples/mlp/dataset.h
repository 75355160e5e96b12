/* dataset.h - the samples to learn from and to be tested on. */
#ifndef MLP_DATASET_H
#define MLP_DATASET_H

#include <stdint.h>

#include "error.h"

/* Mean and standard deviation of Fashion-MNIST's training pixels, which lie between 0 and 1. */
#define PIXEL_MEAN 0.2860f
#define PIXEL_DEVIATION 0.3530f

typedef struct samples {
    int64_t count; /* 1 to INT32_MAX */
    int features;  /* bytes of one sample */
    uint8_t *pixels;
    uint8_t *labels; /* each below the data set's number of classes */
} samples_t;

typedef struct dataset {
    samples_t train;
    samples_t test;
    int features;
    int classes;
} dataset_t;

/* Reads the four IDX files of MNIST's names, plain or .gz, from `folder`: ten classes. */
int dataset_load(const char *folder, dataset_t *out, mlp_error_t *error);

/* Makes a set that can be learnt, of `count` samples to train on; the same seed gives the same
 * bytes on every machine. */
int dataset_synthesize(int64_t count, int features, int classes, uint64_t seed, dataset_t *out,
                       mlp_error_t *error);

/* Nothing for a dataset_t of zeros. */
void dataset_free(dataset_t *dataset);

/* Copies `count` samples, normalised to about mean 0 and variance 1, row after row. */
void samples_gather(const samples_t *samples, const int64_t *indices, int count, float *inputs,
                    uint8_t *labels);

/* A number that differs when two ranks hold different data. */
uint64_t dataset_fingerprint(const dataset_t *dataset);

#endif
