#include "comm/nccl/nccl_place.h"

#include "base/dtype.h"

/* Copies of both are apart, aligned for wide loads. */
#define ALIGNMENT INT64_C(512)

static int64_t sum(const int64_t *counts, int size)
{
    int64_t total = 0;
    for (int rank = 0; rank < size; rank++)
        total += counts[rank];
    return total;
}

/* The elements that this rank's input and output have. */
static void measure(const dt_nccl_comm_t *comm, const dt_collective_t *collective, int64_t *in,
                    int64_t *out)
{
    const int64_t *counts = collective->counts;
    *in = *out = collective->pieces[0].count;
    if (collective->kind == DT_REDUCE_SCATTER || collective->kind == DT_EXCHANGE)
        *in = sum(counts, comm->size);
    if (collective->kind == DT_REDUCE_SCATTER)
        *out = counts[comm->rank];
    if (collective->kind == DT_ALLGATHER) {
        *in = counts[comm->rank];
        *out = sum(counts, comm->size);
    }
    if (collective->kind == DT_EXCHANGE)
        *out = sum(collective->recv_counts, comm->size);
}

static dtrain_status_t copy(dt_nccl_comm_t *comm, dt_copy_t copy)
{
    const dt_nccl_device_t *device = comm->device;
    if (copy.bytes == 0)
        return DTRAIN_OK;
    cudaError_t error = device->cuda->memcpy_async(copy.to, copy.from, copy.bytes,
                                                   cudaMemcpyDeviceToDevice, comm->stream);
    return error == cudaSuccess ? DTRAIN_OK : dt_nccl_cuda_error(device, error, "cudaMemcpyAsync");
}

static int writes(const dt_nccl_comm_t *comm, const dt_collective_t *collective)
{
    return collective->kind != DT_REDUCE || collective->root == comm->rank;
}

static int reads(const dt_nccl_comm_t *comm, const dt_collective_t *collective)
{
    return collective->kind != DT_BROADCAST || collective->root == comm->rank;
}

/* What NCCL knows of this rank's tensor is put beside it. */
static dtrain_status_t put_aside(dt_nccl_comm_t *comm, dt_collective_t *collective,
                                 dt_nccl_place_t *place)
{
    dt_piece_t piece = collective->pieces[0];
    int64_t in, out, element = (int64_t)dt_dtype_size(collective->reduction.dtype);
    int moves_in = piece.in && dt_nccl_register_knows(comm, piece.in);
    int moves_out = piece.out && dt_nccl_register_knows(comm, piece.out);
    if (!moves_in && !moves_out)
        return DTRAIN_OK;
    measure(comm, collective, &in, &out);
    int64_t behind = (in * element + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    dtrain_status_t status = dt_nccl_reserve(comm, &comm->aside, behind + out * element);
    if (status != DTRAIN_OK)
        return status;
    char *aside = comm->aside.memory;
    place->piece = piece;
    if (moves_in)
        place->piece.in = aside;
    if (moves_out)
        place->piece.out = piece.out == piece.in ? aside : aside + behind;
    if (moves_out && writes(comm, collective))
        place->back = (dt_copy_t){
            .to = piece.out, .from = place->piece.out, .bytes = (size_t)(out * element)};
    collective->pieces = &place->piece;
    dt_copy_t there = {.to = aside, .from = piece.in, .bytes = (size_t)(in * element)};
    return moves_in && reads(comm, collective) ? copy(comm, there) : DTRAIN_OK;
}

dtrain_status_t dt_nccl_place(dt_nccl_comm_t *comm, dt_collective_t *collective,
                              dt_nccl_place_t *place)
{
    const dt_piece_t *piece = &collective->pieces[0];
    dtrain_status_t status = DTRAIN_OK;
    switch (collective->memory) {
    case DT_MEMORY_ANY:
        return put_aside(comm, collective, place);
    case DT_MEMORY_SYMMETRIC: /* a window since it was made one */
        return DTRAIN_OK;
    case DT_MEMORY_NEW_WINDOW:
        return dt_nccl_register_window(comm, piece->in);
    case DT_MEMORY_OWN:
        if (piece->in)
            status = dt_nccl_register_block(comm, piece->in);
        if (piece->out && status == DTRAIN_OK)
            status = dt_nccl_register_block(comm, piece->out);
        return status;
    }
    return DTRAIN_OK;
}

dtrain_status_t dt_nccl_place_back(dt_nccl_comm_t *comm, const dt_nccl_place_t *place)
{
    return copy(comm, place->back);
}
