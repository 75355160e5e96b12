/* operand.h - what an operation reads and writes on this rank: rows, sizes and buffers, as far as
 * they are known before the other ranks' are. */
#ifndef DT_CORE_OPERAND_H
#define DT_CORE_OPERAND_H

#include "core/runtime.h"

/* How `rows` are shared out over `size` ranks: how many a rank gets, and how many lie before its.
 * rank == size is allowed for the second: all of them. */
int64_t dt_rows_of(int64_t rows, int size, int rank);
int64_t dt_rows_before(int64_t rows, int size, int rank);

/* 1 when the two stretches of memory share a byte. */
int dt_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes);

/*
 * Fills in count, bytes, buffers, splits and the memory that the library provides, for an operation
 * whose signature is filled in and checked. INVALID_ARGUMENT or OUT_OF_MEMORY with a text.
 */
dtrain_status_t dt_operand_fill(dt_operation_t *operation, const dt_submission_t *submission,
                                int rank, int size);

#endif
