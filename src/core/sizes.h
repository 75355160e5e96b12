/*
 * sizes.h - operations whose ranks bring different numbers of rows (allgather, gather, alltoall):
 * before data moves the ranks tell each other how many, for all such operations of a verdict at
 * once, in two small collectives. In the first each rank tells each other one how many rows it will
 * send it. Then each knows the size of its output, and finds memory for it or sees whether the
 * caller's suffices. In the second they tell all whether that went well; an operation for which it
 * did not on some rank fails on all, with nothing moved.
 */
#ifndef DT_CORE_SIZES_H
#define DT_CORE_SIZES_H

#include "core/collective.h"
#include "core/staged.h"

/* `operations` are borrowed. NULL when memory ran out. */
dt_staged_t *dt_sizes_create(dt_operation_t *const *operations, int n, dt_ranks_t ranks);

/* Once it is complete: what became of operation i; OK, or a status that is the same on all ranks
 * and a text in text[cap]. */
dtrain_status_t dt_sizes_result(const dt_staged_t *staged, int i, char *text, size_t cap);

int dt_sizes_count(const dt_staged_t *staged);
dt_operation_t *dt_sizes_operation(const dt_staged_t *staged, int i);

#endif
