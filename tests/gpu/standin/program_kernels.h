/* program_kernels.h - kernels that a program brings itself, as host code. */
#ifndef STANDIN_PROGRAM_KERNELS_H
#define STANDIN_PROGRAM_KERNELS_H

#include <stdint.h>

#define STANDIN_ARGUMENTS_MAX 12

typedef struct standin_kernel {
    const char *name;
    void (*keep)(void **args, uint64_t *words); /* copies the arguments of a launch */
    void (*run)(const uint64_t *words, unsigned num_blocks);
} standin_kernel_t;

/* NULL: none of that name. */
const standin_kernel_t *standin_find_kernel(const char *name);

/* Where a kernel's argument lies for the host. Ends the program when it is not device memory. */
void *standin_reach_in_kernel(const void *pointer);

#endif
