/* nccl_device.h - this process's GPU: its streams, marks, memory and kernels. */
#ifndef DT_COMM_NCCL_DEVICE_H
#define DT_COMM_NCCL_DEVICE_H

#include <pthread.h>

#include "comm/device.h"
#include "comm/nccl/nccl_api.h"
#include "comm/nccl/nccl_ranges.h"
#include "cuda/kernels.h"

typedef struct dt_nccl_mark dt_nccl_mark_t;

typedef struct dt_nccl_device {
    dt_device_t base;
    const dt_cuda_api_t *cuda; /* [const] */
    const dt_nccl_api_t *nccl; /* [const] NULL: there is none */
    int number;                /* [const] */
    int num_processors;        /* [const] */
    int priority;              /* [const] of our streams: the highest */
    dt_device_card_t card;     /* [const] */
    cudaStream_t copies;       /* [const] */
    cudaStream_t clears;       /* [const] of new memory alone: waiting for it is short */
    int is_stuck;              /* [baton] a kernel may never end: nothing is freed any more */
    cudaLibrary_t library;     /* [const] */
    cudaKernel_t kernels[DT_KERNEL_COUNT]; /* [const] */

    pthread_mutex_t lock;
    dt_nccl_mark_t *spare;              /* [lock] marks that nobody uses */
    pthread_mutex_t registers_lock;     /* taken before any other */
    struct dt_nccl_register *registers; /* [registers_lock] communicators' (nccl_register.h) */
    dt_nccl_ranges_t blocks;            /* [lock] memory that is out (nccl_memory.h) */
} dt_nccl_device_t;

struct dt_nccl_mark {
    dt_mark_t base;
    dt_nccl_mark_t *next;
    dt_nccl_device_t *device;
    cudaEvent_t event;
    int64_t recorded_ns;
    _Atomic int64_t next_ns; /* not looked at before; DT_NEVER: it was reached */
};

/*
 * Every call of CUDA's stands between these two, in any thread. The thread's current device is the
 * application's: it is put back, but for one that the process does not use. And an application that
 * captures a stream forbids threads to query events, allocate and so on unless their mode is
 * relaxed. Visits may be within each other.
 */
typedef struct dt_nccl_visit {
    int before;
    int changed;
    enum cudaStreamCaptureMode mode;
} dt_nccl_visit_t;

dtrain_status_t dt_nccl_enter(dt_nccl_device_t *device, dt_nccl_visit_t *visit);
void dt_nccl_leave(dt_nccl_device_t *device, const dt_nccl_visit_t *visit);

/* Of a thread of our own: for its life. */
void dt_nccl_settle(const dt_cuda_api_t *cuda, int device);

/* Of an error of CUDA's, in what was called: its text and status. */
dtrain_status_t dt_nccl_cuda_error(const dt_nccl_device_t *device, cudaError_t error,
                                   const char *call);

/* Opens it; see DT_DEVICE_OPEN. */
dtrain_status_t dt_nccl_device_create(const dt_cuda_api_t *cuda, const dt_nccl_api_t *nccl,
                                      const void *hint, int local_rank, dt_nccl_device_t **out);

dtrain_status_t dt_nccl_stream_create(dt_nccl_device_t *device, cudaStream_t *stream);

/* As dt_device_ops_t's, with the device entered. */
dtrain_status_t dt_nccl_record(dt_nccl_device_t *device, cudaStream_t stream, dt_mark_t **out);
dtrain_status_t dt_nccl_wait_all(dt_nccl_device_t *device, cudaStream_t stream,
                                 dt_mark_t *const *marks, int n);
dtrain_status_t dt_nccl_reached(dt_nccl_device_t *device, dt_mark_t *base);

/* Whether copies of ours do not come to an end within a second, which is looked at before all is
 * given back: that would wait for them without end. With the device entered and the baton. */
int dt_nccl_is_stuck(dt_nccl_device_t *device);

/* Tensors into or out of memory of the device; several launches where they are many. */
typedef struct dt_nccl_move {
    void *buffer;
    int unpacks;
    dtrain_dtype_t dtype;        /* of the tensors */
    dtrain_dtype_t buffer_dtype; /* another integer; F16 or BF16 of F32; or the same */
    double divisor, scale;
} dt_nccl_move_t;

/* `pieces`: `in` is packed, `out` is written by an unpacking. */
dtrain_status_t dt_nccl_move(dt_nccl_device_t *device, cudaStream_t stream,
                             const dt_nccl_move_t *move, const dt_piece_t *pieces, int n);

/* Bytes of a buffer that holds them; -1: too many. */
int64_t dt_nccl_move_bytes(const dt_piece_t *pieces, int n, dtrain_dtype_t buffer_dtype);

#endif
