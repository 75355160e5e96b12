#include "core/stand_in.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/operand.h"
#include "core/sparse.h"

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

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a rank that has joined");
}

/* The same on this rank's GPU, filled from the host's. */
static dtrain_status_t move_to_device(dt_operation_t *operation, const dt_pset_t *set, size_t bytes,
                                      char **memory)
{
    dt_stand_in_t *stand_in = operation->stand_in;
    dt_copy_t copy = {.from = *memory, .bytes = bytes};
    dtrain_status_t status = dt_gpu_open(set->executor.gpu, NULL, &stand_in->device);
    if (status == DTRAIN_OK)
        status = stand_in->device->ops->allocate(stand_in->device, bytes, &stand_in->memory);
    if (status != DTRAIN_OK)
        return status;
    copy.to = *memory = stand_in->memory;
    return stand_in->device->ops->copy(stand_in->device, &copy, 1, NULL, 0, &operation->ready);
}

/* The tensor that this rank would have submitted. Its memory is the operation's, which is given
 * back when no peer can be writing to it. */
static dtrain_status_t make_tensor(dt_operation_t *operation, const dt_pset_t *set,
                                   dtrain_tensor_t *tensor, int64_t *shape)
{
    const dt_signature_t *signature = &operation->signature;
    const dt_kind_traits_t *traits = dt_kind_traits(signature->kind);
    dtrain_dtype_t dtype = (dtrain_dtype_t)signature->dtype;
    int64_t element = (int64_t)dt_dtype_size(dtype), count = dt_signature_count(signature);
    *tensor = (dtrain_tensor_t){.struct_size = sizeof *tensor,
                                .ndim = signature->ndim,
                                .name = operation->stand_in->key,
                                .shape = shape,
                                .dtype = dtype,
                                .device = signature->device};
    memcpy(shape, signature->shape, signature->ndim * sizeof *shape);
    if (traits->rows_differ) {
        shape[0] = 0;
        return DTRAIN_OK;
    }
    if (signature->kind == DT_KIND_SPARSE)
        return DTRAIN_OK; /* no rows */
    operation->owned = dt_output_alloc(count > 0 ? count * element : 1);
    if (!operation->owned)
        return no_memory();
    char *memory = operation->owned->data;
    dtrain_status_t status = DTRAIN_OK;
    if (traits->reduces)
        dt_identity_fill(memory, count, dtype, (dtrain_op_t)signature->op, signature->prescale);
    if (signature->device != DTRAIN_DEVICE_CPU)
        status = move_to_device(operation, set, (size_t)(count * element), &memory);
    tensor->in = tensor->out = memory;
    if (signature->kind == DT_KIND_REDUCESCATTER)
        tensor->out = memory + dt_rows_before(signature->shape[0], set->size, set->rank) *
                                   dt_signature_row_count(signature) * element;
    return status;
}

dtrain_status_t dt_stand_in_make(dt_operation_t *operation, const dt_signature_t *signature,
                                 const dt_pset_t *set, const char *key, size_t length)
{
    operation->stand_in = dt_alloc(sizeof *operation->stand_in + length);
    if (!operation->stand_in)
        return no_memory();
    operation->stand_in->device = NULL;
    operation->stand_in->memory = NULL;
    memcpy(operation->stand_in->key, key, length);
    operation->stand_in->key[length] = '\0';
    operation->signature = *signature;
    dt_pset_locate(set, operation);
    if (signature->device != DTRAIN_DEVICE_CPU)
        operation->gpu = set->executor.gpu;
    int64_t shape[DTRAIN_NDIM_MAX];
    dtrain_tensor_t tensor;
    dtrain_status_t status = make_tensor(operation, set, &tensor, shape);
    dt_submission_t submission = {.kind = (dt_kind_t)signature->kind, .tensor = &tensor};
    if (status == DTRAIN_OK && signature->kind == DT_KIND_SPARSE)
        status = dt_sparse_fill(operation, &submission, set->size);
    else if (status == DTRAIN_OK)
        status = dt_operand_fill(operation, &submission, set->rank, set->size);
    return status;
}

void dt_stand_in_free(dt_operation_t *operation)
{
    dt_stand_in_t *stand_in = operation->stand_in;
    if (stand_in && stand_in->memory)
        stand_in->device->ops->deallocate(stand_in->device, stand_in->memory);
    dt_free(stand_in);
    operation->stand_in = NULL;
}
