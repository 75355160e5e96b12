/*
 * errands.h - prepared work that any thread hands to the coordinator without a lock, an allocation
 * or a name: a stack that is taken over as a whole. Whoever adds an errand calls dt_baton_notify
 * after it.
 */
#ifndef DT_CORE_ERRANDS_H
#define DT_CORE_ERRANDS_H

#include <stdatomic.h>

/* Part of what it is about; its owner's again once `run` is called. */
typedef struct dt_errand {
    struct dt_errand *next; /* the owner of `last`'s; published by it */
    /* With the baton, as a callback: what would block is refused in it. */
    void (*run)(struct dt_errand *errand);
} dt_errand_t;

/* All zeros is none. */
typedef struct dt_errands {
    dt_errand_t *_Atomic last; /* [atomic] the one that was added last; sequentially consistent */
} dt_errands_t;

/* Any thread. An errand that was added is not added again before it has run. */
void dt_errands_add(dt_errands_t *errands, dt_errand_t *errand);

/* 1 when there are any. Any thread. */
int dt_errands_are_waiting(dt_errands_t *errands);

/* Takes all that were added, the first one first, linked by `next`; NULL when there are none. */
dt_errand_t *dt_errands_take(dt_errands_t *errands);

#endif
