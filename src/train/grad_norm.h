/*
 * grad_norm.h - the global norm of a set's reduced gradients. Each rank sums the squares of its
 * share of each run, a sum a block, and one short allreduce brings the blocks' sums together; their
 * tree (norm.h) then has the same bits on all ranks, for any plan, sharded or not.
 */
#ifndef DT_TRAIN_GRAD_NORM_H
#define DT_TRAIN_GRAD_NORM_H

#include "train/gradset.h"

/* Room for the blocks' sums, once; before the first norm. */
dtrain_status_t dt_grad_norm_prepare(dtrain_gradset_t *set);

/*
 * After a step's wait. *norm is the root of the
 * sum of squares, of the gradients as they are; *finite is 0 when one of them is infinite or not a
 * number on any rank, and *norm then is of no use. Collective.
 */
dtrain_status_t dt_grad_norm(dtrain_gradset_t *set, double *norm, int *finite);

/* What gradients of a norm are multiplied with; max_norm 0: any is right. */
double dt_clip_factor(double norm, double max_norm);

/*
 * Between a step's wait and the next mark: makes the gradients of all ranks smaller by the same
 * factor if their norm is above max_norm (infinite: never), also where they lie in the caller's
 * memory. *norm is that from before; not finite when a gradient is not, and then nothing is
 * changed. Collective.
 */
dtrain_status_t dt_grad_clip(dtrain_gradset_t *set, double max_norm, double *norm);

#endif
