/* ring_task.h - the ring backend's own: a collective under way, as a state machine. */
#ifndef DT_COMM_RING_RING_TASK_H
#define DT_COMM_RING_RING_TASK_H

#include "comm/algo/schedule.h"
#include "comm/backend.h"
#include "comm/ring/ring.h"
#include "comm/ring/ring_queue.h"

#define DT_RING_SLOTS_MAX 16 /* segments in flight */
#define DT_RING_FREE_MAX 16  /* tasks whose memory is kept */

/* A tag tells a task, a slot and a phase apart. */
typedef enum dt_ring_phase { DT_RING_SCATTER = 0, DT_RING_GATHER = 1 } dt_ring_phase_t;
#define DT_RING_PHASES 2
_Static_assert(DT_RING_SETS_TAG + DT_SUBSETS_MAX * DT_RING_SET_TAG_COUNT <= DT_P2P_TAG_COUNT,
               "tags run out");

/*
 * A slot holds one round: segment k of every share, or in an EXCHANGE all that goes to one rank and
 * comes from another. Slot i of w takes rounds i, i + w, … one after the other, so messages of one
 * tag are posted in the order of rounds on every rank.
 */
typedef struct dt_ring_slot {
    int64_t round;                      /* of the task's; num_rounds or more: nothing left to do */
    int reduced;                        /* this rank's segment has its result */
    uint8_t *staging;                   /* peers' values: stride bytes for each step */
    dt_ring_queue_t sends, receives;    /* to and from all: reduce-scatter; EXCHANGE */
    dt_ring_queue_t forwards, arrivals; /* to and from neighbours or the root: what is gathered */
} dt_ring_slot_t;

typedef enum dt_ring_path {
    DT_RING_SHARES = 1,  /* reduce-scatter, and what is done with its results */
    DT_RING_DIRECT = 2,  /* allreduce, reduce: everything to everyone who wants the result */
    DT_RING_RELAY = 3,   /* broadcast: tree or chain */
    DT_RING_PASS = 4,    /* allgather: around the ring */
    DT_RING_EXCHANGE = 5 /* every pair for itself */
} dt_ring_path_t;

typedef struct dt_ring_task {
    struct dt_ring_task *next; /* in the ring's list of free tasks */
    dt_ring_path_t path;
    dt_collective_kind_t kind;
    dtrain_status_t status; /* IN_PROGRESS until it is done or has failed */
    int rank, size, root;
    uint64_t sequence;
    dt_reduction_t reduction;
    const uint8_t *in;
    uint8_t *out;
    int64_t count;
    size_t element_bytes;
    int64_t segment;    /* elements */
    int64_t num_rounds; /* the same on all ranks */
    int64_t rounds_left;
    int num_slots;

    /* Where each rank's part of in and of out begins, size + 1 entries; where there are counts. */
    int64_t *in_places, *out_places;
    int64_t copied; /* bytes this rank has copied to its own output */

    /* Reductions. */
    size_t stride;        /* bytes of a segment in staging */
    const void **sources; /* one for each rank */
    uint8_t *staging;
    size_t staging_bytes;

    /* Broadcast. */
    int parent; /* -1: the root */
    int num_children;
    int children[DT_SCHEDULE_CHILDREN_MAX];

    dt_ring_slot_t slots[];
} dt_ring_task_t;

typedef struct dt_ring {
    dt_backend_t base;
    dt_p2p_t *p2p;
    dt_ring_tuning_t wanted; /* as given */
    dt_ring_tuning_t tuning; /* defaults filled in */
    dt_ring_task_t *free;
    int num_free;
    struct dt_ring *parent;  /* of a set's: gives up what is under way on its transport */
    struct dt_ring *orphans; /* sets that ended with messages under way: kept until this ends */
    struct dt_ring *next;    /* orphan */
    int max_tasks;
    /* By sequence: tasks under way and given up. Two with the same tags would mix. */
    dt_ring_task_t *tasks[];
} dt_ring_t;

int dt_ring_tag(const dt_ring_t *ring, const dt_ring_task_t *task, const dt_ring_slot_t *slot,
                dt_ring_phase_t phase);

/* What a rank owns of a round: reduces or gathers. */
dt_span_t dt_ring_owned(const dt_ring_task_t *task, int rank, int64_t round);

/* A span's bytes, and where they are in a vector. */
size_t dt_ring_offset(const dt_ring_task_t *task, dt_span_t span);
size_t dt_ring_length(const dt_ring_task_t *task, dt_span_t span);

/* Whether a round's sends still read memory that its results go to. */
int dt_ring_sends_bar_results(const dt_ring_task_t *task, const dt_ring_slot_t *slot);

/* To the next round of a slot, when this one is done. */
void dt_ring_next_round(dt_ring_task_t *task, dt_ring_slot_t *slot);

/* Copies some more of `bytes` from one place to another, unless they are the same or `to` is NULL.
 * 1 when nothing is left. */
int dt_ring_copy_own(dt_ring_task_t *task, uint8_t *to, const uint8_t *from, int64_t bytes);

/* Lay out a task whose collective was filled in. OUT_OF_MEMORY. */
dtrain_status_t dt_ring_reduction_plan(dt_ring_t *ring, dt_ring_task_t *task);
void dt_ring_broadcast_plan(dt_ring_t *ring, dt_ring_task_t *task);
void dt_ring_allgather_plan(dt_ring_t *ring, dt_ring_task_t *task);
void dt_ring_exchange_plan(dt_ring_t *ring, dt_ring_task_t *task);

/* See progress in backend.h. */
dtrain_status_t dt_ring_reduction_progress(dt_ring_t *ring, dt_ring_task_t *task);
dtrain_status_t dt_ring_broadcast_progress(dt_ring_t *ring, dt_ring_task_t *task);
dtrain_status_t dt_ring_allgather_progress(dt_ring_t *ring, dt_ring_task_t *task);
dtrain_status_t dt_ring_exchange_progress(dt_ring_t *ring, dt_ring_task_t *task);

/* A round's results, once `reduced` says that this rank has its own: around the ring to all, or to
 * the root. */
dtrain_status_t dt_ring_gather(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot);
dtrain_status_t dt_ring_collect(dt_ring_t *ring, dt_ring_task_t *task, dt_ring_slot_t *slot);

/* Whether that is done: all its messages are complete. */
int dt_ring_is_gathered(const dt_ring_task_t *task, const dt_ring_slot_t *slot);
int dt_ring_is_collected(const dt_ring_task_t *task, const dt_ring_slot_t *slot);

#endif
