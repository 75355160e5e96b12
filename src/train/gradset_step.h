/* gradset_step.h - a gradient set's plan in use: inside train/gradset*.c alone. */
#ifndef DT_TRAIN_GRADSET_STEP_H
#define DT_TRAIN_GRADSET_STEP_H

#include "train/gradset.h"

/* Makes the plan for an order of readiness in place of the one there is, which stays on error; sets
 * everything up for the next step. OUT_OF_MEMORY. */
dtrain_status_t dt_gradset_make_plan(dtrain_gradset_t *set, const int32_t *order);
/* `has_world` as in dt_gradset_destroy. */
void dt_gradset_drop_plan(dtrain_gradset_t *set, int has_world);

/* Everything as it is before the first mark of a step. */
void dt_gradset_reset(dtrain_gradset_t *set);

/* All take the plan of the first rank's order. Collective. */
dtrain_status_t dt_gradset_freeze(dtrain_gradset_t *set);

/* An errand, with the baton: all gradients of the run are there. */
void dt_gradset_run_is_complete(dt_errand_t *errand);

/* A gradient is complete: so may be runs, which then are on their way. */
void dt_gradset_complete(dtrain_gradset_t *set, int index);

/* Waits for all runs, after the flush. The first error. */
dtrain_status_t dt_gradset_await_runs(dtrain_gradset_t *set);

/* With the baton: what the step's runs are submitted with. */
dt_stamp_t dt_gradset_stamp(dtrain_gradset_t *set);

/* As the step is about to be ended: which kind of one it is. */
void dt_gradset_judge_step(dtrain_gradset_t *set);

/* The step is over. */
void dt_gradset_count_step(dtrain_gradset_t *set);

#endif
