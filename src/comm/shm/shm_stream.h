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
 *     FETCH     broadcast of what lies in the root's heap, or in private memory that the others can
 *               read; one chunk. reduce: the others copy. drain: the root waits for them.
 *     SCATTER   reduce-scatter: a segment of every rank's part. fill: into the own slot, except for
 *               the own part. reduce: the own part's segment, into the own output.
 *     GATHER    allgather: a segment of every rank's part. fill: into the own slot. reduce: copy
 *               all segments out of all slots.
 *     PAIRS     exchange, and allgather of long parts where all ranks can read each other's private
 *               memory; one chunk. reduce: every pair of ranks has a channel of its own
 *               (shm_pairs.c), since nobody knows the other pairs' counts; done when the own pairs
 *               are through.
 *
 * A reduce goes as an allreduce does, but only the root has an output: nobody else drains. In
 * SCATTER and GATHER each rank for itself either fills slots or, if its input is in its heap, has
 * it read there and waits in drain until it was; so the path is known at once.
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
 * of the slot of the one in the own node. SCATTER   a local rank's share are the parts of all
 * nodes' ranks with its number: a chunk has a segment of each, and crossing is a reduce-scatter of
 * them into the own output.
 *
 * All nodes have the same number of chunks, and cross with them in the same order, though one may
 * take DIRECT and another ARENA.
 *
 * A set of ranks has a stream of its own, in regions of its own of its ranks' heaps (shm_sets.c).
 * All that it counts starts at `base`, which is beyond all that earlier sets in the same regions
 * have counted, so that what they left there means nothing to it.
 */
#ifndef DT_COMM_SHM_SHM_STREAM_H
#define DT_COMM_SHM_SHM_STREAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "comm/backend.h"
#include "comm/shm/shm.h"
#include "comm/shm/shm_layout.h"
#include "comm/shm/shm_pieces.h"
#include "comm/shm/shm_segment.h"

/* ---- A rank's own ------------------------------------------------------------------------ */

typedef enum dt_shm_path {
    DT_SHM_UNDECIDED = 0,
    DT_SHM_SMALL = 1,
    DT_SHM_DIRECT = 2,
    DT_SHM_ARENA = 3,
    DT_SHM_RELAY = 4,
    DT_SHM_FETCH = 5,
    DT_SHM_SCATTER = 6,
    DT_SHM_GATHER = 7,
    DT_SHM_PAIRS = 8
} dt_shm_path_t;

typedef struct dt_shm_task {
    struct dt_shm_task *before, *after; /* in the order of start; `after` also of free tasks */
    dtrain_status_t status;             /* IN_PROGRESS until it is done */
    dt_shm_path_t path;
    dt_collective_t collective;
    dt_shm_pieces_t pieces;
    uint64_t header; /* its number, if it has one */
    int has_header;  /* all but tiny ones, and PAIRS */
    int reachable;   /* this rank's pieces are in its heap */
    int in_heap;     /* they are posted as such */
    int is_lent;     /* they are posted as private memory that all can read */
    int scanned;     /* undecided: ranks before this one have posted pieces in their heaps */
    uint64_t first;  /* its first chunk, and the first of the next task; once it is decided */
    uint64_t end;
    int64_t segment; /* elements of a share (ARENA) or the vector (RELAY) in a chunk */
    int64_t done;    /* elements of a long chunk that were reduced; DIRECT, FETCH */
    int has_begun;   /* PAIRS */
    /* Where each rank's part of in and of out begins, size + 1 entries; where there are counts. */
    int64_t *in_places, *out_places;
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
    int64_t *counts; /* of the nodes; SCATTER */
} dt_shm_flight_t;

/* The way to other nodes. */
typedef struct dt_shm_crossing {
    dt_backend_t *backend;
    int node, num_nodes;
    uint64_t started;          /* collectives */
    int *ranks;                /* that counts are given for: node times ranks of a node plus rank */
    int64_t *counts;           /* of all flights */
    dt_shm_flight_t flights[]; /* by slot */
} dt_shm_crossing_t;

/* One rank's side of a pair; entries as in dt_shm_pair_t. */
typedef struct dt_shm_channel {
    uint64_t sent, taken;
    uint64_t part;                    /* bytes of the next entry that were taken already */
    uint64_t sent_bytes, taken_bytes; /* of the task */
    int is_lent;                      /* some of it lies where the sender had it */
} dt_shm_channel_t;

/* Members of an earlier set in the same region, which may not be through with it. */
typedef struct dt_shm_past {
    uint64_t value; /* that they count up to when they are */
    int size;
    const dt_shm_counter_t *left[];
} dt_shm_past_t;

typedef struct dt_shm_stream {
    int rank, size;
    dtrain_status_t status;   /* not OK: it has ended, for good */
    dt_shm_crossing_t *cross; /* NULL: there is no other node */
    dt_shm_layout_t layout;
    uint64_t base;              /* of chunks and headers */
    int is_open;                /* this rank's region is its own, and ready */
    dt_shm_past_t *past;        /* it waits for, to be so; or NULL */
    uint8_t **heaps;            /* size entries: where each rank's heap starts */
    dt_shm_board_t **boards;    /* size entries: where its region starts */
    dt_shm_channel_t *channels; /* size entries */
    uint64_t copied_bytes;      /* PAIRS: of what stays here */
    uint64_t secret;            /* that others look for, to know whom they read */
    int has_probed;
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

/* Takes the own region over, if that can be; until then the stream stands still. 1 when it is open.
 */
int dt_shm_stream_open(dt_shm_stream_t *stream);

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

/* ---- shm_counts.c: the same for SCATTER and GATHER ------------------------------------------ */

dt_shm_step_t dt_shm_counts_fill(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);
dt_shm_step_t dt_shm_counts_reduce(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);
dt_shm_step_t dt_shm_counts_drain(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

/* Where a rank's values of a span of its input are, once it has filled: in its heap, or at `copy`.
 */
const uint8_t *dt_shm_counts_source(const dt_shm_stream_t *stream, const dt_shm_task_t *task,
                                    int rank, dt_span_t span, const uint8_t *copy);

/* ---- shm_pull.c: other ranks' private memory ------------------------------------------------ */

/* Says in the own region whose it is; before it is opened. */
void dt_shm_pull_introduce(dt_shm_stream_t *stream);

/* Finds out and tells, once all have opened their regions, whether this rank can read all others'
 * memory. */
void dt_shm_pull_probe(dt_shm_stream_t *stream);

/* 1 if all ranks can, 0 if not; -1: not all have told. The same on all ranks that know it. */
int dt_shm_pull_works(dt_shm_stream_t *stream);

/* Reads from a rank's address. DONE; or WAITS: that rank is gone, or the stream has ended. */
dt_shm_step_t dt_shm_pull(dt_shm_stream_t *stream, int rank, void *to, uint64_t address,
                          size_t bytes);

/* ---- shm_pairs.c: PAIRS -------------------------------------------------------------------- */

dt_shm_step_t dt_shm_pairs(dt_shm_stream_t *stream, dt_shm_task_t *task);

/* ---- shm_cross.c: the same where there are other nodes ------------------------------------- */

dt_shm_step_t dt_shm_cross_fill(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

/* Also sets out for the other nodes with the chunk. */
dt_shm_step_t dt_shm_cross_reduce(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

/* Done when the chunk is back. Also moves those that set out after it. */
dt_shm_step_t dt_shm_cross(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

dt_shm_step_t dt_shm_cross_drain(dt_shm_stream_t *stream, dt_shm_task_t *task, uint64_t chunk);

#endif
