/*
 * nccl_comm.h - one communicator of NCCL: how it comes to be, fails and ends. Nothing here blocks:
 * what may do so is a job of the communicator's issuer.
 */
#ifndef DT_COMM_NCCL_COMM_H
#define DT_COMM_NCCL_COMM_H

#include "comm/nccl/nccl_device.h"
#include "comm/nccl/nccl_issuer.h"
#include "comm/nccl/nccl_register.h"

/* What ranks bring to the first collective, which has the least of each: what memory a rank can
 * register (dt_nccl_level_t), and its number, as it is and negative. */
#define DT_NCCL_PROBES 3

#define DT_NCCL_BUFFERS_MAX 64 /* each is twice the one before */

typedef struct dt_nccl_task dt_nccl_task_t;

/* Memory that grows. In the order of the stream one buffer is enough; those that became too small
 * are kept, since freeing memory would wait for all that runs. */
typedef struct dt_nccl_room {
    void *memory;
    size_t bytes;
    void *all[DT_NCCL_BUFFERS_MAX];
    int count;
} dt_nccl_room_t;

struct dt_nccl_comm {
    dt_backend_t base;
    dt_nccl_device_t *device;
    dt_nccl_issuer_t issuer;
    int rank, size;  /* rank < 0: it only takes part in the making of one for others */
    ncclComm_t nccl; /* [issuer] until it is made */
    cudaStream_t stream;
    _Atomic int is_polled; /* calls may return before they are done */
    int is_made;           /* the communicator is there */
    int is_failed;         /* good for destroy only */
    int has_ender;         /* a thread that ends it */
    int is_clean;          /* by destroying, not by aborting it */
    pthread_t ender;

    /* Those that the issuer still had when they were given up. */
    dt_nccl_task_t *given_up;

    dt_nccl_register_t book;
    dt_nccl_room_t bucket; /* [issuer] what is packed; registered, where anything is */
    dt_nccl_room_t aside;  /* [issuer] copies of what must not be used as registered; never is */

    /* Making it, and the collective by which it is checked. */
    dt_nccl_job_t making, probing;
    ncclUniqueId id;
    struct dt_nccl_comm *whole; /* out of which it is made, by whose issuer; NULL: not, or it is */
    void *probe;                /* a page */
    dt_mark_t *probe_mark;
    float brought[DT_NCCL_PROBES]; /* what this rank brings to it */
    int has_level;
    int64_t begin_ns;
    int has_warned;
};

dtrain_status_t dt_nccl_make_id(dt_device_t *base, dt_device_id_t *id);
dtrain_status_t dt_nccl_connect(dt_device_t *base, const dt_device_id_t *id, int rank, int size,
                                dt_backend_t **backend);
dtrain_status_t dt_nccl_split(dt_device_t *base, dt_backend_t *whole, int rank, int size,
                              dt_backend_t **part);
dtrain_status_t dt_nccl_connected(dt_device_t *base, dt_backend_t *backend);

/* Of what a call to NCCL returned, in a job. */
dtrain_status_t dt_nccl_result(dt_nccl_comm_t *comm, ncclResult_t result, const char *call);

/* What became of a job, and of the communicator since it was made: OK, IN_PROGRESS, or an error. */
dtrain_status_t dt_nccl_look(dt_nccl_comm_t *comm, const dt_nccl_job_t *job);

/* Begins to end it without the other ranks, in a thread of its own, since that may hang itself.
 * What is in the stream comes to an end by it. */
void dt_nccl_abort(dt_nccl_comm_t *comm);

/* Ends it and frees all; see dt_backend_ops_t. */
void dt_nccl_comm_destroy(dt_nccl_comm_t *comm, int clean);

/* Sees to room for so many bytes; bytes < 0: more than can be had. In a job. */
dtrain_status_t dt_nccl_reserve(dt_nccl_comm_t *comm, dt_nccl_room_t *room, int64_t bytes);

/* In a job of all ranks: the least of each of `count` values, here up to a page of them. Waits. */
dtrain_status_t dt_nccl_find_least(dt_nccl_comm_t *comm, ncclDataType_t dtype, size_t count,
                                   void *values, size_t bytes);

/* Frees the tasks that were given up. */
void dt_nccl_free_given_up(dt_nccl_comm_t *comm);

/* The vtable of its base. */
extern const dt_backend_ops_t dt_nccl_backend_ops;

#endif
