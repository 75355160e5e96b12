/*
 * capture.c - stream capture and graphs. What is put into a captured stream is kept for its graph;
 * a launch does all of it, in the order of the capture, as one piece of a stream's work. What CUDA
 * forbids meanwhile fails, and makes the capture invalid, as there.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

typedef struct node {
    struct node *next;
    standin_work_fn_t run;
    size_t bytes;
    char argument[];
} node_t;

struct CUgraph_st {
    node_t *first, *last; /* [const] once captured */
    int users;            /* [lock] the graph itself, what was made of it, and its launches */
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

typedef struct capture {
    struct capture *next;
    cudaStream_t stream;
    pthread_t thread;
    enum cudaStreamCaptureMode mode;
    int is_invalid;
    struct CUgraph_st *graph;
} capture_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static capture_t *captures;      /* [lock] */
static _Atomic int num_captures; /* so that nobody takes the lock where there are none */
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* [lock held] */
static capture_t *capture_of(cudaStream_t stream)
{
    capture_t *capture = captures;
    while (capture && capture->stream != stream)
        capture = capture->next;
    return capture;
}

static void let_go(struct CUgraph_st *graph)
{
    pthread_mutex_lock(&lock);
    int users = --graph->users;
    pthread_mutex_unlock(&lock);
    if (users > 0)
        return;
    while (graph->first) {
        node_t *next = graph->first->next;
        free(graph->first);
        graph->first = next;
    }
    free(graph);
}

/* ---- What the rest of the stand-in asks ----------------------------------------------------- */

int standin_capture_takes(cudaStream_t stream, standin_work_fn_t run, const void *argument,
                          size_t bytes)
{
    if (num_captures == 0)
        return 0;
    node_t *node = malloc(sizeof *node + bytes);
    if (!node)
        abort();
    *node = (node_t){.run = run, .bytes = bytes};
    memcpy(node->argument, argument, bytes);
    pthread_mutex_lock(&lock);
    capture_t *capture = capture_of(stream);
    if (capture) {
        struct CUgraph_st *graph = capture->graph;
        if (graph->last)
            graph->last->next = node;
        else
            graph->first = node;
        graph->last = node;
    }
    pthread_mutex_unlock(&lock);
    if (!capture)
        free(node);
    return capture != NULL;
}

static int find_capture(cudaStream_t stream, int invalidate)
{
    if (num_captures == 0)
        return 0;
    pthread_mutex_lock(&lock);
    capture_t *capture = capture_of(stream);
    if (capture && invalidate)
        capture->is_invalid = 1;
    pthread_mutex_unlock(&lock);
    return capture != NULL;
}

int standin_is_captured(cudaStream_t stream)
{
    return find_capture(stream, 0);
}

int standin_capture_refuses(cudaStream_t stream)
{
    return find_capture(stream, 1);
}

/* What may wait for a stream, or change what a captured one uses. */
static int is_unsafe(const char *operation)
{
    static const char *const unsafe[] = {
        "cudaDeviceSynchronize",
        "cudaEventQuery",
        "cudaEventSynchronize",
        "cudaFree",
        "cudaFreeHost",
        "cudaHostAlloc",
        "cudaHostRegister",
        "cudaMalloc",
        "cudaMemcpy",
        "cudaMemset",
        "cudaStreamSynchronize",
    };
    for (size_t i = 0; i < sizeof unsafe / sizeof unsafe[0]; i++) {
        if (strcmp(unsafe[i], operation) == 0)
            return 1;
    }
    return 0;
}

cudaError_t standin_capture_check(const char *operation)
{
    int forbidden = 0;
    if (num_captures == 0 || thread_mode == cudaStreamCaptureModeRelaxed || !is_unsafe(operation))
        return cudaSuccess;
    pthread_mutex_lock(&lock);
    for (capture_t *capture = captures; capture; capture = capture->next) {
        int is_own = pthread_equal(capture->thread, pthread_self()) &&
                     capture->mode != cudaStreamCaptureModeRelaxed;
        int is_global = capture->mode == cudaStreamCaptureModeGlobal &&
                        thread_mode == cudaStreamCaptureModeGlobal;
        if (is_own || is_global)
            capture->is_invalid = forbidden = 1;
    }
    pthread_mutex_unlock(&lock);
    return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

/* ---- Capturing ------------------------------------------------------------------------------ */

STANDIN_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaError_t error = standin_begin("cudaStreamBeginCapture");
    if (error != cudaSuccess)
        return error;
    if (stream == NULL || stream == cudaStreamLegacy)
        return standin_note(cudaErrorStreamCaptureUnsupported);
    if (standin_capture_refuses(stream))
        return standin_note(cudaErrorIllegalState);
    capture_t *capture = calloc(1, sizeof *capture);
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (!capture || !graph)
        abort();
    graph->users = 1;
    *capture =
        (capture_t){.stream = stream, .thread = pthread_self(), .mode = mode, .graph = graph};
    pthread_mutex_lock(&lock);
    capture->next = captures;
    captures = capture;
    num_captures++;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* Takes the stream's capture away; NULL: there is none, or it is another thread's. */
static capture_t *take_capture(cudaStream_t stream, cudaError_t *error)
{
    pthread_mutex_lock(&lock);
    capture_t **at = &captures;
    while (*at && (*at)->stream != stream)
        at = &(*at)->next;
    capture_t *capture = *at;
    *error = capture ? cudaSuccess : cudaErrorIllegalState;
    if (capture && capture->mode != cudaStreamCaptureModeRelaxed &&
        !pthread_equal(capture->thread, pthread_self())) {
        *error = cudaErrorStreamCaptureWrongThread;
        capture = NULL;
    }
    if (capture) {
        *at = capture->next;
        num_captures--;
    }
    pthread_mutex_unlock(&lock);
    return capture;
}

STANDIN_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    cudaError_t error;
    capture_t *capture = take_capture(stream, &error);
    *graph = NULL;
    if (!capture)
        return standin_note(error);
    if (capture->is_invalid) {
        let_go(capture->graph);
        error = cudaErrorStreamCaptureInvalidated;
    } else {
        *graph = capture->graph;
    }
    free(capture);
    return standin_note(error);
}

STANDIN_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                              enum cudaStreamCaptureStatus *status)
{
    *status =
        standin_is_captured(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

/* ---- Graphs --------------------------------------------------------------------------------- */

STANDIN_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                             unsigned long long flags)
{
    cudaError_t error = standin_begin("cudaGraphInstantiate");
    (void)flags;
    if (error != cudaSuccess)
        return error;
    struct CUgraphExec_st *made = calloc(1, sizeof *made);
    if (!made)
        return standin_note(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&lock);
    graph->users++;
    pthread_mutex_unlock(&lock);
    made->graph = graph;
    *exec = made;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    let_go(graph);
    return cudaSuccess;
}

/* Launches that have not run yet do so. */
STANDIN_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    let_go(exec->graph);
    free(exec);
    return cudaSuccess;
}

/* Work may change its argument, so each run has a copy. */
static void run_graph(void *argument)
{
    struct CUgraph_st *graph = *(struct CUgraph_st **)argument;
    for (const node_t *node = graph->first; node; node = node->next) {
        void *copy = malloc(node->bytes + 1);
        if (!copy)
            abort();
        memcpy(copy, node->argument, node->bytes);
        node->run(copy);
        free(copy);
    }
    let_go(graph);
}

STANDIN_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t error = standin_begin("cudaGraphLaunch");
    if (error == cudaSuccess && standin_capture_refuses(stream)) /* no graph in another here */
        error = standin_note(cudaErrorStreamCaptureUnsupported);
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&lock);
    exec->graph->users++;
    pthread_mutex_unlock(&lock);
    standin_enqueue(stream, run_graph, &exec->graph, sizeof exec->graph);
    return cudaSuccess;
}
