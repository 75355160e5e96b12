/* bench_mpi.c - MPI's own calls, on the buffers that ours run on. */
#include <limits.h>

#include <dtrain/dtrain_mpi.h>

#include "tools/bench/contest.h"

int bench_mpi_is_there(void)
{
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    return is_initialized;
}

/* MPI_DATATYPE_NULL for types that MPI does not reduce. */
static MPI_Datatype datatype(dtrain_dtype_t dtype)
{
    switch (dtype) {
    case DTRAIN_DTYPE_U8:
        return MPI_UINT8_T;
    case DTRAIN_DTYPE_I8:
        return MPI_INT8_T;
    case DTRAIN_DTYPE_U16:
        return MPI_UINT16_T;
    case DTRAIN_DTYPE_I16:
        return MPI_INT16_T;
    case DTRAIN_DTYPE_I32:
        return MPI_INT32_T;
    case DTRAIN_DTYPE_I64:
        return MPI_INT64_T;
    case DTRAIN_DTYPE_F32:
        return MPI_FLOAT;
    case DTRAIN_DTYPE_F64:
        return MPI_DOUBLE;
    default:
        return MPI_DATATYPE_NULL;
    }
}

static MPI_Op operation(dtrain_op_t op)
{
    switch (op) {
    case DTRAIN_OP_SUM:
        return MPI_SUM;
    case DTRAIN_OP_MIN:
        return MPI_MIN;
    case DTRAIN_OP_MAX:
        return MPI_MAX;
    case DTRAIN_OP_PRODUCT:
        return MPI_PROD;
    default:
        return MPI_OP_NULL;
    }
}

int bench_mpi_run(const bench_workload_t *workload)
{
    const bench_options_t *options = workload->options;
    MPI_Datatype type = datatype(options->dtype);
    MPI_Op op = operation(options->op);
    for (int i = 0; i < workload->num_tensors; i++) {
        const bench_tensor_t *tensor = &workload->tensors[i];
        if (tensor->count > INT_MAX || type == MPI_DATATYPE_NULL)
            return -1;
        int error;
        if (options->kind == BENCH_BROADCAST)
            error = MPI_Bcast(tensor->out, (int)tensor->count, type, 0, MPI_COMM_WORLD);
        else if (op == MPI_OP_NULL)
            return -1;
        else
            error = MPI_Allreduce(tensor->in == tensor->out ? MPI_IN_PLACE : tensor->in,
                                  tensor->out, (int)tensor->count, type, op, MPI_COMM_WORLD);
        if (error != MPI_SUCCESS)
            return -1;
    }
    return 0;
}
