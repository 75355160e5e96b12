/*
 * nccl_making.c - how a communicator comes to be: of ranks that have an id in common, or out of one
 * that there is already. Then a first collective is checked, since a machine whose setup is wrong
 * shows it there, by hanging or by wrong values.
 */
#include <stddef.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/nccl/nccl_comm.h"

/* When it takes longer there is a warning with what to try. */
#define SLOW_NS (10 * DT_NS_PER_S)

#define HINT                                                                                    \
    "if ranks of one machine hang here, try NCCL_P2P_DISABLE=1 or NCCL_NVLS_ENABLE=0; between " \
    "machines NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO tells more; DTRAIN_GPU=staged does without NCCL"

#define PROBE_BYTES 4096

/* Containers have 64 MiB by default, which a few ranks fill. */
#define SHM_PATH "/dev/shm"
#define SHM_MIB_LEAST 128

dtrain_status_t dt_nccl_make_id(dt_device_t *base, dt_device_id_t *id)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    ncclUniqueId unique;
    _Static_assert(sizeof unique == sizeof *id, "NCCL's id has another size");
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    ncclResult_t result = device->nccl->get_unique_id(&unique);
    dt_nccl_leave(device, &visit);
    if (result != ncclSuccess)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "GPU %d: ncclGetUniqueId: %s (%.400s)",
                       device->number, device->nccl->get_error_string(result),
                       device->nccl->get_last_error(NULL));
    memcpy(id, &unique, sizeof *id);
    return DTRAIN_OK;
}

/* ---- By issuers ----------------------------------------------------------------------------- */

static dtrain_status_t make(dt_nccl_job_t *job)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)((char *)job - offsetof(dt_nccl_comm_t, making));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    return dt_nccl_result(
        comm, comm->device->nccl->comm_init(&comm->nccl, comm->size, comm->id, comm->rank, &config),
        "ncclCommInitRankConfig");
}

/* By the issuer of the whole one, whose state tells when NCCL returns before it is done. */
static dtrain_status_t make_part(dt_nccl_job_t *job)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)((char *)job - offsetof(dt_nccl_comm_t, making));
    dt_nccl_comm_t *whole = comm->whole;
    int color = comm->rank >= 0 ? 0 : NCCL_SPLIT_NOCOLOR;
    int key = comm->rank >= 0 ? comm->rank : 0;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.splitShare = 0;
    pthread_mutex_lock(&whole->book.calls);
    dtrain_status_t status = dt_nccl_result(
        whole, comm->device->nccl->comm_split(whole->nccl, color, key, &comm->nccl, &config),
        "ncclCommSplit");
    pthread_mutex_unlock(&whole->book.calls);
    /* Its first call tells only when the engine may have looked at it. */
    atomic_store(&comm->is_polled, atomic_load(&whole->is_polled));
    return status;
}

/* ---- The first collective, and others like it ----------------------------------------------- */

static dtrain_status_t copy(dt_nccl_comm_t *comm, void *to, const void *from, size_t bytes)
{
    cudaError_t error =
        comm->device->cuda->memcpy_async(to, from, bytes, cudaMemcpyDefault, comm->stream);
    return error == cudaSuccess ? DTRAIN_OK
                                : dt_nccl_cuda_error(comm->device, error, "cudaMemcpyAsync");
}

static dtrain_status_t reduce_probe(dt_nccl_comm_t *comm, ncclDataType_t dtype, size_t count,
                                    const void *values, size_t bytes)
{
    dtrain_status_t status = copy(comm, comm->probe, values, bytes);
    if (status != DTRAIN_OK)
        return status;
    return dt_nccl_result(comm,
                          comm->device->nccl->all_reduce(comm->probe, comm->probe, count, dtype,
                                                         ncclMin, comm->nccl, comm->stream),
                          "ncclAllReduce of what ranks compare");
}

/* Waits for what is in the stream. */
static dtrain_status_t read_probe(dt_nccl_comm_t *comm, void *values, size_t bytes)
{
    dtrain_status_t status = copy(comm, values, comm->probe, bytes);
    if (status != DTRAIN_OK)
        return status;
    cudaError_t error = comm->device->cuda->stream_synchronize(comm->stream);
    return error == cudaSuccess ? DTRAIN_OK
                                : dt_nccl_cuda_error(comm->device, error, "cudaStreamSynchronize");
}

dtrain_status_t dt_nccl_find_least(dt_nccl_comm_t *comm, ncclDataType_t dtype, size_t count,
                                   void *values, size_t bytes)
{
    dtrain_status_t status = reduce_probe(comm, dtype, count, values, bytes);
    return status == DTRAIN_OK ? read_probe(comm, values, bytes) : status;
}

static dtrain_status_t probe(dt_nccl_job_t *job)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)((char *)job - offsetof(dt_nccl_comm_t, probing));
    dt_nccl_level_t level;
    dtrain_status_t status = dt_nccl_register_first(comm, &level);
    if (status == DTRAIN_OK) {
        comm->brought[0] = (float)level;
        comm->brought[1] = (float)comm->rank;
        comm->brought[2] = (float)-comm->rank;
        status =
            reduce_probe(comm, ncclFloat32, DT_NCCL_PROBES, comm->brought, sizeof comm->brought);
    }
    return status == DTRAIN_OK ? dt_nccl_record(comm->device, comm->stream, &comm->probe_mark)
                               : status;
}

/* ---- Beginning ------------------------------------------------------------------------------ */

/* What the communicator needs is had beforehand: asking for memory may wait for what runs. */
static dtrain_status_t equip(dt_nccl_comm_t *comm)
{
    dt_nccl_device_t *device = comm->device;
    dtrain_status_t status = device->base.ops->allocate(&device->base, PROBE_BYTES, &comm->probe);
    if (status == DTRAIN_OK)
        status = dt_nccl_reserve(comm, &comm->bucket, 1);
    if (status == DTRAIN_OK)
        status = dt_nccl_stream_create(device, &comm->stream);
    if (status == DTRAIN_OK)
        status = dt_nccl_issuer_start(&comm->issuer, device->cuda, device->number);
    return status;
}

/* NULL with *status an error. rank < 0: not one of its ranks. */
static dt_nccl_comm_t *create(dt_nccl_device_t *device, int rank, int size, dtrain_status_t *status)
{
    dt_nccl_comm_t *comm = dt_calloc(1, sizeof *comm);
    dt_nccl_visit_t visit;
    *status = DTRAIN_OK;
    if (!comm) {
        *status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a communicator");
        return NULL;
    }
    comm->base.ops = &dt_nccl_backend_ops;
    comm->base.takes_pieces = 1;
    comm->device = device;
    comm->rank = rank;
    comm->size = size;
    comm->begin_ns = dt_now_ns();
    dt_nccl_register_begin(comm);
    if (rank < 0)
        return comm;
    *status = dt_nccl_enter(device, &visit);
    if (*status == DTRAIN_OK) {
        *status = equip(comm);
        dt_nccl_leave(device, &visit);
    }
    if (*status == DTRAIN_OK)
        return comm;
    dt_nccl_comm_destroy(comm, 0);
    return NULL;
}

/* NCCL would say "unhandled system error", or nothing. */
static void warn_of_small_shm(const dt_nccl_comm_t *comm)
{
    struct statvfs room;
    if (comm->size == 1 || statvfs(SHM_PATH, &room) != 0)
        return;
    long long mib = (long long)((uint64_t)room.f_bavail * room.f_frsize >> 20);
    if (mib < SHM_MIB_LEAST)
        dt_log(DTRAIN_LOG_WARN, "nccl",
               "GPU %d: " SHM_PATH
               " has %lld MiB left, and NCCL puts buffers of ranks of one machine "
               "there: give the container more (docker run --shm-size=1g)",
               comm->device->number, mib);
}

dtrain_status_t dt_nccl_connect(dt_device_t *base, const dt_device_id_t *id, int rank, int size,
                                dt_backend_t **backend)
{
    dtrain_status_t status;
    dt_nccl_comm_t *comm = create((dt_nccl_device_t *)base, rank, size, &status);
    if (!comm)
        return status;
    memcpy(&comm->id, id, sizeof comm->id);
    warn_of_small_shm(comm);
    comm->making.run = make;
    dt_nccl_issuer_post(&comm->issuer, &comm->making);
    *backend = &comm->base;
    return DTRAIN_OK;
}

dtrain_status_t dt_nccl_split(dt_device_t *base, dt_backend_t *whole, int rank, int size,
                              dt_backend_t **part)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dtrain_status_t status;
    *part = NULL;
    if (!device->nccl->comm_split)
        return DTRAIN_OK;
    dt_nccl_comm_t *comm = create(device, rank, size, &status);
    if (!comm)
        return status;
    comm->whole = (dt_nccl_comm_t *)whole;
    comm->making.run = make_part;
    dt_nccl_issuer_post(&comm->whole->issuer, &comm->making);
    *part = &comm->base;
    return DTRAIN_OK;
}

/* ---- Seeing to the end of it ---------------------------------------------------------------- */

static void warn_when_slow(dt_nccl_comm_t *comm)
{
    if (comm->has_warned || dt_now_ns() - comm->begin_ns < SLOW_NS)
        return;
    comm->has_warned = 1;
    dt_log(DTRAIN_LOG_WARN, "nccl", "GPU %d: NCCL has not connected %d ranks in %d s; " HINT,
           comm->device->number, comm->size, (int)(SLOW_NS / DT_NS_PER_S));
}

static dtrain_status_t check_least(dt_nccl_comm_t *comm, const float *least)
{
    float highest = (float)(comm->size - 1), level = least[0];
    if (least[1] == 0 && least[2] == -highest && level >= 0 && level <= comm->brought[0] &&
        level == (float)(int)level)
        return DTRAIN_OK;
    return dt_fail(
        DTRAIN_ERR_COMMUNICATION,
        "GPU %d: the first ncclAllReduce came to %g, %g and %g, and not to %g or less, 0 "
        "and %g",
        comm->device->number, (double)level, (double)least[1], (double)least[2],
        (double)comm->brought[0], (double)-highest);
}

/* The collective is done, and tells what all ranks can register. */
static dtrain_status_t agree_on_level(dt_nccl_comm_t *comm)
{
    dt_nccl_visit_t visit;
    float least[DT_NCCL_PROBES] = {0};
    dtrain_status_t status = dt_nccl_enter(comm->device, &visit);
    if (status != DTRAIN_OK)
        return status;
    status = read_probe(comm, least, sizeof least);
    if (status == DTRAIN_OK)
        status = check_least(comm, least);
    if (status == DTRAIN_OK)
        dt_nccl_register_agree(comm, (dt_nccl_level_t)least[0]);
    comm->has_level = status == DTRAIN_OK;
    dt_nccl_leave(comm->device, &visit);
    return status;
}

static dtrain_status_t advance(dt_nccl_comm_t *comm)
{
    dtrain_status_t status;
    if (comm->is_made) {
        status = dt_nccl_look(comm, &comm->probing);
        if (status == DTRAIN_OK)
            status = dt_nccl_reached(comm->device, comm->probe_mark);
        return status == DTRAIN_OK && !comm->has_level ? agree_on_level(comm) : status;
    }
    status = dt_nccl_look(comm->whole ? comm->whole : comm, &comm->making);
    if (status != DTRAIN_OK)
        return status;
    comm->is_made = 1;
    comm->whole = NULL;
    if (comm->rank < 0)
        return DTRAIN_OK;
    comm->probing.run = probe;
    dt_nccl_issuer_post(&comm->issuer, &comm->probing);
    return DTRAIN_IN_PROGRESS;
}

dtrain_status_t dt_nccl_connected(dt_device_t *base, dt_backend_t *backend)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)backend;
    (void)base;
    dtrain_status_t status = advance(comm);
    if (status == DTRAIN_IN_PROGRESS)
        warn_when_slow(comm);
    else if (status != DTRAIN_OK)
        return dt_fail(status, "%.700s; " HINT, dt_last_error());
    else if (comm->rank >= 0)
        dt_log(DTRAIN_LOG_INFO, "nccl", "GPU %d: NCCL has connected %d ranks in %lld ms",
               comm->device->number, comm->size,
               (long long)((dt_now_ns() - comm->begin_ns) / DT_NS_PER_MS));
    return status;
}
