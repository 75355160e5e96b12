/*
 * device.h - the vtable of a GPU. Its implementation is in a library of its own (comm/nccl), which
 * is loaded when a program first has something for a GPU: libdtrain.so itself knows neither CUDA
 * nor NCCL. So this is plain C between two libraries of one build, with a version to be sure of
 * that.
 *
 * Streams are CUDA's, as void *; NULL is the default stream. Nothing blocks but what says so.
 */
#ifndef DT_COMM_DEVICE_H
#define DT_COMM_DEVICE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/backend.h"
#include "optim/update.h"

#define DT_DEVICE_VERSION 5

/* A place in a stream: what was put into the stream before it. Whoever holds one counts as a user.
 * Any thread. */
typedef struct dt_mark dt_mark_t;
struct dt_mark {
    _Atomic int users;
    void (*free)(dt_mark_t *mark);
};

static inline dt_mark_t *dt_mark_hold(dt_mark_t *mark)
{
    atomic_fetch_add_explicit(&mark->users, 1, memory_order_relaxed);
    return mark;
}

static inline void dt_mark_drop(dt_mark_t *mark)
{
    if (mark && atomic_fetch_sub_explicit(&mark->users, 1, memory_order_acq_rel) == 1)
        mark->free(mark);
}

/* What ranks tell each other of their devices before they connect them. Plain data. */
typedef struct dt_device_card {
    uint8_t uuid[16];
    int32_t device;       /* its number in this process */
    int32_t nccl_version; /* 0: there is no NCCL */
    char name[64];
    char nccl_path[168];
} dt_device_card_t;

/* By which ranks find each other: rank 0's, told to all. */
typedef struct dt_device_id {
    char bytes[128];
} dt_device_id_t;

/* Bytes that are copied within the device, or from or to host memory, pinned. */
typedef struct dt_copy {
    void *to;
    const void *from;
    size_t bytes;
} dt_copy_t;

typedef struct dt_device dt_device_t;

typedef struct dt_device_ops {
    uint32_t version; /* DT_DEVICE_VERSION */
    /* Gives all back, after all marks and backends. */
    void (*destroy)(dt_device_t *device);
    void (*describe)(dt_device_t *device, dt_device_card_t *card);

    /* ---- Any thread ---- */

    /* Device memory, zeroed, aligned to 4096 bytes, that NCCL knows. deallocate waits for the
     * device; -1 for what is not the start of an allocation. */
    dtrain_status_t (*allocate)(dt_device_t *device, size_t bytes, void **memory);
    int (*deallocate)(dt_device_t *device, void *memory);
    /* OK when a kernel of this device may use the memory; else INVALID_ARGUMENT with a text. */
    dtrain_status_t (*check)(dt_device_t *device, const void *memory);
    /* 1 when it is memory of a GPU which the host cannot use. */
    int (*is_devices)(dt_device_t *device, const void *memory);
    /* OWN in an allocation of `allocate`, SYMMETRIC in one that has become a window, else ANY. */
    dt_memory_t (*kind_of)(dt_device_t *device, const void *memory);
    /* A mark at the end of what is in a stream now. */
    dtrain_status_t (*record)(dt_device_t *device, void *stream, dt_mark_t **mark);
    /* Lets a stream wait for a mark. */
    dtrain_status_t (*wait)(dt_device_t *device, void *stream, dt_mark_t *mark);
    /* OK when all before the mark is done, IN_PROGRESS, or an error. */
    dtrain_status_t (*reached)(dt_device_t *device, dt_mark_t *mark);
    /* Blocks until that. */
    dtrain_status_t (*await)(dt_device_t *device, dt_mark_t *mark);

    /* ---- Any thread: what is put into a stream ---- */

    dtrain_status_t (*clear)(dt_device_t *device, void *stream, void *memory, size_t bytes);
    dtrain_status_t (*copy_in)(dt_device_t *device, void *stream, const dt_copy_t *copies, int n);
    /* Multiplies floating-point values in place, in float32 where they are of 16 bits. */
    dtrain_status_t (*scale)(dt_device_t *device, void *stream, dtrain_dtype_t dtype, void *values,
                             int64_t count, double factor);
    /* A step over a range of device memory, with the bits of dt_update. */
    dtrain_status_t (*update)(dt_device_t *device, void *stream, const dt_update_factors_t *factors,
                              const dt_update_range_t *range);
    /* The sum of squares of each block of DT_NORM_BLOCK values, with the bits of dt_norm_add; NaN
     * where one of them is not finite. */
    dtrain_status_t (*squares)(dt_device_t *device, void *stream, dtrain_dtype_t dtype,
                               const void *values, int64_t count, double *sums);
    /* Copies between device and host memory, and blocks until that and all that was in the stream
     * before is done; no bytes: waits alone. */
    dtrain_status_t (*transfer)(dt_device_t *device, void *stream, void *to, const void *from,
                                size_t bytes);

    /* ---- With the baton ---- */

    /* Host memory that is copied from and to without waiting. */
    dtrain_status_t (*pin)(dt_device_t *device, void *memory, size_t bytes);
    /* -1: the device is stuck and may still touch the memory, which then must not be freed. */
    int (*unpin)(dt_device_t *device, void *memory);
    /* Copies, once the marks are reached, in a stream of the device's own; *done is a mark behind
     * them. */
    dtrain_status_t (*copy)(dt_device_t *device, const dt_copy_t *copies, int n,
                            dt_mark_t *const *after, int num_after, dt_mark_t **done);
    /* For rank 0. */
    dtrain_status_t (*make_id)(dt_device_t *device, dt_device_id_t *id);
    /*
     * Begins to make a backend of the ranks that have the id. It may be used once `connected` says
     * OK, after a collective that was checked; IN_PROGRESS; or an error, with a text that says what
     * to try. Then it is good for destroy only.
     */
    dtrain_status_t (*connect)(dt_device_t *device, const dt_device_id_t *id, int rank, int size,
                               dt_backend_t **backend);
    /*
     * Ditto, out of a backend that there is: all of its ranks do so at the same place in the order
     * of its collectives, those that are not to be in it with rank -1. Then nothing but `connected`
     * and destroy may be called of what comes. *part NULL: this NCCL cannot, on any rank.
     */
    dtrain_status_t (*split)(dt_device_t *device, dt_backend_t *whole, int rank, int size,
                             dt_backend_t **part);
    dtrain_status_t (*connected)(dt_device_t *device, dt_backend_t *backend);
} dt_device_ops_t;

/* First member of every device. */
struct dt_device {
    const dt_device_ops_t *ops;
};

/* What the library that is loaded needs of the one that loads it. */
typedef struct dt_device_host {
    uint32_t version; /* DT_DEVICE_VERSION */
    dtrain_status_t (*fail)(dtrain_status_t status, const char *text);
    const char *(*last_error)(void);
    void (*log)(dtrain_log_level_t level, const char *subsystem, const char *text);
} dt_device_host_t;

/*
 * The entry of libdtrain_nccl.so, by this name: opens this process's device. `hint` is memory of
 * the device that the program uses, or NULL: then the one that is current when that is not the
 * first, else number local_rank, modulo their count. UNSUPPORTED when there is no device or driver.
 */
typedef dtrain_status_t (*dt_device_open_fn_t)(const dt_device_host_t *host, const void *hint,
                                               int local_rank, dt_device_t **device);
#define DT_DEVICE_OPEN "dt_nccl_open"

/* Loads libdtrain_nccl.so, from beside the library this is in, once a process, and calls its entry.
 * UNSUPPORTED with a text that says what is missing. */
dtrain_status_t dt_device_load(const void *hint, int local_rank, dt_device_t **device);

#endif
