/* gpu_options.h - what the trainer on GPUs can be asked for beside options.h, and what it tells of
 * the GPU's rate. */
#ifndef MLP_GPU_OPTIONS_H
#define MLP_GPU_OPTIONS_H

#include "error.h"
#include "gpu_model.h"
#include "options.h"
#include "report.h"

typedef struct gpu_options {
    gpu_precision_t precision;
    int graph, tunes;
    double peak; /* TFLOP/s of the GPU; 0: what is known of its kind */
} gpu_options_t;

/* Takes its own out of the command line, and gives the rest to options_parse. */
int gpu_options_parse(int argc, char **argv, options_t *options, gpu_options_t *gpu,
                      mlp_error_t *error);
void gpu_options_print_help(const char *program);

/* Which products have the rest of a layer's work in their epilogue, for the first batch's size. */
void gpu_print_products(const gpu_model_t *model);

/* TFLOP/s and its share of the peak, of each GPU. */
void gpu_print_rate(const options_t *options, const gpu_options_t *gpu, int ranks,
                    const timing_t *timing);

#endif
