/* ring_task.h - the ring backend's own: a collective under way, as a state machine. */
#ifndef DT_COMM_RING_RING_TASK_H
#define DT_COMM_RING_RING_TASK_H

#include "comm/algo/schedule.h"
#include "comm/backend.h"
#include "comm/ring/ring.h"
#include "comm/ring/ring_queue.h"

#define DT_RING_SLOTS_MAX 16 /* segments in flight */
#define DT_RING_TASKS_MAX 512
#define DT_RING_FREE_MAX 16 /* tasks whose memory is kept */

/* A tag tells a task, a slot and a phase apart. */
typedef enum dt_ring_phase { DT_RING_SCATTER = 0, DT_RING_GATHER = 1 } dt_ring_phase_t;
_Static_assert(DT_RING_TASKS_MAX *DT_RING_SLOTS_MAX * 2 == DT_RING_TAG_COUNT, "tags run out");

/*
 * A slot holds one round: segment k of every share. Slot i of w takes rounds i, i + w, … one
 * after the other, so messages of one tag are posted in the order of rounds on every rank.
 */
typedef struct dt_ring_slot {
    int64_t round;                      /* of the task's; num_rounds or more: nothing left to do */
    int reduced;                        /* this rank's segment of `out` has its result */
    uint8_t *staging;                   /* peers' values: stride bytes for each step */
    dt_ring_queue_t sends, receives;    /* to and from all: reduce-scatter */
    dt_ring_queue_t forwards, arrivals; /* to and from neighbours: allgather, broadcast */
} dt_ring_slot_t;

typedef enum dt_ring_path {
    DT_RING_SHARES = 1, /* allreduce: reduce-scatter, allgather */
    DT_RING_DIRECT = 2, /* allreduce: everything to everyone */
    DT_RING_RELAY = 3   /* broadcast: tree or chain */
} dt_ring_path_t;

typedef struct dt_ring_task {
    struct dt_ring_task *next; /* in the ring's list of free tasks */
    dt_ring_path_t path;
    dtrain_status_t status; /* IN_PROGRESS until it is done or has failed */
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

    /* Allreduce. */
    size_t stride;        /* bytes of a segment in staging */
    const void **sources; /* one for each rank */
    uint8_t *staging;
    size_t staging_bytes;

    /* Broadcast. */
    int parent; /* -1: the root */
    int num_children;
    int children[DT_SCHEDULE_CHILDREN_MAX];
    int64_t copied; /* bytes the root has copied to its own output */

    dt_ring_slot_t slots[];
} dt_ring_task_t;

typedef struct dt_ring {
    dt_backend_t base;
    dt_p2p_t *p2p;
    dt_ring_tuning_t tuning; /* defaults filled in */
    dt_ring_task_t *free;
    int num_free;
    /* By sequence: tasks under way and given up. Two with the same tags would mix. */
    dt_ring_task_t *tasks[DT_RING_TASKS_MAX];
} dt_ring_t;

int dt_ring_tag(const dt_ring_task_t *task, int slot, dt_ring_phase_t phase);

/* Lay out a task whose collective was filled in. OUT_OF_MEMORY. */
dtrain_status_t dt_ring_allreduce_plan(dt_ring_t *ring, dt_ring_task_t *task);
void dt_ring_broadcast_plan(dt_ring_t *ring, dt_ring_task_t *task, int root);

/* See progress in backend.h. */
dtrain_status_t dt_ring_allreduce_progress(dt_ring_t *ring, dt_ring_task_t *task);
dtrain_status_t dt_ring_broadcast_progress(dt_ring_t *ring, dt_ring_task_t *task);

#endif
