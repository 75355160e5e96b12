/*
 * device_split.h - a process set's backend of the devices, made out of the world's, when the world
 * has one by the time that the set is added. All ranks of the world take part, at that place in the
 * world's order, and adding is complete on a rank when it has done so. Where the world's tensors
 * have no such backend, or none yet, the set makes its own with its first tensor (device_path.h).
 */
#ifndef DT_CORE_DEVICE_SPLIT_H
#define DT_CORE_DEVICE_SPLIT_H

#include "core/device_path.h"

/* What comes of it. With the baton. */
struct dt_device_split {
    int is_asked;          /* the world does so */
    int is_decided;        /* it has, with one outcome on all ranks */
    dt_backend_t *backend; /* usable once it is decided; NULL: the set makes its own */
};

/*
 * What the world does for it, at the head of its queue: no collective of the host's. `ranks`: in
 * the set; rank -1 with `split` NULL for who is not in it. All is borrowed. NULL: out of memory.
 */
dt_staged_t *dt_device_split_create(dt_gpu_t *gpu, const dt_device_path_t *world, dt_ranks_t ranks,
                                    dt_device_split_t *split);

/* Destroys what the set has not taken. */
void dt_device_split_leave(dt_device_split_t *split, int clean);

#endif
