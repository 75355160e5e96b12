/*
 * shm_layout.h - where the parts of a heap are. A region holds what one stream needs of a rank's
 * memory: the board, the pairs and the arena. The world's is at the start of the heap, with the
 * post behind its board, and with short inputs; then come those of sets, as many as there may be,
 * each as large as a set of all ranks needs or as the heap allows; then what is left to allocate.
 * What is not used costs nothing.
 */
#ifndef DT_COMM_SHM_SHM_LAYOUT_H
#define DT_COMM_SHM_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/shm/shm.h"
#include "comm/shm/shm_heap.h"

/* Two cache lines, since they are fetched in pairs. */
#define DT_SHM_LINE 128

/* Tasks that a rank has posted and not all ranks have reduced; and pieces of them all, but for sets
 * in a small heap, which have fewer. */
#define DT_SHM_HEADERS 16
#define DT_SHM_DESCRIPTORS 8192

/* Entries of a pair that its receiver has not taken. */
#define DT_SHM_ENTRIES 4

/* [atomic] written by the heap's owner (release), read by all (acquire); only grows */
typedef struct dt_shm_counter {
    _Alignas(DT_SHM_LINE) _Atomic uint64_t value;
} dt_shm_counter_t;

typedef enum dt_shm_event {
    DT_SHM_FILLED = 0, /* chunks; the first four are the stages */
    DT_SHM_REDUCED = 1,
    DT_SHM_CROSSED = 2, /* where there are other nodes */
    DT_SHM_DRAINED = 3,
    DT_SHM_POSTED = 4, /* headers */
    DT_SHM_OPENED = 5, /* one: its owner takes part */
    DT_SHM_PROBED = 6, /* one: its owner cannot read all others' private memory; two: it can */
    DT_SHM_LEFT = 7,   /* a set: its owner is through with it; beyond all that it has counted */
    DT_SHM_EVENTS = 8
} dt_shm_event_t;

#define DT_SHM_STAGES 4

/* Where a piece is, from the start of its owner's heap; or its address, if it is lent. */
typedef struct dt_shm_descriptor {
    uint64_t in, out;
} dt_shm_descriptor_t;

typedef struct dt_shm_header {
    uint64_t first;    /* descriptor of the first piece: modulo their number */
    uint64_t in_heaps; /* 1: all pieces are in the owner's heap, and have descriptors */
    uint64_t is_lent;  /* 1: they have, and are in private memory that all others can read */
} dt_shm_header_t;

/* Whose the region is: a process, and what there is to be found at an address of its private
 * memory. [const] once `opened` says so */
typedef struct dt_shm_owner {
    uint64_t pid, address, secret;
} dt_shm_owner_t;

/* A header and its descriptors are written before `posted` counts it, and not written again
 * before all ranks have reduced its task. */
typedef struct dt_shm_board {
    dt_shm_counter_t counters[DT_SHM_EVENTS];
    dt_shm_owner_t owner;
    dt_shm_header_t headers[DT_SHM_HEADERS];
    dt_shm_descriptor_t descriptors[];
} dt_shm_board_t;

/* Some bytes on their way to one rank: where they are, from the start of the sender's heap, or at
 * which address of its private memory. */
typedef struct dt_shm_entry {
    uint64_t place, bytes;
    uint64_t is_private;
} dt_shm_entry_t;

/*
 * In a region, for each other rank: what its owner has for that one, and what it has taken from it.
 * Entry e is in entries[e % DT_SHM_ENTRIES]; it is written before `sent` counts it, and not written
 * again before the receiver's `taken` does.
 */
typedef struct dt_shm_pair {
    _Alignas(DT_SHM_LINE) _Atomic uint64_t sent; /* [atomic] as a counter */
    dt_shm_entry_t entries[DT_SHM_ENTRIES];
    _Alignas(DT_SHM_LINE) _Atomic uint64_t taken; /* [atomic] as a counter */
} dt_shm_pair_t;

/* Where the post of shm_control.h is, from the start of each heap: behind the board. */
#define DT_SHM_MAIL_OFFSET                                                                      \
    ((sizeof(dt_shm_board_t) + DT_SHM_DESCRIPTORS * sizeof(dt_shm_descriptor_t) + DT_SHM_PAGE - \
      1) /                                                                                      \
     DT_SHM_PAGE * DT_SHM_PAGE)

/* Sizes in bytes; offsets from the start of the region. */
typedef struct dt_shm_layout {
    int slots;
    int descriptors;
    size_t tiny_bytes;    /* longest vector of a task without a header */
    size_t small_bytes;   /* longest vector of a SMALL task; not less than tiny_bytes */
    size_t chunk_bytes;   /* room for one rank's share of a chunk */
    size_t input_bytes;   /* of a slot: for the other ranks' shares, or a small vector */
    size_t slot_bytes;    /* inputs, and the result of the own share */
    size_t head_bytes;    /* before the pairs */
    size_t pairs_offset;  /* size pairs */
    size_t pull_bytes;    /* shortest private memory that peers read themselves, if they can */
    size_t copy_bytes;    /* of an entry that was copied, at most */
    size_t copies_offset; /* for each of them DT_SHM_ENTRIES times copy_bytes */
    size_t arena_offset;
    size_t eager_offset; /* short inputs, of the world's (shm_eager.h) */
    size_t end;          /* a multiple of a page */
} dt_shm_layout_t;

/* The world's; num_nodes as in shm_cross.h, 0 if there is but one. */
dt_shm_layout_t dt_shm_layout_make(const dt_shm_tuning_t *tuning, int size, int num_nodes);

/* A set's, in a region of `room` bytes. 0, or -1 if that is too small. */
int dt_shm_layout_fit(const dt_shm_tuning_t *tuning, int size, size_t room,
                      dt_shm_layout_t *layout);

/* Of heaps with a world of this layout: bytes of a set's region, and where what is left to allocate
 * begins. */
size_t dt_shm_layout_set_bytes(const dt_shm_layout_t *world, size_t heap_bytes);
size_t dt_shm_layout_free_offset(const dt_shm_layout_t *world, size_t heap_bytes);

#endif
