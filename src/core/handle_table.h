/*
 * handle_table.h - where operations live. Their memory is never given back before the table is,
 * so a stale handle reads a slot of another generation, not freed memory.
 *
 * A handle is generation * 2^20 + slot: 2^20 operations at once, and a slot's handles repeat
 * after 2^44 of them.
 */
#ifndef DT_CORE_HANDLE_TABLE_H
#define DT_CORE_HANDLE_TABLE_H

#include "core/operation.h"

typedef struct dt_handle_table dt_handle_table_t;

dt_handle_table_t *dt_handle_table_create(void); /* NULL when memory ran out */
void dt_handle_table_free(dt_handle_table_t *table);

/* A cleared operation with a handle of its own; NULL when memory or slots ran out. Any thread. */
dt_operation_t *dt_handle_acquire(dt_handle_table_t *table);

/* The operation that a handle names; NULL for a stale or made-up one. Any thread. */
dt_operation_t *dt_handle_find(dt_handle_table_t *table, dtrain_handle_t handle);

/* What an operation that is done came to: its status, and its error's text ("" when it has none) in
 * text[cap]. 0, or -1 when `handle` is not its handle any more. Any thread. */
int dt_handle_result(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle,
                     dtrain_status_t *status, char *text, size_t cap);

/* Where the output of an operation that is done lies. */
typedef struct dt_handle_output {
    dt_signature_t signature;
    const void *data;       /* NULL: it has none, or one of no bytes */
    int64_t rows;           /* its first extent, where the kind deals in rows */
    const int64_t *indices; /* of a sparse allreduce's rows; NULL: it is dense */
} dt_handle_output_t;

/* Copies it, or the rows that came from each of n ranks. 0, or -1 when `handle` is not the
 * operation's any more. Any thread. */
int dt_handle_output(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle,
                     dt_handle_output_t *output);
int dt_handle_splits(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle,
                     int64_t *splits, int n);

/* Marks an operation whose callback has returned as done, unless the callback has released it. */
void dt_handle_finish(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle);

/* Gives the operation back, once, and frees what it holds; an output that a peer may still be
 * writing to when the table is freed. 0, or -1 when `handle` is not its handle any more. */
int dt_handle_release(dt_handle_table_t *table, dt_operation_t *operation, dtrain_handle_t handle);

/* Handles that are out. */
int dt_handle_count(dt_handle_table_t *table);

#endif
