#include "train/grad_norm.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fp_mode.h"
#include "base/status.h"
#include "reduce/half.h"

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

static dtrain_status_t make_room(dtrain_gradset_t *set, int device, double **sums)
{
    void *memory = NULL;
    if (*sums)
        return DTRAIN_OK;
    dtrain_status_t status = dt_user_memory_alloc(
        &set->runtime->memory, (size_t)set->layout.num_blocks * sizeof **sums, device, &memory);
    *sums = memory;
    return status;
}

dtrain_status_t dt_grad_norm_prepare(dtrain_gradset_t *set)
{
    dtrain_status_t status = make_room(set, DTRAIN_DEVICE_CPU, &set->sums);
    if (status == DTRAIN_OK && set->device)
        status = make_room(set, DTRAIN_DEVICE_CUDA, &set->device_sums);
    return status;
}

/* The same by the GPU, behind what is in the set's stream; the host gets a number a block. */
static dtrain_status_t sum_shares_there(const dtrain_gradset_t *set, double *sums)
{
    dt_device_t *device = set->device;
    size_t bytes = (size_t)set->layout.num_blocks * sizeof *sums;
    dtrain_status_t status = device->ops->clear(device, set->stream, set->device_sums, bytes);
    for (int run = 0; run < set->plan.num_runs && status == DTRAIN_OK; run++) {
        int64_t begin, end;
        dt_gradset_share(set, run, set->talk.rank, &begin, &end);
        const dt_grad_region_t *region =
            dt_grad_region_of(&set->layout, set->plan.runs[run].first_block);
        status = device->ops->squares(device, set->stream, region->dtype,
                                      set->memory + dt_grad_offset(region, begin), end - begin,
                                      set->device_sums + begin / DT_NORM_BLOCK);
    }
    return status == DTRAIN_OK
               ? device->ops->transfer(device, set->stream, sums, set->device_sums, bytes)
               : status;
}

dtrain_status_t dt_grad_norm(dtrain_gradset_t *set, double *norm, int *finite)
{
    double *sums = set->sums;
    int64_t num_blocks = set->layout.num_blocks;
    dtrain_status_t status = DTRAIN_OK;
    memset(sums, 0, (size_t)num_blocks * sizeof *sums);
    if (set->device)
        status = dt_talk_agree(&set->talk, sum_shares_there(set, sums));
    else
        sum_shares(set, sums);
    if (status != DTRAIN_OK)
        return status;
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

double dt_clip_factor(double norm, double max_norm)
{
    /* As torch has it, so that a training from there goes on as it was. */
    return max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1;
}

/* Multiplies in the type itself, or in float32 where that is wider. */
static void scale(dtrain_dtype_t dtype, void *values, int64_t count, double factor)
{
    float *singles = values;
    double *doubles = values;
    uint16_t *halves = values;
    float single = (float)factor;
    for (int64_t i = 0; i < count && dtype == DTRAIN_DTYPE_F32; i++)
        singles[i] *= single;
    for (int64_t i = 0; i < count && dtype == DTRAIN_DTYPE_F64; i++)
        doubles[i] *= factor;
    for (int64_t i = 0; i < count && dtype == DTRAIN_DTYPE_F16; i++)
        halves[i] = dt_f32_to_f16(dt_f16_to_f32(halves[i]) * single);
    for (int64_t i = 0; i < count && dtype == DTRAIN_DTYPE_BF16; i++)
        halves[i] = dt_f32_to_bf16(dt_bf16_to_f32(halves[i]) * single);
}

static void scale_all(dtrain_gradset_t *set, double factor)
{
    dt_fp_mode_t mode = dt_fp_mode_enter();
    for (int i = 0; i < set->layout.num_regions; i++) {
        const dt_grad_region_t *region = &set->layout.regions[i];
        scale(region->dtype, set->memory + region->offset, region->num_blocks * DT_NORM_BLOCK,
              factor);
    }
    for (int i = 0; i < set->layout.n; i++) {
        const dt_grad_slice_t *slice = &set->layout.slices[i];
        if (set->slots[i].own)
            scale(set->layout.regions[slice->region].dtype, set->slots[i].own, slice->count,
                  factor);
    }
    dt_fp_mode_leave(mode);
}

/* Behind what is in the set's stream; unless the step's wait was for that, the host waits. */
static dtrain_status_t scale_all_there(dtrain_gradset_t *set, double factor)
{
    dt_device_t *device = set->device;
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < set->layout.num_regions && status == DTRAIN_OK; i++) {
        const dt_grad_region_t *region = &set->layout.regions[i];
        status =
            device->ops->scale(device, set->stream, region->dtype, set->memory + region->offset,
                               region->num_blocks * DT_NORM_BLOCK, factor);
    }
    for (int i = 0; i < set->layout.n && status == DTRAIN_OK; i++) {
        const dt_grad_slice_t *slice = &set->layout.slices[i];
        if (set->slots[i].own)
            status =
                device->ops->scale(device, set->stream, set->layout.regions[slice->region].dtype,
                                   set->slots[i].own, slice->count, factor);
    }
    if (status == DTRAIN_OK && !set->is_streamed)
        status = device->ops->transfer(device, set->stream, NULL, NULL, 0);
    return status;
}

static dtrain_status_t prepare_clip(dtrain_gradset_t *set, double max_norm, const double *norm)
{
    dtrain_status_t status = dt_gradset_check_idle(set, "dtrain_gradset_clip");
    if (status == DTRAIN_OK && (!(max_norm > 0) || !norm))
        status =
            dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                    "dtrain_gradset_clip: max_norm is %g, not above 0, or norm is NULL", max_norm);
    for (int i = 0; i < set->layout.num_regions && status == DTRAIN_OK; i++) {
        if (!dt_dtype_is_float(set->layout.regions[i].dtype))
            status = dt_fail(DTRAIN_ERR_UNSUPPORTED, "dtrain_gradset_clip: gradients of %s",
                             dt_dtype_name(set->layout.regions[i].dtype));
    }
    return status == DTRAIN_OK ? dt_grad_norm_prepare(set) : status;
}

dtrain_status_t dt_grad_clip(dtrain_gradset_t *set, double max_norm, double *norm)
{
    double found;
    int finite;
    dtrain_status_t status = dt_runtime_may_block(set->runtime, "dtrain_gradset_clip");
    if (status != DTRAIN_OK)
        return status;
    status = dt_talk_agree(&set->talk, prepare_clip(set, max_norm, norm));
    if (status == DTRAIN_OK)
        status = dt_grad_norm(set, &found, &finite);
    if (status != DTRAIN_OK)
        return status;
    double factor = finite ? dt_clip_factor(found, max_norm) : 1;
    if (factor != 1 && set->device)
        status = scale_all_there(set, factor);
    else if (factor != 1)
        scale_all(set, factor);
    if (status != DTRAIN_OK)
        return status;
    *norm = finite ? found : (double)NAN;
    return DTRAIN_OK;
}
