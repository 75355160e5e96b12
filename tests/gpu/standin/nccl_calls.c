/*
 * nccl_calls.c - the calls of the stand-in for NCCL that make operations. Where they do not block
 * they are told as in progress until they were polled for some time, and only then do operations go
 * into their stream.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arithmetic.h"
#include "communicator.h"

static _Thread_local int depth;
static _Thread_local operation_t *exchange; /* of the group */
static _Thread_local ncclComm_t grouped;    /* a communicator that was used in it */

static ncclResult_t postpone(const operation_t *operation)
{
    ncclComm_t comm = operation->comm;
    if (comm->num_postponed == POSTPONED_MAX)
        return standin_fail(ncclInternalError, "the stand-in has no room for more operations");
    operation_t *copy = malloc(sizeof *copy);
    if (!copy)
        return ncclSystemError;
    *copy = *operation;
    comm->postponed[comm->num_postponed++] = copy;
    atomic_fetch_add(&comm->num_running, 1);
    comm->polls_left = (int)standin_setting("STANDIN_POLLS", 2);
    return ncclSuccess;
}

static void launch_postponed(ncclComm_t comm)
{
    for (int i = 0; i < comm->num_postponed; i++) {
        standin_enqueue(comm->postponed[i]->stream, standin_run_operation, comm->postponed[i],
                        sizeof(operation_t));
        free(comm->postponed[i]);
    }
    comm->num_postponed = 0;
}

STANDIN_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    *result = comm->async;
    if (*result != ncclSuccess || comm->is_blocking)
        return ncclSuccess;
    *result = ncclInProgress;
    if (!atomic_load(&comm->is_ready) || atomic_fetch_sub(&comm->polls_left, 1) > 0)
        return ncclSuccess;
    launch_postponed(comm);
    *result = ncclSuccess;
    return ncclSuccess;
}

/* What a call returns that has postponed operations. One that blocks takes its time, too. */
static ncclResult_t end_call(ncclComm_t comm)
{
    if (!comm->is_blocking)
        return ncclInProgress;
    usleep((useconds_t)(20 * comm->polls_left));
    launch_postponed(comm);
    return comm->async;
}

/* A call while another is still in progress is a defect of the caller's. */
static ncclResult_t check(ncclComm_t comm, const char *name, standin_fault_t *fault)
{
    *fault = standin_fault(name);
    if (*fault == STANDIN_ERROR || *fault == STANDIN_OOM)
        return standin_fail(*fault == STANDIN_OOM ? ncclUnhandledCudaError : ncclSystemError,
                            "the stand-in was told to fail");
    if (*fault == STANDIN_BLOCK) {
        atomic_fetch_add(&comm->num_blocked, 1);
        standin_wait_forever(&comm->is_aborted);
        atomic_fetch_sub(&comm->num_blocked, 1);
        return standin_fail(ncclInternalError, "the communicator was given up");
    }
    if (comm->async != ncclSuccess)
        return standin_fail(comm->async, "the communicator has failed");
    if (comm->is_revoked)
        return standin_fail(ncclInvalidUsage, "the communicator was revoked");
    if (!atomic_load(&comm->is_ready) || (depth == 0 && comm->num_postponed > 0))
        return standin_fail(ncclInvalidUsage, "a call while the one before is in progress");
    return ncclSuccess;
}

/* Real NCCL would end the process, or read what the host has there. */
static ncclResult_t check_memory(const void *in, const void *out)
{
    if ((in && !standin_is_device(in)) || (out && !standin_is_device(out)))
        return standin_fail(ncclInvalidArgument, "a buffer is not in device memory");
    return ncclSuccess;
}

static ncclResult_t collective(const char *name, kind_t kind, const void *in, void *out,
                               size_t count, ncclDataType_t dtype, ncclRedOp_t op, int root,
                               ncclComm_t comm, cudaStream_t stream)
{
    operation_t operation = {.comm = comm,
                             .stream = stream,
                             .in = in,
                             .out = out,
                             .call = {.kind = (int32_t)kind,
                                      .dtype = (int32_t)dtype,
                                      .op = (int32_t)op,
                                      .root = root,
                                      .count = count}};
    size_t bytes = count * dtype_bytes(dtype), all = bytes * (size_t)comm->size;
    standin_enter(comm);
    ncclResult_t result = check(comm, name, &operation.fault);
    if (result == ncclSuccess)
        result = check_memory(in, out);
    if (result == ncclSuccess && op > ncclMin)
        result =
            standin_fail(ncclInvalidArgument, "the stand-in has sum, product, maximum and minimum");
    if (result == ncclSuccess) {
        standin_describe_memory(&operation, kind == REDUCE_SCATTER ? all : bytes,
                                kind == ALL_GATHER ? all : bytes);
        grouped = comm;
        result = postpone(&operation);
    }
    if (depth == 0 && result == ncclSuccess)
        result = end_call(comm);
    standin_leave(comm);
    return result;
}

STANDIN_API ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                                       ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream)
{
    return collective("ncclAllReduce", ALL_REDUCE, in, out, count, dtype, op, 0, comm, stream);
}

STANDIN_API ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t dtype,
                                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return collective("ncclReduce", REDUCE, in, out, count, dtype, op, root, comm, stream);
}

STANDIN_API ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                                       ncclDataType_t dtype, int root, ncclComm_t comm,
                                       cudaStream_t stream)
{
    return collective("ncclBroadcast", BROADCAST, in, out, count, dtype, ncclSum, root, comm,
                      stream);
}

STANDIN_API ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                                       ncclDataType_t dtype, ncclComm_t comm, cudaStream_t stream)
{
    return collective("ncclAllGather", ALL_GATHER, in, out, count, dtype, ncclSum, 0, comm, stream);
}

STANDIN_API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                                           ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream)
{
    return collective("ncclReduceScatter", REDUCE_SCATTER, in, out, count, dtype, op, 0, comm,
                      stream);
}

static ncclResult_t add_transfer(const char *name, ncclComm_t comm, cudaStream_t stream,
                                 transfer_t transfer)
{
    standin_fault_t fault;
    ncclResult_t result = check(comm, name, &fault);
    if (result == ncclSuccess)
        result = check_memory(transfer.from, transfer.to);
    if (result != ncclSuccess)
        return result;
    if (depth == 0)
        return standin_fail(ncclInvalidUsage, "the stand-in has transfers in groups only");
    if (!exchange)
        exchange = calloc(1, sizeof *exchange);
    if (!exchange || exchange->num_transfers == TRANSFERS_MAX)
        return standin_fail(ncclInternalError, "the stand-in has no room for more transfers");
    exchange->comm = comm;
    exchange->stream = stream;
    exchange->call.kind = EXCHANGE;
    if (fault != STANDIN_NONE)
        exchange->fault = fault;
    transfer.is_registered =
        standin_is_registered(comm, transfer.from ? transfer.from : transfer.to, transfer.bytes);
    exchange->transfers[exchange->num_transfers++] = transfer;
    return ncclSuccess;
}

STANDIN_API ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t dtype, int peer,
                                  ncclComm_t comm, cudaStream_t stream)
{
    transfer_t transfer = {.from = from, .bytes = count * dtype_bytes(dtype), .peer = peer};
    return add_transfer("ncclSend", comm, stream, transfer);
}

STANDIN_API ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t dtype, int peer,
                                  ncclComm_t comm, cudaStream_t stream)
{
    transfer_t transfer = {.to = to, .bytes = count * dtype_bytes(dtype), .peer = peer};
    return add_transfer("ncclRecv", comm, stream, transfer);
}

STANDIN_API ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

STANDIN_API ncclResult_t ncclGroupEnd(void)
{
    if (--depth > 0)
        return ncclSuccess;
    ncclComm_t comm = exchange ? exchange->comm : grouped;
    ncclResult_t result = exchange ? postpone(exchange) : ncclSuccess;
    if (comm && result == ncclSuccess)
        result = end_call(comm);
    free(exchange);
    exchange = NULL;
    grouped = NULL;
    return result;
}
