/* runtime.c - the rest of CUDA's runtime: errors, memory, copies, calls of the host's. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

/* ---- Errors --------------------------------------------------------------------------------- */

static _Thread_local cudaError_t last_error;
static _Atomic cudaError_t sticky; /* of the device: every call fails from then on */

cudaError_t standin_note(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

cudaError_t standin_begin(const char *operation)
{
    standin_fault_t fault = standin_fault(operation);
    standin_touch(standin_current());
    if (fault == STANDIN_ERROR)
        sticky = cudaErrorIllegalAddress;
    if (fault == STANDIN_OOM)
        return standin_note(cudaErrorMemoryAllocation);
    if (sticky != cudaSuccess)
        return standin_note(sticky);
    return standin_note(standin_capture_check(operation));
}

STANDIN_API cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = sticky;
    return error;
}

STANDIN_API cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

STANDIN_API const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
        return "cudaErrorStreamCaptureInvalidated";
    default:
        return "cudaErrorUnknown";
    }
}

STANDIN_API const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                            : cudaGetErrorName(error);
}

/* ---- Memory --------------------------------------------------------------------------------- */

STANDIN_API cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    cudaError_t error = standin_begin("cudaMalloc");
    if (error != cudaSuccess)
        return error;
    *pointer = standin_allocate(bytes, 512);
    return standin_note(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Waits for the whole device, as the real one does. */
STANDIN_API cudaError_t cudaFree(void *pointer)
{
    cudaError_t error = standin_begin("cudaFree");
    if (!pointer || error != cudaSuccess)
        return error;
    standin_drain_all();
    return standin_note(standin_free(pointer) ? cudaErrorInvalidValue : cudaSuccess);
}

STANDIN_API cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = *total = (size_t)4 << 30;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    cudaError_t error = standin_begin("cudaHostAlloc");
    (void)flags;
    if (error != cudaSuccess)
        return error;
    void *made = NULL;
    if (posix_memalign(&made, 4096, bytes + 1) != 0 || standin_pin(made, bytes) != 0)
        return standin_note(cudaErrorMemoryAllocation);
    *pointer = made;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaFreeHost(void *pointer)
{
    if (standin_capture_check("cudaFreeHost") != cudaSuccess)
        return standin_note(cudaErrorStreamCaptureUnsupported);
    standin_drain_all();
    if (pointer && standin_unpin(pointer) != 0)
        return standin_note(cudaErrorInvalidValue);
    free(pointer);
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    cudaError_t error = standin_begin("cudaHostRegister");
    (void)flags;
    if (error != cudaSuccess)
        return error;
    return standin_note(standin_pin(pointer, bytes) ? cudaErrorHostMemoryAlreadyRegistered
                                                    : cudaSuccess);
}

STANDIN_API cudaError_t cudaHostUnregister(void *pointer)
{
    standin_drain_all();
    return standin_note(standin_unpin(pointer) ? cudaErrorHostMemoryNotRegistered : cudaSuccess);
}

STANDIN_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                                 const void *pointer)
{
    memset(attributes, 0, sizeof *attributes);
    attributes->type = standin_is_device(pointer)   ? cudaMemoryTypeDevice
                       : standin_is_pinned(pointer) ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeUnregistered;
    attributes->device = standin_memory_device(pointer);
    attributes->devicePointer = (void *)pointer;
    return cudaSuccess;
}

/* ---- Copies --------------------------------------------------------------------------------- */

typedef struct copy {
    void *to;
    const void *from; /* NULL: `value` is set */
    size_t bytes;
    int value, hangs;
} copy_t;

static void run_copy(void *argument)
{
    copy_t *copy = argument;
    while (copy->hangs)
        pause();
    if (copy->from)
        memcpy(standin_reach(copy->to), standin_reach(copy->from), copy->bytes);
    else
        memset(standin_reach(copy->to), copy->value, copy->bytes);
}

static int is_out_of_bounds(const void *pointer, size_t bytes)
{
    return standin_is_device(pointer) && standin_room(pointer) < bytes;
}

/* A copy with ordinary host memory waits for itself, as the real one may. */
static cudaError_t enqueue_copy(const char *name, copy_t copy, cudaStream_t stream)
{
    standin_fault_t fault = standin_fault(name);
    if (fault == STANDIN_ERROR || (copy.bytes > 0 && (is_out_of_bounds(copy.to, copy.bytes) ||
                                                      is_out_of_bounds(copy.from, copy.bytes))))
        sticky = cudaErrorIllegalAddress;
    if (sticky != cudaSuccess)
        return standin_note(sticky);
    copy.hangs = fault == STANDIN_HANG;
    int is_free = (standin_is_device(copy.to) || standin_is_pinned(copy.to)) &&
                  (!copy.from || standin_is_device(copy.from) || standin_is_pinned(copy.from));
    if (!is_free && standin_capture_refuses(stream))
        return standin_note(cudaErrorStreamCaptureUnsupported);
    standin_enqueue(stream, run_copy, &copy, sizeof copy);
    if (!is_free)
        standin_drain(stream);
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                        enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    return enqueue_copy("cudaMemcpyAsync", (copy_t){.to = to, .from = from, .bytes = bytes},
                        stream);
}

STANDIN_API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind)
{
    (void)kind;
    cudaError_t error = standin_note(standin_capture_check("cudaMemcpy"));
    if (error == cudaSuccess)
        error = enqueue_copy("cudaMemcpy", (copy_t){.to = to, .from = from, .bytes = bytes}, NULL);
    if (error == cudaSuccess)
        standin_drain(NULL);
    return error;
}

STANDIN_API cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return enqueue_copy("cudaMemsetAsync", (copy_t){.to = to, .value = value, .bytes = bytes},
                        stream);
}

STANDIN_API cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    cudaError_t error = standin_note(standin_capture_check("cudaMemset"));
    if (error == cudaSuccess)
        error = cudaMemsetAsync(to, value, bytes, NULL);
    if (error == cudaSuccess)
        standin_drain(NULL);
    return error;
}

typedef struct call {
    cudaHostFn_t run;
    void *user;
} call_t;

static void run_call(void *argument)
{
    call_t *call = argument;
    call->run(call->user);
}

STANDIN_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *user)
{
    call_t call = {.run = run, .user = user};
    standin_enqueue(stream, run_call, &call, sizeof call);
    return standin_begin("cudaLaunchHostFunc");
}
