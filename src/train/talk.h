/*
 * talk.h - what gradient sets and optimizers tell each other between ranks, beside the gradients:
 * blocking collectives on a few bytes under reserved names. All ranks of a process set make the
 * same calls in the same order.
 */
#ifndef DT_TRAIN_TALK_H
#define DT_TRAIN_TALK_H

#include "core/runtime.h"

typedef struct dt_talk {
    dt_runtime_t *runtime;
    dtrain_pset_t pset;
    int root;           /* the rank of the world that is the set's first */
    int rank, size;     /* in the set */
    const char *name;   /* of the operations, without "dtrain." */
    int32_t device;     /* where the values of a reduction or broadcast lie; on a GPU they are there
                           once all is done that is in the default stream */
    dt_memory_t memory; /* as a submission's: what is said of them there */
} dt_talk_t;

/* INVALID_ARGUMENT for a set that does not exist, or that this rank is not in. */
dtrain_status_t dt_talk_begin(dt_talk_t *talk, dt_runtime_t *runtime, dtrain_pset_t pset,
                              const char *name);

/* An allreduce in place. */
dtrain_status_t dt_talk_reduce(const dt_talk_t *talk, void *values, int64_t count,
                               dtrain_dtype_t dtype, dtrain_op_t op);

/* The bytes of rank `root` of the world go to all. */
dtrain_status_t dt_talk_broadcast(const dt_talk_t *talk, void *bytes, size_t length, int root);

/* `count` rows of `row_count` elements of each rank go to `all` on the set's first rank, where
 * there is room for `total` rows; elsewhere `all` is not looked at. */
dtrain_status_t dt_talk_gather(const dt_talk_t *talk, const void *rows, int64_t count,
                               int64_t row_count, dtrain_dtype_t dtype, void *all, int64_t total);

/*
 * OK when `status` is OK on all ranks. Otherwise an error on all of them: that of the first rank
 * that has one, with its text, and where the world ends meanwhile the world's. `status` not OK: its
 * text is this thread's last error.
 */
dtrain_status_t dt_talk_agree(const dt_talk_t *talk, dtrain_status_t status);

/* *differs is 1 on all ranks unless all brought the same number. */
dtrain_status_t dt_talk_compare(const dt_talk_t *talk, uint64_t number, int *differs);

#endif
