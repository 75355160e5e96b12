/* move_plan.h - lays tensors out in a fusion buffer, and cuts a move into launches. Pure functions.
 */
#ifndef DT_CUDA_MOVE_PLAN_H
#define DT_CUDA_MOVE_PLAN_H

#include <stddef.h>

#include "kernels.h"

typedef struct dt_move_item {
    void *tensor;
    int64_t count;
} dt_move_item_t;

/* Bytes of a buffer that holds the items, of `element_bytes` each element there, one behind the
 * other on borders of DT_MOVE_ALIGNMENT; -1: more than can be addressed. */
int64_t dt_move_bytes(const dt_move_item_t *items, int n, int element_bytes);

/*
 * Fills in the entries of one launch: items from *next on, whose first lies at *place units in the
 * buffer, at most `room`; both are moved on. `head` has all but its counts. Empty items take no
 * entry. Returns the number of entries: 0 when nothing is left.
 */
int dt_move_fill(dt_move_head_t *head, dt_move_entry_t *entries, int room, int element_bytes,
                 const dt_move_item_t *items, int n, int *next, uint32_t *place);

#endif
