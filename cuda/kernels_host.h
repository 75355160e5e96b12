/* kernels_host.h - the kernels, compiled for the host: for tests, and for the stand-in runtime. */
#ifndef DT_CUDA_KERNELS_HOST_H
#define DT_CUDA_KERNELS_HOST_H

#include <stddef.h>

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a kernel with `args` (the struct that it takes) as a grid of `num_blocks` blocks of one
 * thread, one block after the other. */
void dt_kernel_run_on_host(dt_kernel_t kernel, const void *args, uint32_t num_blocks);

/* The kernel of a name, or DT_KERNEL_COUNT; bytes of the struct that a kernel takes. */
dt_kernel_t dt_kernel_find(const char *name);
size_t dt_kernel_args_bytes(dt_kernel_t kernel);

#ifdef __cplusplus
}
#endif

#endif
