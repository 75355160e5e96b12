/*
 * output.h - memory that the library provides for an operation's output, of the host or of this
 * rank's GPU. It lives as long as the handle, and longer where a peer may still be writing to it.
 */
#ifndef DT_CORE_OUTPUT_H
#define DT_CORE_OUTPUT_H

#include <stdalign.h>
#include <stdint.h>

#define DT_OUTPUT_ALIGNMENT 64

struct dt_gpu;

typedef struct dt_output {
    struct dt_output *next; /* in a list of those that outlive their handle */
    void *memory;           /* `data`, or the GPU's */
    struct dt_gpu *gpu;     /* NULL: it is the host's */
    alignas(DT_OUTPUT_ALIGNMENT) char data[];
} dt_output_t;

/* In host memory. NULL when memory ran out. bytes > 0. */
dt_output_t *dt_output_alloc(int64_t bytes);

/* In the memory of a GPU, which is opened with the hint when it is not open; gpu NULL: in the
 * host's. NULL, with a text in the GPU's case, when that failed. */
dt_output_t *dt_output_alloc_on(struct dt_gpu *gpu, const void *hint, int64_t bytes);

/* Frees a list; NULL is nothing. A GPU's memory goes to dt_gpu_retire, so this never blocks. */
void dt_output_free(dt_output_t *output);

#endif
