/*
 * grad_norm.h - the global norm of a set's reduced gradients. Each rank sums the squares of its
 * share of each run, a sum a block, and one short allreduce brings the blocks' sums together; their
 * tree (norm.h) then has the same bits on all ranks, for any plan, sharded or not.
 */
#ifndef DT_TRAIN_GRAD_NORM_H
#define DT_TRAIN_GRAD_NORM_H

#include "train/gradset.h"

/*
 * After a step's wait. `sums` is scratch for layout.num_blocks numbers. *norm is the root of the
 * sum of squares, of the gradients as they are; *finite is 0 when one of them is infinite or not a
 * number on any rank, and *norm then is of no use. Collective.
 */
dtrain_status_t dt_grad_norm(dtrain_gradset_t *set, double *sums, double *norm, int *finite);

#endif
