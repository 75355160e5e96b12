/*
 * standin.h - inside the stand-ins for CUDA's runtime, NCCL and cuBLAS, which tests put in the
 * place of the real ones by LD_LIBRARY_PATH. There is no GPU in them: a device is memory that the
 * host may not touch, a stream is a thread that does one thing after the other, an event is a
 * count. What they show is that calls come in a right order, that nothing is used before it is
 * there or after it is gone, and what becomes of failures. They say nothing about speed, nor about
 * real hardware.
 *
 * The environment, read once:
 *   STANDIN_DEVICES   devices of a process (1)
 *   STANDIN_DELAY_US  before each operation of a stream a random time up to this passes (0)
 *   STANDIN_FAULT     rules "operation:rank:nth:kind", separated by commas; see fault.c
 *   STANDIN_MISMATCH  "hang": a mismatch between ranks is not reported, as in NCCL ("error")
 *   STANDIN_NO_EPILOGUE  epilogues of cuBLASLt that there is no algorithm with; see cublaslt.c
 *   STANDIN_POLLS     so often ncclInProgress is told before a communicator is ready (2)
 *   STANDIN_SAME_UUID 1: all processes' devices are one and the same
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#define STANDIN_API __attribute__((visibility("default")))

/* ---- Settings and faults: fault.c ---------------------------------------------------------- */

typedef enum standin_fault {
    STANDIN_NONE = 0,
    STANDIN_ERROR = 1,
    STANDIN_HANG = 2, /* of an operation of a stream: it never ends */
    STANDIN_OOM = 3,
    STANDIN_ASYNC = 4, /* NCCL: the error comes later, and the operation does not end */
    STANDIN_BLOCK = 5  /* NCCL: the call does not return until the communicator is revoked */
} standin_fault_t;

/* An operation by its name, such as "cudaMalloc": counts it, and says what is to go wrong with it.
 * A delay or a kill happens here. */
STANDIN_API standin_fault_t standin_fault(const char *operation);

/* A number of the environment. */
STANDIN_API long standin_setting(const char *name, long otherwise);

/* This process's number among those that the launcher started. */
STANDIN_API int standin_rank(void);

/* ---- Devices: devices.c --------------------------------------------------------------------- */

/* The calling thread's device. */
int standin_current(void);
/* Makes the context of a device; whether there is one. */
void standin_touch(int device);
STANDIN_API int standin_has_context(int device);

/* ---- Device memory: memory.c ---------------------------------------------------------------- */

/* Where the host's side of the stand-in finds what a pointer names: device memory lies elsewhere
 * for it, any other pointer is returned as it is. */
STANDIN_API void *standin_reach(const void *pointer);
STANDIN_API int standin_is_device(const void *pointer);
int standin_is_pinned(const void *pointer);
/* Whose memory it is; 0 for any other. */
int standin_memory_device(const void *pointer);
/* Device memory, or NULL. Filled with a pattern that is no number. `alignment`: a power of two, up
 * to a page. */
STANDIN_API void *standin_allocate(size_t bytes, size_t alignment);
/* 0, or -1 for what is not the start of an allocation. */
STANDIN_API int standin_free(void *pointer);
/* The allocation that `pointer` is in: its bytes from there on; 0: none. */
STANDIN_API size_t standin_room(const void *pointer);
int standin_pin(void *pointer, size_t bytes);
int standin_unpin(void *pointer);

/* ---- Streams: stream.c ---------------------------------------------------------------------- */

typedef void (*standin_work_fn_t)(void *argument);

/* Lets the stream's thread call `work`, after all that is in the stream. Takes a copy of `bytes` of
 * the argument. */
STANDIN_API void standin_enqueue(cudaStream_t stream, standin_work_fn_t work, const void *argument,
                                 size_t bytes);
/* Waits until all that is in the stream now is done; NULL: in all streams. */
void standin_drain(cudaStream_t stream);
void standin_drain_all(void);
/* The device of a stream: of the default one the thread's. */
int standin_stream_device(cudaStream_t stream);

/* ---- Capture: capture.c --------------------------------------------------------------------- */

/* 1: the stream is being captured, and this is now part of its graph. */
int standin_capture_takes(cudaStream_t stream, standin_work_fn_t work, const void *argument,
                          size_t bytes);
/* 1: the stream is being captured. What was asked for cannot be: the capture is of no use now. */
int standin_capture_refuses(cudaStream_t stream);
int standin_is_captured(cudaStream_t stream);
/* An error for what may not be called while a stream is captured, which then is of no use. */
cudaError_t standin_capture_check(const char *operation);

/* ---- Errors: runtime.c ---------------------------------------------------------------------- */

/* The thread's last error; sticky ones stay. Returns `error`. */
cudaError_t standin_note(cudaError_t error);
/* What a call that needs a context begins with: its fault as an error, or the sticky error. */
STANDIN_API cudaError_t standin_begin(const char *operation);

#endif
