#include "arithmetic.h"

#include <stdint.h>
#include <string.h>

#include "reduce/half.h"

size_t dtype_bytes(ncclDataType_t dtype)
{
    switch (dtype) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    default:
        return 8;
    }
}

static double combine_floats(ncclRedOp_t op, double a, double b)
{
    switch (op) {
    case ncclSum:
        return a + b;
    case ncclProd:
        return a * b;
    case ncclMax:
        return a != a || a > b ? a : b;
    default:
        return a != a || a < b ? a : b;
    }
}

/* Sums and products in the bits that the type keeps; signs matter to the rest alone. */
static uint64_t combine_integers(ncclRedOp_t op, int64_t a, int64_t b, int is_unsigned)
{
    int is_less = is_unsigned ? (uint64_t)a < (uint64_t)b : a < b;
    switch (op) {
    case ncclSum:
        return (uint64_t)a + (uint64_t)b;
    case ncclProd:
        return (uint64_t)a * (uint64_t)b;
    case ncclMax:
        return (uint64_t)(is_less ? b : a);
    default:
        return (uint64_t)(is_less ? a : b);
    }
}

static double load_float(ncclDataType_t dtype, const char *from)
{
    uint16_t half;
    float single;
    double wide;
    memcpy(&half, from, sizeof half);
    if (dtype == ncclFloat16)
        return dt_f16_to_f32(half);
    if (dtype == ncclBfloat16)
        return dt_bf16_to_f32(half);
    memcpy(&single, from, sizeof single);
    if (dtype == ncclFloat32)
        return single;
    memcpy(&wide, from, sizeof wide);
    return wide;
}

static void store_float(ncclDataType_t dtype, char *to, double value)
{
    float single = (float)value;
    if (dtype == ncclFloat64) {
        memcpy(to, &value, sizeof value);
    } else if (dtype == ncclFloat32) {
        memcpy(to, &single, sizeof single);
    } else {
        uint16_t half = dtype == ncclFloat16 ? dt_f32_to_f16(single) : dt_f32_to_bf16(single);
        memcpy(to, &half, sizeof half);
    }
}

static int64_t load_integer(ncclDataType_t dtype, const char *from)
{
    int64_t value = 0;
    memcpy(&value, from, dtype_bytes(dtype));
    if (dtype == ncclInt8)
        return (int8_t)value;
    return dtype == ncclInt32 ? (int32_t)value : value;
}

static int is_float(ncclDataType_t dtype)
{
    return dtype == ncclFloat16 || dtype == ncclBfloat16 || dtype == ncclFloat32 ||
           dtype == ncclFloat64;
}

void combine(ncclDataType_t dtype, ncclRedOp_t op, void *into, const void *from, size_t count)
{
    size_t bytes = dtype_bytes(dtype);
    char *a = into;
    const char *b = from;
    int is_unsigned = dtype == ncclUint8 || dtype == ncclUint32 || dtype == ncclUint64;
    for (size_t i = 0; i < count; i++, a += bytes, b += bytes) {
        if (is_float(dtype)) {
            store_float(dtype, a, combine_floats(op, load_float(dtype, a), load_float(dtype, b)));
        } else {
            uint64_t value =
                combine_integers(op, load_integer(dtype, a), load_integer(dtype, b), is_unsigned);
            memcpy(a, &value, bytes);
        }
    }
}
