#include "move_plan.h"

/* So that chunks and places have numbers of 32 bits. */
#define BUFFER_MAX ((int64_t)DT_MOVE_ALIGNMENT << 31)

static int64_t units_of(int64_t count, int element_bytes)
{
    return (count * element_bytes + DT_MOVE_ALIGNMENT - 1) / DT_MOVE_ALIGNMENT;
}

int64_t dt_move_bytes(const dt_move_item_t *items, int n, int element_bytes)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        if (items[i].count > BUFFER_MAX / element_bytes)
            return -1;
        bytes += units_of(items[i].count, element_bytes) * DT_MOVE_ALIGNMENT;
        if (bytes > BUFFER_MAX)
            return -1;
    }
    return bytes;
}

int dt_move_fill(dt_move_head_t *head, dt_move_entry_t *entries, int room, int element_bytes,
                 const dt_move_item_t *items, int n, int *next, uint32_t *place)
{
    int used = 0;
    head->chunk = (uint32_t)(DT_MOVE_CHUNK_BYTES / element_bytes);
    head->num_chunks = 0;
    for (; *next < n && used < room; (*next)++) {
        const dt_move_item_t *item = &items[*next];
        if (item->count == 0)
            continue;
        entries[used++] = (dt_move_entry_t){.tensor = item->tensor,
                                            .count = item->count,
                                            .place = *place,
                                            .first_chunk = head->num_chunks};
        head->num_chunks += (uint32_t)((item->count + head->chunk - 1) / head->chunk);
        *place += (uint32_t)units_of(item->count, element_bytes);
    }
    head->num_entries = (uint32_t)used;
    return used;
}
