/*
 * vec.h - one vector register and what can be done with it, for any element type.
 *
 * Written with the vector extensions that gcc and clang share; DT_VECTOR_BYTES gives the width.
 * Every function takes the type as a constant and is inlined, so each switch is decided by the
 * compiler. fp16 and bf16 are widened to fp32 by the load and rounded by the store, so a vector
 * holds half as many of them as their size suggests.
 */
#ifndef DT_REDUCE_VEC_H
#define DT_REDUCE_VEC_H

#include <stdint.h>
#include <string.h>

#include <dtrain/dtrain.h>

#if DT_VECTOR_NATIVE && defined(__x86_64__)
#include <immintrin.h>
#elif DT_VECTOR_NATIVE && defined(__aarch64__)
#include <arm_neon.h>
#endif

#define DT_INLINE static inline __attribute__((always_inline))

typedef uint32_t vec_t __attribute__((vector_size(DT_VECTOR_BYTES))); /* whatever is in it */
typedef uint8_t vec_u8_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef int8_t vec_i8_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef uint16_t vec_u16_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef int16_t vec_i16_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef int32_t vec_i32_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef uint64_t vec_u64_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef int64_t vec_i64_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef float vec_f32_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef double vec_f64_t __attribute__((vector_size(DT_VECTOR_BYTES)));
typedef uint16_t vec_half_t __attribute__((vector_size(DT_VECTOR_BYTES / 2)));

/* Bytes of an element in memory. */
DT_INLINE size_t vec_element(dtrain_dtype_t type)
{
    switch (type) {
    case DTRAIN_DTYPE_I64:
    case DTRAIN_DTYPE_F64:
        return 8;
    case DTRAIN_DTYPE_I32:
    case DTRAIN_DTYPE_F32:
        return 4;
    case DTRAIN_DTYPE_U16:
    case DTRAIN_DTYPE_I16:
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        return 2;
    default:
        return 1;
    }
}

DT_INLINE int vec_is_half(dtrain_dtype_t type)
{
    return type == DTRAIN_DTYPE_F16 || type == DTRAIN_DTYPE_BF16;
}

/* Elements that a vector holds. */
DT_INLINE size_t vec_lanes(dtrain_dtype_t type)
{
    return DT_VECTOR_BYTES / (vec_is_half(type) ? 4 : vec_element(type));
}

/* Where the mask's bits are set a's, else b's. */
DT_INLINE vec_t vec_pick(vec_t mask, vec_t a, vec_t b)
{
    return (a & mask) | (b & ~mask);
}

/* 16 bits to 32 and back, for which the compilers find no single instruction by themselves. */
DT_INLINE vec_t vec_widen(vec_half_t bits)
{
#if DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 64
    return (vec_t)_mm512_cvtepu16_epi32((__m256i)bits);
#elif DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 32
    return (vec_t)_mm256_cvtepu16_epi32((__m128i)bits);
#else
    return __builtin_convertvector(bits, vec_t);
#endif
}

/* The values are below 2^16. */
DT_INLINE vec_half_t vec_narrow(vec_t value)
{
#if DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 64
    return (vec_half_t)_mm512_cvtepi32_epi16((__m512i)value);
#elif DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 32
    __m256i all = (__m256i)value;
    return (vec_half_t)_mm_packus_epi32(_mm256_castsi256_si128(all),
                                        _mm256_extracti128_si256(all, 1));
#else
    return __builtin_convertvector(value, vec_half_t);
#endif
}

/* fp16 without help from the CPU: as half.c does it, for a vector. */
DT_INLINE vec_t vec_from_f16_plain(vec_half_t bits)
{
    const float two_to_112 = 0x1p112f; /* moves the exponent; exact for subnormals, too */
    vec_t all = vec_widen(bits);
    vec_t magnitude = all & 0x7fff;
    vec_t value = (vec_t)((vec_f32_t)(magnitude << 13) * two_to_112);
    value |= (vec_t)(magnitude >= 0x7c00) & 0x7f800000;
    return value | (all & 0x8000) << 16;
}

DT_INLINE vec_half_t vec_to_f16_plain(vec_t value)
{
    const vec_t infinity = (vec_t){0} + 0x7c00;
    vec_t magnitude = value & 0x7fffffff;
    vec_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    normal = vec_pick((vec_t)(normal > infinity), infinity, normal);
    /* Adding 0.5 rounds to multiples of 2^-24, which are the subnormals. */
    vec_t subnormal = (vec_t)((vec_f32_t)magnitude + 0.5f) - 0x3f000000;
    vec_t quiet = 0x7e00 | (magnitude >> 13 & 0x1ff);
    vec_t bits = vec_pick((vec_t)(magnitude < 0x38800000), subnormal, normal);
    bits = vec_pick((vec_t)(magnitude > 0x7f800000), quiet, bits);
    return vec_narrow(bits | (value >> 16 & 0x8000));
}

DT_INLINE vec_t vec_from_f16(vec_half_t bits)
{
#if DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 64
    return (vec_t)_mm512_cvtph_ps((__m256i)bits);
#elif DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 32
    return (vec_t)_mm256_cvtph_ps((__m128i)bits);
#elif DT_VECTOR_NATIVE
    return (vec_t)vcvt_f32_f16((float16x4_t)bits);
#else
    return vec_from_f16_plain(bits);
#endif
}

DT_INLINE vec_half_t vec_to_f16(vec_t value)
{
#if DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 64
    return (vec_half_t)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
#elif DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 32
    return (vec_half_t)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
#elif DT_VECTOR_NATIVE
    return (vec_half_t)vcvt_f16_f32((float32x4_t)value);
#else
    return vec_to_f16_plain(value);
#endif
}

/* The CPU's own conversion to bf16 flushes subnormals to zero; integer arithmetic does not. */
DT_INLINE vec_t vec_from_bf16(vec_half_t bits)
{
    return vec_widen(bits) << 16;
}

DT_INLINE vec_half_t vec_to_bf16(vec_t value)
{
    vec_t rounded = (value + 0x7fff + (value >> 16 & 1)) >> 16;
    vec_t quiet = value >> 16 | 0x40;
    vec_t is_nan = (vec_t)((vec_f32_t)value != (vec_f32_t)value);
    return vec_narrow(vec_pick(is_nan, quiet, rounded));
}

/* Loads a whole vector of elements from `from`, or one element and zeros beside it. */
DT_INLINE vec_t vec_load(dtrain_dtype_t type, int whole, const char *from)
{
    size_t bytes = vec_element(type) * (whole ? vec_lanes(type) : 1);
    if (vec_is_half(type)) {
        vec_half_t bits = {0};
        memcpy(&bits, from, bytes);
        return type == DTRAIN_DTYPE_F16 ? vec_from_f16(bits) : vec_from_bf16(bits);
    }
    vec_t value = {0};
    memcpy(&value, from, bytes);
    if (type == DTRAIN_DTYPE_BOOL)
        value = (vec_t)((vec_u8_t)((vec_u8_t)value != 0) & 1);
    return value;
}

DT_INLINE void vec_store(dtrain_dtype_t type, int whole, char *to, vec_t value)
{
    size_t bytes = vec_element(type) * (whole ? vec_lanes(type) : 1);
    if (vec_is_half(type)) {
        vec_half_t bits = type == DTRAIN_DTYPE_F16 ? vec_to_f16(value) : vec_to_bf16(value);
        memcpy(to, &bits, bytes);
    } else {
        memcpy(to, &value, bytes);
    }
}

DT_INLINE vec_t vec_sum(dtrain_dtype_t type, vec_t a, vec_t b)
{
    switch (type) {
    case DTRAIN_DTYPE_F64:
        return (vec_t)((vec_f64_t)a + (vec_f64_t)b);
    case DTRAIN_DTYPE_F32:
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        return (vec_t)((vec_f32_t)a + (vec_f32_t)b);
    case DTRAIN_DTYPE_I64:
        return (vec_t)((vec_u64_t)a + (vec_u64_t)b);
    case DTRAIN_DTYPE_I32:
        return a + b;
    case DTRAIN_DTYPE_U16:
    case DTRAIN_DTYPE_I16:
        return (vec_t)((vec_u16_t)a + (vec_u16_t)b);
    case DTRAIN_DTYPE_BOOL:
        return a | b;
    default:
        return (vec_t)((vec_u8_t)a + (vec_u8_t)b);
    }
}

DT_INLINE vec_t vec_product(dtrain_dtype_t type, vec_t a, vec_t b)
{
    switch (type) {
    case DTRAIN_DTYPE_F64:
        return (vec_t)((vec_f64_t)a * (vec_f64_t)b);
    case DTRAIN_DTYPE_F32:
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        return (vec_t)((vec_f32_t)a * (vec_f32_t)b);
    case DTRAIN_DTYPE_I64:
        return (vec_t)((vec_u64_t)a * (vec_u64_t)b);
    case DTRAIN_DTYPE_I32:
        return a * b;
    case DTRAIN_DTYPE_U16:
    case DTRAIN_DTYPE_I16:
        return (vec_t)((vec_u16_t)a * (vec_u16_t)b);
    case DTRAIN_DTYPE_BOOL:
        return a & b;
    default:
        return (vec_t)((vec_u8_t)a * (vec_u8_t)b);
    }
}

/* Square roots, for F64 and types that are F32 in a vector; every CPU rounds them correctly. */
DT_INLINE vec_t vec_sqrt(dtrain_dtype_t type, vec_t value)
{
#if DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 64
    return type == DTRAIN_DTYPE_F64 ? (vec_t)_mm512_sqrt_pd((__m512d)value)
                                    : (vec_t)_mm512_sqrt_ps((__m512)value);
#elif DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 32
    return type == DTRAIN_DTYPE_F64 ? (vec_t)_mm256_sqrt_pd((__m256d)value)
                                    : (vec_t)_mm256_sqrt_ps((__m256)value);
#elif DT_VECTOR_NATIVE
    return type == DTRAIN_DTYPE_F64 ? (vec_t)vsqrtq_f64((float64x2_t)value)
                                    : (vec_t)vsqrtq_f32((float32x4_t)value);
#else
    vec_f64_t f64 = (vec_f64_t)value;
    vec_f32_t f32 = (vec_f32_t)value;
    if (type == DTRAIN_DTYPE_F64) {
        for (size_t i = 0; i < DT_VECTOR_BYTES / sizeof(double); i++)
            f64[i] = __builtin_sqrt(f64[i]);
        return (vec_t)f64;
    }
    for (size_t i = 0; i < DT_VECTOR_BYTES / sizeof(float); i++)
        f32[i] = __builtin_sqrtf(f32[i]);
    return (vec_t)f32;
#endif
}

/* The lower and the upper half of a vector of F32, widened. */
DT_INLINE vec_f64_t vec_low_f64(vec_t value)
{
#if DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 64
    return (vec_f64_t)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)value));
#elif DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 32
    return (vec_f64_t)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)value));
#elif DT_VECTOR_NATIVE
    return (vec_f64_t)vcvt_f64_f32(vget_low_f32((float32x4_t)value));
#else
    vec_f32_t f32 = (vec_f32_t)value;
    vec_f64_t f64;
    for (size_t i = 0; i < DT_VECTOR_BYTES / sizeof(double); i++)
        f64[i] = (double)f32[i];
    return f64;
#endif
}

DT_INLINE vec_f64_t vec_high_f64(vec_t value)
{
#if DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 64
    return (vec_f64_t)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)value, 1));
#elif DT_VECTOR_NATIVE && DT_VECTOR_BYTES == 32
    return (vec_f64_t)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)value, 1));
#elif DT_VECTOR_NATIVE
    return (vec_f64_t)vcvt_high_f64_f32((float32x4_t)value);
#else
    const size_t half = DT_VECTOR_BYTES / sizeof(double);
    vec_f32_t f32 = (vec_f32_t)value;
    vec_f64_t f64;
    for (size_t i = 0; i < half; i++)
        f64[i] = (double)f32[half + i];
    return f64;
#endif
}

/* A mask of the elements of a that are less than b's; a NaN is not. */
DT_INLINE vec_t vec_less(dtrain_dtype_t type, vec_t a, vec_t b)
{
    switch (type) {
    case DTRAIN_DTYPE_F64:
        return (vec_t)((vec_f64_t)a < (vec_f64_t)b);
    case DTRAIN_DTYPE_F32:
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        return (vec_t)((vec_f32_t)a < (vec_f32_t)b);
    case DTRAIN_DTYPE_I64:
        return (vec_t)((vec_i64_t)a < (vec_i64_t)b);
    case DTRAIN_DTYPE_I32:
        return (vec_t)((vec_i32_t)a < (vec_i32_t)b);
    case DTRAIN_DTYPE_U16:
        return (vec_t)((vec_u16_t)a < (vec_u16_t)b);
    case DTRAIN_DTYPE_I16:
        return (vec_t)((vec_i16_t)a < (vec_i16_t)b);
    case DTRAIN_DTYPE_I8:
        return (vec_t)((vec_i8_t)a < (vec_i8_t)b);
    default: /* U8, BOOL */
        return (vec_t)((vec_u8_t)a < (vec_u8_t)b);
    }
}

/* A mask of the elements of a that equal b's; for types of floating point. */
DT_INLINE vec_t vec_equal(dtrain_dtype_t type, vec_t a, vec_t b)
{
    if (type == DTRAIN_DTYPE_F64)
        return (vec_t)((vec_f64_t)a == (vec_f64_t)b);
    return (vec_t)((vec_f32_t)a == (vec_f32_t)b);
}

DT_INLINE int vec_is_float(dtrain_dtype_t type)
{
    return type == DTRAIN_DTYPE_F64 || type == DTRAIN_DTYPE_F32 || vec_is_half(type);
}

/* `value`, but a quiet NaN where a or b is one. */
DT_INLINE vec_t vec_keep_nan(dtrain_dtype_t type, vec_t a, vec_t b, vec_t value)
{
    vec_t numbers = vec_equal(type, a, a) & vec_equal(type, b, b);
    return vec_pick(numbers, value, vec_sum(type, a, b));
}

/* -0 is less than +0, so that the order of operands is no matter; as equals differ in a zero's
 * sign alone, that takes one logical operation. */
DT_INLINE vec_t vec_min(dtrain_dtype_t type, vec_t a, vec_t b)
{
    vec_t min = vec_pick(vec_less(type, a, b), a, b);
    if (!vec_is_float(type))
        return min;
    return vec_keep_nan(type, a, b, min | (a & vec_equal(type, a, b)));
}

DT_INLINE vec_t vec_max(dtrain_dtype_t type, vec_t a, vec_t b)
{
    vec_t max = vec_pick(vec_less(type, b, a), a, b);
    if (!vec_is_float(type))
        return max;
    return vec_keep_nan(type, a, b, max & (a | ~vec_equal(type, a, b)));
}

DT_INLINE vec_t vec_combine(dtrain_dtype_t type, dtrain_op_t op, vec_t a, vec_t b)
{
    switch (op) {
    case DTRAIN_OP_PRODUCT:
        return vec_product(type, a, b);
    case DTRAIN_OP_MIN:
        return vec_min(type, a, b);
    case DTRAIN_OP_MAX:
        return vec_max(type, a, b);
    default:
        return vec_sum(type, a, b);
    }
}

#endif
