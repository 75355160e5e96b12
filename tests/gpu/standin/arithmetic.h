/* arithmetic.h - NCCL's reductions, one value at a time. */
#ifndef STANDIN_ARITHMETIC_H
#define STANDIN_ARITHMETIC_H

#include <nccl.h>

size_t dtype_bytes(ncclDataType_t dtype);

/* into[i] = into[i] op from[i], rounded to the type. */
void combine(ncclDataType_t dtype, ncclRedOp_t op, void *into, const void *from, size_t count);

#endif
