#include "comm/nccl/nccl_comm.h"

#include <sched.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

/* An end that takes longer is left to itself, with what it may still touch. */
#define ABORT_NS (3 * DT_NS_PER_S)
#define DESTROY_NS (30 * DT_NS_PER_S)

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

/* A kernel or a call that may still run keeps what it uses: all that the device has. One that the
 * issuer of another was making is only known to be left alone when that one has ended. */
void dt_nccl_comm_destroy(dt_nccl_comm_t *comm, int clean)
{
    dt_nccl_device_t *device = comm->device; /* outlives it */
    dt_nccl_visit_t visit = {0};
    if (comm->whole && device->is_stuck)
        return;
    int is_entered = dt_nccl_enter(device, &visit) == DTRAIN_OK;
    begin_end(comm, clean && !comm->is_failed);
    if (!has_ended(comm))
        device->is_stuck = 1;
    /* What has failed may leave copies behind that never end. */
    if (comm->is_clean ? !device->is_stuck : !dt_nccl_is_stuck(device))
        free_parts(comm);
    if (is_entered)
        dt_nccl_leave(device, &visit);
}
