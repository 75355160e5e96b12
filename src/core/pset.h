/*
 * pset.h - process sets: some ranks of the world, numbered anew, with an order of collectives and
 * a backend of their own. Every rank knows all sets, members or not; rank 0 coordinates all.
 *
 * The table changes at one place in the order of verdicts, so it is the same on all ranks there.
 * Adding and removing are operations that all ranks agree on, one at a time (pset_change.h).
 *
 * What is reached from the baton reads the table without its lock; other threads take it.
 */
#ifndef DT_CORE_PSET_H
#define DT_CORE_PSET_H

#include <pthread.h>

#include "comm/world.h"
#include "core/executor.h"
#include "core/rank_set.h"

/* Sets over a world's life, so that the numbers that backends know them by are ints. */
#define DT_PSET_ID_MAX (INT32_MAX / DT_SUBSETS_MAX - 1)

typedef struct dt_pset {
    int32_t id;            /* [const] never used again; 0: the world */
    int number;            /* [const] by which backends tell sets apart; 0: the world */
    int size;              /* [const] */
    int rank;              /* [const] this rank's number in it; -1: not a member */
    int *ranks;            /* [const] of the world, by their numbers in the set */
    dt_rank_set_t members; /* [const] the same, as bits */

    _Atomic int num_pending; /* [atomic] of this rank; raised with the lock, but for the world's */
    _Atomic int has_joined;  /* [atomic] this rank has, and its join is not done */
    _Atomic uint32_t
        num_joins;  /* [atomic] joins of all members that are done; written with baton */
    int is_closing; /* [lock] this rank has asked for its removal */

    /* [baton], of members */
    dt_backend_t *backend; /* the world's is borrowed */
    dt_executor_t executor;
    dt_operation_t **agreed; /* a verdict's operations on this set */
    int num_agreed, agreed_capacity;
    uint64_t place;               /* operations that were ever agreed on: alike on all members */
    struct dt_pset *next_touched; /* in a list of those with such */
    struct dt_pset *next_active;  /* in the table's list of those whose executor is not idle */
    int is_active;

    /* [baton], of rank 0 */
    dt_rank_set_t joined;
    int last_joined;
} dt_pset_t;

typedef struct dt_psets {
    dt_world_t *world; /* borrowed */
    dt_plan_policy_t policy;
    dt_started_fn_t started;
    dt_done_fn_t done;
    dt_failed_fn_t failed;
    void *context;
    dt_gpu_t *gpu; /* borrowed; NULL: no tensors on devices */
    dt_started_fn_t enqueued;
    pthread_mutex_t lock;
    dt_pset_t **sets;                /* [lock, or baton] by id; the first is the world */
    int count;                       /* ditto */
    int32_t next_id;                 /* [baton] */
    uint8_t is_used[DT_SUBSETS_MAX]; /* [baton] numbers modulo that many */
    dt_pset_t *active;               /* [baton] */
} dt_psets_t;

/* Makes the world's set. `world` is borrowed; the others as in dt_executor_init. OUT_OF_MEMORY. */
dtrain_status_t dt_psets_init(dt_psets_t *psets, dt_world_t *world, const dt_plan_policy_t *policy,
                              dt_started_fn_t started, dt_done_fn_t done, dt_failed_fn_t failed,
                              void *context);

/* Before other sets are made: what tensors on GPUs need; see executor.h. */
void dt_psets_use_gpu(dt_psets_t *psets, dt_gpu_t *gpu, dt_started_fn_t enqueued);

/* Adds the sets of the setting process_sets. CONFIG where they cannot be, on all ranks alike. */
dtrain_status_t dt_psets_configure(dt_psets_t *psets, const char *text);

/* Gives up all tasks. */
void dt_psets_abandon(dt_psets_t *psets);
/* Destroys the sets' backends, before the world's; `clean` as there. */
void dt_psets_leave(dt_psets_t *psets, int clean);
/* Frees the rest, once the world is closed: peers may have written to it until then. */
void dt_psets_free(dt_psets_t *psets);

/* ---- With the baton ---------------------------------------------------------------------- */

/* NULL: there is none. */
dt_pset_t *dt_psets_find(const dt_psets_t *psets, int32_t id);

/*
 * Adds a set, with its backend where this rank is a member, and gives it an id. All ranks do so at
 * the same place in the order of verdicts. INVALID_ARGUMENT for ranks that are none, or twice;
 * UNSUPPORTED when there are DT_SUBSETS_MAX sets; OUT_OF_MEMORY or what the backend says.
 */
dtrain_status_t dt_psets_add(dt_psets_t *psets, const int *ranks, int n, int32_t *id);

/* Removes a set on which nothing is pending on any rank. */
void dt_psets_remove(dt_psets_t *psets, dt_pset_t *set);

/* Puts an agreed operation with those of its set. `touched` is a list of sets. OUT_OF_MEMORY. */
dtrain_status_t dt_pset_agree(dt_pset_t *set, dt_operation_t *operation, dt_pset_t **touched);
/* Hands what was put together to the executors. */
dtrain_status_t dt_psets_start(dt_psets_t *psets, dt_pset_t *touched);

/* A set that was just added by an operation; see dt_executor_split. */
dtrain_status_t dt_psets_split(dt_psets_t *psets, int32_t id, dt_operation_t *operation,
                               int *is_taken);

/* Of all sets' executors; see dt_executor_progress. */
dtrain_status_t dt_psets_progress(dt_psets_t *psets, int *moved);
int dt_psets_is_idle(const dt_psets_t *psets);
int dt_psets_has_backlog(const dt_psets_t *psets);

/* ---- Any thread, with a set that cannot go away ------------------------------------------- */

/* A rank of the world by its number in the set, or -1. */
int dt_pset_place(const dt_pset_t *set, int rank);

/* Fills in root and peer of an operation whose signature is filled in. */
void dt_pset_locate(const dt_pset_t *set, dt_operation_t *operation);

/* ---- Any thread -------------------------------------------------------------------------- */

/* Checks a call's ranks as dt_psets_add does. */
dtrain_status_t dt_psets_check(const dt_psets_t *psets, const int *ranks, int n);

/*
 * Begins a call on a set: from now on it cannot be removed, until dt_pset_leave. INVALID_ARGUMENT
 * with a text for a set that does not exist or is being removed.
 */
dtrain_status_t dt_pset_enter(dt_psets_t *psets, int32_t id, dt_pset_t **set);
void dt_pset_leave(dt_pset_t *set);

/* Closes a set to calls, before its removal; INVALID_ARGUMENT when it cannot be removed. */
dtrain_status_t dt_pset_close(dt_psets_t *psets, int32_t id);
void dt_pset_reopen(dt_psets_t *psets, int32_t id);

/* Joins of a set that are done, so far; 0 for one that does not exist. */
uint32_t dt_psets_num_joins(dt_psets_t *psets, int32_t id);

/* What dtrain_pset_rank and its like tell. `ranks` receives at most `cap`. INVALID_ARGUMENT. */
dtrain_status_t dt_pset_describe(dt_psets_t *psets, int32_t id, int *rank, int *size, int *ranks,
                                 int cap);

#endif
