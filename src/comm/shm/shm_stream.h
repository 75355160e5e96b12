/*
 * shm_stream.h - the shm backend's own. All collectives of a node form one stream of chunks,
 * numbered from 0, the same on every rank. A rank works on the stream in three stages, each chunk
 * after chunk:
 *
 *     fill      makes its values of the chunk available to the others
 *     reduce    combines all ranks' values of what is its part of the chunk
 *     drain     fetches what the others have reduced
 *
 * and counts in its own heap how far each stage has come. Nobody takes a lock: a stage goes on with
 * a chunk when the others' counters say that it may. What a chunk is depends on the task's path:
 *
 *     SMALL     one chunk, all of the vector. fill: into the own slot of the arena. reduce: every
 *               rank all of it, out of all slots. One synchronisation.
 *     DIRECT    one chunk, all of the vector; all buffers are in heaps. reduce: a rank's share of
 *               it, out of all ranks' inputs into all ranks' outputs. drain: waits for the others.
 *     ARENA     a segment of every rank's share. fill: into the own slot, except for the own
 *               share. reduce: the own share's segment, out of the own input and the others'
 *               slots, into the own output and slot. drain: out of the others' slots.
 *     RELAY     broadcast through slots. fill: the root. reduce: the others copy.
 *     FETCH     broadcast of what lies in the root's heap, one chunk. reduce: the others copy.
 *               drain: the root waits for them.
 *
 * Which path a task takes is the same on all ranks. It goes by the size and, unless that is tiny,
 * by what the ranks have posted: a header each, with where the pieces are, if all of them are in
 * the rank's heap. Small vectors that could be DIRECT save more by that than one synchronisation
 * is worth; others are SMALL.
 *
 * Chunk c has slot c % slots. A slot is filled again when all ranks have reduced the chunk that was
 * in it, and has a new result when all have drained that chunk. Stages of a rank run in order, so
 * a chunk's input has been read (filled) before its output is written (reduced, drained), which is
 * what makes in-place operation right.
 *
 * Where there are other nodes, a stage more brings chunks across to them (shm_cross.c), between
 * reduce and drain:
 *
 *     cross     combines what the nodes have reduced of the own share of the chunk, among the ranks
 *               of all nodes that have that share.
 *
 * The paths are then fewer, and all lead through results in slots: a chunk has room for segments of
 * all shares, and is drained when the others have crossed with it.
 *
 *     DIRECT    as ARENA, but nothing is filled: reduce takes from all ranks' inputs in their
 * heaps. ARENA     as above, but the own output is drained as well. RELAY     reduce: the root puts
 * a chunk where results go. cross: the ranks of its share, one in each node, pass it on. drain: out
 * of the slot of the one in the own node.
 *
 * All nodes have the same number of chunks, and cross with them in the same order, though one may
 * take DIRECT and another ARENA.
 */
#ifndef DT_COMM_SHM_SHM_STREAM_H
#define DT_COMM_SHM_SHM_STREAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "comm/backend.h"
#include "comm/shm/shm.h"
#include "comm/shm/shm_heap.h"
#include "comm/shm/shm_mail.h"
#include "comm/shm/shm_pieces.h"
#include "comm/shm/shm_segment.h"

/* Two cache lines, since they are fetched in pairs. */
#define DT_SHM_LINE 128

/* Tasks that a rank has posted and not all ranks have reduced; and pieces of them all. */
#define DT_SHM_HEADERS 16
#define DT_SHM_DESCRIPTORS 8192

/* ---- Shared between the ranks, at the start of each rank's heap -------------------------- */

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
    DT_SHM_EVENTS = 5
} dt_shm_event_t;

#define DT_SHM_STAGES 4

/* Where a piece is, from the start of its owner's heap. */
typedef struct dt_shm_descriptor {
    uint64_t in, out;
} dt_shm_descriptor_t;

typedef struct dt_shm_header {
    uint64_t first;    /* descriptor of the first piece: modulo their number */
    uint64_t in_heaps; /* 1: all pieces are in the owner's heap, and have descriptors */
} dt_shm_header_t;

/* A header and its descriptors are written before `posted` counts it, and not written again
 * before all ranks have reduced its task. */
typedef struct dt_shm_board {
    dt_shm_counter_t counters[DT_SHM_EVENTS];
    dt_shm_header_t headers[DT_SHM_HEADERS];
    dt_shm_descriptor_t descriptors[DT_SHM_DESCRIPTORS];
} dt_shm_board_t;

/* Where the post of shm_control.h is, from the start of each heap: behind the board. */
#define DT_SHM_MAIL_OFFSET ((sizeof(dt_shm_board_t) + DT_SHM_PAGE - 1) / DT_SHM_PAGE * DT_SHM_PAGE)

/* Where the parts of a heap are: the board at 0, the post, the arena, short inputs, and
 * what is left to allocate. */
typedef struct dt_shm_layout {
    int slots;
    size_t tiny_bytes;   /* longest vector of a task without a header */
    size_t small_bytes;  /* longest vector of a SMALL task; not less than tiny_bytes */
    size_t chunk_bytes;  /* room for one rank's share of a chunk */
    size_t input_bytes;  /* of a slot: for the other ranks' shares, or a small vector */
    size_t slot_bytes;   /* inputs, and the result of the own share */
    size_t arena_offset; /* from the start of the heap */
    size_t eager_offset;
    size_t free_offset;
} dt_shm_layout_t;

dt_shm_layout_t dt_shm_layout_make(const dt_shm_tuning_t *tuning, int size, int crosses);

/* ---- A rank's own ------------------------------------------------------------------------ */

typedef enum dt_shm_path {
    DT_SHM_UNDECIDED = 0,
    DT_SHM_SMALL = 1,
    DT_SHM_DIRECT = 2,
    DT_SHM_ARENA = 3,
    DT_SHM_RELAY = 4,
    DT_SHM_FETCH = 5
} dt_shm_path_t;

typedef struct dt_shm_task {
    struct dt_shm_task *before, *after; /* in the order of start; `after` also of free tasks */
    dtrain_status_t status;             /* IN_PROGRESS until it is done */
    dt_shm_path_t path;
    dt_collective_t collective;
    dt_shm_pieces_t pieces;
    uint64_t header; /* its number, if it has one */
    int has_header;  /* all but tiny ones */
    int in_heap;     /* this rank's pieces are in its heap, and posted so */
    int scanned;     /* undecided: ranks before this one have posted pieces in their heaps */
    uint64_t first;  /* its first chunk, and the first of the next task; once it is decided */
    uint64_t end;
    int64_t segment; /* elements of a share (ARENA) or the vector (RELAY) in a chunk */
    int64_t done;    /* elements of a long chunk that were reduced; DIRECT, FETCH */
} dt_shm_task_t;

/* A stage, and the counters that it and the others wait for. */
typedef struct dt_shm_stage {
    dt_shm_task_t *task; /* it works on; NULL: it is through with all */
    uint64_t chunk;
} dt_shm_stage_t;

/* What is known of all ranks' counters of an event, so that most questions need no look. */
typedef struct dt_shm_watch {
    uint64_t least;
    int last_behind; /* the rank that was behind when we looked */
} dt_shm_watch_t;

/* A chunk's collective among nodes. */
typedef struct dt_shm_flight {
    dt_task_t *task; /* NULL: none is under way */
    dt_piece_t piece;
} dt_shm_flight_t;

/* The way to other nodes. */
typedef struct dt_shm_crossing {
    dt_backend_t *backend;
    int node, num_nodes;
    uint64_t started;          /* collectives */
    dt_shm_flight_t flights[]; /* by slot */
} dt_shm_crossing_t;

typedef struct dt_shm_stream {
    int rank, size;
    dtrain_status_t status;   /* not OK: it has ended, for good */
    dt_shm_crossing_t *cross; /* NULL: there is no other node */
    dt_shm_layout_t layout;
    dt_shm_board_t **boards; /* size entries; boards[r] is also where heap r starts */
    dt_shm_watch_t watches[DT_SHM_EVENTS];

    dt_shm_task_t *head, *tail; /* all tasks that were not released */
    dt_shm_stage_t stages[DT_SHM_STAGES];
    dt_shm_task_t *to_decide; /* the first that is undecided, or NULL */
    dt_shm_task_t *to_post;   /* the first whose header is not posted, or NULL */
    uint64_t num_chunks;      /* of all decided tasks */
    int64_t budget;           /* bytes that this call of progress may still move */

    uint64_t headers_made, headers_posted, headers_freed;
    uint64_t headers_decided;
    uint64_t descriptors_used, descriptors_freed;
    uint64_t header_ends[DT_SHM_HEADERS];     /* the task's last chunk + 1 */
    uint64_t descriptor_ends[DT_SHM_HEADERS]; /* its last descriptor + 1 */

    const void **sources; /* scratch, size entries */
    void **destinations;
} dt_shm_stream_t;

/* ---- shm_stream.c: who may go on --------------------------------------------------------- */

/* Appends a task. Its collective and pieces are set; `in_heap` says where they are. */
void dt_shm_stream_add(dt_shm_stream_t *stream, dt_shm_task_t *task);

/* Does what can be done now, of all tasks, within the budget. */
void dt_shm_stream_drive(dt_shm_stream_t *stream);

/* Whether all ranks' counters of an event have reached `value`. */
int dt_shm_stream_reached(dt_shm_stream_t *stream, dt_shm_event_t event, uint64_t value);

/* Whether one rank's has. */
int dt_shm_stream_rank_reached(const dt_shm_stream_t *stream, int rank, dt_shm_event_t event,
                               uint64_t value);

/* A rank's header and descriptor of a task that is posted there. */
const dt_shm_header_t *dt_shm_stream_header(const dt_shm_stream_t *stream, int rank,
                                            const dt_shm_task_t *task);
const dt_shm_descriptor_t *dt_shm_stream_descriptor(const dt_shm_stream_t *stream, int rank,
                                                    const dt_shm_task_t *task, int piece);

/* ---- shm_steps.c: what a stage does with a chunk ----------------------------------------- */

typedef enum dt_shm_step {
    DT_SHM_WAITS = 0, /* for another rank */
    DT_SHM_MOVED = 1, /* there is more to do */
    DT_SHM_DONE = 2   /* with this chunk */
} dt_shm_step_t;

dt_shm_step_t dt_shm_fill(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);
dt_shm_step_t dt_shm_reduce(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);
dt_shm_step_t dt_shm_drain(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

/* ---- shm_cross.c: the same where there are other nodes; filling is no different ------------- */

/* Also sets out for the other nodes with the chunk. */
dt_shm_step_t dt_shm_cross_reduce(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

/* Done when the chunk is back. Also moves those that set out after it. */
dt_shm_step_t dt_shm_cross(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

dt_shm_step_t dt_shm_cross_drain(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

#endif
