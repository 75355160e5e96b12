/* reduce.c - checks a reduction, chooses the kernels for this CPU and calls them. */
#include "reduce/reduce.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "reduce/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

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

/* ---- The choice of kernels ------------------------------------------------------------------ */

/* From the least to the best. */
static const dt_kernel_set_t *const sets[] = {
    &dt_kernels_scalar,
#if defined(__x86_64__)
    &dt_kernels_avx2,
    &dt_kernels_avx512,
#elif defined(__aarch64__)
    &dt_kernels_neon,
#endif
};

#define NUM_SETS (sizeof sets / sizeof sets[0])

/* [atomic] relaxed: it points to constants. NULL until the first use. */
static _Atomic(const dt_kernel_set_t *) chosen;

#if defined(__x86_64__)
static int has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int cpu_runs(const dt_kernel_set_t *set)
{
    __builtin_cpu_init();
    if (set == &dt_kernels_avx2)
        return __builtin_cpu_supports("avx2") && has_f16c();
    if (set == &dt_kernels_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return 1;
}
#else
static int cpu_runs(const dt_kernel_set_t *set)
{
    (void)set;
    return 1;
}
#endif

static const dt_kernel_set_t *choose(const char *cap)
{
    const dt_kernel_set_t *best = sets[0];
    for (size_t i = 1; i < NUM_SETS && strcmp(sets[i - 1]->name, cap) != 0; i++)
        if (cpu_runs(sets[i]))
            best = sets[i];
    return best;
}

static const dt_kernel_set_t *kernels(void)
{
    const dt_kernel_set_t *set = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (set == NULL) {
        set = choose("auto");
        atomic_store_explicit(&chosen, set, memory_order_relaxed);
    }
    return set;
}

const char *dt_reduce_isa(void)
{
    return kernels()->name;
}

int dt_reduce_set_isa(const char *cap)
{
    static const char *const known[] = {"", "auto", "scalar", "avx2", "avx512", "neon"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i], cap) == 0) {
            atomic_store_explicit(&chosen, choose(cap), memory_order_relaxed);
            return 0;
        }
    }
    return -1;
}

/* ---- The calling thread's floating point mode ------------------------------------------------ */

/* A program built with -ffast-math, or a framework, may have set its threads to flush subnormals
 * to zero or to round otherwise; which thread reduces must not be seen in the bits. */
#if defined(__x86_64__)
typedef unsigned fp_mode_t;
#define DEFAULT_MODE 0x1f80u /* of MXCSR: to nearest, nothing flushed, no exception taken */

static fp_mode_t fp_mode(void)
{
    const unsigned sticky_flags = 0x3f;
    return _mm_getcsr() & ~sticky_flags;
}

static void set_fp_mode(fp_mode_t mode)
{
    _mm_setcsr(mode);
}
#elif defined(__aarch64__)
typedef uint64_t fp_mode_t;
#define DEFAULT_MODE 0u /* of FPCR: likewise */

static fp_mode_t fp_mode(void)
{
    fp_mode_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static void set_fp_mode(fp_mode_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#else
typedef int fp_mode_t;
#define DEFAULT_MODE 0

static fp_mode_t fp_mode(void)
{
    return DEFAULT_MODE;
}

static void set_fp_mode(fp_mode_t mode)
{
    (void)mode;
}
#endif

/* ---- Reductions ---------------------------------------------------------------------------- */

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
    const dt_kernel_set_t *set = kernels();
    fp_mode_t mode = fp_mode();
    if (mode != DEFAULT_MODE)
        set_fp_mode(DEFAULT_MODE);
    set->reduce[dtype](&job);
    if (mode != DEFAULT_MODE)
        set_fp_mode(mode);
}
