/* output.h - memory that the library provides for an operation's output. It lives as long as the
 * handle, and longer where a peer may still be writing to it. */
#ifndef DT_CORE_OUTPUT_H
#define DT_CORE_OUTPUT_H

#include <stdalign.h>
#include <stdint.h>

#define DT_OUTPUT_ALIGNMENT 64

typedef struct dt_output {
    struct dt_output *next; /* in a list of those that outlive their handle */
    alignas(DT_OUTPUT_ALIGNMENT) char data[];
} dt_output_t;

/* NULL when memory ran out. bytes > 0. */
dt_output_t *dt_output_alloc(int64_t bytes);

/* Frees a list; NULL is nothing. */
void dt_output_free(dt_output_t *output);

#endif
