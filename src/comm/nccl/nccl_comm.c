#include "comm/nccl/nccl_comm.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

/* An end that takes longer is left to itself, with what it may still touch. */
#define ABORT_NS (3 * DT_NS_PER_S)
#define DESTROY_NS (30 * DT_NS_PER_S)

#define PROBE_BYTES 4096

/* A first collective that takes longer earns a warning with what to try. */
#define SLOW_NS (10 * DT_NS_PER_S)

#define HINT                                                                                    \
    "if ranks of one machine hang here, try NCCL_P2P_DISABLE=1 or NCCL_NVLS_ENABLE=0; between " \
    "machines NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO tells more; DTRAIN_GPU=staged does without NCCL"

/* NCCL_COMM_BLOCKING=0 makes it one that does not block all the same. */
static ncclResult_t await_progress(dt_nccl_comm_t *comm)
{
    ncclResult_t state = ncclInProgress;
    atomic_store(&comm->is_polled, 1);
    while (state == ncclInProgress && !atomic_load(&comm->issuer.stop)) {
        ncclResult_t result = comm->device->nccl->comm_get_async_error(comm->nccl, &state);
        if (result != ncclSuccess)
            return result;
        sched_yield();
    }
    return state;
}

dtrain_status_t dt_nccl_result(dt_nccl_comm_t *comm, ncclResult_t result, const char *call)
{
    if (result == ncclInProgress)
        result = await_progress(comm);
    if (result == ncclSuccess)
        return DTRAIN_OK;
    const dt_nccl_api_t *nccl = comm->device->nccl;
    return dt_fail(DTRAIN_ERR_COMMUNICATION, "GPU %d: %s: %s (%.400s)", comm->device->number, call,
                   nccl->get_error_string(result), nccl->get_last_error(comm->nccl));
}

/* Also what only shows while tasks run: a rank that is gone, a network that is down. */
static dtrain_status_t find_error(dt_nccl_comm_t *comm)
{
    ncclResult_t state = ncclSuccess;
    if (atomic_load(&comm->is_polled)) /* by the issuer, and only one may */
        return DTRAIN_OK;
    ncclResult_t result = comm->device->nccl->comm_get_async_error(comm->nccl, &state);
    if (state == ncclInProgress)
        return DTRAIN_OK;
    return dt_nccl_result(comm, result == ncclSuccess ? state : result, "NCCL");
}

dtrain_status_t dt_nccl_look(dt_nccl_comm_t *comm, const dt_nccl_job_t *job)
{
    if (comm->is_failed)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "GPU %d: NCCL has failed before",
                       comm->device->number);
    dtrain_status_t status = dt_nccl_issuer_look(&comm->issuer, job);
    int is_error = status != DTRAIN_OK && status != DTRAIN_IN_PROGRESS;
    if (!is_error && comm->is_made) {
        dtrain_status_t found = find_error(comm);
        is_error = found != DTRAIN_OK;
        status = is_error ? found : status;
    }
    comm->is_failed = is_error;
    return status;
}

/* ---- Making --------------------------------------------------------------------------------- */

dtrain_status_t dt_nccl_make_id(dt_device_t *base, dt_device_id_t *id)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    ncclUniqueId unique;
    _Static_assert(sizeof unique == sizeof *id, "NCCL's id has another size");
    ncclResult_t result = device->nccl->get_unique_id(&unique);
    if (result != ncclSuccess)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "GPU %d: ncclGetUniqueId: %s (%.400s)",
                       device->number, device->nccl->get_error_string(result),
                       device->nccl->get_last_error(NULL));
    memcpy(id, &unique, sizeof *id);
    return DTRAIN_OK;
}

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

static dtrain_status_t make(dt_nccl_job_t *job)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)((char *)job - offsetof(dt_nccl_comm_t, making));
    const dt_nccl_api_t *nccl = comm->device->nccl;
    dt_nccl_level_t level;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    dtrain_status_t status = dt_nccl_result(
        comm, nccl->comm_init(&comm->nccl, comm->size, comm->id, comm->rank, &config),
        "ncclCommInitRankConfig");
    if (status == DTRAIN_OK)
        status = dt_nccl_register_first(comm, &level);
    if (status == DTRAIN_OK) {
        comm->level = (float)level;
        status = reduce_probe(comm, ncclFloat32, 1, &comm->level, sizeof comm->level);
    }
    return status == DTRAIN_OK ? dt_nccl_record(comm->device, comm->stream, &comm->probe_mark)
                               : status;
}

/* Memory is had beforehand: asking for some may wait for what runs. */
static dtrain_status_t begin_comm(dt_nccl_comm_t *comm)
{
    dt_nccl_device_t *device = comm->device;
    dtrain_status_t status = device->base.ops->allocate(&device->base, PROBE_BYTES, &comm->probe);
    if (status == DTRAIN_OK)
        status = dt_nccl_reserve(comm, &comm->bucket, 1);
    if (status == DTRAIN_OK)
        status = dt_nccl_stream_create(device, &comm->stream);
    if (status == DTRAIN_OK)
        status = dt_nccl_issuer_start(&comm->issuer, device->cuda, device->number);
    if (status != DTRAIN_OK)
        return status;
    comm->making.run = make;
    dt_nccl_issuer_post(&comm->issuer, &comm->making);
    return DTRAIN_OK;
}

dtrain_status_t dt_nccl_connect(dt_device_t *base, const dt_device_id_t *id, int rank, int size,
                                dt_backend_t **backend)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_comm_t *comm = dt_calloc(1, sizeof *comm);
    dt_nccl_visit_t visit;
    if (!comm)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a communicator");
    comm->base.ops = &dt_nccl_backend_ops;
    comm->base.takes_pieces = 1;
    comm->device = device;
    comm->rank = rank;
    comm->size = size;
    comm->begin_ns = dt_now_ns();
    memcpy(&comm->id, id, sizeof comm->id);
    dt_nccl_register_begin(comm);
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status == DTRAIN_OK) {
        status = begin_comm(comm);
        dt_nccl_leave(device, &visit);
    }
    if (status != DTRAIN_OK) {
        dt_nccl_backend_ops.destroy(&comm->base, 0);
        return status;
    }
    *backend = &comm->base;
    return DTRAIN_OK;
}

/* ---- The first collective ------------------------------------------------------------------- */

static void warn_when_slow(dt_nccl_comm_t *comm)
{
    if (comm->begin_ns == 0 || dt_now_ns() - comm->begin_ns < SLOW_NS)
        return;
    comm->begin_ns = 0;
    dt_log(DTRAIN_LOG_WARN, "nccl", "GPU %d: NCCL has not connected %d ranks in %d s; " HINT,
           comm->device->number, comm->size, (int)(SLOW_NS / DT_NS_PER_S));
}

/* The collective is done, and its value is what all ranks can register. */
static dtrain_status_t agree_on_level(dt_nccl_comm_t *comm)
{
    dt_nccl_visit_t visit;
    float level = 0;
    dtrain_status_t status = dt_nccl_enter(comm->device, &visit);
    if (status != DTRAIN_OK)
        return status;
    status = read_probe(comm, &level, sizeof level);
    if (status == DTRAIN_OK)
        dt_nccl_register_agree(comm, (dt_nccl_level_t)level);
    comm->has_level = status == DTRAIN_OK;
    dt_nccl_leave(comm->device, &visit);
    return status;
}

dtrain_status_t dt_nccl_connected(dt_device_t *base, dt_backend_t *backend)
{
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)backend;
    (void)base;
    dtrain_status_t status = dt_nccl_look(comm, &comm->making);
    comm->is_made = status == DTRAIN_OK;
    if (status == DTRAIN_OK)
        status = dt_nccl_reached(comm->device, comm->probe_mark);
    if (status == DTRAIN_OK && !comm->has_level)
        status = agree_on_level(comm);
    if (status == DTRAIN_IN_PROGRESS)
        warn_when_slow(comm);
    else if (status != DTRAIN_OK)
        return dt_fail(status, "%.700s; " HINT, dt_last_error());
    return status;
}

/* ---- Ending --------------------------------------------------------------------------------- */

/*
 * The issuer may be within a call that waits for a rank which is gone. A revoked communicator lets
 * it return, and only then is the communicator freed; where NCCL has no revoking, an abort does
 * both at once.
 */
static void *run_end(void *argument)
{
    dt_nccl_comm_t *comm = argument;
    const dt_nccl_api_t *nccl = comm->device->nccl;
    int is_aborted = 0;
    dt_nccl_settle(comm->device->cuda, comm->device->number);
    if (!comm->is_clean)
        dt_nccl_register_abandon(comm);
    if (!comm->is_clean && comm->is_made) {
        if (nccl->comm_revoke) {
            nccl->comm_revoke(comm->nccl, 0);
        } else if (atomic_load(&comm->issuer.is_busy)) {
            nccl->comm_abort(comm->nccl);
            is_aborted = 1;
        }
    }
    dt_nccl_issuer_join(&comm->issuer);
    if (!comm->nccl || is_aborted)
        return NULL;
    if (!comm->is_clean) {
        nccl->comm_abort(comm->nccl);
        return NULL;
    }
    dt_nccl_register_drop_all(comm);
    nccl->comm_destroy(comm->nccl);
    return NULL;
}

static void begin_end(dt_nccl_comm_t *comm, int is_clean)
{
    if (comm->has_ender)
        return;
    comm->is_failed = 1;
    comm->is_clean = is_clean;
    dt_nccl_issuer_stop(&comm->issuer);
    comm->has_ender = dt_thread_start(&comm->ender, "dtrain-nccl-end", run_end, comm) == 0;
}

void dt_nccl_abort(dt_nccl_comm_t *comm)
{
    begin_end(comm, 0);
}

static int has_ended(dt_nccl_comm_t *comm)
{
    int64_t limit_ns = comm->is_clean ? DESTROY_NS : ABORT_NS;
    if (!comm->has_ender)
        return 0;
    if (dt_thread_join(comm->ender, limit_ns) == 0)
        return 1;
    pthread_detach(comm->ender);
    dt_log(DTRAIN_LOG_WARN, "nccl", "GPU %d: the end of NCCL's communicator did not come in %d s",
           comm->device->number, (int)(limit_ns / DT_NS_PER_S));
    return 0;
}

static void free_room(dt_nccl_device_t *device, const dt_nccl_room_t *room)
{
    for (int i = 0; i < room->count; i++)
        device->base.ops->deallocate(&device->base, room->all[i]);
}

static void free_parts(dt_nccl_comm_t *comm)
{
    dt_nccl_device_t *device = comm->device;
    dt_nccl_register_end(comm);
    dt_nccl_free_given_up(comm);
    dt_mark_drop(comm->probe_mark);
    if (comm->stream)
        device->cuda->stream_destroy(comm->stream);
    if (comm->probe)
        device->base.ops->deallocate(&device->base, comm->probe);
    free_room(device, &comm->bucket);
    free_room(device, &comm->aside);
    dt_free(comm);
}

/* A kernel or a call that may still run keeps what it uses: all that the device has. */
void dt_nccl_comm_destroy(dt_nccl_comm_t *comm, int clean)
{
    dt_nccl_device_t *device = comm->device; /* outlives it */
    dt_nccl_visit_t visit = {0};
    int is_entered = dt_nccl_enter(device, &visit) == DTRAIN_OK;
    begin_end(comm, clean && !comm->is_failed);
    if (!has_ended(comm))
        device->is_stuck = 1;
    if (!device->is_stuck)
        free_parts(comm);
    if (is_entered)
        dt_nccl_leave(device, &visit);
}
