#include "core/id_table.h"

#include <string.h>

#include "base/memory.h"
#include "core/wire.h"

#define FIRST_CAPACITY 256

static int reserve(dt_id_table_t *table, uint32_t id)
{
    uint32_t capacity = table->capacity ? table->capacity : FIRST_CAPACITY;
    while (capacity <= id)
        capacity *= 2;
    dt_operation_t **slots = dt_realloc(table->slots, capacity * sizeof *slots);
    if (!slots)
        return -1;
    memset(slots + table->capacity, 0, (capacity - table->capacity) * sizeof *slots);
    table->slots = slots;
    table->capacity = capacity;
    return 0;
}

int dt_id_table_set(dt_id_table_t *table, dt_operation_t *operation)
{
    if (operation->id == DT_ID_NONE)
        return 0;
    if (operation->id >= table->capacity && reserve(table, operation->id))
        return -1;
    table->slots[operation->id] = operation;
    return 0;
}

dt_operation_t *dt_id_table_get(const dt_id_table_t *table, uint32_t id)
{
    return id < table->capacity ? table->slots[id] : NULL;
}

void dt_id_table_clear(dt_id_table_t *table, const dt_operation_t *operation)
{
    if (dt_id_table_get(table, operation->id) == operation)
        table->slots[operation->id] = NULL;
}

void dt_id_table_free(dt_id_table_t *table)
{
    dt_free(table->slots);
    *table = (dt_id_table_t){0};
}
