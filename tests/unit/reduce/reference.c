#include "reference.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"

/* A format of 16 bits: `digits` bits of mantissa after the point, exponents from `lowest` on. */
static double decode(uint16_t bits, int digits, int lowest)
{
    int exponent = (bits & 0x7fff) >> digits;
    int mantissa = bits & ((1 << digits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 0x7fff >> digits)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, lowest - digits);
    return sign * ldexp((1 << digits) + mantissa, lowest + exponent - 1 - digits);
}

static uint16_t encode(double value, int digits, int lowest)
{
    unsigned infinity = (0x7fffu >> digits) << digits;
    unsigned sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    if (isnan(value))
        return (uint16_t)(infinity | 1u << (digits - 1));
    if (magnitude == 0 || isinf(magnitude))
        return (uint16_t)(sign | (isinf(magnitude) ? infinity : 0));

    int exponent = ilogb(magnitude) < lowest ? lowest : ilogb(magnitude);
    /* In units of the last place; nearbyint is to nearest, ties to even. */
    unsigned units = (unsigned)nearbyint(ldexp(magnitude, digits - exponent));
    unsigned bits = ((unsigned)(exponent - lowest) << digits) + units; /* a carry goes up */
    return (uint16_t)(sign | (bits > infinity ? infinity : bits));
}

double reference_decode_f16(uint16_t bits)
{
    return decode(bits, 10, -14);
}

double reference_decode_bf16(uint16_t bits)
{
    return decode(bits, 7, -126);
}

uint16_t reference_encode_f16(double value)
{
    return encode(value, 10, -14);
}

uint16_t reference_encode_bf16(double value)
{
    return encode(value, 7, -126);
}

static double load_float(dtrain_dtype_t dtype, const void *from, size_t index)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return reference_decode_f16(((const uint16_t *)from)[index]);
    case DTRAIN_DTYPE_BF16:
        return reference_decode_bf16(((const uint16_t *)from)[index]);
    case DTRAIN_DTYPE_F32:
        return ((const float *)from)[index];
    default:
        return ((const double *)from)[index];
    }
}

static int64_t load_integer(dtrain_dtype_t dtype, const void *from, size_t index)
{
    switch (dtype) {
    case DTRAIN_DTYPE_U8:
        return ((const uint8_t *)from)[index];
    case DTRAIN_DTYPE_I8:
        return ((const int8_t *)from)[index];
    case DTRAIN_DTYPE_U16:
        return ((const uint16_t *)from)[index];
    case DTRAIN_DTYPE_I16:
        return ((const int16_t *)from)[index];
    case DTRAIN_DTYPE_I32:
        return ((const int32_t *)from)[index];
    case DTRAIN_DTYPE_BOOL:
        return ((const uint8_t *)from)[index] != 0;
    default:
        return ((const int64_t *)from)[index];
    }
}

/* One step of rounding: to float, or none for double. */
static double in(int is_double, double value)
{
    return is_double ? value : (double)(float)value;
}

/* A sum, product or quotient of two floats, done in double and rounded to float, is the float
 * one: double has more than twice the digits. */
static double combine_floats(dtrain_op_t op, int is_double, double a, double b)
{
    switch (op) {
    case DTRAIN_OP_PRODUCT:
        return in(is_double, a * b);
    case DTRAIN_OP_MIN:
        if (isnan(a) || isnan(b))
            return NAN;
        return a < b || (a == b && signbit(a)) ? a : b;
    case DTRAIN_OP_MAX:
        if (isnan(a) || isnan(b))
            return NAN;
        return a > b || (a == b && !signbit(a)) ? a : b;
    default:
        return in(is_double, a + b);
    }
}

static int middle(int lo, int hi)
{
    int half = 1;
    while (half * 2 < hi - lo)
        half *= 2;
    return lo + half;
}

static double tree_of_floats(dtrain_op_t op, int is_double, const double *x, int lo, int hi)
{
    if (hi - lo == 1)
        return x[lo];
    int mid = middle(lo, hi);
    return combine_floats(op, is_double, tree_of_floats(op, is_double, x, lo, mid),
                          tree_of_floats(op, is_double, x, mid, hi));
}

static void reduce_floats(const dt_reduction_t *reduction, void *out, const void *const *sources,
                          int n, size_t index)
{
    int is_double = reduction->dtype == DTRAIN_DTYPE_F64;
    double x[64];
    for (int i = 0; i < n; i++)
        x[i] = in(is_double, load_float(reduction->dtype, sources[i], index) *
                                 in(is_double, reduction->prescale));
    double value = tree_of_floats(reduction->op, is_double, x, 0, n);
    value = in(is_double, value / reduction->divisor);
    value = in(is_double, value * in(is_double, reduction->postscale));
    switch (reduction->dtype) {
    case DTRAIN_DTYPE_F16:
        ((uint16_t *)out)[index] = reference_encode_f16(value);
        break;
    case DTRAIN_DTYPE_BF16:
        ((uint16_t *)out)[index] = reference_encode_bf16(value);
        break;
    case DTRAIN_DTYPE_F32:
        ((float *)out)[index] = (float)value;
        break;
    default:
        ((double *)out)[index] = value;
        break;
    }
}

static int64_t combine_integers(dtrain_op_t op, int64_t a, int64_t b)
{
    switch (op) {
    case DTRAIN_OP_PRODUCT:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case DTRAIN_OP_MIN:
        return a < b ? a : b;
    case DTRAIN_OP_MAX:
        return a > b ? a : b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* long double has 64 bits of mantissa where this matters, so the ends of int64 are exact. */
static int64_t clamp(double value, int64_t least, int64_t most)
{
    if ((long double)value >= (long double)most)
        return most;
    if ((long double)value <= (long double)least)
        return least;
    return (int64_t)value;
}

static int64_t clamp_to(dtrain_dtype_t dtype, double value)
{
    switch (dtype) {
    case DTRAIN_DTYPE_U8:
        return clamp(value, 0, 255);
    case DTRAIN_DTYPE_I8:
        return clamp(value, -128, 127);
    case DTRAIN_DTYPE_U16:
        return clamp(value, 0, 65535);
    case DTRAIN_DTYPE_I16:
        return clamp(value, -32768, 32767);
    case DTRAIN_DTYPE_I32:
        return clamp(value, INT32_MIN, INT32_MAX);
    default:
        return clamp(value, INT64_MIN, INT64_MAX);
    }
}

static void reduce_integers(const dt_reduction_t *reduction, void *out, const void *const *sources,
                            int n, size_t index)
{
    int64_t value = 0;
    for (int i = 0; i < n; i++) {
        int64_t x = load_integer(reduction->dtype, sources[i], index);
        if (reduction->prescale != 1)
            x = clamp_to(DTRAIN_DTYPE_I64, (double)x * reduction->prescale);
        value = i == 0 ? x : combine_integers(reduction->op, value, x);
    }
    if (reduction->postscale != 1)
        value =
            clamp_to(reduction->dtype, (double)value / reduction->divisor * reduction->postscale);
    else
        value /= reduction->divisor;
    if (reduction->dtype == DTRAIN_DTYPE_BOOL)
        value = value != 0;
    /* The low bytes, on a little-endian machine. */
    size_t size = dt_dtype_size(reduction->dtype);
    memcpy((char *)out + index * size, &value, size);
}

void reference_reduce(const dt_reduction_t *reduction, void *out, const void *const *sources,
                      int num_sources, size_t index)
{
    switch (reduction->dtype) {
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
    case DTRAIN_DTYPE_F32:
    case DTRAIN_DTYPE_F64:
        reduce_floats(reduction, out, sources, num_sources, index);
        break;
    default:
        reduce_integers(reduction, out, sources, num_sources, index);
        break;
    }
}

/* The element's bits without sign. */
static uint64_t magnitude(dtrain_dtype_t dtype, const void *from, size_t index)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        return ((const uint16_t *)from)[index] & 0x7fffu;
    case DTRAIN_DTYPE_F32:
        return ((const uint32_t *)from)[index] & 0x7fffffffu;
    default:
        return ((const uint64_t *)from)[index] & 0x7fffffffffffffffu;
    }
}

static uint64_t infinity(dtrain_dtype_t dtype)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return 0x7c00;
    case DTRAIN_DTYPE_BF16:
        return 0x7f80;
    case DTRAIN_DTYPE_F32:
        return 0x7f800000;
    case DTRAIN_DTYPE_F64:
        return 0x7ff0000000000000;
    default:
        return UINT64_MAX;
    }
}

int reference_is_nan(dtrain_dtype_t dtype, const void *a, size_t index)
{
    return infinity(dtype) != UINT64_MAX && magnitude(dtype, a, index) > infinity(dtype);
}

int reference_is_signalling(dtrain_dtype_t dtype, const void *a, size_t index)
{
    uint64_t least_exponent_bit = infinity(dtype) & ~(infinity(dtype) << 1);
    return reference_is_nan(dtype, a, index) &&
           !(magnitude(dtype, a, index) & least_exponent_bit >> 1);
}

int reference_same(dtrain_dtype_t dtype, const void *a, const void *b, size_t index)
{
    size_t size = dt_dtype_size(dtype);
    if (reference_is_nan(dtype, a, index) && reference_is_nan(dtype, b, index))
        return 1;
    return memcmp((const char *)a + index * size, (const char *)b + index * size, size) == 0;
}
