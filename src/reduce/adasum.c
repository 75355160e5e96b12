#include "reduce/adasum.h"

#include <stdint.h>
#include <string.h>

#include "reduce/half.h"

/* Partial sums that are kept apart, so that the compiler can use vectors without changing the order
 * of additions. */
#define LANES 8

void dt_adasum_load(dtrain_dtype_t dtype, double scale, const void *in, double *out, size_t count)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        for (size_t i = 0; i < count; i++)
            out[i] = scale * (double)dt_f16_to_f32(((const uint16_t *)in)[i]);
        break;
    case DTRAIN_DTYPE_BF16:
        for (size_t i = 0; i < count; i++)
            out[i] = scale * (double)dt_bf16_to_f32(((const uint16_t *)in)[i]);
        break;
    case DTRAIN_DTYPE_F32:
        for (size_t i = 0; i < count; i++)
            out[i] = scale * (double)((const float *)in)[i];
        break;
    default:
        for (size_t i = 0; i < count; i++)
            out[i] = scale * ((const double *)in)[i];
        break;
    }
}

/* To fp32 so that rounding it again to fewer bits gives what one rounding would: an inexact result
 * is cut, and its last bit set ("round to odd"). */
static float to_odd(double value)
{
    float rounded = (float)value;
    if ((double)rounded == value || rounded != rounded || (double)rounded - rounded != 0)
        return rounded; /* exact, NaN or infinite */
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    double magnitude = value < 0 ? -value : value;
    double reached = rounded < 0 ? -(double)rounded : (double)rounded;
    if (reached > magnitude)
        bits--;
    bits |= 1;
    memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

void dt_adasum_store(dtrain_dtype_t dtype, double scale, const double *in, void *out, size_t count)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        for (size_t i = 0; i < count; i++)
            ((uint16_t *)out)[i] = dt_f32_to_f16(to_odd(scale * in[i]));
        break;
    case DTRAIN_DTYPE_BF16:
        for (size_t i = 0; i < count; i++)
            ((uint16_t *)out)[i] = dt_f32_to_bf16(to_odd(scale * in[i]));
        break;
    case DTRAIN_DTYPE_F32:
        for (size_t i = 0; i < count; i++)
            ((float *)out)[i] = (float)(scale * in[i]);
        break;
    default:
        for (size_t i = 0; i < count; i++)
            ((double *)out)[i] = scale * in[i];
        break;
    }
}

void dt_adasum_dots(const double *a, const double *b, size_t count, double dots[DT_ADASUM_DOTS])
{
    double sums[DT_ADASUM_DOTS][LANES] = {{0}};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            double x = a[i + lane], y = b[i + lane];
            sums[0][lane] += x * y;
            sums[1][lane] += x * x;
            sums[2][lane] += y * y;
        }
    }
    for (; i < count; i++) {
        sums[0][0] += a[i] * b[i];
        sums[1][0] += a[i] * a[i];
        sums[2][0] += b[i] * b[i];
    }
    for (int k = 0; k < DT_ADASUM_DOTS; k++) {
        dots[k] = 0;
        for (size_t lane = 0; lane < LANES; lane++)
            dots[k] += sums[k][lane];
    }
}

void dt_adasum_combine(double *a, const double *b, size_t count, const double dots[DT_ADASUM_DOTS])
{
    double of_a = dots[1] == 0 ? 1 : 1 - dots[0] / (2 * dots[1]);
    double of_b = dots[2] == 0 ? 1 : 1 - dots[0] / (2 * dots[2]);
    for (size_t i = 0; i < count; i++)
        a[i] = of_a * a[i] + of_b * b[i];
}
