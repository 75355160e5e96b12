/* kernels.h - between dispatch (reduce.c) and the kernels: one table of functions for each
 * instruction set, all made from kernels.inc.h. */
#ifndef DT_REDUCE_KERNELS_H
#define DT_REDUCE_KERNELS_H

#include <stddef.h>

#include "base/dtype.h"

typedef struct dt_kernel_job {
    const void *const *sources;
    void *const *destinations;
    int num_sources;
    int num_destinations;
    size_t count;
    dtrain_op_t op; /* never AVERAGE: that is SUM with a divisor */
    int scaled;     /* 0: the factors below are all 1 */
    int divides;    /* 0: the divisor is a power of two, so that its inverse gives the same bits */
    double prescale;
    double divisor;
    double postscale;
} dt_kernel_job_t;

typedef void (*dt_kernel_fn_t)(const dt_kernel_job_t *job);

/* fp32 to fp16 or bf16, or back. */
typedef void (*dt_convert_fn_t)(const void *in, void *out, size_t count);

typedef struct dt_kernel_set {
    dt_kernel_fn_t reduce[DT_DTYPE_COUNT];  /* by dtrain_dtype_t; integers ignore the factors */
    dt_convert_fn_t narrow[DT_DTYPE_COUNT]; /* fp32 to the type; NULL: none */
    dt_convert_fn_t widen[DT_DTYPE_COUNT];  /* and back */
} dt_kernel_set_t;

extern const dt_kernel_set_t dt_kernels_scalar;
extern const dt_kernel_set_t dt_kernels_avx2;   /* x86-64 only */
extern const dt_kernel_set_t dt_kernels_avx512; /* x86-64 only */
extern const dt_kernel_set_t dt_kernels_neon;   /* aarch64 only */

/* Integers that are scaled or averaged, in 64 bits and double: too rare for vector code. */
void dt_reduce_scaled_integers(const dt_kernel_job_t *job, dtrain_dtype_t dtype);

#endif
