/*
 * course.h - the course of a training, which is the same whatever computes: data, batches, epochs.
 * A trainer's own part stands behind four functions.
 */
#ifndef MLP_COURSE_H
#define MLP_COURSE_H

#include <dtrain/dtrain.h>

#include "dataset.h"
#include "error.h"
#include "options.h"
#include "report.h"

typedef struct course {
    options_t options;
    int rank, ranks;
    dataset_t data;
    dtrain_sampler_t *train; /* the training set, in another order each epoch */
    dtrain_sampler_t *test;  /* the test set, in its own */
    int64_t batches;         /* of an epoch */
    int64_t steps_total;
    int64_t steps_done;   /* the course counts them */
    int64_t warmup_steps; /* the first ones, whose time is not counted: what is made in them is not
                             made again */
} course_t;

/* An MLP's parameters: of each layer the weight and the bias. Points into itself: not to be copied.
 */
typedef struct course_params {
    int count;
    dtrain_param_t params[2 * OPTIONS_LAYERS_MAX];
    char names[2 * OPTIONS_LAYERS_MAX][32];
    int64_t shapes[OPTIONS_LAYERS_MAX][2];
} course_params_t;

/* All return 0, or -1 with a text. */
typedef struct course_ops {
    /* Trains on the next batch. Adds the step's samples, and what is known of its communication. */
    int (*step)(void *trainer, timing_t *timing, mlp_error_t *error);
    /* After an epoch's last step, and the last one of the warm-up: all is computed; this rank's
     * part of the loss since the last call. */
    int (*finish)(void *trainer, double *loss, timing_t *timing, mlp_error_t *error);
    /* Of this rank's part of the test set: how many are recognised. */
    int (*count)(void *trainer, int64_t *correct, mlp_error_t *error);
    /* Of all parameters; CHECKSUM_START begins it. */
    int (*checksum)(void *trainer, uint64_t *checksum, mlp_error_t *error);
} course_ops_t;

/* The parameters of a model with the layers of `options`, for a gradient set. */
void course_list_params(const options_t *options, dtrain_dtype_t dtype, course_params_t *list);

/*
 * What a rank does alone: loads the data of course->options, and makes the samplers. *rows: samples
 * that the rank gets at most at once, of a batch or, of the test set, `evaluation_rows`.
 */
int course_load(course_t *course, int evaluation_rows, int *rows, mlp_error_t *error);
void course_unload(course_t *course); /* nothing for zeros */

/* Tells the user what is to be trained, and on what. */
void course_print_plan(const course_t *course, int64_t parameters);

/* Half a cosine, from the peak to 0. */
double course_learning_rate(const course_t *course);

/* Trains, and tells the user on rank 0. Collective. *result is complete, but not printed. */
int course_run(course_t *course, const course_ops_t *ops, void *trainer, result_t *result,
               mlp_error_t *error);

/* What of the gradients goes around in a step. */
int course_add_traffic(dtrain_gradset_t *gradients, result_t *result, mlp_error_t *error);

#endif
