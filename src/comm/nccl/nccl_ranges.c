#include "comm/nccl/nccl_ranges.h"

#include <string.h>

#include "base/memory.h"

void dt_nccl_ranges_free(dt_nccl_ranges_t *ranges)
{
    dt_free(ranges->sorted);
    memset(ranges, 0, sizeof *ranges);
}

/* How many begin at an address or below it. */
static int count_below(const dt_nccl_ranges_t *ranges, const void *address)
{
    int low = 0, high = ranges->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if ((const void *)ranges->sorted[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int dt_nccl_ranges_add(dt_nccl_ranges_t *ranges, dt_nccl_range_t range)
{
    if (ranges->count == ranges->capacity) {
        int capacity = ranges->capacity ? 2 * ranges->capacity : 16;
        dt_nccl_range_t *sorted =
            dt_realloc(ranges->sorted, (size_t)capacity * sizeof *ranges->sorted);
        if (!sorted)
            return -1;
        ranges->sorted = sorted;
        ranges->capacity = capacity;
    }
    int at = count_below(ranges, range.begin);
    memmove(&ranges->sorted[at + 1], &ranges->sorted[at],
            (size_t)(ranges->count - at) * sizeof *ranges->sorted);
    ranges->sorted[at] = range;
    ranges->count++;
    return 0;
}

dt_nccl_range_t *dt_nccl_ranges_find(const dt_nccl_ranges_t *ranges, const void *address)
{
    int below = count_below(ranges, address);
    dt_nccl_range_t *last = below > 0 ? &ranges->sorted[below - 1] : NULL;
    return last && (const char *)address - last->begin < (ptrdiff_t)last->bytes ? last : NULL;
}

void dt_nccl_ranges_remove(dt_nccl_ranges_t *ranges, dt_nccl_range_t *range)
{
    size_t behind = (size_t)(&ranges->sorted[--ranges->count] - range);
    memmove(range, range + 1, behind * sizeof *range);
}
