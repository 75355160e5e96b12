/* half.c - fp16 and bf16 to fp32 and back with integer arithmetic, so that neither the rounding
 * mode nor a flush-to-zero mode of the calling thread plays a part. */
#include "reduce/half.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float value_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* `value` divided by 2^shift, to nearest, ties to even; shift is 1 to 31. */
static uint32_t shift_rounded(uint32_t value, int shift)
{
    uint32_t quotient = value >> shift;
    uint32_t rest = value & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    return quotient + (rest > half || (rest == half && (quotient & 1)));
}

float dt_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 0x1f;
    uint32_t mantissa = bits & 0x3ff;

    if (exponent == 0x1f) /* infinity, or NaN made quiet */
        return value_of(sign | 0x7f800000 | (mantissa ? 0x400000 | mantissa << 13 : 0));
    if (exponent != 0)
        return value_of(sign | (exponent + 112) << 23 | mantissa << 13);
    if (mantissa == 0)
        return value_of(sign);

    int zeros = __builtin_clz(mantissa) - 21; /* 1 to 10 left of the leading one */
    return value_of(sign | (uint32_t)(113 - zeros) << 23 | (mantissa << zeros & 0x3ff) << 13);
}

uint16_t dt_f32_to_f16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= 0x47800000) /* 2^16 and above; what rounds up to it carries into infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) /* 2^-14: normal */
        return (uint16_t)(sign | shift_rounded(magnitude - (112u << 23), 13));
    if (magnitude < 0x33000000) /* below half of the least subnormal */
        return (uint16_t)sign;

    int shift = 126 - (int)(magnitude >> 23); /* to units of 2^-24: 14 to 24 */
    return (uint16_t)(sign | shift_rounded((magnitude & 0x7fffff) | 0x800000, shift));
}

float dt_bf16_to_f32(uint16_t bits)
{
    return value_of((uint32_t)bits << 16);
}

uint16_t dt_f32_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_rounded(bits, 16); /* a carry out of the mantissa is right, too */
}
