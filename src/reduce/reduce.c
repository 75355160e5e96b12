/* reduce.c - checks a reduction, and calls the kernels for this CPU. */
#include "reduce/reduce.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fp_mode.h"
#include "base/isa.h"
#include "base/status.h"
#include "reduce/kernels.h"

/* ---- Checks ------------------------------------------------------------------------------- */

static dtrain_status_t check_scale(const dt_reduction_t *reduction, const char *which, double scale)
{
    const char *type = dt_dtype_name(reduction->dtype);
    if (!isfinite(scale))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s is %g; it must be finite", which, scale);
    if (reduction->dtype == DTRAIN_DTYPE_BOOL && scale != 1)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "%s %g: %s has no scales", which, scale, type);
    if (dt_dtype_is_float(reduction->dtype) && reduction->dtype != DTRAIN_DTYPE_F64 &&
        fabs(scale) > FLT_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s %g is beyond the range of float32, in which %s is reduced", which, scale,
                       type);
    return DTRAIN_OK;
}

dtrain_status_t dt_reduction_check(const dt_reduction_t *reduction)
{
    if (dt_dtype_size(reduction->dtype) == 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%d is no element type", (int)reduction->dtype);
    if ((int)reduction->op < 0 || (int)reduction->op >= DT_OP_COUNT)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%d is no reduction", (int)reduction->op);
    if (reduction->op == DTRAIN_OP_AVERAGE && reduction->dtype == DTRAIN_DTYPE_BOOL)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "%s of %s is not defined", dt_op_name(reduction->op),
                       dt_dtype_name(reduction->dtype));
    if (reduction->divisor < 1 || (reduction->op != DTRAIN_OP_AVERAGE && reduction->divisor != 1))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "divisor %d of a reduction by %s",
                       (int)reduction->divisor, dt_op_name(reduction->op));
    dtrain_status_t status = check_scale(reduction, "prescale", reduction->prescale);
    if (status != DTRAIN_OK)
        return status;
    return check_scale(reduction, "postscale", reduction->postscale);
}

/* ---- Reductions ---------------------------------------------------------------------------- */

static const dt_kernel_set_t *const sets[DT_ISA_COUNT] = {
    [DT_ISA_SCALAR] = &dt_kernels_scalar,
#if defined(__x86_64__)
    [DT_ISA_AVX2] = &dt_kernels_avx2,
    [DT_ISA_AVX512] = &dt_kernels_avx512,
#elif defined(__aarch64__)
    [DT_ISA_NEON] = &dt_kernels_neon,
#endif
};

static void copy(const dt_kernel_job_t *job, size_t bytes)
{
    for (int d = 0; d < job->num_destinations; d++)
        if (job->destinations[d] != job->sources[0])
            memcpy(job->destinations[d], job->sources[0], bytes);
}

void dt_reduce(const dt_reduction_t *reduction, void *const *destinations, int num_destinations,
               const void *const *sources, int num_sources, size_t count)
{
    dtrain_dtype_t dtype = reduction->dtype;
    int divisor = reduction->divisor;
    dt_kernel_job_t job = {
        .sources = sources,
        .destinations = destinations,
        .num_sources = num_sources,
        .num_destinations = num_destinations,
        .count = count,
        .op = reduction->op == DTRAIN_OP_AVERAGE ? DTRAIN_OP_SUM : reduction->op,
        .scaled = divisor != 1 || reduction->prescale != 1 || reduction->postscale != 1,
        .divides = (divisor & (divisor - 1)) != 0,
        .prescale = reduction->prescale,
        .divisor = divisor,
        .postscale = reduction->postscale,
    };

    if (count == 0)
        return;
    if (num_sources == 1 && !job.scaled && dtype != DTRAIN_DTYPE_BOOL) {
        copy(&job, count * dt_dtype_size(dtype));
        return;
    }
    if (job.scaled && !dt_dtype_is_float(dtype)) {
        dt_reduce_scaled_integers(&job, dtype);
        return;
    }
    dt_fp_mode_t mode = dt_fp_mode_enter();
    sets[dt_isa()]->reduce[dtype](&job);
    dt_fp_mode_leave(mode);
}

void dt_narrow(dtrain_dtype_t dtype, const float *in, void *out, size_t count)
{
    dt_fp_mode_t mode = dt_fp_mode_enter();
    sets[dt_isa()]->narrow[dtype](in, out, count);
    dt_fp_mode_leave(mode);
}

void dt_widen(dtrain_dtype_t dtype, const void *in, float *out, size_t count)
{
    dt_fp_mode_t mode = dt_fp_mode_enter();
    sets[dt_isa()]->widen[dtype](in, out, count);
    dt_fp_mode_leave(mode);
}
