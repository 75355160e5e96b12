/*
 * intake.h - the tensor queue: where submitting threads hand operations to the coordinator, and
 * where a name is kept to one operation in flight.
 *
 * One lock guards the queue and the response cache. It is held for short, bounded work only, and
 * no other lock is taken under it.
 */
#ifndef DT_CORE_INTAKE_H
#define DT_CORE_INTAKE_H

#include <pthread.h>

#include "core/response_cache.h"

typedef struct dt_intake {
    pthread_mutex_t lock;
    dt_response_cache_t cache; /* [lock] */
    dt_operation_list_t queue; /* [lock] submitted, not taken yet */
    dt_operation_list_t held;  /* [lock] wait for their name to be free */
    _Atomic int num_queued;    /* [atomic] written under the lock */
    dtrain_status_t closed;    /* [lock] not OK: nothing more is taken in */
    char *closed_text;         /* [lock] */
} dt_intake_t;

void dt_intake_init(dt_intake_t *intake);
void dt_intake_free(dt_intake_t *intake);

/*
 * Takes in an operation under a name (a key of pset_key.h), in order. DUPLICATE_NAME when the name
 * is in flight; except that barriers, changes of process sets, and calls that follow a refused one,
 * are held back until the name is free. The intake's own status once it was closed. OUT_OF_MEMORY.
 * After an error the operation is still the caller's.
 */
dtrain_status_t dt_intake_submit(dt_intake_t *intake, dt_operation_t *operation, const char *name,
                                 size_t length);

/* Takes in several operations, or none: the error is that of the first that cannot be taken in. */
typedef struct dt_intake_item {
    dt_operation_t *operation;
    const char *name;
    size_t length;
} dt_intake_item_t;

dtrain_status_t dt_intake_submit_all(dt_intake_t *intake, const dt_intake_item_t *items, int n);

/* Takes in refused calls at once, so that rank 0 hears of all in one message. Those that are still
 * the caller's afterwards keep their `operation`, which the others lose: whose name is in flight,
 * since the other ranks' calls meet what is in flight. */
void dt_intake_submit_refused(dt_intake_t *intake, dt_intake_item_t *items, int n);

/* Moves all that is queued to the end of `taken`. Returns how many. */
int dt_intake_take(dt_intake_t *intake, dt_operation_list_t *taken);

/* The same for what is held back. */
int dt_intake_take_held(dt_intake_t *intake, dt_operation_list_t *taken);

/* The operation in flight under a name; NULL when there is none here. */
dt_operation_t *dt_intake_find(dt_intake_t *intake, const char *name, size_t length);

/* Notes the id that an operation in flight was given. */
dtrain_status_t dt_intake_learn(dt_intake_t *intake, dt_operation_t *operation, uint32_t id);

/* The operations are over: their names are free, and the next ones held back for these go on. */
void dt_intake_finish(dt_intake_t *intake, dt_operation_t *const *operations, int n);

/* A process set is gone: forgets the names and ids on it. */
void dt_intake_forget(dt_intake_t *intake, int32_t pset);

/* From now on submit fails with `status` and `text`; what was taken in before goes its way. The
 * first call's status stands. */
void dt_intake_close(dt_intake_t *intake, dtrain_status_t status, const char *text);

#endif
