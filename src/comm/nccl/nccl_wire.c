#include "comm/nccl/nccl_wire.h"

#include "base/dtype.h"

static ncclRedOp_t nccl_op(const dt_reduction_t *reduction)
{
    int is_bool = reduction->dtype == DTRAIN_DTYPE_BOOL;
    switch (reduction->op) {
    case DTRAIN_OP_MIN:
        return ncclMin;
    case DTRAIN_OP_MAX:
        return ncclMax;
    case DTRAIN_OP_PRODUCT:
        return is_bool ? ncclMin : ncclProd;
    default:
        return is_bool ? ncclMax : ncclSum;
    }
}

ncclDataType_t dt_nccl_plain_dtype(dtrain_dtype_t dtype)
{
    switch (dtype) {
    case DTRAIN_DTYPE_I8:
        return ncclInt8;
    case DTRAIN_DTYPE_I32:
        return ncclInt32;
    case DTRAIN_DTYPE_I64:
        return ncclInt64;
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_U16: /* moved, not reduced */
    case DTRAIN_DTYPE_I16:
        return ncclFloat16;
    case DTRAIN_DTYPE_BF16:
        return ncclBfloat16;
    case DTRAIN_DTYPE_F32:
        return ncclFloat32;
    case DTRAIN_DTYPE_F64:
        return ncclFloat64;
    default:
        return ncclUint8;
    }
}

static dtrain_dtype_t wire_dtype(const dt_reduction_t *reduction, int is_scaled)
{
    dtrain_dtype_t dtype = reduction->dtype;
    if (dt_dtype_is_float(dtype))
        return dtype;
    if (dtype == DTRAIN_DTYPE_BOOL)
        return DTRAIN_DTYPE_U8;
    if (is_scaled)
        return DTRAIN_DTYPE_I64;
    return dtype == DTRAIN_DTYPE_U16 || dtype == DTRAIN_DTYPE_I16 ? DTRAIN_DTYPE_I32 : dtype;
}

dt_nccl_wire_t dt_nccl_wire(const dt_reduction_t *reduction)
{
    dt_nccl_wire_t wire = {.op = nccl_op(reduction),
                           .before_divisor = 1,
                           .before_scale = reduction->prescale,
                           .behind_divisor = reduction->divisor,
                           .behind_scale = reduction->postscale};
    int is_scaled =
        reduction->prescale != 1 || reduction->postscale != 1 || reduction->divisor != 1;
    if (reduction->dtype == DTRAIN_DTYPE_F16 && reduction->op == DTRAIN_OP_AVERAGE) {
        wire.before_divisor = reduction->divisor;
        wire.behind_divisor = 1;
    }
    wire.dtype = wire_dtype(reduction, is_scaled);
    wire.nccl_dtype = dt_nccl_plain_dtype(wire.dtype);
    int differs = wire.dtype != reduction->dtype;
    wire.packs = differs || wire.before_divisor != 1 || wire.before_scale != 1;
    wire.unpacks = differs || wire.behind_divisor != 1 || wire.behind_scale != 1;
    return wire;
}
