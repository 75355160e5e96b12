/* memory.h - the one place that asks for memory, so that a test can make it run out. */
#ifndef DT_BASE_MEMORY_H
#define DT_BASE_MEMORY_H

#include <stddef.h>

/* NULL when memory ran out; the caller turns that into DTRAIN_ERR_OUT_OF_MEMORY. */
void *dt_alloc(size_t bytes);                /* not cleared */
void *dt_calloc(size_t count, size_t bytes); /* zeros */
void *dt_realloc(void *old, size_t bytes);   /* as realloc */
void *dt_alloc_aligned(size_t align, size_t bytes);
char *dt_strdup(const char *text);
void dt_free(void *memory); /* any of the above; NULL is nothing */

#endif
