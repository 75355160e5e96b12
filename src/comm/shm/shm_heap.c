#include "comm/shm/shm_heap.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"

/* Ranges as long as this start at a multiple of it, so that the kernel may use huge pages. */
#define HUGE_PAGE ((size_t)2 << 20)

/* A range, in use or free; free ones are never neighbours. */
typedef struct block {
    struct block *before, *after;
    size_t offset, bytes;
    int in_use;
} block_t;

struct dt_shm_heap {
    uint8_t *memory; /* [const] */
    size_t bytes;    /* [const] */
    pthread_mutex_t lock;
    block_t *first; /* [lock] all blocks, by offset */
};

dt_shm_heap_t *dt_shm_heap_create(void *memory, size_t bytes)
{
    dt_shm_heap_t *heap = dt_calloc(1, sizeof *heap);
    block_t *all = dt_calloc(1, sizeof *all);
    if (!heap || !all) {
        dt_free(heap);
        dt_free(all);
        return NULL;
    }
    all->bytes = bytes;
    heap->memory = memory;
    heap->bytes = bytes;
    heap->first = all;
    pthread_mutex_init(&heap->lock, NULL);
    return heap;
}

void dt_shm_heap_free(dt_shm_heap_t *heap)
{
    if (!heap)
        return;
    while (heap->first) {
        block_t *block = heap->first;
        heap->first = block->after;
        dt_free(block);
    }
    pthread_mutex_destroy(&heap->lock);
    dt_free(heap);
}

/* ---- Blocks ------------------------------------------------------------------------------ */

/* Cuts off what is beyond `bytes`, as a block of its own. -1 when memory ran out. */
static int split(block_t *block, size_t bytes)
{
    if (block->bytes == bytes)
        return 0;
    block_t *rest = dt_calloc(1, sizeof *rest);
    if (!rest)
        return -1;
    *rest = (block_t){.before = block,
                      .after = block->after,
                      .offset = block->offset + bytes,
                      .bytes = block->bytes - bytes};
    if (rest->after)
        rest->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    return 0;
}

/* Makes a block and the one after it one, if both are free. */
static void merge(block_t *block)
{
    block_t *after = block ? block->after : NULL;
    if (!after || block->in_use || after->in_use)
        return;
    block->bytes += after->bytes;
    block->after = after->after;
    if (block->after)
        block->after->before = block;
    dt_free(after);
}

/* Bytes of a block before the first place where a range of `bytes` may start. */
static size_t padding(const dt_shm_heap_t *heap, const block_t *block, size_t bytes)
{
    size_t beyond = ((uintptr_t)heap->memory + block->offset) % HUGE_PAGE;
    return bytes < HUGE_PAGE || beyond == 0 ? 0 : HUGE_PAGE - beyond;
}

/* [lock held] */
static block_t *take(dt_shm_heap_t *heap, size_t bytes)
{
    for (block_t *block = heap->first; block; block = block->after) {
        size_t skipped = padding(heap, block, bytes);
        if (block->in_use || block->bytes < skipped || block->bytes - skipped < bytes)
            continue;
        if (skipped > 0) {
            if (split(block, skipped) != 0)
                return NULL;
            block = block->after;
        }
        if (split(block, bytes) != 0) {
            merge(block->before);
            return NULL;
        }
        block->in_use = 1;
        return block;
    }
    return NULL;
}

/* ---- Allocations ------------------------------------------------------------------------- */

void *dt_shm_heap_allocate(dt_shm_heap_t *heap, size_t bytes)
{
    if (bytes > heap->bytes)
        return NULL;
    size_t pages = bytes > 0 ? (bytes + DT_SHM_PAGE - 1) / DT_SHM_PAGE : 1;
    void *memory = NULL;
    pthread_mutex_lock(&heap->lock);
    block_t *block = take(heap, pages * DT_SHM_PAGE);
    if (block) {
        memory = heap->memory + block->offset;
        /* Neither is needed for the memory to be right. */
        madvise(memory, block->bytes, MADV_DODUMP);
        if (block->bytes >= HUGE_PAGE)
            madvise(memory, block->bytes, MADV_HUGEPAGE);
    }
    pthread_mutex_unlock(&heap->lock);
    return memory;
}

int dt_shm_heap_release(dt_shm_heap_t *heap, void *memory)
{
    pthread_mutex_lock(&heap->lock);
    block_t *block = heap->first;
    while (block && heap->memory + block->offset != memory)
        block = block->after;
    int is_one = block && block->in_use;
    if (is_one) {
        /* Punches a hole into the file: nobody has these pages any more. */
        if (madvise(memory, block->bytes, MADV_REMOVE) != 0)
            memset(memory, 0, block->bytes);
        madvise(memory, block->bytes, MADV_DONTDUMP);
        block->in_use = 0;
        merge(block);
        merge(block->before);
    }
    pthread_mutex_unlock(&heap->lock);
    return is_one ? 0 : -1;
}

int dt_shm_heap_holds(const dt_shm_heap_t *heap, const void *memory, size_t bytes)
{
    uintptr_t offset = (uintptr_t)memory - (uintptr_t)heap->memory;
    return offset <= heap->bytes && bytes <= heap->bytes - offset;
}
