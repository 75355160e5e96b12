/*
 * nccl.c - NCCL between processes of one machine, over shared memory. Communicators are as those
 * made with blocking = 0: calls are told as in progress until they were polled for some time, and
 * only then do operations go into their stream.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arithmetic.h"
#include "segment.h"
#include "standin.h"

#define POSTPONED_MAX 256
#define TRANSFERS_MAX (2 * RANKS_MAX)

typedef enum kind {
    ALL_REDUCE = 1,
    REDUCE = 2,
    BROADCAST = 3,
    ALL_GATHER = 4,
    REDUCE_SCATTER = 5,
    EXCHANGE = 6
} kind_t;

typedef struct transfer {
    const char *from; /* NULL: it comes in */
    char *to;
    size_t bytes;
    int peer;
} transfer_t;

typedef struct operation {
    ncclComm_t comm;
    cudaStream_t stream;
    call_t call;
    const void *in;
    void *out;
    standin_fault_t fault;
    int num_transfers;
    transfer_t transfers[TRANSFERS_MAX];
} operation_t;

struct ncclComm {
    segment_t *segment;
    int rank, size;
    int pid, fd; /* whose segment it is, until it is mapped */
    _Atomic int is_ready, is_aborted;
    _Atomic int num_running; /* operations in streams */
    _Atomic ncclResult_t async;
    _Atomic int polls_left;
    pthread_t helper; /* of init or split */
    int has_helper;
    operation_t *postponed[POSTPONED_MAX]; /* the calling thread's */
    int num_postponed;
    struct split {
        ncclComm_t parent;
        int color, key;
        ncclComm_t *result;
    } split;
};

static _Thread_local char last_error[256];

static ncclResult_t fail(ncclResult_t result, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
    return result;
}

STANDIN_API const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclInProgress:
        return "NCCL operation in progress";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclSystemError:
        return "unhandled system error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    default:
        return "internal error";
    }
}

STANDIN_API const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

STANDIN_API ncclResult_t ncclGetVersion(int *version)
{
    *version = (int)standin_setting("STANDIN_NCCL_VERSION", NCCL_VERSION_CODE);
    return ncclSuccess;
}

/* ---- Communicators -------------------------------------------------------------------------- */

typedef struct unique_id {
    int32_t pid, fd;
} unique_id_t;

STANDIN_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    unique_id_t unique = {.pid = getpid(), .fd = segment_create()};
    if (standin_fault("ncclGetUniqueId") != STANDIN_NONE || unique.fd < 0)
        return fail(ncclSystemError, "no unique id");
    memset(id, 0, sizeof *id);
    memcpy(id, &unique, sizeof unique);
    return ncclSuccess;
}

static void wait_forever(const _Atomic int *aborted)
{
    while (!atomic_load(aborted))
        usleep(1000);
}

/* Finds the others. */
static void *run_init(void *argument)
{
    ncclComm_t comm = argument;
    standin_fault_t fault = standin_fault("init");
    if (fault == STANDIN_HANG)
        wait_forever(&comm->is_aborted);
    comm->segment = segment_map(comm->pid, comm->fd);
    if (!comm->segment || fault == STANDIN_ERROR)
        comm->async = ncclSystemError;
    else if (segment_meet(comm->segment->host_turns, comm->rank, comm->size, &comm->is_aborted))
        comm->async = ncclInternalError;
    atomic_store(&comm->is_ready, 1);
    return NULL;
}

static ncclComm_t make_comm(void)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (comm)
        comm->polls_left = (int)standin_setting("STANDIN_POLLS", 2);
    return comm;
}

static ncclResult_t begin(ncclComm_t comm, void *(*run)(void *argument))
{
    if (pthread_create(&comm->helper, NULL, run, comm) != 0)
        return fail(ncclSystemError, "no thread");
    comm->has_helper = 1;
    return ncclInProgress;
}

STANDIN_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                                int rank, ncclConfig_t *config)
{
    unique_id_t unique;
    if (standin_fault("ncclCommInitRankConfig") != STANDIN_NONE)
        return fail(ncclSystemError, "the stand-in was told to fail");
    if (size > RANKS_MAX || !config || config->blocking != 0)
        return fail(ncclInvalidArgument, "the stand-in has 8 ranks, and only what does not block");
    ncclComm_t made = make_comm();
    if (!made)
        return ncclSystemError;
    memcpy(&unique, &id, sizeof unique);
    made->pid = unique.pid;
    made->fd = unique.fd;
    made->rank = rank;
    made->size = size;
    *comm = made;
    return begin(made, run_init);
}

/* All ranks of the parent meet, show what they want to be, and the first of each new communicator
 * brings its memory. */
static void *run_split(void *argument)
{
    ncclComm_t comm = argument;
    ncclComm_t parent = comm->split.parent;
    segment_t *shared = parent->segment;
    candidate_t *all = shared->candidates;
    candidate_t mine = {.color = comm->split.color,
                        .key = comm->split.key,
                        .pid = getpid(),
                        .fd = segment_create()};
    all[parent->rank] = mine;
    if (segment_meet(shared->host_turns, parent->rank, parent->size, &comm->is_aborted))
        comm->async = ncclInternalError;
    int first = parent->rank;
    for (int rank = 0; rank < parent->size; rank++) {
        if (all[rank].color != mine.color)
            continue;
        comm->size++;
        if (all[rank].key < mine.key || (all[rank].key == mine.key && rank < parent->rank))
            comm->rank++;
        if (all[rank].key < all[first].key || (all[rank].key == all[first].key && rank < first))
            first = rank;
    }
    if (comm->async == ncclSuccess && mine.color != NCCL_SPLIT_NOCOLOR) {
        comm->segment = segment_map(all[first].pid, all[first].fd);
        if (!comm->segment)
            comm->async = ncclSystemError;
    }
    /* Nobody closes what another has not opened yet, nor begins the next split. */
    if (segment_meet(shared->host_turns, parent->rank, parent->size, &comm->is_aborted))
        comm->async = ncclInternalError;
    close(mine.fd);
    atomic_store(&comm->is_ready, 1);
    atomic_fetch_sub(&parent->num_running, 1);
    if (mine.color == NCCL_SPLIT_NOCOLOR)
        free(comm);
    return NULL;
}

STANDIN_API ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm,
                                       ncclConfig_t *config)
{
    (void)config;
    if (standin_fault("ncclCommSplit") != STANDIN_NONE)
        return fail(ncclSystemError, "the stand-in was told to fail");
    if (!atomic_load(&parent->is_ready) || atomic_load(&parent->num_running) > 0)
        return fail(ncclInvalidUsage, "the communicator is busy");
    ncclComm_t made = make_comm();
    if (!made)
        return ncclSystemError;
    made->split = (struct split){.parent = parent, .color = color, .key = key};
    atomic_fetch_add(&parent->num_running, 1);
    *comm = color == NCCL_SPLIT_NOCOLOR ? NULL : made;
    ncclResult_t result = begin(made, run_split);
    if (color == NCCL_SPLIT_NOCOLOR)
        pthread_detach(made->helper);
    return result;
}

/* ---- Operations ----------------------------------------------------------------------------- */

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
        wait_forever(&comm->is_aborted);
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
    if (pair->bytes > transfer->bytes) {
        comm->async = ncclInvalidUsage;
        wait_forever(&comm->is_aborted);
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

static void run_operation(void *argument)
{
    operation_t *operation = argument;
    ncclComm_t comm = operation->comm;
    if (operation->fault == STANDIN_ASYNC)
        comm->async = ncclRemoteError;
    if (operation->fault == STANDIN_ASYNC || operation->fault == STANDIN_HANG)
        wait_forever(&comm->is_aborted);
    else if (operation->call.kind == EXCHANGE)
        run_exchange(operation);
    else
        run_collective(operation);
    atomic_fetch_sub(&comm->num_running, 1);
}

/* ---- Calls, groups, polls ------------------------------------------------------------------- */

static _Thread_local int depth;
static _Thread_local operation_t *exchange; /* of the group */
static _Thread_local ncclComm_t grouped;    /* a communicator that was used in it */

static ncclResult_t postpone(const operation_t *operation)
{
    ncclComm_t comm = operation->comm;
    if (comm->num_postponed == POSTPONED_MAX)
        return fail(ncclInternalError, "the stand-in has no room for more operations");
    operation_t *copy = malloc(sizeof *copy);
    if (!copy)
        return ncclSystemError;
    *copy = *operation;
    comm->postponed[comm->num_postponed++] = copy;
    atomic_fetch_add(&comm->num_running, 1);
    comm->polls_left = (int)standin_setting("STANDIN_POLLS", 2);
    return ncclInProgress;
}

static void launch_postponed(ncclComm_t comm)
{
    for (int i = 0; i < comm->num_postponed; i++) {
        standin_enqueue(comm->postponed[i]->stream, run_operation, comm->postponed[i],
                        sizeof(operation_t));
        free(comm->postponed[i]);
    }
    comm->num_postponed = 0;
}

STANDIN_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    *result = comm->async;
    if (*result != ncclSuccess)
        return ncclSuccess;
    *result = ncclInProgress;
    if (!atomic_load(&comm->is_ready) || atomic_fetch_sub(&comm->polls_left, 1) > 0)
        return ncclSuccess;
    launch_postponed(comm);
    *result = ncclSuccess;
    return ncclSuccess;
}

/* A call while another is still in progress is a defect of the caller's. */
static ncclResult_t check(ncclComm_t comm, const char *name, standin_fault_t *fault)
{
    *fault = standin_fault(name);
    if (*fault == STANDIN_ERROR || *fault == STANDIN_OOM)
        return fail(*fault == STANDIN_OOM ? ncclUnhandledCudaError : ncclSystemError,
                    "the stand-in was told to fail");
    if (comm->async != ncclSuccess)
        return fail(comm->async, "the communicator has failed");
    if (!atomic_load(&comm->is_ready) || (depth == 0 && comm->num_postponed > 0))
        return fail(ncclInvalidUsage, "a call while the one before is in progress");
    return ncclSuccess;
}

/* Real NCCL would end the process, or read what the host has there. */
static ncclResult_t check_memory(const void *in, const void *out)
{
    if ((in && !standin_is_device(in)) || (out && !standin_is_device(out)))
        return fail(ncclInvalidArgument, "a buffer is not in device memory");
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
    ncclResult_t result = check(comm, name, &operation.fault);
    if (result == ncclSuccess)
        result = check_memory(in, out);
    if (result == ncclSuccess && op > ncclMin)
        result = fail(ncclInvalidArgument, "the stand-in has sum, product, maximum and minimum");
    if (result != ncclSuccess)
        return result;
    grouped = comm;
    result = postpone(&operation);
    return depth > 0 && result == ncclInProgress ? ncclSuccess : result;
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
        return fail(ncclInvalidUsage, "the stand-in has transfers in groups only");
    if (!exchange)
        exchange = calloc(1, sizeof *exchange);
    if (!exchange || exchange->num_transfers == TRANSFERS_MAX)
        return fail(ncclInternalError, "the stand-in has no room for more transfers");
    exchange->comm = comm;
    exchange->stream = stream;
    exchange->call.kind = EXCHANGE;
    if (fault != STANDIN_NONE)
        exchange->fault = fault;
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
    ncclResult_t result = grouped ? ncclInProgress : ncclSuccess;
    if (exchange)
        result = postpone(exchange);
    free(exchange);
    exchange = NULL;
    grouped = NULL;
    return result;
}

/* ---- The end -------------------------------------------------------------------------------- */

static void end_comm(ncclComm_t comm)
{
    while (atomic_load(&comm->num_running) > comm->num_postponed)
        usleep(100);
    if (comm->has_helper)
        pthread_join(comm->helper, NULL);
    for (int i = 0; i < comm->num_postponed; i++)
        free(comm->postponed[i]);
    if (comm->segment)
        segment_unmap(comm->segment);
    free(comm);
}

STANDIN_API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (standin_fault("ncclCommDestroy") == STANDIN_HANG)
        pause();
    end_comm(comm);
    return ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (standin_fault("ncclCommAbort") == STANDIN_HANG)
        pause();
    atomic_store(&comm->is_aborted, 1);
    end_comm(comm);
    return ncclSuccess;
}

/* ---- Memory --------------------------------------------------------------------------------- */

STANDIN_API ncclResult_t ncclMemAlloc(void **pointer, size_t bytes)
{
    *pointer = standin_fault("ncclMemAlloc") == STANDIN_NONE ? standin_allocate(bytes) : NULL;
    return *pointer ? ncclSuccess : fail(ncclUnhandledCudaError, "out of memory");
}

STANDIN_API ncclResult_t ncclMemFree(void *pointer)
{
    cudaDeviceSynchronize();
    return standin_free(pointer) ? fail(ncclInvalidArgument, "not from ncclMemAlloc") : ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommRegister(ncclComm_t comm, void *buffer, size_t bytes,
                                          void **handle)
{
    (void)comm;
    (void)bytes;
    *handle = buffer;
    return standin_fault("ncclCommRegister") == STANDIN_NONE ? ncclSuccess : ncclInternalError;
}

STANDIN_API ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
    (void)comm;
    (void)handle;
    return ncclSuccess;
}
