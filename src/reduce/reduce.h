/* reduce.h - the arithmetic of reductions: every value that libdtrain computes, it computes
 * here. Buffers of all ranks are at hand; who brought them is not known here. */
#ifndef DT_REDUCE_REDUCE_H
#define DT_REDUCE_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

/* What is computed: result = post * ((pre * x0) op (pre * x1) op …) / divisor. */
typedef struct dt_reduction {
    dtrain_dtype_t dtype;
    dtrain_op_t op;   /* DTRAIN_OP_AVERAGE is a sum with a divisor */
    int32_t divisor;  /* ranks of the set for an average, else 1 */
    double prescale;  /* 1 for none */
    double postscale; /* 1 for none */
} dt_reduction_t;

/*
 * OK, or a text and UNSUPPORTED (bool with AVERAGE or a scale) or INVALID_ARGUMENT (an unknown
 * type or reduction, a scale that is not finite in the type of the accumulation, a divisor below
 * 1 or without an average).
 */
dtrain_status_t dt_reduction_check(const dt_reduction_t *reduction);

/*
 * Reduces sources[0 … num_sources-1], each of `count` elements, into each of the destinations.
 * sources[r] must be the values of the r-th rank: the order is the canonical one, a balanced
 * binary tree over the index,
 *
 *     tree(lo, hi) = x[lo] if hi - lo == 1, else tree(lo, mid) op tree(mid, hi),
 *     mid = lo + the largest power of two less than hi - lo,
 *
 * the same for every element, so the result does not depend on how a tensor was cut, nor on
 * the instruction set, nor on the calling thread's rounding mode.
 *
 * Floating point: fp16 and bf16 are accumulated in fp32 and rounded once, to nearest even, after
 * scale and divisor. Each input is multiplied by the prescale; the result is divided by the
 * divisor (equal values average to themselves where their sum is exact) and then multiplied by
 * the postscale, each rounded in the type of the accumulation. For fp16, bf16 and fp32 the scales
 * are rounded to fp32 first. MIN and MAX: -0 is less than +0. A NaN gives a quiet NaN, whose sign
 * and payload are not defined.
 *
 * Integers: sums and products wrap in 64 bits, then keep the low bits that the type has. A
 * prescale is applied to each input in double, truncated towards zero and saturated to int64.
 * An average divides the int64 sum, truncating towards zero. With a postscale, the sum over the
 * divisor times the postscale is computed in double, truncated once and saturated to the type.
 *
 * One source without scale or divisor is copied bit for bit; bool always becomes 0 or 1.
 *
 * A destination may be one of the sources; otherwise they do not overlap. Any alignment of
 * elements' natural boundary. num_sources >= 1, num_destinations >= 1, count >= 0. Thread-safe.
 */
void dt_reduce(const dt_reduction_t *reduction, void *const *destinations, int num_destinations,
               const void *const *sources, int num_sources, size_t count);

/* fp32 to `dtype`, F16 or BF16, rounded to nearest even, and back. No overlap. Thread-safe. */
void dt_narrow(dtrain_dtype_t dtype, const float *in, void *out, size_t count);
void dt_widen(dtrain_dtype_t dtype, const void *in, float *out, size_t count);

#endif
