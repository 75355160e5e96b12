#include "core/stand_in.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

/* The bits of a value of each type, in the low bytes. */
typedef struct bounds {
    uint64_t one, lowest, highest;
} bounds_t;

static bounds_t bounds_of(dtrain_dtype_t dtype)
{
    static const bounds_t table[] = {
        [DTRAIN_DTYPE_U8] = {1, 0, UINT8_MAX},
        [DTRAIN_DTYPE_I8] = {1, 0x80, INT8_MAX},
        [DTRAIN_DTYPE_U16] = {1, 0, UINT16_MAX},
        [DTRAIN_DTYPE_I16] = {1, 0x8000, INT16_MAX},
        [DTRAIN_DTYPE_I32] = {1, 0x80000000, INT32_MAX},
        [DTRAIN_DTYPE_I64] = {1, UINT64_C(1) << 63, INT64_MAX},
        [DTRAIN_DTYPE_BOOL] = {1, 0, 1},
        /* One, -infinity, +infinity. */
        [DTRAIN_DTYPE_F16] = {0x3c00, 0xfc00, 0x7c00},
        [DTRAIN_DTYPE_BF16] = {0x3f80, 0xff80, 0x7f80},
        [DTRAIN_DTYPE_F32] = {0x3f800000, 0xff800000, 0x7f800000},
        [DTRAIN_DTYPE_F64] = {UINT64_C(0x3ff) << 52, UINT64_C(0xfff) << 52, UINT64_C(0x7ff) << 52},
    };
    return table[dtype];
}

/* Zero of the sign that leaves -0 + zero at -0. */
static uint64_t zero_of(dtrain_dtype_t dtype, int is_scaled_negative)
{
    if (!dt_dtype_is_float(dtype) || is_scaled_negative)
        return 0;
    return UINT64_C(1) << (8 * dt_dtype_size(dtype) - 1);
}

static uint64_t identity_of(dtrain_dtype_t dtype, dtrain_op_t op, double prescale)
{
    bounds_t bounds = bounds_of(dtype);
    int is_negative = prescale < 0;
    switch (op) {
    case DTRAIN_OP_MIN: /* no value, scaled, is above the scaled bound */
        return is_negative ? bounds.lowest : bounds.highest;
    case DTRAIN_OP_MAX:
        return is_negative ? bounds.highest : bounds.lowest;
    case DTRAIN_OP_PRODUCT:
        return bounds.one;
    default:
        return zero_of(dtype, is_negative);
    }
}

void dt_identity_fill(void *memory, int64_t count, dtrain_dtype_t dtype, dtrain_op_t op,
                      double prescale)
{
    uint64_t bits = identity_of(dtype, op, prescale);
    size_t element = dt_dtype_size(dtype), bytes = (size_t)count * element;
    char *at = memory;
    if (bytes == 0)
        return;
    memcpy(at, &bits, element);
    /* What is filled doubles with each copy. */
    for (size_t done = element; done < bytes;) {
        size_t more = done < bytes - done ? done : bytes - done;
        memcpy(at + done, at, more);
        done += more;
    }
}

dtrain_status_t dt_stand_in_make(dt_operation_t *operation, const dt_signature_t *signature,
                                 const char *key, size_t length)
{
    dtrain_dtype_t dtype = (dtrain_dtype_t)signature->dtype;
    int64_t count = dt_signature_count(signature);
    size_t bytes = (size_t)count * dt_dtype_size(dtype);
    dt_stand_in_t *stand_in = dt_calloc(1, sizeof *stand_in);
    operation->stand_in = stand_in;
    if (!stand_in)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a rank that has joined");
    stand_in->key = dt_alloc(length + 1);
    stand_in->memory = dt_alloc_aligned(64, bytes > 0 ? bytes : 64);
    if (!stand_in->key || !stand_in->memory)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                       "out of memory for %zu bytes of '%.*s' on a rank "
                       "that has joined",
                       bytes, (int)(length < 200 ? length : 200), key);
    memcpy(stand_in->key, key, length);
    stand_in->key[length] = '\0';
    operation->signature = *signature;
    operation->in = operation->out = stand_in->memory;
    operation->count = count;
    operation->bytes = (int64_t)bytes;
    if (signature->kind == DT_KIND_ALLREDUCE)
        dt_identity_fill(stand_in->memory, count, dtype, (dtrain_op_t)signature->op,
                         signature->prescale);
    return DTRAIN_OK;
}

void dt_stand_in_free(dt_stand_in_t *stand_in)
{
    if (!stand_in)
        return;
    dt_free(stand_in->memory);
    dt_free(stand_in->key);
    dt_free(stand_in);
}
