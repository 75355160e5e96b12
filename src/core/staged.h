/* staged.h - what takes several collectives, one after the other: the next one follows from what
 * the one before brought. The executor runs them; between them nothing else is begun, so that the
 * order is the same on all ranks. */
#ifndef DT_CORE_STAGED_H
#define DT_CORE_STAGED_H

#include "comm/backend.h"

typedef enum dt_stage {
    DT_STAGE_NONE = 0, /* nothing more to do */
    DT_STAGE_MORE = 1, /* a collective, and something after it */
    DT_STAGE_LAST = 2, /* a collective, and then it is complete */
    DT_STAGE_WAIT = 3  /* nothing yet: something else than a collective is under way */
} dt_stage_t;

typedef struct dt_staged dt_staged_t;

/* First member of each. */
struct dt_staged {
    /* Called at the start, and whenever the collective before is complete. Fills in the next one,
     * but for its sequence; what that points to is `staged`'s. An error ends the world. */
    dtrain_status_t (*next)(dt_staged_t *staged, dt_collective_t *collective, dt_stage_t *stage);
    /* The last collective is complete: puts the results in their place. NULL: there they are. */
    dtrain_status_t (*finish)(dt_staged_t *staged);
    void (*free)(dt_staged_t *staged);
    /* What is to be done behind the last collective, until it says OK. NULL: nothing. */
    dtrain_status_t (*end)(dt_staged_t *staged);
    /* As the backend's: a mark behind all of it on a device. NULL where there is no device. */
    dt_mark_t *(*enqueued)(dt_staged_t *staged);
    dt_piece_t piece; /* the collective's */
};

#endif
