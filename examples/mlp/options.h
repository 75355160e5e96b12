/* options.h - what the user asks the trainer for. */
#ifndef MLP_OPTIONS_H
#define MLP_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "error.h"

#define OPTIONS_LAYERS_MAX 32

typedef struct options {
    int layers[OPTIONS_LAYERS_MAX]; /* units of each layer, the input first */
    int layer_count;
    int64_t batch;          /* samples of a step over all ranks; 0: batch_per_rank is set */
    int64_t batch_per_rank; /* samples of a step on one rank; 0: batch is set */
    int64_t epochs;
    int64_t steps; /* stop after as many steps in all; 0: when the epochs are done */
    int64_t seed;
    double learning_rate;
    double momentum;
    const char *data; /* a folder; points into argv or to a constant */
    int synthetic;
    int64_t samples;   /* of synthetic data, to train on */
    int sharded;       /* each rank updates its share of the parameters */
    const char *codec; /* by which gradients travel; NULL: none */
    int help;
} options_t;

/* Fills `out` from the command line. -1 with a text that names the option and its value. */
int options_parse(int argc, char **argv, options_t *out, mlp_error_t *error);

void options_print_help(FILE *out, const char *program);

/* Samples of a step over all of `ranks`. */
int64_t options_global_batch(const options_t *options, int ranks);

/* -1 unless the first layer takes `features` inputs and the last gives `classes` outputs. */
int options_check_layers(const options_t *options, int features, int classes, mlp_error_t *error);

/* A number that differs when ranks were given options under which they cannot train together. */
uint64_t options_fingerprint(const options_t *options);

#endif
