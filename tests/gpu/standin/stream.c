/* stream.c - streams and events. A stream is a thread that takes one piece of work after the other;
 * an event counts how often it was recorded and how many of these records its streams have come to.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

typedef struct work {
    struct work *next;
    standin_work_fn_t run;
    char argument[];
} work_t;

struct CUstream_st {
    struct CUstream_st *next; /* [streams_lock] */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    work_t *first, *last;          /* [lock] */
    uint64_t num_queued, num_done; /* [lock] */
    int stops;                     /* [lock] */
    int device;                    /* [const] */
    unsigned seed;                 /* the thread's */
    pthread_t thread;
};

struct CUevent_st {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t num_recorded, num_reached; /* [lock] */
    int users;               /* [lock] whoever holds it: its maker, and work in streams */
    struct timespec reached; /* [lock] the last time */
    int has_time;            /* [const] */
    int device;              /* [const] */
    int is_captured;         /* [lock] recorded last in a stream that was captured */
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams; /* [streams_lock] */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaStream_t default_stream; /* [once] */

static void *run_stream(void *argument)
{
    struct CUstream_st *stream = argument;
    long delay_us = standin_setting("STANDIN_DELAY_US", 0);
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !stream->stops)
            pthread_cond_wait(&stream->changed, &stream->lock);
        work_t *work = stream->first;
        if (!work)
            break;
        stream->first = work->next;
        pthread_mutex_unlock(&stream->lock);
        if (delay_us > 0)
            usleep((useconds_t)(rand_r(&stream->seed) % delay_us));
        work->run(work->argument);
        free(work);
        pthread_mutex_lock(&stream->lock);
        stream->num_done++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static cudaStream_t make_stream(void)
{
    static _Atomic unsigned seeds = 1;
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->seed = ++seeds + 1000u * (unsigned)standin_rank();
    stream->device = standin_current();
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    pthread_mutex_lock(&streams_lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&streams_lock);
    if (pthread_create(&stream->thread, NULL, run_stream, stream) != 0)
        abort();
    return stream;
}

static void make_default_stream(void)
{
    default_stream = make_stream();
}

static struct CUstream_st *known(cudaStream_t stream)
{
    if (stream != NULL && stream != cudaStreamLegacy && stream != cudaStreamPerThread)
        return stream;
    pthread_once(&once, make_default_stream);
    return default_stream;
}

void standin_enqueue(cudaStream_t stream, standin_work_fn_t run, const void *argument, size_t bytes)
{
    struct CUstream_st *to = known(stream);
    if (standin_capture_takes(stream, run, argument, bytes))
        return;
    work_t *work = malloc(sizeof *work + bytes);
    if (!work)
        abort();
    work->next = NULL;
    work->run = run;
    memcpy(work->argument, argument, bytes);
    pthread_mutex_lock(&to->lock);
    if (to->first)
        to->last->next = work;
    else
        to->first = work;
    to->last = work;
    to->num_queued++;
    pthread_cond_broadcast(&to->changed);
    pthread_mutex_unlock(&to->lock);
}

static void drain(struct CUstream_st *stream)
{
    pthread_mutex_lock(&stream->lock);
    uint64_t wanted = stream->num_queued;
    while (stream->num_done < wanted)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

void standin_drain(cudaStream_t stream)
{
    drain(known(stream));
}

int standin_stream_device(cudaStream_t stream)
{
    struct CUstream_st *at = known(stream);
    return at == default_stream ? standin_current() : at->device;
}

void standin_drain_all(void)
{
    pthread_mutex_lock(&streams_lock);
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        drain(stream);
    pthread_mutex_unlock(&streams_lock);
}

/* ---- The API of streams --------------------------------------------------------------------- */

STANDIN_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags,
                                                     int priority)
{
    cudaError_t error = standin_begin("cudaStreamCreateWithPriority");
    (void)flags;
    (void)priority;
    if (error != cudaSuccess)
        return error;
    *stream = make_stream();
    return standin_note(*stream ? cudaSuccess : cudaErrorMemoryAllocation);
}

STANDIN_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

STANDIN_API cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, 0, 0);
}

/* The real one comes back at once and lets the stream end by itself; so does this. */
STANDIN_API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    pthread_mutex_lock(&streams_lock);
    struct CUstream_st **at = &streams;
    while (*at && *at != stream)
        at = &(*at)->next;
    if (!*at) {
        pthread_mutex_unlock(&streams_lock);
        return standin_note(cudaErrorInvalidResourceHandle);
    }
    *at = stream->next;
    pthread_mutex_unlock(&streams_lock);
    pthread_mutex_lock(&stream->lock);
    int is_idle = stream->num_done == stream->num_queued;
    stream->stops = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    if (!is_idle) {
        pthread_detach(stream->thread); /* its memory stays */
        return cudaSuccess;
    }
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error = standin_begin("cudaStreamSynchronize");
    if (error == cudaSuccess && standin_capture_refuses(stream))
        error = standin_note(cudaErrorStreamCaptureUnsupported);
    if (error == cudaSuccess)
        standin_drain(stream);
    return error;
}

STANDIN_API cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct CUstream_st *at = known(stream);
    if (standin_capture_refuses(stream))
        return standin_note(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&at->lock);
    int is_idle = at->num_done == at->num_queued;
    pthread_mutex_unlock(&at->lock);
    return is_idle ? cudaSuccess : cudaErrorNotReady;
}

/* ---- Events --------------------------------------------------------------------------------- */

STANDIN_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    cudaError_t error = standin_begin("cudaEventCreateWithFlags");
    if (error != cudaSuccess)
        return error;
    struct CUevent_st *made = calloc(1, sizeof *made);
    if (!made)
        return standin_note(cudaErrorMemoryAllocation);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->users = 1;
    made->device = standin_current();
    made->has_time = !(flags & cudaEventDisableTiming);
    *event = made;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

static void let_go(struct CUevent_st *event)
{
    pthread_mutex_lock(&event->lock);
    int users = --event->users;
    pthread_mutex_unlock(&event->lock);
    if (users > 0)
        return;
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

STANDIN_API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    let_go(event);
    return cudaSuccess;
}

typedef struct mark {
    struct CUevent_st *event;
    uint64_t number;
} mark_t;

static void reach(void *argument)
{
    mark_t *mark = argument;
    pthread_mutex_lock(&mark->event->lock);
    if (mark->number > mark->event->num_reached)
        mark->event->num_reached = mark->number;
    clock_gettime(CLOCK_MONOTONIC, &mark->event->reached);
    pthread_cond_broadcast(&mark->event->changed);
    pthread_mutex_unlock(&mark->event->lock);
    let_go(mark->event);
}

static void await(void *argument)
{
    mark_t *mark = argument;
    pthread_mutex_lock(&mark->event->lock);
    while (mark->event->num_reached < mark->number)
        pthread_cond_wait(&mark->event->changed, &mark->event->lock);
    pthread_mutex_unlock(&mark->event->lock);
    let_go(mark->event);
}

STANDIN_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t error = standin_begin("cudaEventRecord");
    if (error == cudaSuccess && event->device != standin_stream_device(stream))
        error = standin_note(cudaErrorInvalidResourceHandle);
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&event->lock);
    event->is_captured = standin_is_captured(stream);
    if (event->is_captured) { /* a point of the graph, of which nothing is known outside it */
        pthread_mutex_unlock(&event->lock);
        return cudaSuccess;
    }
    mark_t mark = {.event = event, .number = ++event->num_recorded};
    event->users++;
    pthread_mutex_unlock(&event->lock);
    standin_enqueue(stream, reach, &mark, sizeof mark);
    return cudaSuccess;
}

/* A captured stream waits for nothing outside its graph. That another stream may join the graph,
 * by waiting for an event in it, is not here. */
static cudaError_t wait_in_capture(cudaStream_t stream, int event_is_captured)
{
    int stream_is_captured = standin_is_captured(stream);
    if (stream_is_captured == event_is_captured)
        return cudaSuccess;
    standin_capture_refuses(stream);
    return standin_note(cudaErrorStreamCaptureIsolation);
}

/* Waits for the records up to now; of an event that was never recorded for nothing. */
STANDIN_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                            unsigned int flags)
{
    cudaError_t error = standin_begin("cudaStreamWaitEvent");
    (void)flags;
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&event->lock);
    int is_captured = event->is_captured;
    mark_t mark = {.event = event, .number = event->num_recorded};
    event->users += !is_captured;
    pthread_mutex_unlock(&event->lock);
    error = wait_in_capture(stream, is_captured);
    if (error != cudaSuccess && !is_captured)
        let_go(event);
    if (error != cudaSuccess || is_captured)
        return error;
    standin_enqueue(stream, await, &mark, sizeof mark);
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error = standin_begin("cudaEventQuery");
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&event->lock);
    int is_reached = event->num_reached >= event->num_recorded, is_captured = event->is_captured;
    pthread_mutex_unlock(&event->lock);
    if (is_captured)
        return standin_note(cudaErrorCapturedEvent);
    return is_reached ? cudaSuccess : cudaErrorNotReady;
}

STANDIN_API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = standin_begin("cudaEventSynchronize");
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&event->lock);
    if (event->is_captured)
        error = cudaErrorCapturedEvent;
    while (error == cudaSuccess && event->num_reached < event->num_recorded)
        pthread_cond_wait(&event->changed, &event->lock);
    pthread_mutex_unlock(&event->lock);
    return standin_note(error);
}

/* That an event has no time at all is told before that it has none yet. */
static cudaError_t take_time(struct CUevent_st *event, struct timespec *time, int *is_reached)
{
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&event->lock);
    if (!event->has_time || event->num_recorded == 0)
        error = cudaErrorInvalidResourceHandle;
    else if (event->is_captured)
        error = cudaErrorCapturedEvent;
    *is_reached = event->num_reached >= event->num_recorded;
    *time = event->reached;
    pthread_mutex_unlock(&event->lock);
    return error;
}

STANDIN_API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    struct timespec from, to;
    int has_begun, has_ended;
    cudaError_t error = take_time(begin, &from, &has_begun);
    if (error == cudaSuccess)
        error = take_time(end, &to, &has_ended);
    if (error == cudaSuccess && !(has_begun && has_ended))
        error = cudaErrorNotReady;
    if (error != cudaSuccess)
        return standin_note(error);
    double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    *ms = (float)(1000 * seconds);
    return cudaSuccess;
}
