/* runtime.c - the rest of CUDA's runtime: devices, memory, copies, kernels, errors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels_host.h"
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
    if (fault == STANDIN_ERROR)
        sticky = cudaErrorIllegalAddress;
    if (fault == STANDIN_OOM)
        return standin_note(cudaErrorMemoryAllocation);
    return standin_note(sticky);
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
    default:
        return "cudaErrorUnknown";
    }
}

STANDIN_API const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                            : cudaGetErrorName(error);
}

/* ---- Devices -------------------------------------------------------------------------------- */

static _Thread_local int current;

STANDIN_API cudaError_t cudaGetDeviceCount(int *count)
{
    if (standin_fault("cudaGetDeviceCount") != STANDIN_NONE)
        return standin_note(cudaErrorInsufficientDriver);
    *count = (int)standin_setting("STANDIN_DEVICES", 1);
    return *count > 0 ? cudaSuccess : standin_note(cudaErrorNoDevice);
}

STANDIN_API cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = standin_begin("cudaSetDevice");
    if (error != cudaSuccess)
        return error;
    if (device < 0 || device >= standin_setting("STANDIN_DEVICES", 1))
        return standin_note(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

/* Each process has devices of its own, unless they are said to be the same. */
STANDIN_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "Stand-in for a GPU");
    int owner = standin_setting("STANDIN_SAME_UUID", 0) ? 0 : standin_rank();
    properties->uuid.bytes[0] = (char)device;
    properties->uuid.bytes[1] = (char)owner;
    properties->uuid.bytes[2] = (char)0xd7;
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->totalGlobalMem = (size_t)4 << 30;
    return standin_begin("cudaGetDeviceProperties");
}

STANDIN_API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
                                               int device)
{
    (void)device;
    *value = attribute == cudaDevAttrMultiProcessorCount ? 4 : 0;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    snprintf(text, (size_t)length, "0000:%02x:00.0", device);
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = standin_begin("cudaDeviceSynchronize");
    if (error == cudaSuccess)
        standin_drain_all();
    return error;
}

STANDIN_API cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                              enum cudaStreamCaptureStatus *status)
{
    (void)stream;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    (void)mode;
    return cudaSuccess;
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
    standin_enqueue(stream, run_copy, &copy, sizeof copy);
    int is_free = (standin_is_device(copy.to) || standin_is_pinned(copy.to)) &&
                  (!copy.from || standin_is_device(copy.from) || standin_is_pinned(copy.from));
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
    cudaError_t error =
        enqueue_copy("cudaMemcpy", (copy_t){.to = to, .from = from, .bytes = bytes}, NULL);
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
    cudaError_t error = cudaMemsetAsync(to, value, bytes, NULL);
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

/* ---- Kernels: those of the library, as the host's compiler sees them ------------------------ */

typedef struct launch {
    dt_kernel_t kernel;
    uint32_t num_blocks;
    union {
        dt_move_many_t move;
        dt_device_update_t update;
        dt_squares_t squares;
    } args;
} launch_t;

static void reach(void *pointer_at)
{
    void *pointer;
    memcpy(&pointer, pointer_at, sizeof pointer);
    if (pointer && !standin_is_device(pointer)) {
        fprintf(stderr, "stand-in: a kernel was given %p, which is not device memory\n", pointer);
        abort();
    }
    if (pointer)
        pointer = standin_reach(pointer);
    memcpy(pointer_at, &pointer, sizeof pointer);
}

static void run_launch(void *argument)
{
    launch_t *launch = argument;
    dt_kernel_t kernel = launch->kernel;
    if (kernel <= DT_KERNEL_MOVE_INTEGERS_MANY) {
        reach(&launch->args.move.head.buffer);
        for (uint32_t i = 0; i < launch->args.move.head.num_entries; i++)
            reach(&launch->args.move.entries[i].tensor);
    } else if (kernel <= DT_KERNEL_UPDATE_F64) {
        dt_device_update_t *update = &launch->args.update;
        reach(&update->gradients);
        reach(&update->parameters);
        reach(&update->first);
        reach(&update->second);
        reach(&update->copy);
    } else {
        reach(&launch->args.squares.values);
        reach(&launch->args.squares.sums);
    }
    dt_kernel_run_on_host(kernel, &launch->args, launch->num_blocks);
}

/* A kernel's handle is its number and one. */
STANDIN_API cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args,
                                         size_t shared, cudaStream_t stream)
{
    cudaError_t error = standin_begin("cudaLaunchKernel");
    launch_t launch = {.kernel = (dt_kernel_t)((uintptr_t)function - 1), .num_blocks = grid.x};
    (void)block;
    (void)shared;
    if (error != cudaSuccess)
        return error;
    if (launch.kernel >= DT_KERNEL_COUNT)
        return standin_note(cudaErrorInvalidDeviceFunction);
    memcpy(&launch.args, args[0], dt_kernel_args_bytes(launch.kernel));
    standin_enqueue(stream, run_launch, &launch, sizeof launch);
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                            enum cudaJitOption *jit, void **jit_values,
                                            unsigned int num_jit, enum cudaLibraryOption *options,
                                            void **values, unsigned int num_options)
{
    (void)jit;
    (void)jit_values;
    (void)num_jit;
    (void)options;
    (void)values;
    (void)num_options;
    *library = (cudaLibrary_t)code;
    return standin_begin("cudaLibraryLoadData");
}

STANDIN_API cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    (void)library;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
                                             const char *name)
{
    dt_kernel_t found = dt_kernel_find(name);
    (void)library;
    if (found == DT_KERNEL_COUNT)
        return standin_note(cudaErrorSymbolNotFound);
    *kernel = (cudaKernel_t)((uintptr_t)found + 1);
    return standin_begin("cudaLibraryGetKernel");
}
