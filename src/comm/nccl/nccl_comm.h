/*
 * nccl_comm.h - one communicator of NCCL: how it comes to be, fails and ends. It does not block:
 * whatever NCCL says is in progress is asked after later.
 */
#ifndef DT_COMM_NCCL_COMM_H
#define DT_COMM_NCCL_COMM_H

#include "comm/nccl/nccl_device.h"

#define DT_NCCL_BUFFERS_MAX 64 /* each is twice the one before */

typedef struct dt_nccl_task dt_nccl_task_t;

typedef struct dt_nccl_comm {
    dt_backend_t base;
    dt_nccl_device_t *device;
    int rank, size;
    ncclComm_t nccl;
    cudaStream_t stream;
    int is_connected; /* and checked by a first collective */
    int is_failed;    /* good for destroy only */
    int has_ender;    /* a thread that aborts it */
    pthread_t ender;

    /* The one whose calls NCCL still has in progress: the next one's have to wait. */
    dt_nccl_task_t *launching;
    dt_nccl_task_t *first, *last; /* that have not been launched, in order */

    /* What is packed. In the order of the stream one buffer is enough; those that became too small
     * are kept, since freeing memory would wait for all that runs. */
    void *buffer;
    size_t buffer_bytes;
    void *buffers[DT_NCCL_BUFFERS_MAX];
    int num_buffers;

    /* The collective by which it is checked. */
    float *probe;
    dt_mark_t *probe_mark;
    int64_t begin_ns;
} dt_nccl_comm_t;

dtrain_status_t dt_nccl_make_id(dt_device_t *base, dt_device_id_t *id);
dtrain_status_t dt_nccl_connect(dt_device_t *base, const dt_device_id_t *id, int rank, int size,
                                dt_backend_t **backend);
dtrain_status_t dt_nccl_connected(dt_device_t *base, dt_backend_t *backend);

/* Of what a call to NCCL returned: OK, also when it is in progress. */
dtrain_status_t dt_nccl_result(dt_nccl_comm_t *comm, ncclResult_t result, const char *call);

/* OK when nothing is in progress, IN_PROGRESS, or what went wrong since. */
dtrain_status_t dt_nccl_poll(dt_nccl_comm_t *comm);

/* Begins to end it without the other ranks, in a thread of its own, since an abort may hang itself.
 * What is in the stream comes to an end by it. */
void dt_nccl_abort(dt_nccl_comm_t *comm);

/* Ends it and frees all; see dt_backend_ops_t. */
void dt_nccl_comm_destroy(dt_nccl_comm_t *comm, int clean);

/* Sees to a buffer of so many bytes, with the device entered; bytes < 0: more than can be had. */
dtrain_status_t dt_nccl_reserve(dt_nccl_comm_t *comm, int64_t bytes);

/* The vtable of its base. */
extern const dt_backend_ops_t dt_nccl_backend_ops;

#endif
