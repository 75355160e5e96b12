/*
 * shm_heap.h - hands out ranges of a rank's heap: whole pages, first fit. What it knows is kept
 * outside the heap, so that a program that writes past its buffer cannot hurt it.
 */
#ifndef DT_COMM_SHM_SHM_HEAP_H
#define DT_COMM_SHM_SHM_HEAP_H

#include <stddef.h>

#define DT_SHM_PAGE ((size_t)4096)

typedef struct dt_shm_heap dt_shm_heap_t;

/* Over `bytes` of shared memory that is all zeros; both are multiples of a page. NULL when memory
 * ran out. */
dt_shm_heap_t *dt_shm_heap_create(void *memory, size_t bytes);
void dt_shm_heap_free(dt_shm_heap_t *heap);

/* Zeroed memory, or NULL when there is no room. Any thread. */
void *dt_shm_heap_allocate(dt_shm_heap_t *heap, size_t bytes);

/* 0, or -1 for what is not the start of an allocation. The pages go back to the system. */
int dt_shm_heap_release(dt_shm_heap_t *heap, void *memory);

/* 1 when all `bytes` at `memory` lie in the heap. */
int dt_shm_heap_holds(const dt_shm_heap_t *heap, const void *memory, size_t bytes);

#endif
