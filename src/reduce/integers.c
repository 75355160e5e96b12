/* integers.c - reductions of integers with an average or a scale. Sums and products wrap modulo
 * 2^64 and minima and maxima are associative, so no tree is needed for the same bits. */
#include <string.h>

#include "reduce/kernels.h"

#define TILE 512

static void load(dtrain_dtype_t dtype, const void *from, size_t first, size_t count,
                 int64_t *values)
{
    for (size_t i = 0; i < count; i++) {
        switch (dtype) {
        case DTRAIN_DTYPE_U8:
            values[i] = ((const uint8_t *)from)[first + i];
            break;
        case DTRAIN_DTYPE_I8:
            values[i] = ((const int8_t *)from)[first + i];
            break;
        case DTRAIN_DTYPE_U16:
            values[i] = ((const uint16_t *)from)[first + i];
            break;
        case DTRAIN_DTYPE_I16:
            values[i] = ((const int16_t *)from)[first + i];
            break;
        case DTRAIN_DTYPE_I32:
            values[i] = ((const int32_t *)from)[first + i];
            break;
        default:
            values[i] = ((const int64_t *)from)[first + i];
            break;
        }
    }
}

static void combine(dtrain_op_t op, int64_t *values, const int64_t *others, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t a = values[i], b = others[i];
        switch (op) {
        case DTRAIN_OP_PRODUCT:
            values[i] = (int64_t)((uint64_t)a * (uint64_t)b);
            break;
        case DTRAIN_OP_MIN:
            values[i] = a < b ? a : b;
            break;
        case DTRAIN_OP_MAX:
            values[i] = a > b ? a : b;
            break;
        default:
            values[i] = (int64_t)((uint64_t)a + (uint64_t)b);
            break;
        }
    }
}

typedef struct range {
    int64_t min, max;
} range_t;

static range_t range_of(dtrain_dtype_t dtype)
{
    switch (dtype) {
    case DTRAIN_DTYPE_U8:
        return (range_t){0, UINT8_MAX};
    case DTRAIN_DTYPE_I8:
        return (range_t){INT8_MIN, INT8_MAX};
    case DTRAIN_DTYPE_U16:
        return (range_t){0, UINT16_MAX};
    case DTRAIN_DTYPE_I16:
        return (range_t){INT16_MIN, INT16_MAX};
    case DTRAIN_DTYPE_I32:
        return (range_t){INT32_MIN, INT32_MAX};
    default:
        return (range_t){INT64_MIN, INT64_MAX};
    }
}

/* Towards zero, and to the nearest end of the range when it is beyond; never NaN. */
static int64_t truncate_into(range_t range, double value)
{
    if (value >= (double)range.max) /* INT64_MAX becomes 2^63, which is not in the range */
        return range.max;
    if (value <= (double)range.min)
        return range.min;
    return (int64_t)value;
}

/* values[i] / divisor, truncated. Powers of two, the usual numbers of ranks, need no division:
 * a shift rounds down, so a negative value is first moved up by the most that can be cut off. */
static void divide(int64_t divisor, int64_t *values, size_t count)
{
    if ((divisor & (divisor - 1)) == 0) {
        int shift = __builtin_ctzll((uint64_t)divisor);
        for (size_t i = 0; i < count; i++)
            values[i] = (values[i] + (values[i] >> 63 & (divisor - 1))) >> shift;
    } else {
        for (size_t i = 0; i < count; i++)
            values[i] /= divisor;
    }
}

/* Where there is a postscale, divisor and scale are applied before the one truncation. */
static void finish(const dt_kernel_job_t *job, dtrain_dtype_t dtype, int64_t *values, size_t count)
{
    if (job->postscale == 1) {
        divide((int64_t)job->divisor, values, count);
        return;
    }
    range_t range = range_of(dtype);
    for (size_t i = 0; i < count; i++)
        values[i] = truncate_into(range, (double)values[i] / job->divisor * job->postscale);
}

/* Keeps the low bits, so that what does not fit wraps around. */
static void store(dtrain_dtype_t dtype, void *to, size_t first, size_t count, const int64_t *values)
{
    for (size_t i = 0; i < count; i++) {
        switch (dtype) {
        case DTRAIN_DTYPE_U8:
        case DTRAIN_DTYPE_I8:
            ((uint8_t *)to)[first + i] = (uint8_t)values[i];
            break;
        case DTRAIN_DTYPE_U16:
        case DTRAIN_DTYPE_I16:
            ((uint16_t *)to)[first + i] = (uint16_t)values[i];
            break;
        case DTRAIN_DTYPE_I32:
            ((uint32_t *)to)[first + i] = (uint32_t)values[i];
            break;
        default:
            ((int64_t *)to)[first + i] = values[i];
            break;
        }
    }
}

static void load_scaled(const dt_kernel_job_t *job, dtrain_dtype_t dtype, int source, size_t first,
                        size_t count, int64_t *values)
{
    load(dtype, job->sources[source], first, count, values);
    if (job->prescale == 1)
        return;
    for (size_t i = 0; i < count; i++)
        values[i] = truncate_into(range_of(DTRAIN_DTYPE_I64), (double)values[i] * job->prescale);
}

void dt_reduce_scaled_integers(const dt_kernel_job_t *job, dtrain_dtype_t dtype)
{
    int64_t values[TILE], others[TILE];
    for (size_t first = 0; first < job->count; first += TILE) {
        size_t count = job->count - first < TILE ? job->count - first : TILE;
        load_scaled(job, dtype, 0, first, count, values);
        for (int source = 1; source < job->num_sources; source++) {
            load_scaled(job, dtype, source, first, count, others);
            combine(job->op, values, others, count);
        }
        finish(job, dtype, values, count);
        for (int d = 0; d < job->num_destinations; d++)
            store(dtype, job->destinations[d], first, count, values);
    }
}
