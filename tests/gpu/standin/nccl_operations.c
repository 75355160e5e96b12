/* nccl_operations.c - what an operation of the stand-in for NCCL does, once it is its turn in its
 * stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arithmetic.h"
#include "communicator.h"

static int meet(operation_t *operation)
{
    ncclComm_t comm = operation->comm;
    return segment_meet(comm->segment->device_turns, comm->rank, comm->size, &comm->is_aborted);
}

/* 0 when all ranks have called the same. */
static int compare(operation_t *operation)
{
    ncclComm_t comm = operation->comm;
    segment_t *segment = comm->segment;
    segment->calls[comm->rank] = operation->call;
    if (meet(operation))
        return -1;
    int differs = 0;
    for (int rank = 0; rank < comm->size; rank++)
        differs |= memcmp(&segment->calls[rank], &operation->call, sizeof(call_t)) != 0;
    if (meet(operation))
        return -1;
    if (!differs)
        return 0;
    const char *how = getenv("STANDIN_MISMATCH");
    if (how && strcmp(how, "hang") == 0)
        standin_wait_forever(&comm->is_aborted);
    else
        comm->async = ncclInvalidUsage;
    return -1;
}

/* A chunk of the vector that all ranks have put in: [first, first + n). */
static void take_chunk(operation_t *operation, size_t first, size_t n)
{
    ncclComm_t comm = operation->comm;
    segment_t *segment = comm->segment;
    ncclDataType_t dtype = (ncclDataType_t)operation->call.dtype;
    size_t element = dtype_bytes(dtype), count = operation->call.count;
    char *out = standin_reach(operation->out);
    char sum[CHUNK_BYTES];
    switch ((kind_t)operation->call.kind) {
    case BROADCAST:
        memcpy(out + first * element, segment->data[operation->call.root], n * element);
        break;
    case ALL_GATHER:
        for (int rank = 0; rank < comm->size; rank++)
            memcpy(out + ((size_t)rank * count + first) * element, segment->data[rank],
                   n * element);
        break;
    default:
        memcpy(sum, segment->data[0], n * element);
        for (int rank = 1; rank < comm->size; rank++)
            combine(dtype, (ncclRedOp_t)operation->call.op, sum, segment->data[rank], n);
        if (operation->call.kind == REDUCE_SCATTER) {
            size_t begin = (size_t)comm->rank * count;
            for (size_t i = 0; i < n; i++) {
                if (first + i >= begin && first + i < begin + count)
                    memcpy(out + (first + i - begin) * element, sum + i * element, element);
            }
        } else if (operation->call.kind == ALL_REDUCE || operation->call.root == comm->rank) {
            memcpy(out + first * element, sum, n * element);
            if (standin_fault("values") == STANDIN_ERROR)
                out[first * element]++;
        }
        break;
    }
}

static void run_collective(operation_t *operation)
{
    ncclComm_t comm = operation->comm;
    size_t element = dtype_bytes((ncclDataType_t)operation->call.dtype);
    size_t total = operation->call.count;
    if (operation->call.kind == REDUCE_SCATTER)
        total *= (size_t)comm->size;
    const char *in = standin_reach(operation->in);
    int reads = operation->call.kind != BROADCAST || operation->call.root == comm->rank;
    if (compare(operation))
        return;
    size_t most = CHUNK_BYTES / element;
    for (size_t first = 0; first < total; first += most) {
        size_t n = total - first < most ? total - first : most;
        if (reads)
            memcpy(comm->segment->data[comm->rank], in + first * element, n * element);
        if (meet(operation))
            return;
        take_chunk(operation, first, n);
        if (meet(operation))
            return;
    }
}

/* A chunk, if there is one and room for it; 1 when something moved. */
static int push(ncclComm_t comm, transfer_t *transfer)
{
    pair_t *pair = &comm->segment->pairs[comm->rank][transfer->peer];
    if (atomic_load(&pair->sent) != atomic_load(&pair->taken))
        return 0;
    size_t bytes = transfer->bytes < PAIR_BYTES ? transfer->bytes : PAIR_BYTES;
    memcpy(pair->data, transfer->from, bytes);
    pair->bytes = bytes;
    pair->is_registered = transfer->is_registered;
    atomic_fetch_add(&pair->sent, 1);
    transfer->from += bytes;
    transfer->bytes -= bytes;
    return 1;
}

static int pull(ncclComm_t comm, transfer_t *transfer)
{
    pair_t *pair = &comm->segment->pairs[transfer->peer][comm->rank];
    if (atomic_load(&pair->sent) == atomic_load(&pair->taken))
        return 0;
    if (pair->bytes > transfer->bytes || pair->is_registered != transfer->is_registered) {
        comm->async = ncclInvalidUsage;
        standin_wait_forever(&comm->is_aborted);
        return 0;
    }
    memcpy(transfer->to, pair->data, pair->bytes);
    transfer->to += pair->bytes;
    transfer->bytes -= pair->bytes;
    atomic_fetch_add(&pair->taken, 1);
    return 1;
}

static void run_exchange(operation_t *operation)
{
    ncclComm_t comm = operation->comm;
    int turn = 0, left = 1;
    for (int i = 0; i < operation->num_transfers; i++) {
        transfer_t *transfer = &operation->transfers[i];
        transfer->from = transfer->from ? standin_reach(transfer->from) : NULL;
        transfer->to = transfer->to ? standin_reach(transfer->to) : NULL;
    }
    while (left && !atomic_load(&comm->is_aborted)) {
        int moved = 0;
        left = 0;
        for (int i = 0; i < operation->num_transfers; i++) {
            transfer_t *transfer = &operation->transfers[i];
            if (transfer->bytes == 0)
                continue;
            moved |= transfer->from ? push(comm, transfer) : pull(comm, transfer);
            left |= transfer->bytes > 0;
        }
        if (!moved)
            segment_relax(&turn);
    }
}

void standin_run_operation(void *argument)
{
    operation_t *operation = argument;
    ncclComm_t comm = operation->comm;
    if (operation->fault == STANDIN_ASYNC)
        comm->async = ncclRemoteError;
    if (operation->fault == STANDIN_ASYNC || operation->fault == STANDIN_HANG)
        standin_wait_forever(&comm->is_aborted);
    else if (operation->call.kind == EXCHANGE)
        run_exchange(operation);
    else
        run_collective(operation);
    atomic_fetch_sub(&comm->num_running, 1);
}
