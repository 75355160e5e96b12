#include "train/grad_norm.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"

/* The sums of the blocks that are this rank's to sum. */
static void sum_shares(const dtrain_gradset_t *set, double *sums)
{
    for (int run = 0; run < set->plan.num_runs; run++) {
        int64_t begin, end;
        dt_gradset_share(set, run, set->talk.rank, &begin, &end);
        const dt_grad_region_t *region =
            dt_grad_region_of(&set->layout, set->plan.runs[run].first_block);
        for (int64_t at = begin; at < end; at += DT_NORM_BLOCK) {
            dt_norm_t block = dt_norm_begin(at / DT_NORM_BLOCK);
            dt_norm_add(&block, region->dtype, set->memory + dt_grad_offset(region, at),
                        DT_NORM_BLOCK);
            /* Of squares that are too large for a double the sum is infinite, and stays so. */
            sums[at / DT_NORM_BLOCK] = block.finite ? block.nodes[0] : (double)NAN;
        }
    }
}

dtrain_status_t dt_grad_norm(dtrain_gradset_t *set, double *sums, double *norm, int *finite)
{
    int64_t num_blocks = set->layout.num_blocks;
    memset(sums, 0, (size_t)num_blocks * sizeof *sums);
    sum_shares(set, sums);
    dtrain_status_t status = DTRAIN_OK;
    /* One rank has a number for each block, the others zeros: adding them up rounds nothing. */
    if (set->talk.size > 1 && num_blocks > 0)
        status = dt_talk_reduce(&set->talk, sums, num_blocks, DTRAIN_DTYPE_F64, DTRAIN_OP_SUM);
    if (status != DTRAIN_OK)
        return status;
    dt_norm_t total = dt_norm_begin(0);
    *finite = 1;
    for (int64_t i = 0; i < num_blocks; i++) {
        dt_norm_t block = {.first_block = i, .num_blocks = 1, .finite = 1, .num_nodes = 1};
        block.nodes[0] = sums[i];
        *finite &= !isnan(sums[i]);
        dt_norm_append(&total, &block);
    }
    *norm = sqrt(dt_norm_total(&total));
    return DTRAIN_OK;
}
