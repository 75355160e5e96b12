#include "optim/norm.h"

#include <math.h>

#include "base/dtype.h"
#include "base/fp_mode.h"
#include "base/share.h"
#include "optim/kernels.h"

int64_t dt_norm_blocks(int64_t count)
{
    return count / DT_NORM_BLOCK + (count % DT_NORM_BLOCK != 0);
}

dt_norm_t dt_norm_begin(int64_t first_block)
{
    return (dt_norm_t){.first_block = first_block, .finite = 1};
}

/* The blocks of the largest subtree that begins at `block` and has at most `most` blocks. */
static int64_t largest_subtree(int64_t block, int64_t most)
{
    int64_t size = 1;
    while (size <= most / 2 && block % (2 * size) == 0)
        size *= 2;
    return size;
}

/* Adds a subtree of `size` blocks behind the last, and joins what it completes: the two last nodes
 * are brothers where the larger tree that ends here begins inside. */
static void push(dt_norm_t *norm, int64_t size, double sum)
{
    norm->nodes[norm->num_nodes++] = sum;
    norm->num_blocks += size;
    int64_t end = norm->first_block + norm->num_blocks;
    for (; end % (2 * size) == 0 && end - 2 * size >= norm->first_block; size *= 2) {
        norm->num_nodes--;
        norm->nodes[norm->num_nodes - 1] += norm->nodes[norm->num_nodes];
    }
}

/* A square of F64 may be infinite though the element is not. */
static int all_finite(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return 0;
    return 1;
}

void dt_norm_add(dt_norm_t *norm, dtrain_dtype_t dtype, const void *values, size_t count)
{
    dt_squares_fn_t squares = dt_optim_kernels()->squares[dtype];
    size_t size = dt_dtype_size(dtype);
    dt_fp_mode_t mode = dt_fp_mode_enter();
    const char *at = values;
    while (count > 0) {
        size_t length = count < DT_NORM_BLOCK ? count : DT_NORM_BLOCK;
        double sum = squares(at, length);
        if (!isfinite(sum) &&
            (dtype != DTRAIN_DTYPE_F64 || !all_finite((const double *)(const void *)at, length)))
            norm->finite = 0;
        push(norm, 1, sum);
        at += length * size;
        count -= length;
    }
    dt_fp_mode_leave(mode);
}

/* Whether the nodes are as many as the range's blocks ask for. */
static int is_sound(const dt_norm_t *norm)
{
    if (norm->first_block < 0 || norm->num_blocks < 0 ||
        norm->num_blocks > INT64_MAX / DT_NORM_BLOCK - norm->first_block)
        return 0;
    int num_nodes = 0;
    for (int64_t done = 0; done < norm->num_blocks; num_nodes++)
        done += largest_subtree(norm->first_block + done, norm->num_blocks - done);
    return num_nodes == norm->num_nodes;
}

int dt_norm_append(dt_norm_t *norm, const dt_norm_t *next)
{
    if (!is_sound(next) || next->first_block != norm->first_block + norm->num_blocks)
        return -1;
    dt_fp_mode_t mode = dt_fp_mode_enter();
    int64_t done = 0;
    for (int i = 0; i < next->num_nodes; i++) {
        int64_t size = largest_subtree(next->first_block + done, next->num_blocks - done);
        push(norm, size, next->nodes[i]);
        done += size;
    }
    norm->finite = norm->finite && next->finite;
    dt_fp_mode_leave(mode);
    return 0;
}

double dt_norm_total(const dt_norm_t *norm)
{
    dt_fp_mode_t mode = dt_fp_mode_enter();
    double total = 0;
    for (int i = norm->num_nodes - 1; i >= 0; i--)
        total = norm->nodes[i] + total;
    dt_fp_mode_leave(mode);
    return total;
}

void dt_norm_shard(int64_t count, int rank, int size, int64_t *begin, int64_t *end)
{
    int64_t blocks = dt_norm_blocks(count), first, last;
    dt_share(blocks, rank, size, &first, &last);
    *begin = first < blocks ? first * DT_NORM_BLOCK : count;
    *end = last < blocks ? last * DT_NORM_BLOCK : count;
}
