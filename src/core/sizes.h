/*
 * sizes.h - operations whose ranks bring different numbers of rows (allgather, gather, alltoall):
 * before data moves the ranks tell each other how many, for all such operations of a verdict at
 * once, in one or two small collectives. In the first each rank tells the others how many rows it
 * will send and how much room its output has. Then each knows the size of its output, and finds
 * memory for it or sees whether the caller's suffices. Where nothing else than too little room can
 * go wrong on any rank, each knows by itself how all fare; otherwise they tell all in a second one.
 * An operation for which it did not go well on some rank fails on all, with nothing moved.
 */
#ifndef DT_CORE_SIZES_H
#define DT_CORE_SIZES_H

#include "core/collective.h"
#include "core/staged.h"

/* `operations` are borrowed. NULL when memory ran out. */
dt_staged_t *dt_sizes_create(dt_operation_t *const *operations, int n, dt_ranks_t ranks);

/*
 * One operation of at most 32 ranks whose first collective can be spared: its ranks have told each
 * other already, dt_sizes_told_bytes of what dt_sizes_tell writes. That is to be put where *told
 * says, in rank order.
 */
size_t dt_sizes_told_bytes(const dt_operation_t *operation, int size);
void dt_sizes_tell(const dt_operation_t *operation, dt_ranks_t ranks, int64_t *words);
dt_staged_t *dt_sizes_create_told(dt_operation_t *operation, dt_ranks_t ranks, void **told);

/* Once it is complete: what became of operation i; OK, or a status that is the same on all ranks
 * and a text in text[cap]. */
dtrain_status_t dt_sizes_result(const dt_staged_t *staged, int i, char *text, size_t cap);

int dt_sizes_count(const dt_staged_t *staged);
dt_operation_t *dt_sizes_operation(const dt_staged_t *staged, int i);

#endif
