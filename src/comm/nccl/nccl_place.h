/* nccl_place.h - where NCCL reads and writes the tensor of a collective that is not packed: where
 * it lies, or beside it. */
#ifndef DT_COMM_NCCL_PLACE_H
#define DT_COMM_NCCL_PLACE_H

#include "comm/nccl/nccl_comm.h"

typedef struct dt_nccl_place {
    dt_piece_t piece; /* in the place of the collective's */
    dt_copy_t back;   /* behind it, when there are bytes */
} dt_nccl_place_t;

/*
 * Before NCCL is called, in the task's job. A tensor that lies in registered memory on all ranks is
 * used where it lies, and registered now if it was not. Where it does so on some ranks only, none
 * may bring registered memory: a rank whose tensor NCCL knows lets NCCL work on a copy.
 */
dtrain_status_t dt_nccl_place(dt_nccl_comm_t *comm, dt_collective_t *collective,
                              dt_nccl_place_t *place);

/* Behind NCCL's operations. */
dtrain_status_t dt_nccl_place_back(dt_nccl_comm_t *comm, const dt_nccl_place_t *place);

#endif
