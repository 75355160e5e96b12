/*
 * nccl_backend.c - collectives over NCCL. The issuer puts a task into the communicator's stream as
 * a whole: waits for its inputs, packing, NCCL's operations, unpacking, and a mark by which its end
 * is seen.
 */
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/nccl/nccl_comm.h"
#include "comm/nccl/nccl_place.h"
#include "comm/nccl/nccl_wire.h"
#include "cuda/kernels.h"

/* Holds a bucket of the usual size. */
#define BUFFER_BYTES_MIN ((size_t)32 << 20)

struct dt_nccl_task {
    dt_nccl_job_t job;
    dt_nccl_comm_t *comm;
    dt_collective_t collective;
    dtrain_dtype_t dtype; /* of the tensors */
    dt_nccl_wire_t wire;
    dt_nccl_place_t place; /* where it is not packed */
    int is_packed;         /* NCCL works on the communicator's buffer */
    int64_t packed;        /* elements in it */
    dt_mark_t *mark;
    dt_nccl_task_t *next; /* of those given up */
};

static int is_reduction(const dt_collective_t *collective)
{
    return collective->kind == DT_ALLREDUCE || collective->kind == DT_REDUCE ||
           collective->kind == DT_REDUCE_SCATTER;
}

/* ---- Packing -------------------------------------------------------------------------------- */

dtrain_status_t dt_nccl_reserve(dt_nccl_comm_t *comm, dt_nccl_room_t *room, int64_t bytes)
{
    dt_device_t *device = &comm->device->base;
    if (bytes < 0)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "GPU %d: a reduction that changes its type or scale has more than 256 GiB",
                       comm->device->number);
    if ((size_t)bytes <= room->bytes)
        return DTRAIN_OK;
    size_t more = BUFFER_BYTES_MIN;
    while (more < (size_t)bytes)
        more *= 2;
    void *larger = NULL;
    dtrain_status_t status = device->ops->allocate(device, more, &larger);
    if (status != DTRAIN_OK)
        return status;
    room->all[room->count++] = larger;
    room->memory = larger;
    room->bytes = more;
    return DTRAIN_OK;
}

static int needs_buffer(const dt_nccl_task_t *task)
{
    const dt_collective_t *collective = &task->collective;
    if (!is_reduction(collective))
        return 0;
    if (collective->num_pieces > 1 || task->wire.dtype != task->dtype)
        return 1;
    /* A factor is applied in the output; where there is none of that size, in the buffer. */
    return collective->kind != DT_ALLREDUCE && (task->wire.packs || task->wire.unpacks);
}

static dt_nccl_move_t make_move(const dt_nccl_task_t *task, void *buffer, int is_behind)
{
    const dt_nccl_wire_t *wire = &task->wire;
    return (dt_nccl_move_t){.buffer = buffer,
                            .unpacks = is_behind,
                            .dtype = task->dtype,
                            .buffer_dtype = wire->dtype,
                            .divisor = is_behind ? wire->behind_divisor : wire->before_divisor,
                            .scale = is_behind ? wire->behind_scale : wire->before_scale};
}

/* What NCCL reads, in the buffer or where it lies. */
static dtrain_status_t pack(dt_nccl_comm_t *comm, dt_nccl_task_t *task)
{
    const dt_collective_t *collective = &task->collective;
    if (task->is_packed) {
        int64_t bytes =
            dt_nccl_move_bytes(collective->pieces, collective->num_pieces, task->wire.dtype);
        dtrain_status_t status = dt_nccl_reserve(comm, &comm->bucket, bytes);
        if (status == DTRAIN_OK)
            status = dt_nccl_register_block(comm, comm->bucket.memory);
        if (status != DTRAIN_OK)
            return status;
        task->packed = bytes / (int64_t)dt_dtype_size(task->wire.dtype);
        dt_nccl_move_t move = make_move(task, comm->bucket.memory, 0);
        return dt_nccl_move(comm->device, comm->stream, &move, collective->pieces,
                            collective->num_pieces);
    }
    if (!is_reduction(collective) || !task->wire.packs)
        return DTRAIN_OK;
    /* From the input to the output, as one unpacks. */
    dt_nccl_move_t move = make_move(task, (void *)collective->pieces[0].in, 0);
    move.unpacks = 1;
    return dt_nccl_move(comm->device, comm->stream, &move, collective->pieces, 1);
}

/* The part of the buffer that this rank takes from it. */
static dt_piece_t own_part(const dt_nccl_comm_t *comm, const dt_nccl_task_t *task, void **buffer)
{
    const dt_collective_t *collective = &task->collective;
    dt_piece_t part = collective->pieces[0];
    int64_t before = 0;
    for (int rank = 0; rank < comm->rank; rank++)
        before += collective->counts[rank];
    part.count = collective->counts[comm->rank];
    *buffer = (char *)comm->bucket.memory + before * (int64_t)dt_dtype_size(task->wire.dtype);
    return part;
}

static dtrain_status_t unpack(dt_nccl_comm_t *comm, dt_nccl_task_t *task)
{
    const dt_collective_t *collective = &task->collective;
    if (!is_reduction(collective))
        return DTRAIN_OK;
    if (task->is_packed) {
        void *buffer = comm->bucket.memory;
        dt_piece_t part;
        const dt_piece_t *pieces = collective->pieces;
        if (collective->kind == DT_REDUCE && collective->root != comm->rank)
            return DTRAIN_OK;
        if (collective->kind == DT_REDUCE_SCATTER) {
            part = own_part(comm, task, &buffer);
            pieces = &part;
        }
        dt_nccl_move_t move = make_move(task, buffer, 1);
        return dt_nccl_move(comm->device, comm->stream, &move, pieces, collective->num_pieces);
    }
    if (!task->wire.unpacks)
        return DTRAIN_OK;
    dt_nccl_move_t move = make_move(task, collective->pieces[0].out, 1);
    return dt_nccl_move(comm->device, comm->stream, &move, collective->pieces, 1);
}

/* ---- NCCL's operations ---------------------------------------------------------------------- */

static ncclResult_t call_all_reduce(dt_nccl_comm_t *comm, const dt_nccl_task_t *task)
{
    const dt_piece_t *piece = &task->collective.pieces[0];
    const void *in = task->wire.packs ? piece->out : piece->in;
    void *out = piece->out;
    int64_t count = piece->count;
    if (task->is_packed) {
        in = out = comm->bucket.memory;
        count = task->packed;
    }
    return comm->device->nccl->all_reduce(in, out, (size_t)count, task->wire.nccl_dtype,
                                          task->wire.op, comm->nccl, comm->stream);
}

static ncclResult_t call_reduce(dt_nccl_comm_t *comm, const dt_nccl_task_t *task)
{
    const dt_piece_t *piece = &task->collective.pieces[0];
    const void *in = task->is_packed ? comm->bucket.memory : piece->in;
    void *out = task->is_packed ? comm->bucket.memory : piece->out;
    return comm->device->nccl->reduce(in, out, (size_t)piece->count, task->wire.nccl_dtype,
                                      task->wire.op, task->collective.root, comm->nccl,
                                      comm->stream);
}

static ncclResult_t call_broadcast(dt_nccl_comm_t *comm, const dt_nccl_task_t *task)
{
    const dt_piece_t *piece = &task->collective.pieces[0];
    void *out = piece->out ? piece->out : (void *)piece->in;
    /* What is not looked at is named all the same, and NCCL goes by where it lies. */
    const void *in = task->collective.root == comm->rank ? piece->in : out;
    return comm->device->nccl->broadcast(in, out, (size_t)piece->count,
                                         dt_nccl_plain_dtype(task->collective.reduction.dtype),
                                         task->collective.root, comm->nccl, comm->stream);
}

static int are_even(const dt_collective_t *collective, int size)
{
    for (int rank = 1; rank < size; rank++) {
        if (collective->counts[rank] != collective->counts[0])
            return 0;
    }
    return 1;
}

/* NCCL shares out evenly; an uneven share is a reduction to each rank. */
static ncclResult_t call_reduce_scatter(dt_nccl_comm_t *comm, const dt_nccl_task_t *task)
{
    const dt_nccl_api_t *nccl = comm->device->nccl;
    const dt_collective_t *collective = &task->collective;
    const int64_t *counts = collective->counts;
    int64_t element = (int64_t)dt_dtype_size(task->wire.dtype);
    const char *in = task->is_packed ? comm->bucket.memory : collective->pieces[0].in;
    char *out = collective->pieces[0].out;
    if (task->is_packed) { /* in place */
        void *part;
        own_part(comm, task, &part);
        out = part;
    }
    if (are_even(collective, comm->size))
        return nccl->reduce_scatter(in, out, (size_t)counts[0], task->wire.nccl_dtype,
                                    task->wire.op, comm->nccl, comm->stream);
    ncclResult_t result = nccl->group_start();
    for (int rank = 0; rank < comm->size && result == ncclSuccess; rank++) {
        if (counts[rank] > 0)
            result =
                nccl->reduce(in, rank == comm->rank ? out : NULL, (size_t)counts[rank],
                             task->wire.nccl_dtype, task->wire.op, rank, comm->nccl, comm->stream);
        in += counts[rank] * element;
    }
    ncclResult_t end = nccl->group_end();
    return result == ncclSuccess ? end : result;
}

/* Likewise: a broadcast from each rank. */
static ncclResult_t call_all_gather(dt_nccl_comm_t *comm, const dt_nccl_task_t *task)
{
    const dt_nccl_api_t *nccl = comm->device->nccl;
    const dt_collective_t *collective = &task->collective;
    const dt_piece_t *piece = &collective->pieces[0];
    dtrain_dtype_t dtype = collective->reduction.dtype;
    ncclDataType_t plain = dt_nccl_plain_dtype(dtype);
    if (are_even(collective, comm->size))
        return nccl->all_gather(piece->in, piece->out, (size_t)collective->counts[0], plain,
                                comm->nccl, comm->stream);
    char *out = piece->out;
    ncclResult_t result = nccl->group_start();
    for (int rank = 0; rank < comm->size && result == ncclSuccess; rank++) {
        int64_t count = collective->counts[rank];
        if (count > 0)
            result = nccl->broadcast(rank == comm->rank ? piece->in : out, out, (size_t)count,
                                     plain, rank, comm->nccl, comm->stream);
        out += count * (int64_t)dt_dtype_size(dtype);
    }
    ncclResult_t end = nccl->group_end();
    return result == ncclSuccess ? end : result;
}

static ncclResult_t call_exchange(dt_nccl_comm_t *comm, const dt_nccl_task_t *task)
{
    const dt_nccl_api_t *nccl = comm->device->nccl;
    const dt_collective_t *collective = &task->collective;
    dtrain_dtype_t dtype = collective->reduction.dtype;
    int64_t element = (int64_t)dt_dtype_size(dtype);
    ncclDataType_t plain = dt_nccl_plain_dtype(dtype);
    const char *in = collective->pieces[0].in;
    char *out = collective->pieces[0].out;
    ncclResult_t result = nccl->group_start();
    for (int rank = 0; rank < comm->size && result == ncclSuccess; rank++) {
        int64_t sends = collective->counts[rank], receives = collective->recv_counts[rank];
        if (sends > 0)
            result = nccl->send(in, (size_t)sends, plain, rank, comm->nccl, comm->stream);
        if (receives > 0 && result == ncclSuccess)
            result = nccl->recv(out, (size_t)receives, plain, rank, comm->nccl, comm->stream);
        in += sends * element;
        out += receives * element;
    }
    ncclResult_t end = nccl->group_end();
    return result == ncclSuccess ? end : result;
}

static dtrain_status_t call_nccl(dt_nccl_comm_t *comm, const dt_nccl_task_t *task)
{
    switch (task->collective.kind) {
    case DT_ALLREDUCE:
        return dt_nccl_result(comm, call_all_reduce(comm, task), "ncclAllReduce");
    case DT_BROADCAST:
        return dt_nccl_result(comm, call_broadcast(comm, task), "ncclBroadcast");
    case DT_REDUCE:
        return dt_nccl_result(comm, call_reduce(comm, task), "ncclReduce");
    case DT_REDUCE_SCATTER:
        return dt_nccl_result(comm, call_reduce_scatter(comm, task), "ncclReduceScatter");
    case DT_ALLGATHER:
        return dt_nccl_result(comm, call_all_gather(comm, task), "ncclAllGather");
    case DT_EXCHANGE:
        return dt_nccl_result(comm, call_exchange(comm, task), "ncclSend and ncclRecv");
    }
    return dt_fail(DTRAIN_ERR_INTERNAL, "there is no collective %d", (int)task->collective.kind);
}

/* ---- Tasks ---------------------------------------------------------------------------------- */

/* When NCCL's call returns, its operations are in the stream. */
static dtrain_status_t issue(dt_nccl_comm_t *comm, dt_nccl_task_t *task)
{
    dtrain_status_t status = dt_nccl_wait_all(comm->device, comm->stream, task->collective.ready,
                                              task->collective.num_ready);
    task->is_packed = needs_buffer(task);
    if (status == DTRAIN_OK && !task->is_packed)
        status = dt_nccl_place(comm, &task->collective, &task->place);
    if (status == DTRAIN_OK)
        status = pack(comm, task);
    if (status == DTRAIN_OK)
        status = call_nccl(comm, task);
    if (status == DTRAIN_OK && atomic_load(&comm->issuer.stop)) /* the pieces may be gone */
        status = dt_fail(DTRAIN_ERR_COMMUNICATION, "the operation was given up");
    if (status == DTRAIN_OK)
        status = unpack(comm, task);
    if (status == DTRAIN_OK)
        status = dt_nccl_place_back(comm, &task->place);
    return status == DTRAIN_OK ? dt_nccl_record(comm->device, comm->stream, &task->mark) : status;
}

/* By the issuer. */
static dtrain_status_t run(dt_nccl_job_t *job)
{
    dt_nccl_task_t *task = (dt_nccl_task_t *)job;
    pthread_mutex_lock(&task->comm->book.calls);
    dtrain_status_t status = issue(task->comm, task);
    pthread_mutex_unlock(&task->comm->book.calls);
    return status;
}

static dtrain_status_t start(dt_backend_t *backend, const dt_collective_t *collective,
                             dt_task_t **out)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)backend;
    dt_nccl_task_t *task = dt_calloc(1, sizeof *task);
    if (!task)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a collective");
    task->job.run = run;
    task->comm = comm;
    task->collective = *collective;
    task->dtype = collective->rounded_from ? collective->rounded_from : collective->reduction.dtype;
    task->wire = dt_nccl_wire(&collective->reduction);
    dt_nccl_issuer_post(&comm->issuer, &task->job);
    *out = (dt_task_t *)task;
    return DTRAIN_OK;
}

static int is_enqueued(const dt_nccl_task_t *task)
{
    return atomic_load(&task->job.is_done);
}

static dtrain_status_t progress(dt_backend_t *backend, dt_task_t *base)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)backend;
    dt_nccl_task_t *task = (dt_nccl_task_t *)base;
    dtrain_status_t status = dt_nccl_look(comm, &task->job);
    return status == DTRAIN_OK ? dt_nccl_reached(comm->device, task->mark) : status;
}

static dt_mark_t *enqueued(dt_backend_t *backend, dt_task_t *base)
{
    dt_nccl_task_t *task = (dt_nccl_task_t *)base;
    (void)backend;
    return is_enqueued(task) ? task->mark : NULL;
}

static void release(dt_backend_t *backend, dt_task_t *base)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)backend;
    dt_nccl_task_t *task = (dt_nccl_task_t *)base;
    int is_issued = is_enqueued(task);
    if (!is_issued || dt_nccl_reached(comm->device, task->mark) != DTRAIN_OK)
        dt_nccl_abort(comm);
    if (!is_issued) {
        task->next = comm->given_up;
        comm->given_up = task;
        return;
    }
    dt_mark_drop(task->mark);
    dt_free(task);
}

void dt_nccl_free_given_up(dt_nccl_comm_t *comm)
{
    while (comm->given_up) {
        dt_nccl_task_t *task = comm->given_up;
        comm->given_up = task->next;
        dt_mark_drop(task->mark);
        dt_free(task);
    }
}

static void destroy(dt_backend_t *backend, int clean)
{
    dt_nccl_comm_destroy((dt_nccl_comm_t *)backend, clean);
}

const dt_backend_ops_t dt_nccl_backend_ops = {
    .name = "nccl",
    .start = start,
    .progress = progress,
    .release = release,
    .destroy = destroy,
    .enqueued = enqueued,
};
