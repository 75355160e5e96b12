/* id_table.h - which operation in flight on this rank goes by which id; used by the holder of the
 * baton alone, so that a verdict of ids is looked up without a lock. */
#ifndef DT_CORE_ID_TABLE_H
#define DT_CORE_ID_TABLE_H

#include "core/operation.h"

/* All zeros is an empty table. */
typedef struct dt_id_table {
    dt_operation_t **slots;
    uint32_t capacity;
} dt_id_table_t;

/* Enters an operation under its id; one without is not entered. 0, or -1 when memory ran out. */
int dt_id_table_set(dt_id_table_t *table, dt_operation_t *operation);

/* The operation of an id; NULL when there is none. */
dt_operation_t *dt_id_table_get(const dt_id_table_t *table, uint32_t id);

/* Takes an operation out, if it is in. */
void dt_id_table_clear(dt_id_table_t *table, const dt_operation_t *operation);

void dt_id_table_free(dt_id_table_t *table);

#endif
