#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reduce/half.h"

void device_check(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    exit(1);
}

void *device_new(size_t bytes)
{
    void *memory;
    if (dtrain_mem_alloc(&memory, bytes, DTRAIN_DEVICE_CUDA) == DTRAIN_OK)
        return memory;
    fprintf(stderr, "%s\n", dtrain_last_error());
    exit(1);
}

void *device_copy_of(const void *host, size_t bytes)
{
    void *memory = device_new(bytes);
    device_write(memory, host, bytes);
    return memory;
}

void device_read(void *host, const void *device, size_t bytes)
{
    CUDA_OK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

void device_write(void *device, const void *host, size_t bytes)
{
    CUDA_OK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}

static int is_half(dtrain_dtype_t dtype)
{
    return dtype == DTRAIN_DTYPE_F16 || dtype == DTRAIN_DTYPE_BF16;
}

void values_store(dtrain_dtype_t dtype, void *to, int64_t index, double value)
{
    size_t size = dtrain_dtype_size(dtype);
    char *at = (char *)to + index * (int64_t)size;
    float single = (float)value;
    int64_t integer = (int64_t)value;
    uint16_t half = dtype == DTRAIN_DTYPE_F16 ? dt_f32_to_f16(single) : dt_f32_to_bf16(single);
    if (dtype == DTRAIN_DTYPE_F64)
        memcpy(at, &value, size);
    else if (dtype == DTRAIN_DTYPE_F32)
        memcpy(at, &single, size);
    else if (is_half(dtype))
        memcpy(at, &half, size);
    else
        memcpy(at, &integer, size);
}

double values_load(dtrain_dtype_t dtype, const void *from, int64_t index)
{
    size_t size = dtrain_dtype_size(dtype);
    const char *at = (const char *)from + index * (int64_t)size;
    double wide;
    float single;
    uint16_t half;
    int64_t integer = 0;
    switch (dtype) {
    case DTRAIN_DTYPE_F64:
        memcpy(&wide, at, size);
        return wide;
    case DTRAIN_DTYPE_F32:
        memcpy(&single, at, size);
        return single;
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        memcpy(&half, at, size);
        return dtype == DTRAIN_DTYPE_F16 ? dt_f16_to_f32(half) : dt_bf16_to_f32(half);
    default:
        break;
    }
    memcpy(&integer, at, size);
    int bits = 64 - 8 * (int)size;
    int is_signed = dtype == DTRAIN_DTYPE_I8 || dtype == DTRAIN_DTYPE_I16 ||
                    dtype == DTRAIN_DTYPE_I32 || dtype == DTRAIN_DTYPE_I64;
    return is_signed ? (double)((int64_t)((uint64_t)integer << bits) >> bits) : (double)integer;
}

dtrain_tensor_t device_tensor(const char *name, const void *in, void *out, const int64_t *count,
                              dtrain_dtype_t dtype)
{
    return (dtrain_tensor_t){.struct_size = sizeof(dtrain_tensor_t),
                             .name = name,
                             .in = in,
                             .out = out,
                             .ndim = 1,
                             .shape = count,
                             .dtype = dtype,
                             .device = DTRAIN_DEVICE_CUDA};
}
