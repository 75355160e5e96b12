/*
 * kernels.h - what the kernels are told, in plain C: each takes one of these structs by value. The
 * kernels are compiled by nvcc into a fatbin, which nccl_device.c loads, and by the host's
 * C++ compiler for tests (kernels_host.h); both have the names listed here.
 */
#ifndef DT_CUDA_KERNELS_H
#define DT_CUDA_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Moving tensors into and out of a fusion buffer ---------------------------------------- */

/* Tensors begin in a buffer on borders of so many bytes; what is between them is zero. */
#define DT_MOVE_ALIGNMENT 128

/* A block's unit of work, in bytes of the buffer. */
#define DT_MOVE_CHUNK_BYTES 32768

/* Kernel arguments hold 32,764 bytes; a launch with few tensors is spared the long struct. */
#define DT_MOVE_FEW 40
#define DT_MOVE_MANY 1360

typedef struct dt_move_entry {
    void *tensor; /* packing: only read */
    int64_t count;
    uint32_t place;       /* in the buffer, in units of DT_MOVE_ALIGNMENT */
    uint32_t first_chunk; /* those of the tensors before it */
} dt_move_entry_t;

typedef struct dt_move_head {
    char *buffer;
    uint32_t num_entries;
    uint32_t num_chunks;
    uint32_t chunk;        /* elements */
    int32_t unpacks;       /* from the buffer to the tensors; 0: to the buffer */
    int32_t tensor_dtype;  /* dtrain_dtype_t */
    int32_t buffer_dtype;  /* another one than tensor_dtype in integers and rounded_* only */
    int32_t element_bytes; /* dt_move_copy */
    int32_t scales;        /* 0: both factors are 1 */
    double divisor;        /* a value is divided by this, then multiplied */
    double scale;
} dt_move_head_t;

typedef struct dt_move_few {
    dt_move_head_t head;
    dt_move_entry_t entries[DT_MOVE_FEW];
} dt_move_few_t;

typedef struct dt_move_many {
    dt_move_head_t head;
    dt_move_entry_t entries[DT_MOVE_MANY];
} dt_move_many_t;

/* ---- Optimizers ---------------------------------------------------------------------------- */

/* One step over a range, as optim/update.h defines it, to the bit. */
typedef struct dt_device_update {
    int64_t count;
    const void *gradients;
    void *parameters;
    void *first, *second; /* NULL where the rule has no such state */
    void *copy;           /* 16-bit copy of the parameters; may be NULL */
    int32_t is_adam;      /* or AdamW; else SGD */
    int32_t copy_dtype;   /* dtrain_dtype_t */
    int32_t nesterov, reserved;
    /* As dt_update_factors_t. */
    double scale, decay, shrink, rate, momentum;
    double beta1, gain1, beta2, gain2, root_factor, epsilon;
} dt_device_update_t;

/* The sums of squares of blocks of 4,096 elements, as optim/norm.h has them. */
typedef struct dt_squares {
    const void *values;
    int64_t count;
    double *sums; /* one a block; NaN where an element is infinite or NaN */
} dt_squares_t;

/* ---- The kernels --------------------------------------------------------------------------- */

typedef enum dt_kernel {
    DT_KERNEL_MOVE_COPY_FEW,
    DT_KERNEL_MOVE_F16_FEW,
    DT_KERNEL_MOVE_BF16_FEW,
    DT_KERNEL_MOVE_F32_FEW,
    DT_KERNEL_MOVE_F64_FEW,
    DT_KERNEL_MOVE_INTEGERS_FEW,
    DT_KERNEL_MOVE_ROUNDED_F16_FEW, /* float32, of 16 bits in the buffer */
    DT_KERNEL_MOVE_ROUNDED_BF16_FEW,
    DT_KERNEL_MOVE_COPY_MANY,
    DT_KERNEL_MOVE_F16_MANY,
    DT_KERNEL_MOVE_BF16_MANY,
    DT_KERNEL_MOVE_F32_MANY,
    DT_KERNEL_MOVE_F64_MANY,
    DT_KERNEL_MOVE_INTEGERS_MANY,
    DT_KERNEL_MOVE_ROUNDED_F16_MANY, /* float32, of 16 bits in the buffer */
    DT_KERNEL_MOVE_ROUNDED_BF16_MANY,
    DT_KERNEL_UPDATE_F16, /* by the type of the gradients */
    DT_KERNEL_UPDATE_BF16,
    DT_KERNEL_UPDATE_F32,
    DT_KERNEL_UPDATE_F64,
    DT_KERNEL_SQUARES_F16,
    DT_KERNEL_SQUARES_BF16,
    DT_KERNEL_SQUARES_F32,
    DT_KERNEL_SQUARES_F64,
    DT_KERNEL_COUNT
} dt_kernel_t;

/* The kernel's name in the fatbin, such as "dt_move_f32_few". */
const char *dt_kernel_name(dt_kernel_t kernel);

#ifdef __cplusplus
}
#endif

#endif
