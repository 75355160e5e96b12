/* nccl_wire.h - in which type, with which of NCCL's reductions and with which factors before and
 * behind it a reduction is taken. Pure functions. */
#ifndef DT_COMM_NCCL_WIRE_H
#define DT_COMM_NCCL_WIRE_H

#include <nccl.h>

#include "reduce/reduce.h"

/*
 * NCCL has no 16-bit integers, no booleans, and averages and scales in the tensor's type. Here
 * scales are applied in fp32 while tensors are packed and unpacked; 16-bit integers travel as
 * 32-bit ones, integers that are scaled or averaged as 64-bit ones, booleans as minimum or maximum
 * of 0 and 1. The sum of fp16 values is divided beforehand, so that what an average cannot exceed
 * does not exceed the type on its way.
 */
typedef struct dt_nccl_wire {
    dtrain_dtype_t dtype; /* on the way */
    ncclDataType_t nccl_dtype;
    ncclRedOp_t op;
    double before_divisor, before_scale; /* x / divisor * scale */
    double behind_divisor, behind_scale;
    int packs;   /* something is to be done before, or the type differs */
    int unpacks; /* ditto behind */
} dt_nccl_wire_t;

dt_nccl_wire_t dt_nccl_wire(const dt_reduction_t *reduction);

/* NCCL's type of so many bytes, for data that is only moved. */
ncclDataType_t dt_nccl_plain_dtype(dtrain_dtype_t dtype);

#endif
