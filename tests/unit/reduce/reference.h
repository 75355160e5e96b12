/* reference.h - reductions done the slow and obvious way, with nothing taken from src/reduce. */
#ifndef DT_TESTS_UNIT_REDUCE_REFERENCE_H
#define DT_TESTS_UNIT_REDUCE_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "reduce/reduce.h"

/* Narrow floating point, by way of double; a NaN becomes the quiet one. */
double reference_decode_f16(uint16_t bits);
double reference_decode_bf16(uint16_t bits);
uint16_t reference_encode_f16(double value);
uint16_t reference_encode_bf16(double value);

/* Reduces element `index` of the sources into element `index` of `out`. */
void reference_reduce(const dt_reduction_t *reduction, void *out, const void *const *sources,
                      int num_sources, size_t index);

/* 1 when the elements have the same bits, or are both NaN. */
int reference_same(dtrain_dtype_t dtype, const void *a, const void *b, size_t index);

/* 1 when the element is a NaN, or is a signalling one. */
int reference_is_nan(dtrain_dtype_t dtype, const void *a, size_t index);
int reference_is_signalling(dtrain_dtype_t dtype, const void *a, size_t index);

#endif
