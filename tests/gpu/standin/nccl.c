/*
 * nccl.c - NCCL between processes of one machine, over shared memory: communicators, from the id to
 * the end, and memory. One that does not block (config.blocking 0) tells of calls as in progress
 * until they were polled for some time; in the other a call returns when it is done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "communicator.h"

static _Thread_local char last_error[256];

ncclResult_t standin_fail(ncclResult_t result, const char *text)
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
    *version = NCCL_VERSION_CODE;
    if (standin_fault("ncclGetVersion") == STANDIN_ERROR)
        (*version)--; /* another one on this rank */
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
        return standin_fail(ncclSystemError, "no unique id");
    memset(id, 0, sizeof *id);
    memcpy(id, &unique, sizeof unique);
    return ncclSuccess;
}

void standin_wait_forever(const _Atomic int *aborted)
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
        standin_wait_forever(&comm->is_aborted);
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
        return standin_fail(ncclSystemError, "no thread");
    comm->has_helper = 1;
    return ncclInProgress;
}

static void end_comm(ncclComm_t comm)
{
    while (atomic_load(&comm->num_blocked) > 0 ||
           atomic_load(&comm->num_running) > comm->num_postponed)
        usleep(100);
    if (comm->has_helper)
        pthread_join(comm->helper, NULL);
    for (int i = 0; i < comm->num_postponed; i++)
        free(comm->postponed[i]);
    if (comm->segment)
        segment_unmap(comm->segment);
    free(comm);
}

STANDIN_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                                int rank, ncclConfig_t *config)
{
    unique_id_t unique;
    if (standin_fault("ncclCommInitRankConfig") != STANDIN_NONE)
        return standin_fail(ncclSystemError, "the stand-in was told to fail");
    if (size > RANKS_MAX || !config)
        return standin_fail(ncclInvalidArgument, "the stand-in has 8 ranks");
    ncclComm_t made = make_comm();
    if (!made)
        return ncclSystemError;
    memcpy(&unique, &id, sizeof unique);
    made->pid = unique.pid;
    made->fd = unique.fd;
    made->rank = rank;
    made->size = size;
    made->is_blocking = standin_setting("NCCL_COMM_BLOCKING", config->blocking) != 0;
    *comm = made;
    if (!made->is_blocking)
        return begin(made, run_init);
    run_init(made);
    ncclResult_t result = made->async;
    if (result != ncclSuccess) {
        *comm = NULL;
        end_comm(made);
    }
    return result;
}

STANDIN_API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    return ncclCommInitRankConfig(comm, size, id, rank, &config);
}

/* ---- Splitting ------------------------------------------------------------------------------ */

#ifndef STANDIN_OLD_NCCL

/* This rank's place among those of its color, and the first of them. */
static int find_place(ncclComm_t comm, const candidate_t *all, int num_ranks, int own)
{
    int first = own;
    for (int rank = 0; rank < num_ranks; rank++) {
        if (all[rank].color != all[own].color)
            continue;
        comm->size++;
        if (all[rank].key < all[own].key || (all[rank].key == all[own].key && rank < own))
            comm->rank++;
        if (all[rank].key < all[first].key || (all[rank].key == all[first].key && rank < first))
            first = rank;
    }
    return first;
}

/* All ranks of the parent meet, show what they want to be, and the first of each new communicator
 * brings its memory. What ends the parent ends this. */
static ncclResult_t split(ncclComm_t comm)
{
    ncclComm_t parent = comm->split.parent;
    segment_t *shared = parent->segment;
    candidate_t *all = shared->candidates, mine = {.color = comm->split.color,
                                                   .key = comm->split.key,
                                                   .pid = getpid(),
                                                   .fd = segment_create()};
    ncclResult_t result = ncclSuccess;
    all[parent->rank] = mine;
    if (segment_meet(shared->host_turns, parent->rank, parent->size, &parent->is_aborted)) {
        result = ncclInternalError;
    } else if (mine.color != NCCL_SPLIT_NOCOLOR) {
        int first = find_place(comm, all, parent->size, parent->rank);
        comm->segment = segment_map(all[first].pid, all[first].fd);
        if (!comm->segment)
            result = ncclSystemError;
    }
    /* Nobody closes what another has not opened yet, nor begins the next split. */
    if (segment_meet(shared->host_turns, parent->rank, parent->size, &parent->is_aborted))
        result = ncclInternalError;
    close(mine.fd);
    return result;
}

/* The new communicator shows when it is there, and the parent is busy until then. */
static void *run_split(void *argument)
{
    ncclComm_t comm = argument, parent = comm->split.parent;
    ncclComm_t *to = comm->split.result;
    ncclResult_t result = split(comm);
    if (comm->split.color == NCCL_SPLIT_NOCOLOR || result != ncclSuccess) {
        if (comm->segment)
            segment_unmap(comm->segment);
        free(comm);
    } else {
        atomic_store(&comm->is_ready, 1);
        *to = comm;
    }
    if (result != ncclSuccess && !parent->is_blocking)
        parent->async = result;
    parent->split_result = result;
    atomic_store(&parent->is_ready, 1);
    atomic_fetch_sub(&parent->num_blocked, 1);
    return NULL;
}

STANDIN_API ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm,
                                       ncclConfig_t *config)
{
    standin_fault_t fault = standin_fault("ncclCommSplit");
    pthread_t helper;
    *comm = NULL;
    if (fault == STANDIN_BLOCK) {
        atomic_fetch_add(&parent->num_blocked, 1);
        standin_wait_forever(&parent->is_aborted);
        atomic_fetch_sub(&parent->num_blocked, 1);
    }
    if (fault != STANDIN_NONE)
        return standin_fail(ncclSystemError, "the stand-in was told to fail");
    if (!atomic_load(&parent->is_ready) || parent->is_revoked)
        return standin_fail(ncclInvalidUsage, "the communicator is busy, or revoked");
    ncclComm_t made = make_comm();
    if (!made)
        return ncclSystemError;
    made->is_blocking =
        standin_setting("NCCL_COMM_BLOCKING", config ? config->blocking : parent->is_blocking) != 0;
    made->split = (struct split){.parent = parent, .color = color, .key = key, .result = comm};
    atomic_store(&parent->is_ready, 0);
    atomic_fetch_add(&parent->num_blocked, 1);
    if (parent->is_blocking) {
        run_split(made);
        return parent->split_result;
    }
    parent->polls_left = (int)standin_setting("STANDIN_POLLS", 2);
    if (pthread_create(&helper, NULL, run_split, made) != 0)
        abort();
    pthread_detach(helper);
    return ncclInProgress;
}

#endif

/* ---- The end -------------------------------------------------------------------------------- */

STANDIN_API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (standin_fault("ncclCommDestroy") == STANDIN_HANG)
        pause();
    standin_forget_comm(comm, 1);
    end_comm(comm);
    return ncclSuccess;
}

#ifndef STANDIN_OLD_NCCL
/* Lets calls and operations end, and frees nothing. */
STANDIN_API ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    if (standin_fault("ncclCommRevoke") == STANDIN_HANG)
        pause();
    if (flags != 0)
        return standin_fail(ncclInvalidArgument, "there are no flags");
    if (comm->is_revoked)
        return standin_fail(ncclInvalidArgument, "it was revoked before");
    atomic_store(&comm->is_aborted, 1);
    comm->is_revoked = 1;
    return ncclSuccess;
}
#endif

STANDIN_API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (standin_fault("ncclCommAbort") == STANDIN_HANG)
        pause();
    atomic_store(&comm->is_aborted, 1);
    standin_forget_comm(comm, 0);
    end_comm(comm);
    return ncclSuccess;
}

/* ---- Memory --------------------------------------------------------------------------------- */

STANDIN_API ncclResult_t ncclMemAlloc(void **pointer, size_t bytes)
{
    *pointer = standin_fault("ncclMemAlloc") == STANDIN_NONE ? standin_allocate(bytes, 4096) : NULL;
    return *pointer ? ncclSuccess : standin_fail(ncclUnhandledCudaError, "out of memory");
}

/* Waits for nothing: the memory is unmapped under what still uses it. */
STANDIN_API ncclResult_t ncclMemFree(void *pointer)
{
    standin_check_free(pointer);
    return standin_free(pointer) ? standin_fail(ncclInvalidArgument, "not from ncclMemAlloc")
                                 : ncclSuccess;
}
