/*
 * grad_layout.h - where the gradients of a set lie: one behind the other in one space of elements,
 * in the order in which they are expected to become ready, each on a border of 128 bytes.
 *
 * The space is cut into blocks of DT_NORM_BLOCK elements, whole ones for each type (a region), so
 * that buckets, ranks' shares and partial sums of the norm all begin and end on blocks' borders,
 * whatever gradients they cut through. The parameters' memory, where the library provides it, has
 * the same layout.
 */
#ifndef DT_TRAIN_GRAD_LAYOUT_H
#define DT_TRAIN_GRAD_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

#include "optim/norm.h"

#define DT_GRAD_REGIONS_MAX 16

typedef struct dt_grad_slice {
    char *name;
    int64_t *shape; /* ndim extents */
    int32_t ndim;
    int32_t region;
    int64_t count;
    int64_t first; /* element of the space */
} dt_grad_slice_t;

/* Blocks of one type of gradients and one of parameters. */
typedef struct dt_grad_region {
    dtrain_dtype_t dtype;       /* of the gradients */
    dtrain_dtype_t param_dtype; /* of the parameters */
    int64_t first_block, num_blocks;
    size_t offset, param_offset; /* bytes in the memory of gradients and of parameters */
} dt_grad_region_t;

typedef struct dt_grad_layout {
    dt_grad_slice_t *slices; /* by index of the parameter */
    int32_t *order;          /* the indices in the order of their places */
    int n;
    int num_regions;
    dt_grad_region_t regions[DT_GRAD_REGIONS_MAX];
    int64_t num_blocks;
    size_t bytes, param_bytes;
} dt_grad_layout_t;

/*
 * Lays out n parameters. `order` lists their indices, each once, in the order of their places;
 * NULL: the last comes first, as backward passes go. Everything is copied. INVALID_ARGUMENT (the
 * text names the parameter), UNSUPPORTED (too many types) or OUT_OF_MEMORY; then the layout is
 * empty.
 */
dtrain_status_t dt_grad_layout_make(dt_grad_layout_t *layout, const dtrain_param_t *params, int n,
                                    const int32_t *order);
void dt_grad_layout_free(dt_grad_layout_t *layout); /* nothing for one of zeros */

/* OK when `order` has each of 0 to n - 1 once; else INVALID_ARGUMENT. */
dtrain_status_t dt_grad_order_check(const int32_t *order, int n);

/* The region that a block is in. */
const dt_grad_region_t *dt_grad_region_of(const dt_grad_layout_t *layout, int64_t block);

/* Where an element of a region begins, in bytes, in the memory of gradients or of parameters. */
size_t dt_grad_offset(const dt_grad_region_t *region, int64_t element);
size_t dt_grad_param_offset(const dt_grad_region_t *region, int64_t element);

/* What a range of elements has in common with one slice. */
typedef struct dt_grad_segment {
    int index;     /* of the parameter */
    int64_t begin; /* element of the slice */
    int64_t count; /* 0: there are no more */
    int64_t first; /* element of the space */
    int64_t place; /* in the order; the walk's own */
} dt_grad_segment_t;

/* Walks the slices that have elements in [begin, end): the first, and the one after `segment`. */
dt_grad_segment_t dt_grad_segment_first(const dt_grad_layout_t *layout, int64_t begin, int64_t end);
void dt_grad_segment_next(const dt_grad_layout_t *layout, int64_t end, dt_grad_segment_t *segment);

#endif
