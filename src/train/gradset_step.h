/* gradset_step.h - a gradient set's plan in use: inside train/gradset*.c alone. */
#ifndef DT_TRAIN_GRADSET_STEP_H
#define DT_TRAIN_GRADSET_STEP_H

#include "train/gradset.h"

/* Makes the plan for an order of readiness in place of the one there is, which stays on error; sets
 * everything up for the next step. OUT_OF_MEMORY. */
dtrain_status_t dt_gradset_make_plan(dtrain_gradset_t *set, const int32_t *order);
void dt_gradset_drop_plan(dtrain_gradset_t *set);

/* Everything as it is before the first mark of a step. */
void dt_gradset_reset(dtrain_gradset_t *set);

/* All take the plan of the first rank's order. Collective. */
dtrain_status_t dt_gradset_freeze(dtrain_gradset_t *set);

/* An errand, with the baton: all gradients of the run are there. */
void dt_gradset_submit_run(dt_errand_t *errand);

#endif
