#include "comm/nccl/nccl_issuer.h"

#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/nccl/nccl_device.h"

/* So long it looks for the next job before it sleeps: to be woken takes several microseconds. */
#define AWAKE_NS (50 * DT_NS_PER_US)

/* Whether a job came, or the end, since `seen` were posted. */
static int is_near(dt_nccl_issuer_t *issuer, uint32_t seen)
{
    int64_t until_ns = dt_now_ns() + AWAKE_NS;
    while (atomic_load(&issuer->num_posted) == seen) {
        if (dt_now_ns() >= until_ns)
            return 0;
        sched_yield();
    }
    return 1;
}

/* The next job; NULL: the end. */
static dt_nccl_job_t *take(dt_nccl_issuer_t *issuer, uint32_t seen)
{
    int sleeps = !is_near(issuer, seen);
    pthread_mutex_lock(&issuer->lock);
    while (sleeps && !issuer->first && !atomic_load(&issuer->stop)) {
        issuer->is_asleep = 1;
        pthread_cond_wait(&issuer->posted, &issuer->lock);
    }
    issuer->is_asleep = 0;
    dt_nccl_job_t *job = atomic_load(&issuer->stop) ? NULL : issuer->first;
    if (job)
        issuer->first = job->next;
    pthread_mutex_unlock(&issuer->lock);
    return job;
}

static void *run(void *argument)
{
    dt_nccl_issuer_t *issuer = argument;
    dt_nccl_settle(issuer->cuda, issuer->device);
    for (uint32_t seen = 0;; seen++) {
        dt_nccl_job_t *job = take(issuer, seen);
        if (!job)
            return NULL;
        atomic_store(&issuer->is_busy, 1);
        dtrain_status_t status = job->run(job);
        atomic_store(&issuer->is_busy, 0);
        if (status == DTRAIN_OK) {
            atomic_store(&job->is_done, 1);
            continue;
        }
        snprintf(issuer->text, sizeof issuer->text, "%s", dt_last_error());
        atomic_store(&issuer->status, (int)status);
        return NULL;
    }
}

dtrain_status_t dt_nccl_issuer_start(dt_nccl_issuer_t *issuer, const dt_cuda_api_t *cuda,
                                     int device)
{
    issuer->cuda = cuda;
    issuer->device = device;
    pthread_mutex_init(&issuer->lock, NULL);
    pthread_cond_init(&issuer->posted, NULL);
    if (dt_thread_start(&issuer->thread, "dtrain-nccl", run, issuer) != 0)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no thread for NCCL");
    issuer->is_started = 1;
    return DTRAIN_OK;
}

/* Tells of a job, or of the end. */
static void wake(dt_nccl_issuer_t *issuer)
{
    atomic_fetch_add(&issuer->num_posted, 1);
    if (issuer->is_asleep)
        pthread_cond_signal(&issuer->posted);
}

void dt_nccl_issuer_post(dt_nccl_issuer_t *issuer, dt_nccl_job_t *job)
{
    pthread_mutex_lock(&issuer->lock);
    if (issuer->first)
        issuer->last->next = job;
    else
        issuer->first = job;
    issuer->last = job;
    wake(issuer);
    pthread_mutex_unlock(&issuer->lock);
}

dtrain_status_t dt_nccl_issuer_look(const dt_nccl_issuer_t *issuer, const dt_nccl_job_t *job)
{
    if (atomic_load(&job->is_done))
        return DTRAIN_OK;
    int status = atomic_load(&issuer->status);
    return status == DTRAIN_OK ? DTRAIN_IN_PROGRESS
                               : dt_fail((dtrain_status_t)status, "%s", issuer->text);
}

void dt_nccl_issuer_stop(dt_nccl_issuer_t *issuer)
{
    if (!issuer->is_started)
        return;
    pthread_mutex_lock(&issuer->lock);
    atomic_store(&issuer->stop, 1);
    wake(issuer);
    pthread_mutex_unlock(&issuer->lock);
}

void dt_nccl_issuer_join(dt_nccl_issuer_t *issuer)
{
    if (!issuer->is_started)
        return;
    pthread_join(issuer->thread, NULL);
    pthread_mutex_destroy(&issuer->lock);
    pthread_cond_destroy(&issuer->posted);
    issuer->is_started = 0;
}
