#include "comm/nccl/nccl_register.h"

#include <stddef.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/nccl/nccl_comm.h"

/* So long who frees memory waits for a call of NCCL's. */
#define PATIENCE_NS (3 * DT_NS_PER_S)

/* The number of a window, in its range's flags, behind what it is. */
#define NUMBER_SHIFT 8

void dt_nccl_register_begin(dt_nccl_comm_t *comm)
{
    dt_nccl_device_t *device = comm->device;
    dt_nccl_register_t *book = &comm->book;
    book->is_over = 1;
    pthread_mutex_init(&book->calls, NULL);
    pthread_mutex_init(&book->life, NULL);
    pthread_mutex_lock(&device->registers_lock);
    book->next = device->registers;
    device->registers = book;
    pthread_mutex_unlock(&device->registers_lock);
}

static dt_nccl_comm_t *comm_of(dt_nccl_register_t *book)
{
    return (dt_nccl_comm_t *)((char *)book - offsetof(dt_nccl_comm_t, book));
}

/* ---- NCCL's calls ---------------------------------------------------------------------------- */

/* Success without a handle is NCCL's way to say that it does not do it here. */
static dtrain_status_t call_register(dt_nccl_comm_t *comm, dt_nccl_range_t *range)
{
    const dt_nccl_api_t *nccl = comm->device->nccl;
    range->handle = NULL; /* a window's may be left alone */
    if (range->flags & DT_NCCL_IS_WINDOW)
        return dt_nccl_result(comm,
                              nccl->window_register(comm->nccl, range->begin, range->bytes,
                                                    &range->handle, DT_NCCL_WINDOW_SYMMETRIC),
                              "ncclCommWindowRegister");
    return dt_nccl_result(
        comm, nccl->comm_register(comm->nccl, range->begin, range->bytes, &range->handle),
        "ncclCommRegister");
}

static void call_deregister(dt_nccl_comm_t *comm, const dt_nccl_range_t *range)
{
    const dt_nccl_api_t *nccl = comm->device->nccl;
    ncclResult_t result = range->flags & DT_NCCL_IS_WINDOW
                              ? nccl->window_deregister(comm->nccl, range->handle)
                              : nccl->comm_deregister(comm->nccl, range->handle);
    if (result != ncclSuccess)
        dt_log(DTRAIN_LOG_WARN, "nccl", "GPU %d: %p is not deregistered: %s", comm->device->number,
               (void *)range->begin, nccl->get_error_string(result));
}

/* ---- Registering ---------------------------------------------------------------------------- */

/* *has_handle 0: NCCL does not do it. */
static dtrain_status_t add(dt_nccl_comm_t *comm, const void *address, int flags, int *has_handle)
{
    dt_nccl_register_t *book = &comm->book;
    dt_nccl_range_t range;
    *has_handle = 0;
    if (dt_nccl_claim(comm->device, address, flags & DT_NCCL_IS_WINDOW, &range))
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "GPU %d: no memory that NCCL can register",
                       comm->device->number);
    range.flags = flags;
    dtrain_status_t status = call_register(comm, &range);
    if (status != DTRAIN_OK || !range.handle)
        return status;
    *has_handle = 1;
    if (dt_nccl_ranges_add(&book->known, range) == 0)
        return DTRAIN_OK;
    call_deregister(comm, &range);
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for what NCCL has registered");
}

static dtrain_status_t add_window(dt_nccl_comm_t *comm, const void *address, int *has_handle)
{
    int number = comm->book.num_windows++;
    return add(comm, address, DT_NCCL_IS_WINDOW | number << NUMBER_SHIFT, has_handle);
}

dtrain_status_t dt_nccl_register_first(dt_nccl_comm_t *comm, dt_nccl_level_t *level)
{
    const dt_nccl_api_t *nccl = comm->device->nccl;
    dtrain_status_t status = DTRAIN_OK;
    int has_handle = 0;
    *level = DT_NCCL_UNREGISTERED;
    if (!nccl->comm_register || !nccl->comm_deregister ||
        dt_nccl_kind_of(&comm->device->base, comm->bucket.memory) != DT_MEMORY_OWN)
        return DTRAIN_OK;
    pthread_mutex_lock(&comm->book.life);
    comm->book.is_over = 0;
    pthread_mutex_unlock(&comm->book.life);
    pthread_mutex_lock(&comm->book.calls);
    if (nccl->window_register && nccl->window_deregister)
        status = add_window(comm, comm->bucket.memory, &has_handle);
    if (has_handle)
        *level = DT_NCCL_WINDOWS;
    else if (status == DTRAIN_OK)
        status = add(comm, comm->bucket.memory, 0, &has_handle);
    if (has_handle && *level == DT_NCCL_UNREGISTERED)
        *level = DT_NCCL_BLOCKS;
    pthread_mutex_unlock(&comm->book.calls);
    return status;
}

void dt_nccl_register_agree(dt_nccl_comm_t *comm, dt_nccl_level_t level)
{
    static const char *const uses[] = {"unregistered buffers", "registered buffers",
                                       "registered buffers and symmetric windows"};
    dt_log(DTRAIN_LOG_INFO, "nccl", "GPU %d: NCCL uses %s", comm->device->number, uses[level]);
    /* The buffer is registered anew when it is used. */
    if (level < (dt_nccl_level_t)comm->brought[0])
        dt_nccl_register_drop_all(comm);
    comm->book.level = level;
}

int dt_nccl_register_knows(const dt_nccl_comm_t *comm, const void *address)
{
    return dt_nccl_ranges_find(&comm->book.known, address) != NULL;
}

dtrain_status_t dt_nccl_register_block(dt_nccl_comm_t *comm, const void *address)
{
    int has_handle = 1;
    dtrain_status_t status = DTRAIN_OK;
    if (comm->book.level != DT_NCCL_UNREGISTERED && !dt_nccl_register_knows(comm, address))
        status = add(comm, address, 0, &has_handle);
    if (status != DTRAIN_OK || has_handle)
        return status;
    return dt_fail(DTRAIN_ERR_COMMUNICATION, "GPU %d: NCCL registers memory no more",
                   comm->device->number);
}

/* A number that is the same on ranks which have the same windows. */
static uint64_t sum_of_windows(const dt_nccl_register_t *book)
{
    uint64_t sum = 0;
    for (int i = 0; i < book->known.count; i++) {
        int flags = book->known.sorted[i].flags;
        if (flags & DT_NCCL_IS_WINDOW)
            sum += UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)(flags >> NUMBER_SHIFT) + 1);
    }
    return sum;
}

/* Waits for the other ranks, which are in the same job. */
static dtrain_status_t have_same_windows(dt_nccl_comm_t *comm, int *are_same)
{
    uint64_t sum = sum_of_windows(&comm->book), ends[2] = {sum, ~sum};
    dtrain_status_t status = dt_nccl_find_least(comm, ncclUint64, 2, ends, sizeof ends);
    *are_same = ends[0] == ~ends[1];
    return status;
}

dtrain_status_t dt_nccl_register_window(dt_nccl_comm_t *comm, const void *address)
{
    int are_same, has_handle;
    if (comm->book.level != DT_NCCL_WINDOWS)
        return dt_nccl_register_block(comm, address);
    dtrain_status_t status = have_same_windows(comm, &are_same);
    if (status != DTRAIN_OK)
        return status;
    if (!are_same) {
        dt_log(DTRAIN_LOG_INFO, "nccl",
               "GPU %d: no window: ranks have not destroyed the same gradient sets",
               comm->device->number);
        return dt_nccl_register_block(comm, address);
    }
    status = add_window(comm, address, &has_handle);
    if (status == DTRAIN_OK && !has_handle)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "GPU %d: NCCL makes windows no more",
                       comm->device->number);
    return status;
}

/* ---- The end -------------------------------------------------------------------------------- */

void dt_nccl_register_abandon(dt_nccl_comm_t *comm)
{
    pthread_mutex_lock(&comm->book.life);
    comm->book.is_over = 1;
    pthread_mutex_unlock(&comm->book.life);
}

/* [calls held] */
static void drop(dt_nccl_comm_t *comm, dt_nccl_range_t *range)
{
    pthread_mutex_lock(&comm->book.life);
    if (!comm->book.is_over)
        call_deregister(comm, range);
    pthread_mutex_unlock(&comm->book.life);
    dt_nccl_ranges_remove(&comm->book.known, range);
}

void dt_nccl_register_drop_all(dt_nccl_comm_t *comm)
{
    dt_nccl_register_t *book = &comm->book;
    pthread_mutex_lock(&book->calls);
    while (book->known.count > 0)
        drop(comm, &book->known.sorted[book->known.count - 1]);
    pthread_mutex_unlock(&book->calls);
}

void dt_nccl_register_end(dt_nccl_comm_t *comm)
{
    dt_nccl_device_t *device = comm->device;
    pthread_mutex_lock(&device->registers_lock);
    dt_nccl_register_t **at = &device->registers;
    while (*at != &comm->book)
        at = &(*at)->next;
    *at = comm->book.next;
    pthread_mutex_unlock(&device->registers_lock);
    dt_nccl_ranges_free(&comm->book.known);
    pthread_mutex_destroy(&comm->book.calls);
    pthread_mutex_destroy(&comm->book.life);
}

static int is_over(dt_nccl_register_t *book)
{
    pthread_mutex_lock(&book->life);
    int is_over = book->is_over;
    pthread_mutex_unlock(&book->life);
    return is_over;
}

/* -1: a call is in progress. What is over is left to the abort. */
static int try_forget(dt_nccl_register_t *book, const void *block)
{
    if (pthread_mutex_trylock(&book->calls) != 0)
        return is_over(book) ? 0 : -1;
    dt_nccl_range_t *range = dt_nccl_ranges_find(&book->known, block);
    if (range)
        drop(comm_of(book), range);
    pthread_mutex_unlock(&book->calls);
    return 0;
}

/* No lock is held while it waits: the engine may need a list that it is in. */
int dt_nccl_register_forget(dt_nccl_device_t *device, const void *block)
{
    const struct timespec nap = {.tv_nsec = DT_NS_PER_MS / 10};
    int64_t deadline_ns = dt_now_ns() + PATIENCE_NS;
    for (int is_busy = 1; is_busy;) {
        is_busy = 0;
        pthread_mutex_lock(&device->registers_lock);
        for (dt_nccl_register_t *book = device->registers; book; book = book->next)
            is_busy |= try_forget(book, block) != 0;
        pthread_mutex_unlock(&device->registers_lock);
        if (is_busy && dt_now_ns() >= deadline_ns)
            return -1;
        if (is_busy)
            nanosleep(&nap, NULL);
    }
    return 0;
}
