/* nccl_ranges.h - stretches of device memory that do not overlap, found by any address in them. */
#ifndef DT_COMM_NCCL_RANGES_H
#define DT_COMM_NCCL_RANGES_H

#include <stddef.h>

typedef struct dt_nccl_range {
    char *begin;
    size_t bytes; /* 1 or more */
    int flags;    /* whoever keeps it, as the next */
    void *handle;
} dt_nccl_range_t;

/* All zeros is an empty table. */
typedef struct dt_nccl_ranges {
    dt_nccl_range_t *sorted;
    int count, capacity;
} dt_nccl_ranges_t;

void dt_nccl_ranges_free(dt_nccl_ranges_t *ranges);

/* 0, or -1: memory ran out. */
int dt_nccl_ranges_add(dt_nccl_ranges_t *ranges, dt_nccl_range_t range);

/* The one that an address is in, or NULL; it is good until the table changes. */
dt_nccl_range_t *dt_nccl_ranges_find(const dt_nccl_ranges_t *ranges, const void *address);

/* One that was found. */
void dt_nccl_ranges_remove(dt_nccl_ranges_t *ranges, dt_nccl_range_t *range);

#endif
