/*
 * backend.h - the vtable of backends: what moves and reduces the data once all ranks have agreed
 * on it. One thread at a time uses a backend (the one that holds the runtime's baton). Nothing
 * blocks.
 */
#ifndef DT_COMM_BACKEND_H
#define DT_COMM_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

#include "reduce/reduce.h"

typedef enum dt_collective_kind {
    DT_ALLREDUCE = 1,
    DT_BROADCAST = 2,
    DT_REDUCE = 3,         /* an allreduce whose result only the root gets */
    DT_REDUCE_SCATTER = 4, /* rank r gets counts[r] elements of the result, in rank order */
    DT_ALLGATHER = 5,      /* all ranks get counts[r] elements of each rank r, in rank order */
    DT_EXCHANGE = 6        /* counts[r] elements go to rank r, recv_counts[r] come from it */
} dt_collective_kind_t;

/* A part of a collective's data: a tensor of a bucket. Pieces behind each other make up one
 * vector, the same on all ranks. in == out, or they do not overlap. */
typedef struct dt_piece {
    const void *in; /* broadcast: read on the root only */
    void *out;     /* broadcast on the root: may be NULL (nothing is written) or in; REDUCE: written
                      on the root only */
    int64_t count; /* elements */
} dt_piece_t;

/* What a device's tensor lies in on all ranks. NCCL asks that all ranks of a collective bring
 * memory that they have registered, or none does. */
typedef enum dt_memory {
    DT_MEMORY_ANY = 0,       /* of some rank nothing is known */
    DT_MEMORY_OWN = 1,       /* blocks of the device's `allocate` */
    DT_MEMORY_SYMMETRIC = 2, /* the same place in blocks that are a window on all ranks */
    DT_MEMORY_NEW_WINDOW = 3 /* blocks that are to become one, first */
} dt_memory_t;

/* A place in a device's stream; see device.h. */
typedef struct dt_mark dt_mark_t;

typedef struct dt_collective {
    dt_collective_kind_t kind;
    uint64_t sequence;        /* 0, 1, 2, … in the order of start, the same on all ranks */
    dt_reduction_t reduction; /* broadcast: only dtype counts */
    /* On a device: F32 where the pieces are that, to be rounded to reduction.dtype on their way; 0:
     * they are of that type. */
    dtrain_dtype_t rounded_from;
    int root;                 /* BROADCAST, REDUCE */
    const dt_piece_t *pieces; /* lives until the task is freed */
    int num_pieces;           /* 1, unless the backend takes pieces; only for the first two kinds */
    int64_t count;            /* elements of all pieces; of the longer one of in and out */
    /* The last three kinds: an entry a rank, living until the task is freed. What goes to or
     * comes from rank r lies behind what does so for the ranks below it. In place is out == in +
     * this rank's place (REDUCE_SCATTER), in == out + this rank's place (ALLGATHER); an EXCHANGE
     * never is. */
    const int64_t *counts;
    const int64_t *recv_counts;
    /* On a device: what is reached before the data may be used; living until the task is freed. An
     * entry may be NULL. */
    dt_mark_t *const *ready;
    int num_ready;
    dt_memory_t memory; /* of the one piece, where there is one: the same on all ranks */
    /* Where bytes that are copied into and out of the backend's own memory are added; living until
     * the task is freed. NULL: they are not counted. */
    int64_t *copied;
} dt_collective_t;

/* Process sets beside the world. */
#define DT_SUBSETS_MAX 255

/* Longer ones are worth a collective that many of them share. */
#define DT_EAGER_BYTES 256
#define DT_EAGER_SLOTS 2048

typedef struct dt_backend dt_backend_t;
typedef struct dt_task dt_task_t;

typedef struct dt_backend_ops {
    const char *name;
    /*
     * Begins a collective. All ranks start the same ones in the same order; several may be in
     * progress. The struct is copied, what it points to is borrowed. On error no task is made.
     */
    dtrain_status_t (*start)(dt_backend_t *backend, const dt_collective_t *collective,
                             dt_task_t **task);
    /*
     * Does what can be done now, and no more than about a millisecond of it. OK when this rank's
     * output is complete and its input no longer needed; IN_PROGRESS; or an error, with a text,
     * after which the backend is good only for destroy.
     */
    dtrain_status_t (*progress)(dt_backend_t *backend, dt_task_t *task);
    /* Frees a task that is complete, or gives up one that is not (then only destroy may follow
     * and buffers may still be written until it). */
    void (*release)(dt_backend_t *backend, dt_task_t *task);
    /*
     * Frees everything. `clean`: all ranks do so now, after their last task; otherwise a peer
     * may be dead and nothing that waits for one is called.
     */
    void (*destroy)(dt_backend_t *backend, int clean);
    /*
     * Memory that this backend reduces where it lies, aligned to 4096 bytes, zeroed; both NULL in a
     * backend for which any memory is as good. Any thread, at any time before destroy, which frees
     * what was not freed. deallocate returns -1 for memory that is not the start of an allocation.
     */
    dtrain_status_t (*allocate)(dt_backend_t *backend, size_t bytes, void **memory);
    int (*deallocate)(dt_backend_t *backend, void *memory);
    /*
     * Called now and then for a while after the last task: a transport may count a message as sent
     * that it has only copied, and move it only when it is called. NULL where there is nothing to
     * do.
     */
    void (*linger)(dt_backend_t *backend);
    /*
     * A backend for some of the ranks: `ranks` in the order of their numbers in it, this one among
     * them. All members call it with the same arguments, in any order with other calls and without
     * talking to each other; what it does with them follows from the arguments alone. `set` tells
     * sets apart: 1 or more. Sets that exist at one time, on any rank, differ in set modulo
     * DT_SUBSETS_MAX; one whose remainder was used before has a higher number than the one before:
     * so numbers that are never used twice will do. A set that is destroyed as clean may be
     * followed by the next with its remainder at once, though other members are still busy with it.
     * It is destroyed before the backend it came from; of one that is given up, buffers may still
     * be written until that one is destroyed too. NULL in a backend that has no other ranks.
     */
    dtrain_status_t (*subset)(dt_backend_t *backend, const int *ranks, int num_ranks, int set,
                              dt_backend_t **subset);
    /*
     * A short allreduce in two steps that need no message between them. post lays `bytes` (at most
     * DT_EAGER_BYTES) of input out for the other ranks; it may be done again as long as the slot
     * was not taken. take reduces what all ranks have posted, when messages that were sent after
     * it have told so; all ranks take a slot equally often. NULL in a backend without.
     */
    void (*post)(dt_backend_t *backend, uint32_t slot, const void *in, size_t bytes);
    void (*take)(dt_backend_t *backend, uint32_t slot, const dt_reduction_t *reduction, void *out,
                 size_t count);
    /* Instead of take: brings what each rank has posted, `bytes` of it, in rank order. NULL where
     * post is. */
    void (*collect)(dt_backend_t *backend, uint32_t slot, void *out, size_t bytes);
    /* On a device: a mark behind all of a task, once all of it is in a stream; NULL before. It is
     * the task's. */
    dt_mark_t *(*enqueued)(dt_backend_t *backend, dt_task_t *task);
} dt_backend_ops_t;

/* First member of every backend. */
struct dt_backend {
    const dt_backend_ops_t *ops;
    int takes_pieces; /* [const] 1: buckets need no packing */
};

#endif
