/* shm_segment.h - the memory of a node: heaps as memfds, and where they are mapped. */
#ifndef DT_COMM_SHM_SHM_SEGMENT_H
#define DT_COMM_SHM_SHM_SEGMENT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/shm/shm.h"

/* Address space for the heaps of a node, one behind the other. */
typedef struct dt_shm_mapping {
    _Atomic int users; /* [atomic] nodes of this process that see it */
    int size;          /* [const] heaps */
    size_t bytes;      /* [const] of a heap, as all ranks have agreed; the board lies behind it */
    size_t stride;     /* [const] from one heap to the next */
    uint8_t *base;     /* [const] the first heap; aligned to huge pages */
    uint8_t *reserved; /* [const] what was mapped, and how much */
    size_t reserved_bytes;
} dt_shm_mapping_t;

struct dt_shm_node {
    int rank;
    dt_shm_mapping_t *mapping;
};

/*
 * Makes this rank's heap and reserves addresses for `size` heaps as large. `wanted` is its size, 0
 * the default: as much as the node may need, less where a limit forbids it. *fd is the heap. OK, or
 * UNSUPPORTED or OUT_OF_MEMORY with a text.
 */
dtrain_status_t dt_shm_mapping_create(int size, int64_t wanted, dt_shm_mapping_t **mapping,
                                      int *fd);

/*
 * Maps a rank's heap at its place; `fd` stays open. Checks first that the heap is as large as
 * mapping->bytes and cannot shrink: otherwise a peer could make this process fault.
 */
dtrain_status_t dt_shm_mapping_attach(dt_shm_mapping_t *mapping, int rank, int fd);

uint8_t *dt_shm_mapping_heap(const dt_shm_mapping_t *mapping, int rank);

/* A rank's board (comm/boards.h), in its heap's file but no part of the heap. */
void *dt_shm_mapping_board(const dt_shm_mapping_t *mapping, int rank);

/* One user less; the last one unmaps. */
void dt_shm_mapping_release(dt_shm_mapping_t *mapping);

/* A node that is a user of the mapping; NULL when memory ran out (nothing changes then). */
dt_shm_node_t *dt_shm_node_create(dt_shm_mapping_t *mapping, int rank);

#endif
