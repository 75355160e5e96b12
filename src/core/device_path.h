/*
 * device_path.h - how a process set's tensors on GPUs travel: over a backend of the devices' own
 * (NCCL), or staged through the host's memory.
 *
 * Which of the two is agreed on when the first such tensor is due, in a few collectives of the
 * host's: all ranks tell their devices, and find alike that these can be connected, that they must
 * not (one GPU for two ranks, two versions of NCCL), or that NCCL is missing. A set's members do so
 * by themselves, so a set that has no tensor on a GPU costs nothing; but what was found for the
 * world, and connected, before a set is added holds for the set.
 */
#ifndef DT_CORE_DEVICE_PATH_H
#define DT_CORE_DEVICE_PATH_H

#include "core/collective.h"
#include "core/gpu.h"
#include "core/staged.h"

typedef struct dt_device_path dt_device_path_t;
typedef struct dt_device_split dt_device_split_t;

/* `ranks_of`: the members' ranks in the world; `split`: a backend that comes out of the world's
 * (device_split.h), or NULL. Both are borrowed, like the others. NULL: out of memory. */
dt_device_path_t *dt_device_path_create(dt_gpu_t *gpu, dt_ranks_t ranks, const int *ranks_of,
                                        dt_device_split_t *split);

/* Destroys the devices' backend; `clean` as in backend.h. */
void dt_device_path_leave(dt_device_path_t *path, int clean);
void dt_device_path_free(dt_device_path_t *path);

/* The collectives by which it is agreed on; NULL: out of memory. */
dt_staged_t *dt_device_path_agree(dt_device_path_t *path);

/* Once it is agreed on: OK, or why there can be no tensors on GPUs, the same on all ranks. */
dtrain_status_t dt_device_path_fault(const dt_device_path_t *path, const char **text);

/* The devices' backend; NULL: tensors are staged. */
dt_backend_t *dt_device_path_backend(const dt_device_path_t *path);

/*
 * What carries a collective of device memory out on the host's backend. The collective, its pieces,
 * counts and marks are borrowed until it is freed. Copying in begins now. OUT_OF_MEMORY, or the
 * device's error.
 */
dtrain_status_t dt_device_path_stage(dt_device_path_t *path, const dt_collective_t *collective,
                                     dt_staged_t **staged);

/* What carries operations on device memory out on the host; see dt_through_host_create. */
dtrain_status_t dt_device_path_through_host(dt_device_path_t *path,
                                            dt_operation_t *const *operations, int n,
                                            dt_staged_t *inner, dt_staged_t **staged);

#endif
