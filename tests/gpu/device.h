/* device.h - device memory for tests: filled and read by way of CUDA's runtime, the real one or the
 * stand-in. A failing call ends the program. */
#ifndef DT_TEST_GPU_DEVICE_H
#define DT_TEST_GPU_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include <dtrain/dtrain_cuda.h>

#define CUDA_OK(call) device_check(call, #call, __FILE__, __LINE__)
void device_check(cudaError_t error, const char *call, const char *file, int line);

/* From dtrain_mem_alloc, and to be given back with dtrain_mem_free. */
void *device_new(size_t bytes);
void *device_copy_of(const void *host, size_t bytes);
void device_read(void *host, const void *device, size_t bytes);
void device_write(void *device, const void *host, size_t bytes);

/* Values that small types hold exactly, as `dtype`; and back. */
void values_store(dtrain_dtype_t dtype, void *to, int64_t index, double value);
double values_load(dtrain_dtype_t dtype, const void *from, int64_t index);

/* A tensor of one dimension on the GPU, in the default stream. `count` stays the caller's. */
dtrain_tensor_t device_tensor(const char *name, const void *in, void *out, const int64_t *count,
                              dtrain_dtype_t dtype);

#endif
