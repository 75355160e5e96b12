/*
 * norm.h - the sum of squares of a space of elements, in an order that positions alone decide, so
 * that the global norm has the same bits whether one rank sums all, or each of many its shards.
 *
 * The space is cut into blocks of DT_NORM_BLOCK elements. Squares and sums are double. A block has
 * 16 sums, of the elements whose position modulo 16 is the same, added up as a balanced tree;
 * blocks are added up along the balanced binary tree over their numbers (see reduce.h). A dt_norm_t
 * holds what is known of that tree for some neighbouring blocks: the largest whole subtrees in
 * them, at most two of a size. It is plain data and may be sent to another rank as it is.
 *
 * Who lays out the space decides where a tensor or a bucket begins; a range begins on a block's
 * border. A block that its range does not fill counts as filled up with zeros.
 */
#ifndef DT_OPTIM_NORM_H
#define DT_OPTIM_NORM_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

#define DT_NORM_BLOCK 4096
#define DT_NORM_MAX_NODES 104 /* two of each size, for 2^52 blocks */

typedef struct dt_norm {
    int64_t first_block;
    int64_t num_blocks;
    int32_t finite; /* 0 when an element is infinite or NaN */
    int32_t num_nodes;
    double nodes[DT_NORM_MAX_NODES]; /* their sizes follow from first_block and num_blocks */
} dt_norm_t;

/* How many blocks `count` elements take. */
int64_t dt_norm_blocks(int64_t count);

/* The empty range before `first_block`. */
dt_norm_t dt_norm_begin(int64_t first_block);

/* Adds the next `count` elements and fills up their last block. `dtype` is F16, BF16, F32 or F64.
 * One pass over the memory. Thread-safe, also in the bits. */
void dt_norm_add(dt_norm_t *norm, dtrain_dtype_t dtype, const void *values, size_t count);

/* Adds the blocks of `next`, which may come from another rank. 0, or -1 and nothing is changed
 * when it does not begin where `norm` ends or is damaged. */
int dt_norm_append(dt_norm_t *norm, const dt_norm_t *next);

/* The sum of squares of all blocks: of a norm that begins at block 0, the tree's. When `finite`
 * it is infinite only where F64 squares are beyond the range of double. */
double dt_norm_total(const dt_norm_t *norm);

/*
 * The part [*begin, *end) of `rank` of `size` of `count` elements, cut on blocks' borders and as
 * evenly as these allow; empty where there are fewer blocks than ranks.
 */
void dt_norm_shard(int64_t count, int rank, int size, int64_t *begin, int64_t *end);

#endif
