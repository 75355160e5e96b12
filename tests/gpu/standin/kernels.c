/* kernels.c - kernels, as the host's compiler sees them: the library's, which it loads by their
 * names, and a program's own, which nvcc's code registers before main. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels_host.h"
#include "program_kernels.h"
#include "standin.h"

#define REGISTERED_MAX 64

/* ---- The library's -------------------------------------------------------------------------- */

typedef struct launch {
    dt_kernel_t kernel;
    uint32_t num_blocks;
    union {
        dt_move_many_t move;
        dt_device_update_t update;
        dt_squares_t squares;
    } args;
} launch_t;

void *standin_reach_in_kernel(const void *pointer)
{
    if (pointer && !standin_is_device(pointer)) {
        fprintf(stderr, "stand-in: a kernel was given %p, which is not device memory\n", pointer);
        abort();
    }
    return pointer ? standin_reach(pointer) : NULL;
}

static void reach(void *pointer_at)
{
    void *pointer;
    memcpy(&pointer, pointer_at, sizeof pointer);
    pointer = standin_reach_in_kernel(pointer);
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

/* The handle of a kernel of the library is its number and one. */
static cudaError_t launch_loaded(uintptr_t handle, unsigned num_blocks, void **args,
                                 cudaStream_t stream)
{
    launch_t launch = {.kernel = (dt_kernel_t)(handle - 1), .num_blocks = num_blocks};
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

/* ---- A program's own ------------------------------------------------------------------------ */

typedef struct registered {
    const void *host; /* the function that stands for the kernel in host code */
    const standin_kernel_t *kernel;
} registered_t;

/* Written while libraries and programs are loaded, read later. */
static registered_t registered[REGISTERED_MAX];
static int num_registered;

typedef struct own_launch {
    const standin_kernel_t *kernel;
    unsigned num_blocks;
    uint64_t words[STANDIN_ARGUMENTS_MAX];
} own_launch_t;

static void run_own(void *argument)
{
    const own_launch_t *launch = argument;
    launch->kernel->run(launch->words, launch->num_blocks);
}

/* `function`: as in the host's code, or what __cudaGetKernel made of it. */
static const registered_t *find_registered(const void *function)
{
    for (int i = 0; i < num_registered; i++) {
        if (function == registered[i].host || function == &registered[i])
            return &registered[i];
    }
    return NULL;
}

STANDIN_API cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args,
                                         size_t shared, cudaStream_t stream)
{
    cudaError_t error = standin_begin("cudaLaunchKernel");
    if (error == cudaSuccess && standin_stream_device(stream) != standin_current())
        error = standin_note(cudaErrorInvalidResourceHandle);
    (void)shared;
    if (error != cudaSuccess)
        return error;
    if (grid.x == 0 || block.x == 0 || block.x > 1024 || grid.y != 1 || block.y != 1)
        return standin_note(cudaErrorInvalidConfiguration);
    if ((uintptr_t)function <= DT_KERNEL_COUNT && function)
        return launch_loaded((uintptr_t)function, grid.x, args, stream);
    const registered_t *found = find_registered(function);
    if (!found || !found->kernel)
        return standin_note(cudaErrorInvalidDeviceFunction);
    own_launch_t launch = {.kernel = found->kernel, .num_blocks = grid.x};
    found->kernel->keep(args, launch.words);
    standin_enqueue(stream, run_own, &launch, sizeof launch);
    return cudaSuccess;
}

/* What nvcc's host code calls; the toolkit declares it for C++ alone. */
STANDIN_API void **__cudaRegisterFatBinary(void *binary);
STANDIN_API void __cudaRegisterFatBinaryEnd(void **handle);
STANDIN_API void __cudaUnregisterFatBinary(void **handle);
STANDIN_API void __cudaRegisterFunction(void **handle, const char *host, char *device,
                                        const char *name, int thread_limit, uint3 *thread,
                                        uint3 *block, dim3 *block_dim, dim3 *grid_dim, int *warp);
STANDIN_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                 cudaStream_t stream);
STANDIN_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
                                                   void *stream);
STANDIN_API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
STANDIN_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                           size_t shared, cudaStream_t stream);

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    (void)binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int thread_limit, uint3 *thread, uint3 *block, dim3 *block_dim,
                            dim3 *grid_dim, int *warp)
{
    (void)handle, (void)device, (void)thread_limit, (void)thread;
    (void)block, (void)block_dim, (void)grid_dim, (void)warp;
    if (num_registered == REGISTERED_MAX)
        abort();
    registered[num_registered++] = (registered_t){host, standin_find_kernel(name)};
}

/* Of the launch that this thread is about to make. */
static _Thread_local struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *(cudaStream_t *)stream = configuration.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    const registered_t *found = find_registered(host);
    if (!found)
        return standin_note(cudaErrorInvalidDeviceFunction);
    *kernel = (cudaKernel_t)found;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}
