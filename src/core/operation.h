/* operation.h - one submitted operation on this rank, from submit to done; it is also what a
 * handle names. */
#ifndef DT_CORE_OPERATION_H
#define DT_CORE_OPERATION_H

#include <stdatomic.h>
#include <stdint.h>

#include "comm/device.h"
#include "core/output.h"
#include "core/signature.h"
#include "core/stamp.h"

typedef struct dt_name dt_name_t;
typedef struct dt_pset dt_pset_t;
typedef struct dt_pset_change dt_pset_change_t;
typedef struct dt_sparse dt_sparse_t;
typedef struct dt_stand_in dt_stand_in_t;

/* How far an operation is over. */
typedef enum dt_done {
    DT_NOT_DONE = 0,
    DT_DONE_IN_CALLBACK = 1, /* release: all results are set; its callback has not returned */
    DT_DONE = 2              /* release: ditto, and nothing changes more */
} dt_done_t;

typedef struct dt_operation {
    /* The handle. */
    _Atomic uint64_t handle;        /* [atomic] 0 while the slot is free */
    _Atomic uint32_t done;          /* [atomic] dt_done_t */
    _Atomic dtrain_status_t status; /* [done]; for a refused call, why, from the start */
    char *error;                    /* [done] its text, or NULL; ditto */
    int is_refused;   /* the call failed; it only tells the other ranks, and has no user */
    int is_stray;     /* refused, since its process set does not exist */
    int is_bystander; /* two other ranks' transfer: no user, no name, no data */
    dtrain_callback_fn_t callback; /* [const] from submit on */
    void *user;                    /* ditto */

    /* What is to be done: [const] from submit on. */
    dt_signature_t signature;
    dt_stamp_t stamp;
    const void *in;
    void *out;
    /* [agreed] what the host's stages read and write: the two above, or for a tensor on a GPU
     * copies in pinned memory (through_host.h). */
    const void *host_in;
    void *host_out;
    int64_t count; /* elements of the tensor, as this rank gave it */
    int64_t bytes;
    int64_t room;                /* bytes that `out` is said to have room for */
    const dtrain_codec_t *codec; /* the program's own, borrowed; NULL: none, or the library's */
    /* Where rows differ by rank: 2 * num_splits entries, the rows that go to each rank (what this
     * rank tells each; an alltoall's splits, or its own rows) and, [done], those that came from
     * each. */
    int64_t *splits;
    int num_splits; /* size: the ranks of the set */
    /* [done] the library's memory for the output; before, a list of what else the operation needs
     * that peers may be using. NULL: none. */
    dt_output_t *owned;
    struct dt_gpu *gpu; /* whose memory the library provides; NULL: the host's */
    int64_t out_rows;   /* [done] first extent of the output, where the kind deals in rows */
    const int64_t
        *out_indices;        /* [done] of a sparse output's rows, in `owned`; NULL: it is dense */
    struct dt_staged *sizes; /* [agreed] of which the ranks have told (sizes.h); else NULL */
    dt_sparse_t *sparse;     /* of a sparse allreduce (sparse.h): owned; else NULL */
    int64_t timeout_ns;      /* DT_NEVER: none */
    dt_mark_t *ready; /* of a tensor on a device: what its stream held when it was submitted */
    /* [atomic] release: a mark behind all of it, held; NULL: not yet */
    dt_mark_t *_Atomic enqueued;
    int root, peer; /* the signature's, by their numbers in the set */
    int64_t
        copied; /* [done] bytes that were copied to bring them into the library's memory and back */
    int divisor;        /* of an average; set when it is agreed */
    dt_memory_t memory; /* of a device's tensor on all ranks; ditto */

    dt_pset_t *set;           /* [const] entered; NULL: none (pset_change.h, or refused) */
    dt_pset_change_t *change; /* adding or removing a set: owned */
    dt_stand_in_t *stand_in;  /* for a rank that has joined (stand_in.h): owned */
    /* [done] a number that the operation came to, or, failed, the furthest rank's step; else -1 */
    int32_t result;

    dt_name_t *name; /* [intake lock]; NULL in a stand-in and a bystander */
    uint32_t id;     /* [intake lock] until taken, then [coordinator]; DT_ID_NONE: not cached */

    /* The coordinator's. */
    int64_t submitted_ns; /* when it was taken: a clock a submission costs more than that is off */
    int64_t deadline_ns;  /* DT_NEVER: none */
    uint64_t flight;      /* its record (observe/flight.h); 0: none */
    int is_agreed;        /* all ranks have it */
    int is_withdrawn;     /* the deadline passed; rank 0 was told */
    struct dt_operation *next, *previous;
} dt_operation_t;

/* A list of operations; an operation is in one list at a time. All zeros is an empty list. */
typedef struct dt_operation_list {
    dt_operation_t *first, *last;
} dt_operation_list_t;

static inline void dt_operation_append(dt_operation_list_t *list, dt_operation_t *operation)
{
    operation->next = NULL;
    operation->previous = list->last;
    if (list->last)
        list->last->next = operation;
    else
        list->first = operation;
    list->last = operation;
}

static inline void dt_operation_remove(dt_operation_list_t *list, dt_operation_t *operation)
{
    if (operation->previous)
        operation->previous->next = operation->next;
    else
        list->first = operation->next;
    if (operation->next)
        operation->next->previous = operation->previous;
    else
        list->last = operation->previous;
}

#endif
