/*
 * sparse.h - allreduces of tensors of which each rank has some rows. A rank's rows are sorted and
 * equal ones added up when they are submitted. Once the ranks have told each other how many they
 * have (sizes.h), either all collect all rows, encoded as blocks of indices and values, and merge
 * them; or, where these blocks would be no shorter than the whole tensor, it is reduced as any
 * other. Both add the ranks' rows along the same tree, so which way it went is not in the bits.
 */
#ifndef DT_CORE_SPARSE_H
#define DT_CORE_SPARSE_H

#include "core/runtime.h"
#include "core/staged.h"

/* Of an operation: [coordinator] from submit on. Its memory is in the list of the operation's
 * outputs, since peers may still be using it when the operation has failed. */
typedef struct dt_sparse {
    dt_output_t *own; /* this rank's rows: indices and values */
    dt_output_t *all; /* everyone's; NULL: where they are not collected */
    dt_output_t *out; /* on the GPU, for a tensor of one; NULL: it is the host's */
    int is_dense;     /* reduced as a whole tensor */
} dt_sparse_t;

/* Fills in a sparse operation whose signature is; copies the rows. An error is one that the other
 * ranks must learn of. */
dtrain_status_t dt_sparse_fill(dt_operation_t *operation, const dt_submission_t *submission,
                               int size);

/* Finds memory for it, now that the ranks' rows are known. *needed receives the bytes: -1 when they
 * cannot be counted. 0, or -1 when memory ran out. */
int dt_sparse_arrange(dt_operation_t *operation, dt_ranks_t ranks, int64_t *needed);

/* Of a tensor on a GPU, when all is done in host memory: what has to be copied from there, and
 * where to. Then the output is moved: it is said to lie there, and the host's is given back. */
void *dt_sparse_place(const dt_operation_t *operation, const void **from, size_t *bytes);
void dt_sparse_move(dt_operation_t *operation);

/* `operation` is borrowed. NULL when memory ran out. */
dt_staged_t *dt_sparse_create(dt_operation_t *operation, dt_ranks_t ranks);

#endif
