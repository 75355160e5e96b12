/*
 * optimizer_device.h - an optimizer of a gradient set on a GPU: parameters and state lie there,
 * updates are kernels in the stream that the step names, and what a step has begun is seen to its
 * end by the next one, or by whoever needs the values. Nothing of this is for host memory.
 */
#ifndef DT_TRAIN_OPTIMIZER_DEVICE_H
#define DT_TRAIN_OPTIMIZER_DEVICE_H

#include "train/optimizer.h"

/* Copies between host memory and the GPU's, behind what is in the set's stream, and waits. */
dtrain_status_t dt_optimizer_transfer(const dtrain_optimizer_t *optimizer, void *to,
                                      const void *from, size_t bytes);

/* Copies within the GPU, in the set's stream. */
dtrain_status_t dt_optimizer_copy(const dtrain_optimizer_t *optimizer, void *to, const void *from,
                                  size_t bytes);

/* Gives back the handles of the last step's gathers, which the host waits for. The first error. */
dtrain_status_t dt_optimizer_settle(dtrain_optimizer_t *optimizer);

/* Gives back the handle of a gather that is over. */
void dt_optimizer_drop_gather(dtrain_optimizer_t *optimizer, dt_optimizer_part_t *part);

/* Remembers where in the set's stream a step ends. */
dtrain_status_t dt_optimizer_mark_end(dtrain_optimizer_t *optimizer);

/* Waits until all that steps have begun is done; from then on the set's stream is the default one.
 * Nothing, and OK, in host memory. */
dtrain_status_t dt_optimizer_quiesce(dtrain_optimizer_t *optimizer);

/* Before the optimizer is freed, while there is a world. */
void dt_optimizer_drop_trail(dtrain_optimizer_t *optimizer);

#endif
