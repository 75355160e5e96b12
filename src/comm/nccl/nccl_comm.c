#include "comm/nccl/nccl_comm.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

/* An abort that takes longer is left to itself, with what it may still touch. */
#define ABORT_NS (3 * DT_NS_PER_S)

/* A first collective that takes longer earns a warning with what to try. */
#define SLOW_NS (10 * DT_NS_PER_S)

#define HINT                                                                                    \
    "if ranks of one machine hang here, try NCCL_P2P_DISABLE=1 or NCCL_NVLS_ENABLE=0; between " \
    "machines NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO tells more; DTRAIN_GPU=staged does without NCCL"

dtrain_status_t dt_nccl_result(dt_nccl_comm_t *comm, ncclResult_t result, const char *call)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return DTRAIN_OK;
    const dt_nccl_api_t *nccl = comm->device->nccl;
    comm->is_failed = 1;
    return dt_fail(DTRAIN_ERR_COMMUNICATION, "GPU %d: %s: %s (%.400s)", comm->device->number, call,
                   nccl->get_error_string(result), nccl->get_last_error(comm->nccl));
}

dtrain_status_t dt_nccl_poll(dt_nccl_comm_t *comm)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = comm->device->nccl->comm_get_async_error(comm->nccl, &state);
    if (result == ncclSuccess && state == ncclInProgress)
        return DTRAIN_IN_PROGRESS;
    return dt_nccl_result(comm, result == ncclSuccess ? state : result, "NCCL");
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

/* Memory is had beforehand: asking for some may wait for what runs. */
static dtrain_status_t begin_comm(dt_nccl_comm_t *comm, const dt_device_id_t *id)
{
    dt_nccl_device_t *device = comm->device;
    void *probe = NULL;
    dtrain_status_t status = device->base.ops->allocate(&device->base, sizeof(float), &probe);
    comm->probe = probe;
    if (status == DTRAIN_OK)
        status = dt_nccl_reserve(comm, 1);
    if (status == DTRAIN_OK)
        status = dt_nccl_stream_create(device, &comm->stream);
    if (status != DTRAIN_OK)
        return status;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId unique;
    memcpy(&unique, id, sizeof unique);
    ncclResult_t result =
        device->nccl->comm_init(&comm->nccl, comm->size, unique, comm->rank, &config);
    return dt_nccl_result(comm, result, "ncclCommInitRankConfig");
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
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status == DTRAIN_OK) {
        status = begin_comm(comm, id);
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

static dtrain_status_t begin_probe(dt_nccl_comm_t *comm)
{
    ncclResult_t result = comm->device->nccl->all_reduce(comm->probe, comm->probe, 1, ncclFloat32,
                                                         ncclSum, comm->nccl, comm->stream);
    return dt_nccl_result(comm, result, "the first ncclAllReduce");
}

static void warn_when_slow(dt_nccl_comm_t *comm)
{
    if (comm->begin_ns == 0 || dt_now_ns() - comm->begin_ns < SLOW_NS)
        return;
    comm->begin_ns = 0;
    dt_log(DTRAIN_LOG_WARN, "nccl", "GPU %d: NCCL has not connected %d ranks in %d s; " HINT,
           comm->device->number, comm->size, (int)(SLOW_NS / DT_NS_PER_S));
}

/* Init, then a collective, then its end: each may be in progress. */
static dtrain_status_t advance(dt_nccl_comm_t *comm)
{
    dtrain_status_t status = dt_nccl_poll(comm);
    if (status != DTRAIN_OK)
        return status;
    if (!comm->is_connected) {
        comm->is_connected = 1;
        status = begin_probe(comm);
        return status == DTRAIN_OK ? DTRAIN_IN_PROGRESS : status;
    }
    if (!comm->probe_mark)
        status = dt_nccl_record(comm->device, comm->stream, &comm->probe_mark);
    return status == DTRAIN_OK ? dt_nccl_reached(comm->device, comm->probe_mark) : status;
}

dtrain_status_t dt_nccl_connected(dt_device_t *base, dt_backend_t *backend)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_comm_t *comm = (dt_nccl_comm_t *)backend;
    dt_nccl_visit_t visit;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status == DTRAIN_OK) {
        status = advance(comm);
        dt_nccl_leave(device, &visit);
    }
    if (status == DTRAIN_IN_PROGRESS)
        warn_when_slow(comm);
    else if (status != DTRAIN_OK)
        return dt_fail(status, "%.700s; " HINT, dt_last_error());
    return status;
}

/* ---- Ending --------------------------------------------------------------------------------- */

typedef struct ending {
    const dt_nccl_api_t *nccl;
    const dt_cuda_api_t *cuda;
    ncclComm_t comm;
    int device;
} ending_t;

static void *run_abort(void *argument)
{
    ending_t *ending = argument;
    ending->cuda->set_device(ending->device);
    ending->nccl->comm_abort(ending->comm);
    dt_free(ending);
    return NULL;
}

void dt_nccl_abort(dt_nccl_comm_t *comm)
{
    ending_t *ending = comm->nccl ? dt_alloc(sizeof *ending) : NULL;
    if (!ending)
        return;
    *ending = (ending_t){.nccl = comm->device->nccl,
                         .cuda = comm->device->cuda,
                         .comm = comm->nccl,
                         .device = comm->device->number};
    comm->is_failed = 1;
    comm->has_ender = pthread_create(&comm->ender, NULL, run_abort, ending) == 0;
    if (!comm->has_ender)
        dt_free(ending);
    comm->nccl = NULL;
}

/* The clock of pthread_timedjoin_np is the one of the wall. */
static int has_ended(dt_nccl_comm_t *comm)
{
    struct timespec until;
    if (!comm->has_ender)
        return 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(ABORT_NS / DT_NS_PER_S);
    if (pthread_timedjoin_np(comm->ender, NULL, &until) == 0)
        return 1;
    pthread_detach(comm->ender);
    dt_log(DTRAIN_LOG_WARN, "nccl", "GPU %d: ncclCommAbort did not come back in %d s",
           comm->device->number, (int)(ABORT_NS / DT_NS_PER_S));
    return 0;
}

static void free_parts(dt_nccl_comm_t *comm)
{
    dt_nccl_device_t *device = comm->device;
    dt_mark_drop(comm->probe_mark);
    if (comm->stream)
        device->cuda->stream_destroy(comm->stream);
    if (comm->probe)
        device->base.ops->deallocate(&device->base, comm->probe);
    for (int i = 0; i < comm->num_buffers; i++)
        device->base.ops->deallocate(&device->base, comm->buffers[i]);
    dt_free(comm);
}

/* A kernel that may still run keeps what it uses: all that the device has. */
void dt_nccl_comm_destroy(dt_nccl_comm_t *comm, int clean)
{
    dt_nccl_device_t *device = comm->device; /* outlives it */
    dt_nccl_visit_t visit = {0};
    int was_aborted = comm->is_failed || !clean || comm->has_ender;
    int is_entered = dt_nccl_enter(device, &visit) == DTRAIN_OK;
    if (!was_aborted && comm->nccl)
        device->nccl->comm_destroy(comm->nccl);
    else if (comm->nccl)
        dt_nccl_abort(comm);
    if (comm->has_ender && !has_ended(comm))
        device->is_stuck = 1;
    if (!device->is_stuck)
        free_parts(comm);
    if (is_entered)
        dt_nccl_leave(device, &visit);
}
