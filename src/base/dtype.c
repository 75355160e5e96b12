#include "base/dtype.h"

static const struct {
    const char *name;
    size_t size;
    int is_float;
} dtypes[DT_DTYPE_COUNT] = {
    [DTRAIN_DTYPE_U8] = {"uint8", 1, 0},    [DTRAIN_DTYPE_I8] = {"int8", 1, 0},
    [DTRAIN_DTYPE_I32] = {"int32", 4, 0},   [DTRAIN_DTYPE_I64] = {"int64", 8, 0},
    [DTRAIN_DTYPE_F16] = {"float16", 2, 1}, [DTRAIN_DTYPE_F32] = {"float32", 4, 1},
    [DTRAIN_DTYPE_F64] = {"float64", 8, 1}, [DTRAIN_DTYPE_BF16] = {"bfloat16", 2, 1},
    [DTRAIN_DTYPE_BOOL] = {"bool", 1, 0},   [DTRAIN_DTYPE_U16] = {"uint16", 2, 0},
    [DTRAIN_DTYPE_I16] = {"int16", 2, 0},
};

/* Callers pass any number: the program's mistake, or another rank's message. */
static int is_known(dtrain_dtype_t dtype)
{
    return (unsigned)dtype < DT_DTYPE_COUNT && dtypes[dtype].name;
}

size_t dt_dtype_size(dtrain_dtype_t dtype)
{
    return is_known(dtype) ? dtypes[dtype].size : 0;
}

const char *dt_dtype_name(dtrain_dtype_t dtype)
{
    return is_known(dtype) ? dtypes[dtype].name : "unknown";
}

int dt_dtype_is_float(dtrain_dtype_t dtype)
{
    return is_known(dtype) && dtypes[dtype].is_float;
}

const char *dt_op_name(dtrain_op_t op)
{
    static const char *const names[DT_OP_COUNT] = {
        [DTRAIN_OP_SUM] = "sum", [DTRAIN_OP_AVERAGE] = "average", [DTRAIN_OP_MIN] = "min",
        [DTRAIN_OP_MAX] = "max", [DTRAIN_OP_PRODUCT] = "product",
    };
    if (op == DTRAIN_OP_ADASUM)
        return "adasum";
    return (unsigned)op < DT_OP_COUNT ? names[op] : "unknown";
}

const char *dt_device_name(int32_t device)
{
    if (device == DTRAIN_DEVICE_CPU)
        return "host";
    return device == DTRAIN_DEVICE_CUDA ? "GPU" : "unknown";
}
