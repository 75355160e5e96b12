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

/* MPI's own call for a tensor. */
static int call(const bench_options_t *options, const bench_tensor_t *tensor, MPI_Datatype type,
                MPI_Op op)
{
    int count = (int)tensor->count, share = (int)tensor->share;
    int is_in_place = tensor->in == tensor->out, is_root = dtrain_rank() == BENCH_ROOT;
    const void *in = is_in_place ? MPI_IN_PLACE : tensor->in;
    MPI_Comm world = MPI_COMM_WORLD;
    switch (options->kind) {
    case BENCH_ALLREDUCE:
        return MPI_Allreduce(in, tensor->out, count, type, op, world);
    case BENCH_BROADCAST:
        return MPI_Bcast(tensor->out, count, type, BENCH_ROOT, world);
    case BENCH_REDUCE:
        return MPI_Reduce(is_root ? in : tensor->in, is_root ? tensor->out : NULL, count, type, op,
                          BENCH_ROOT, world);
    case BENCH_REDUCESCATTER:
        return MPI_Reduce_scatter_block(in, tensor->out, share, type, op, world);
    case BENCH_ALLGATHER:
        return MPI_Allgather(in, share, type, tensor->out, share, type, world);
    case BENCH_ALLTOALL:
        return MPI_Alltoall(in, share, type, tensor->out, share, type, world);
    case BENCH_GATHER:
        return MPI_Gather(in, share, type, tensor->out, share, type, BENCH_ROOT, world);
    case BENCH_SCATTER:
        return MPI_Scatter(in, share, type, tensor->out, share, type, BENCH_ROOT, world);
    default:
        return MPI_ERR_OTHER;
    }
}

int bench_mpi_run(const bench_workload_t *workload)
{
    const bench_options_t *options = workload->options;
    MPI_Datatype type = datatype(options->dtype);
    MPI_Op op = operation(options->op);
    int has_none = bench_traits(options->kind)->reduces && op == MPI_OP_NULL;
    for (int i = 0; i < workload->num_tensors; i++) {
        const bench_tensor_t *tensor = &workload->tensors[i];
        if (tensor->count > INT_MAX || type == MPI_DATATYPE_NULL || has_none ||
            call(options, tensor, type, op) != MPI_SUCCESS)
            return -1;
    }
    return 0;
}
