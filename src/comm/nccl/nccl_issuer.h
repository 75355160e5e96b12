/*
 * nccl_issuer.h - the thread that calls NCCL for a communicator, one job after the other. NCCL's
 * calls may block: for a peer that has to connect, or without end. So the engine only posts jobs
 * and looks at what became of them.
 *
 * The communicator itself is a blocking one. A call of one that is not starts a thread of NCCL's
 * for each operation (group.cc of 2.28.9), which takes ten times as long as to wake this one.
 */
#ifndef DT_COMM_NCCL_ISSUER_H
#define DT_COMM_NCCL_ISSUER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/nccl/nccl_api.h"

/* Zeroed before it is posted. */
typedef struct dt_nccl_job dt_nccl_job_t;
struct dt_nccl_job {
    /* May block; an error has its text in the thread's last one. */
    dtrain_status_t (*run)(dt_nccl_job_t *job);
    dt_nccl_job_t *next;
    _Atomic int is_done; /* with success */
};

typedef struct dt_nccl_issuer {
    pthread_t thread;
    int is_started;            /* [baton] */
    const dt_cuda_api_t *cuda; /* [const] */
    int device;                /* [const] what is current in the thread */

    pthread_mutex_t lock;
    pthread_cond_t posted;
    dt_nccl_job_t *first, *last; /* [lock] */
    int is_asleep;               /* [lock] */
    _Atomic uint32_t num_posted; /* raised behind each, and to let it end */
    _Atomic int stop;            /* no further job is begun */
    _Atomic int is_busy;         /* within a job */
    _Atomic int status;          /* dtrain_status_t of the job that failed: none follows it */
    char text[DT_ERROR_MAX];     /* its text */
} dt_nccl_issuer_t;

/* OUT_OF_MEMORY: no thread. */
dtrain_status_t dt_nccl_issuer_start(dt_nccl_issuer_t *issuer, const dt_cuda_api_t *cuda,
                                     int device);

/* With the baton. The job is the issuer's until it is done, or the issuer's thread has ended. */
void dt_nccl_issuer_post(dt_nccl_issuer_t *issuer, dt_nccl_job_t *job);

/* OK when the job is done, IN_PROGRESS, or the error of the job that failed. */
dtrain_status_t dt_nccl_issuer_look(const dt_nccl_issuer_t *issuer, const dt_nccl_job_t *job);

/* Lets the thread end after the job that it is in. */
void dt_nccl_issuer_stop(dt_nccl_issuer_t *issuer);

/* Waits for that. */
void dt_nccl_issuer_join(dt_nccl_issuer_t *issuer);

#endif
