/*
 * registration.c - memory that the stand-in for NCCL is told of. What real NCCL leaves to the
 * caller is looked at here: a defect of the caller's ends the process with a text (a free of memory
 * that is registered, a call for a communicator in two threads), or is an error of the collective
 * (ranks that do not all bring registered memory, windows of different sizes or used at different
 * offsets).
 *
 * As with the real one, NCCL_LOCAL_REGISTER=0 and NCCL_WIN_ENABLE=0 switch registration off without
 * an error; a fault of the kind "oom" does so once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "communicator.h"

#define PAGE_BYTES ((uintptr_t)4096)

typedef struct registration {
    struct registration *next;
    ncclComm_t comm;
    uintptr_t begin, end; /* whole pages */
    int refs;
    int window; /* its number, from 1; 0: none */
} registration_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static registration_t *registrations; /* [lock] */

static void defect(const char *text)
{
    fprintf(stderr, "stand-in for NCCL: %s\n", text);
    abort();
}

void standin_enter(ncclComm_t comm)
{
    if (atomic_exchange(&comm->is_entered, 1))
        defect("a communicator is used by two threads at a time");
}

void standin_leave(ncclComm_t comm)
{
    atomic_store(&comm->is_entered, 0);
}

/* The one that holds all of it. [lock held] */
static registration_t *find(ncclComm_t comm, const void *memory, size_t bytes, int needs_window)
{
    uintptr_t begin = (uintptr_t)memory;
    registration_t *at = registrations;
    while (at && (at->comm != comm || begin < at->begin || begin + bytes > at->end ||
                  (needs_window && at->window == 0)))
        at = at->next;
    return at;
}

static registration_t *add(ncclComm_t comm, void *memory, size_t bytes, int window)
{
    pthread_mutex_lock(&lock);
    registration_t *made = window ? NULL : find(comm, memory, bytes, 0);
    if (made) {
        made->refs++;
    } else {
        made = calloc(1, sizeof *made);
        if (!made)
            abort();
        *made = (registration_t){.next = registrations,
                                 .comm = comm,
                                 .begin = (uintptr_t)memory & ~(PAGE_BYTES - 1),
                                 .refs = 1,
                                 .window = window};
        made->end = ((uintptr_t)memory + bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
        registrations = made;
    }
    pthread_mutex_unlock(&lock);
    return made;
}

static ncclResult_t take_away(ncclComm_t comm, const void *handle, int is_window)
{
    pthread_mutex_lock(&lock);
    registration_t **at = &registrations;
    while (*at && *at != handle)
        at = &(*at)->next;
    registration_t *found = *at;
    int is_right = found && found->comm == comm && is_window == (found->window > 0);
    if (is_right && --found->refs == 0) {
        *at = found->next;
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return is_right ? ncclSuccess : standin_fail(ncclInvalidUsage, "no such registration");
}

void standin_check_free(const void *memory)
{
    pthread_mutex_lock(&lock);
    for (const registration_t *at = registrations; at; at = at->next) {
        if ((uintptr_t)memory >= at->begin && (uintptr_t)memory < at->end)
            defect("memory is freed that is still registered");
    }
    pthread_mutex_unlock(&lock);
}

void standin_forget_comm(ncclComm_t comm, int is_clean)
{
    pthread_mutex_lock(&lock);
    for (registration_t **at = &registrations; *at;) {
        registration_t *found = *at;
        if (found->comm != comm) {
            at = &found->next;
            continue;
        }
        if (is_clean)
            defect("a communicator is destroyed that memory is registered with");
        *at = found->next;
        free(found);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- What an operation brings ---------------------------------------------------------------- */

static _Atomic int num_operations[3];

STANDIN_API int standin_count_operations(int memory)
{
    return atomic_load(&num_operations[memory]);
}

int standin_is_registered(ncclComm_t comm, const void *memory, size_t bytes)
{
    pthread_mutex_lock(&lock);
    int is_registered = find(comm, memory, bytes, 0) != NULL;
    pthread_mutex_unlock(&lock);
    return is_registered;
}

static int find_window(ncclComm_t comm, const void *memory, size_t bytes, uint64_t *offset)
{
    pthread_mutex_lock(&lock);
    const registration_t *window = find(comm, memory, bytes, 1);
    int number = window ? window->window : 0;
    *offset = window ? (uintptr_t)memory - window->begin : 0;
    pthread_mutex_unlock(&lock);
    return number;
}

void standin_describe_memory(operation_t *operation, size_t in_bytes, size_t out_bytes)
{
    ncclComm_t comm = operation->comm;
    call_t *call = &operation->call;
    int is_root = call->root == comm->rank;
    int reads = call->kind != BROADCAST || is_root, writes = call->kind != REDUCE || is_root;
    uint64_t in_offset, out_offset;
    int in_window = find_window(comm, operation->in, in_bytes, &in_offset);
    int out_window = find_window(comm, operation->out, out_bytes, &out_offset);
    call->memory = (!reads || standin_is_registered(comm, operation->in, in_bytes)) &&
                   (!writes || standin_is_registered(comm, operation->out, out_bytes));
    int is_symmetric =
        call->kind == ALL_REDUCE || call->kind == ALL_GATHER || call->kind == REDUCE_SCATTER;
    if (is_symmetric && in_window && out_window) {
        call->memory = 2;
        /* The kernels reach the other ranks' memory by this rank's offset. */
        if (call->kind != ALL_GATHER) {
            call->in_window = in_window;
            call->in_offset = in_offset;
        }
        if (call->kind != REDUCE_SCATTER) {
            call->out_window = out_window;
            call->out_offset = out_offset;
        }
    }
    atomic_fetch_add(&num_operations[call->memory], 1);
}

/* ---- NCCL's calls ---------------------------------------------------------------------------- */

static int is_on(const char *name)
{
    return standin_setting(name, 1) != 0;
}

STANDIN_API ncclResult_t ncclCommRegister(ncclComm_t comm, void *memory, size_t bytes,
                                          void **handle)
{
    standin_fault_t fault = standin_fault("ncclCommRegister");
    *handle = NULL;
    if (fault == STANDIN_ERROR)
        return standin_fail(ncclSystemError, "the stand-in was told to fail");
    if (fault == STANDIN_OOM || !is_on("NCCL_LOCAL_REGISTER"))
        return ncclSuccess;
    if (!standin_is_device(memory) || bytes == 0)
        return standin_fail(ncclInvalidArgument, "it is not device memory");
    standin_enter(comm);
    *handle = add(comm, memory, bytes, 0);
    standin_leave(comm);
    return ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
    if (!handle)
        return ncclSuccess;
    standin_enter(comm);
    ncclResult_t result = take_away(comm, handle, 0);
    standin_leave(comm);
    return result;
}

#ifndef STANDIN_OLD_NCCL
/* All ranks meet, and have the same bytes: else an error, or no end. */
static ncclResult_t agree(ncclComm_t comm, uint64_t bytes)
{
    segment_t *segment = comm->segment;
    int failed = 0, differs = 0;
    atomic_fetch_add(&comm->num_blocked, 1);
    segment->windows[comm->rank] = bytes;
    failed = segment_meet(segment->host_turns, comm->rank, comm->size, &comm->is_aborted);
    for (int rank = 0; rank < comm->size && !failed; rank++)
        differs |= segment->windows[rank] != bytes;
    failed = failed || segment_meet(segment->host_turns, comm->rank, comm->size, &comm->is_aborted);
    const char *how = getenv("STANDIN_MISMATCH");
    if (differs && how && strcmp(how, "hang") == 0)
        standin_wait_forever(&comm->is_aborted);
    atomic_fetch_sub(&comm->num_blocked, 1);
    if (failed)
        return standin_fail(ncclInternalError, "the communicator was given up");
    return differs ? standin_fail(ncclInvalidUsage, "windows of different sizes") : ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes,
                                                ncclWindow_t *window, int flags)
{
    standin_fault_t fault = standin_fault("ncclCommWindowRegister");
    if (fault == STANDIN_ERROR)
        return standin_fail(ncclSystemError, "the stand-in was told to fail");
    if (fault == STANDIN_HANG) {
        atomic_fetch_add(&comm->num_blocked, 1);
        standin_wait_forever(&comm->is_aborted);
        atomic_fetch_sub(&comm->num_blocked, 1);
        return standin_fail(ncclInternalError, "the communicator was given up");
    }
    int is_symmetric = is_on("NCCL_WIN_ENABLE") && fault != STANDIN_OOM;
    if (!is_symmetric) /* nothing is written where nothing is done */
        return fault != STANDIN_OOM && is_on("NCCL_LOCAL_REGISTER")
                   ? ncclCommRegister(comm, memory, bytes, (void **)window)
                   : ncclSuccess;
    if (flags != NCCL_WIN_COLL_SYMMETRIC || (uintptr_t)memory % NCCL_WIN_REQUIRED_ALIGNMENT != 0 ||
        !standin_is_device(memory))
        return standin_fail(ncclInvalidArgument, "it cannot be a window");
    standin_enter(comm);
    ncclResult_t result = agree(comm, bytes);
    if (result == ncclSuccess)
        *window = (ncclWindow_t)add(comm, memory, bytes, ++comm->num_windows);
    standin_leave(comm);
    return result;
}

STANDIN_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    const registration_t *registration = (const registration_t *)window;
    if (!window)
        return ncclSuccess;
    standin_enter(comm);
    ncclResult_t result = take_away(comm, window, registration->window > 0);
    standin_leave(comm);
    return result;
}
#endif
