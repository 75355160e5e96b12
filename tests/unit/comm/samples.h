/*
 * samples.h - values and reductions that the tests of all data paths go through.
 */
#ifndef DT_TEST_SAMPLES_H
#define DT_TEST_SAMPLES_H

#include <stdint.h>

#include "base/dtype.h"
#include "reduce/reduce.h"

#define SAMPLE_REDUCTIONS_MAX (DT_DTYPE_COUNT * DT_OP_COUNT)

/* Every type with every reduction that it has, unscaled, into `all`; returns how many. */
int sample_reductions(dt_reduction_t all[SAMPLE_REDUCTIONS_MAX]);

/* Values of a wide range, without NaN or infinity, so that the order of additions shows. */
void sample_values(void *values, int64_t count, dtrain_dtype_t dtype, uint64_t seed);

#endif
