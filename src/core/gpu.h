/*
 * gpu.h - this rank's GPU, opened when the program first has something for one: until then nothing
 * of CUDA is loaded. Any thread.
 */
#ifndef DT_CORE_GPU_H
#define DT_CORE_GPU_H

#include <pthread.h>

#include "base/config.h"
#include "comm/device.h"
#include "comm/topology.h"
#include "core/operation.h"

typedef struct dt_gpu {
    const dt_config_t *config;     /* [const] */
    const dt_topology_t *topology; /* [const] */
    pthread_mutex_t lock;
    dt_device_t *_Atomic device;  /* [atomic] written once, with the lock */
    dt_output_t *_Atomic retired; /* [atomic] a stack: given back, and not freed yet */
} dt_gpu_t;

void dt_gpu_init(dt_gpu_t *gpu, const dt_config_t *config, const dt_topology_t *topology);

/* After all marks, backends and memory of it. */
void dt_gpu_close(dt_gpu_t *gpu);

/* Opens it unless it is open. `hint`: memory of the program's, or NULL. UNSUPPORTED with a text. */
dtrain_status_t dt_gpu_open(dt_gpu_t *gpu, const void *hint, dt_device_t **device);

/*
 * An output that nobody uses any more but, perhaps, what the program has put into streams: its
 * memory is freed by the next dt_gpu_sweep, which waits for the device, or by dt_gpu_close. A
 * thread with the baton must not wait so: kernels of the device may wait for other ranks, and these
 * for this one.
 */
void dt_gpu_retire(dt_gpu_t *gpu, dt_output_t *output);
void dt_gpu_sweep(dt_gpu_t *gpu);

/* NULL: it is not open. */
dt_device_t *dt_gpu_peek(dt_gpu_t *gpu);

/* Whether it is memory of a GPU, of a call that does not say; 0 where none is open. */
int dt_gpu_has(dt_gpu_t *gpu, const void *memory);

/* Of a call: its buffers are this GPU's, in memory of what kind is for the signature (`claim`: see
 * dt_submission_t), and what is before `ready` comes before it; NULL: what is in its stream by now.
 */
dtrain_status_t dt_gpu_take(dt_gpu_t *gpu, const dtrain_tensor_t *tensor, dt_mark_t *ready,
                            dt_memory_t claim, dt_operation_t *operation);

/* Host memory, the caller's to dt_free, with the bytes that are in the GPU's memory when all that
 * is in the stream now is done: blocks until then. INVALID_ARGUMENT for memory that is not the
 * GPU's.
 */
dtrain_status_t dt_gpu_fetch(dt_gpu_t *gpu, void *stream, const void *from, size_t bytes,
                             void **copy);

/*
 * Lets a stream wait for an operation all of which is in a stream of ours; IN_PROGRESS when it is
 * not, or not yet.
 */
dtrain_status_t dt_gpu_stream_wait(dt_gpu_t *gpu, dt_operation_t *operation, void *stream);

#endif
