/*
 * grad_device.h - gradients in the memory of this rank's GPU.
 *
 * A run is ready when what its gradients' streams held at their marks is done: whoever completes it
 * puts a mark behind each of these streams, and the run's operation waits for them on the GPU. A
 * wait lets a stream wait for the operation in turn, so the host waits for neither. Gradients in
 * the caller's memory are copied by the GPU, to the set's before the operation and back in the
 * stream that waits.
 */
#ifndef DT_TRAIN_GRAD_DEVICE_H
#define DT_TRAIN_GRAD_DEVICE_H

#include "train/gradset.h"

/* What a run on a GPU has besides. */
typedef struct dt_grad_trail {
    /* Written by the mark that completes the run, taken with the baton. */
    dt_mark_t **marks; /* room for one a slice */
    int num_marks;
    dtrain_status_t status; /* of making them */
    char text[DT_ERROR_MAX];
    dt_copy_t *copies;      /* room for one a slice; to the set's memory, then back */
    dtrain_handle_t handle; /* of the last round's operation, until the next; 0: there was none */
    int is_given_back;      /* [waiter] the caller's memory has this round's result */
} dt_grad_trail_t;

/* Opens the GPU, and sees that the caller's memory is its. */
dtrain_status_t dt_grad_device_open(dtrain_gradset_t *set, const dtrain_param_t *params, int n);

/* Makes the set's memory a window for the devices' backend, where that has such: all ranks do, by a
 * reduction of its first value, 0. Blocks. Errors are all ranks'. */
dtrain_status_t dt_grad_device_make_window(dtrain_gradset_t *set);

/* For a run of so many slices. NULL: out of memory. */
dt_grad_trail_t *dt_grad_trail_create(int num_slices);
/* Gives the handle of its last round back. */
void dt_grad_trail_release(dt_grad_trail_t *trail, dt_runtime_t *runtime);
/* `has_world`: its handle is given back. NULL is nothing. */
void dt_grad_trail_free(dt_grad_trail_t *trail, dt_runtime_t *runtime, int has_world);

/* All gradients of the run are marked. */
void dt_grad_trail_mark(dt_grad_work_t *work);

/* With the baton: a mark behind all of that, held, when the caller's gradients are in the set's
 * memory. */
dtrain_status_t dt_grad_trail_gather(dt_grad_work_t *work, dt_mark_t **ready);

/* Lets the set's stream wait for this round of a run. The error of this round or, where it shows
 * late, of the one before. */
dtrain_status_t dt_grad_trail_follow(dt_grad_work_t *work);

/* The error of the round before, which a wait in a stream may have been too early for. */
dtrain_status_t dt_grad_trail_late(const dt_grad_work_t *work);

/* Puts copies back to the caller's memory into the set's stream. */
dtrain_status_t dt_grad_trail_give_back(dt_grad_work_t *work);

/* Zeros for a gradient that nobody brought, in the set's stream. */
void dt_grad_device_clear(dtrain_gradset_t *set, int index);

#endif
