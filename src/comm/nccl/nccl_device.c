#include "comm/nccl/nccl_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/nccl/nccl_comm.h"
#include "comm/nccl/nccl_compute.h"
#include "comm/nccl/nccl_memory.h"

/* How long copies may take at the end. */
#define STUCK_NS DT_NS_PER_S

/* A mark is looked at after every such part of the time that it has taken so far, and at least so
 * often: whoever looks takes the driver from the program's thread that launches kernels. */
#define LOOK_PART 16
#define LOOK_NS_MAX (20 * DT_NS_PER_US)

extern const unsigned long long dt_kernels_fatbin[];

/* ---- Errors --------------------------------------------------------------------------------- */

dtrain_status_t dt_nccl_cuda_error(const dt_nccl_device_t *device, cudaError_t error,
                                   const char *call)
{
    dtrain_status_t status =
        error == cudaErrorMemoryAllocation ? DTRAIN_ERR_OUT_OF_MEMORY : DTRAIN_ERR_COMMUNICATION;
    device->cuda->get_last_error(); /* what is not sticky is not the application's to find */
    return dt_fail(status, "GPU %d: %s: %s (%s)", device->number, call,
                   device->cuda->get_error_name(error), device->cuda->get_error_string(error));
}

/* ---- Marks ---------------------------------------------------------------------------------- */

static void mark_free(dt_mark_t *base)
{
    dt_nccl_mark_t *mark = (dt_nccl_mark_t *)base;
    dt_nccl_device_t *device = mark->device;
    pthread_mutex_lock(&device->lock);
    mark->next = device->spare;
    device->spare = mark;
    pthread_mutex_unlock(&device->lock);
}

static dt_nccl_mark_t *mark_take(dt_nccl_device_t *device)
{
    pthread_mutex_lock(&device->lock);
    dt_nccl_mark_t *mark = device->spare;
    if (mark)
        device->spare = mark->next;
    pthread_mutex_unlock(&device->lock);
    if (mark)
        return mark;
    mark = dt_calloc(1, sizeof *mark);
    if (!mark)
        return NULL;
    mark->device = device;
    mark->base.free = mark_free;
    if (device->cuda->event_create(&mark->event, cudaEventDisableTiming) != cudaSuccess) {
        dt_free(mark);
        return NULL;
    }
    return mark;
}

dtrain_status_t dt_nccl_record(dt_nccl_device_t *device, cudaStream_t stream, dt_mark_t **out)
{
    dt_nccl_mark_t *mark = mark_take(device);
    if (!mark)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "GPU %d: no memory for an event", device->number);
    atomic_store(&mark->base.users, 1);
    cudaError_t error = device->cuda->event_record(mark->event, stream);
    if (error != cudaSuccess) {
        dt_mark_drop(&mark->base);
        return dt_nccl_cuda_error(device, error, "cudaEventRecord on the tensor's stream");
    }
    mark->recorded_ns = dt_now_ns();
    atomic_store(&mark->next_ns, 0);
    *out = &mark->base;
    return DTRAIN_OK;
}

dtrain_status_t dt_nccl_wait_all(dt_nccl_device_t *device, cudaStream_t stream,
                                 dt_mark_t *const *marks, int n)
{
    for (int i = 0; i < n; i++) {
        if (!marks[i])
            continue;
        cudaError_t error =
            device->cuda->stream_wait_event(stream, ((dt_nccl_mark_t *)marks[i])->event, 0);
        if (error != cudaSuccess)
            return dt_nccl_cuda_error(device, error, "cudaStreamWaitEvent");
    }
    return DTRAIN_OK;
}

/* cudaErrorNotReady is no error of the thread's. */
static cudaError_t query(dt_nccl_device_t *device, cudaEvent_t event)
{
    cudaError_t error = device->cuda->event_query(event);
    if (error == cudaErrorNotReady)
        device->cuda->get_last_error();
    return error;
}

dtrain_status_t dt_nccl_reached(dt_nccl_device_t *device, dt_mark_t *base)
{
    dt_nccl_mark_t *mark = (dt_nccl_mark_t *)base;
    dt_nccl_visit_t visit;
    int64_t time_ns = dt_now_ns();
    int64_t next_ns = atomic_load_explicit(&mark->next_ns, memory_order_relaxed);
    if (next_ns == DT_NEVER)
        return DTRAIN_OK;
    if (time_ns < next_ns)
        return DTRAIN_IN_PROGRESS;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    cudaError_t error = query(device, mark->event);
    if (error != cudaSuccess && error != cudaErrorNotReady)
        status = dt_nccl_cuda_error(device, error, "cudaEventQuery");
    dt_nccl_leave(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    int64_t part_ns = (time_ns - mark->recorded_ns) / LOOK_PART;
    next_ns = time_ns + (part_ns < LOOK_NS_MAX ? part_ns : LOOK_NS_MAX);
    atomic_store_explicit(&mark->next_ns, error == cudaSuccess ? DT_NEVER : next_ns,
                          memory_order_relaxed);
    return error == cudaSuccess ? DTRAIN_OK : DTRAIN_IN_PROGRESS;
}

/* What is captured runs later, or never: a mark would be a part of the graph, and so would be what
 * waits for it. The default stream cannot be asked while a stream that waits for it is captured. */
static dtrain_status_t refuse_captured(dt_nccl_device_t *device, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = device->cuda->stream_is_capturing(stream, &capture);
    if (error != cudaSuccess && error != cudaErrorStreamCaptureImplicit)
        return dt_nccl_cuda_error(device, error, "cudaStreamIsCapturing");
    if (error == cudaSuccess && capture == cudaStreamCaptureStatusNone)
        return DTRAIN_OK;
    device->cuda->get_last_error();
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                   "GPU %d: the stream is being captured into a graph, of which operations cannot "
                   "be a part: call before or after the capture",
                   device->number);
}

static dtrain_status_t record(dt_device_t *base, void *stream, dt_mark_t **mark)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    status = refuse_captured(device, stream);
    if (status == DTRAIN_OK)
        status = dt_nccl_record(device, stream, mark);
    dt_nccl_leave(device, &visit);
    return status;
}

static dtrain_status_t wait_for(dt_device_t *base, void *stream, dt_mark_t *mark)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    status = refuse_captured(device, stream);
    if (status == DTRAIN_OK)
        status = dt_nccl_wait_all(device, stream, &mark, 1);
    dt_nccl_leave(device, &visit);
    return status;
}

static dtrain_status_t reached(dt_device_t *base, dt_mark_t *mark)
{
    return dt_nccl_reached((dt_nccl_device_t *)base, mark);
}

static dtrain_status_t await(dt_device_t *base, dt_mark_t *mark)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    cudaError_t error = device->cuda->event_synchronize(((dt_nccl_mark_t *)mark)->event);
    if (error != cudaSuccess)
        status = dt_nccl_cuda_error(device, error, "cudaEventSynchronize");
    dt_nccl_leave(device, &visit);
    return status;
}

/* ---- Memory --------------------------------------------------------------------------------- */

static dtrain_status_t check_entered(dt_nccl_device_t *device, const void *memory)
{
    struct cudaPointerAttributes attributes;
    cudaError_t error = device->cuda->pointer_get_attributes(&attributes, memory);
    if (error != cudaSuccess)
        return dt_nccl_cuda_error(device, error, "cudaPointerGetAttributes");
    if (attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "the memory is the host's, and the tensor's device says GPU");
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != device->number)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "the memory is of GPU %d, and this rank uses GPU %d", attributes.device,
                       device->number);
    return DTRAIN_OK;
}

/* CUDA need not be asked about memory of our own. */
static dtrain_status_t check(dt_device_t *base, const void *memory)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    if (dt_nccl_kind_of(base, memory) != DT_MEMORY_ANY)
        return DTRAIN_OK;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status == DTRAIN_OK) {
        status = check_entered(device, memory);
        dt_nccl_leave(device, &visit);
    }
    return status;
}

static int is_devices(dt_device_t *base, const void *memory)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    struct cudaPointerAttributes attributes = {.type = cudaMemoryTypeUnregistered};
    dt_nccl_visit_t visit;
    if (dt_nccl_enter(device, &visit) != DTRAIN_OK)
        return 0;
    if (device->cuda->pointer_get_attributes(&attributes, memory) != cudaSuccess)
        device->cuda->get_last_error();
    dt_nccl_leave(device, &visit);
    return attributes.type == cudaMemoryTypeDevice;
}

static dtrain_status_t pin(dt_device_t *base, void *memory, size_t bytes)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status != DTRAIN_OK)
        return status;
    cudaError_t error = device->cuda->host_register(memory, bytes, cudaHostRegisterDefault);
    if (error != cudaSuccess)
        status = dt_nccl_cuda_error(device, error, "cudaHostRegister");
    dt_nccl_leave(device, &visit);
    return status;
}

int dt_nccl_is_stuck(dt_nccl_device_t *device)
{
    const struct timespec nap = {.tv_nsec = DT_NS_PER_MS / 10};
    int64_t deadline_ns = dt_now_ns() + STUCK_NS;
    dt_mark_t *mark;
    if (device->is_stuck || !device->copies ||
        dt_nccl_record(device, device->copies, &mark) != DTRAIN_OK)
        return device->is_stuck;
    while (dt_nccl_reached(device, mark) == DTRAIN_IN_PROGRESS && !device->is_stuck) {
        nanosleep(&nap, NULL);
        device->is_stuck = dt_now_ns() > deadline_ns;
    }
    dt_mark_drop(mark);
    return device->is_stuck;
}

static int unpin(dt_device_t *base, void *memory)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    int failed = -1;
    if (dt_nccl_enter(device, &visit) != DTRAIN_OK)
        return -1;
    if (!dt_nccl_is_stuck(device)) {
        device->cuda->host_unregister(memory);
        failed = 0;
    }
    dt_nccl_leave(device, &visit);
    return failed;
}

static dtrain_status_t copy_entered(dt_nccl_device_t *device, const dt_copy_t *copies, int n,
                                    dt_mark_t *const *after, int num_after, dt_mark_t **done)
{
    dtrain_status_t status = dt_nccl_wait_all(device, device->copies, after, num_after);
    if (status != DTRAIN_OK)
        return status;
    for (int i = 0; i < n; i++) {
        if (copies[i].bytes == 0)
            continue;
        cudaError_t error = device->cuda->memcpy_async(
            copies[i].to, copies[i].from, copies[i].bytes, cudaMemcpyDefault, device->copies);
        if (error != cudaSuccess)
            return dt_nccl_cuda_error(device, error, "cudaMemcpyAsync");
    }
    return dt_nccl_record(device, device->copies, done);
}

static dtrain_status_t copy(dt_device_t *base, const dt_copy_t *copies, int n,
                            dt_mark_t *const *after, int num_after, dt_mark_t **done)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit;
    dtrain_status_t status = dt_nccl_enter(device, &visit);
    if (status == DTRAIN_OK) {
        status = copy_entered(device, copies, n, after, num_after, done);
        dt_nccl_leave(device, &visit);
    }
    return status;
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static void describe(dt_device_t *base, dt_device_card_t *card)
{
    *card = ((dt_nccl_device_t *)base)->card;
}

static void destroy(dt_device_t *base)
{
    dt_nccl_device_t *device = (dt_nccl_device_t *)base;
    dt_nccl_visit_t visit = {0};
    int is_entered = dt_nccl_enter(device, &visit) == DTRAIN_OK;
    if (dt_nccl_is_stuck(device)) {
        dt_log(DTRAIN_LOG_WARN, "nccl", "GPU %d does not come to an end: its memory is left",
               device->number);
        if (is_entered)
            dt_nccl_leave(device, &visit);
        return;
    }
    dt_nccl_free_memory(device);
    while (device->spare) {
        dt_nccl_mark_t *mark = device->spare;
        device->spare = mark->next;
        device->cuda->event_destroy(mark->event);
        dt_free(mark);
    }
    if (device->copies)
        device->cuda->stream_destroy(device->copies);
    if (device->clears)
        device->cuda->stream_destroy(device->clears);
    if (device->library)
        device->cuda->library_unload(device->library);
    if (is_entered)
        dt_nccl_leave(device, &visit);
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->registers_lock);
    dt_free(device);
}

static const dt_device_ops_t ops = {
    .version = DT_DEVICE_VERSION,
    .destroy = destroy,
    .describe = describe,
    .allocate = dt_nccl_allocate,
    .deallocate = dt_nccl_deallocate,
    .check = check,
    .is_devices = is_devices,
    .kind_of = dt_nccl_kind_of,
    .record = record,
    .wait = wait_for,
    .reached = reached,
    .await = await,
    .clear = dt_nccl_clear,
    .copy_in = dt_nccl_copy_in,
    .scale = dt_nccl_scale,
    .update = dt_nccl_update,
    .squares = dt_nccl_squares,
    .transfer = dt_nccl_transfer,
    .pin = pin,
    .unpin = unpin,
    .copy = copy,
    .make_id = dt_nccl_make_id,
    .connect = dt_nccl_connect,
    .split = dt_nccl_split,
    .connected = dt_nccl_connected,
};

static dtrain_status_t choose(dt_nccl_device_t *device, const void *hint, int local_rank)
{
    int count = 0, current = 0;
    cudaError_t error = device->cuda->get_device_count(&count);
    if (error != cudaSuccess || count == 0)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "no GPU: %s",
                       error == cudaSuccess ? "there is none"
                                            : device->cuda->get_error_string(error));
    struct cudaPointerAttributes attributes;
    if (hint && device->cuda->pointer_get_attributes(&attributes, hint) == cudaSuccess &&
        attributes.type == cudaMemoryTypeDevice)
        device->number = attributes.device;
    else if (device->cuda->get_device(&current) == cudaSuccess && current != 0)
        device->number = current;
    else
        device->number = local_rank % count;
    return DTRAIN_OK;
}

/* Where NCCL was found: two versions of it in one job are a common mistake. */
static void fill_card(dt_nccl_device_t *device, const struct cudaDeviceProp *properties)
{
    dt_device_card_t *card = &device->card;
    Dl_info info;
    memcpy(card->uuid, &properties->uuid, sizeof card->uuid);
    card->device = device->number;
    snprintf(card->name, sizeof card->name, "%.63s", properties->name);
    if (!device->nccl || device->nccl->get_version(&card->nccl_version) != ncclSuccess)
        card->nccl_version = 0;
    if (card->nccl_version > 0 &&
        dladdr((const void *)(uintptr_t)device->nccl->get_version, &info) && info.dli_fname)
        snprintf(card->nccl_path, sizeof card->nccl_path, "%.167s", info.dli_fname);
}

static dtrain_status_t load_kernels(dt_nccl_device_t *device)
{
    cudaError_t error = device->cuda->library_load(&device->library, dt_kernels_fatbin, NULL, NULL,
                                                   0, NULL, NULL, 0);
    for (int i = 0; i < DT_KERNEL_COUNT && error == cudaSuccess; i++)
        error = device->cuda->library_get_kernel(&device->kernels[i], device->library,
                                                 dt_kernel_name((dt_kernel_t)i));
    return error == cudaSuccess ? DTRAIN_OK
                                : dt_nccl_cuda_error(device, error, "loading the kernels");
}

dtrain_status_t dt_nccl_stream_create(dt_nccl_device_t *device, cudaStream_t *stream)
{
    cudaError_t error =
        device->cuda->stream_create(stream, cudaStreamNonBlocking, device->priority);
    return error == cudaSuccess ? DTRAIN_OK : dt_nccl_cuda_error(device, error, "cudaStreamCreate");
}

static dtrain_status_t set_up(dt_nccl_device_t *device)
{
    int least = 0;
    struct cudaDeviceProp properties;
    cudaError_t error = device->cuda->get_device_properties(&properties, device->number);
    if (error == cudaSuccess)
        error = device->cuda->get_priority_range(&least, &device->priority);
    if (error != cudaSuccess)
        return dt_nccl_cuda_error(device, error, "cudaGetDeviceProperties");
    device->num_processors = properties.multiProcessorCount;
    fill_card(device, &properties);
    dtrain_status_t status = dt_nccl_stream_create(device, &device->copies);
    if (status == DTRAIN_OK)
        status = dt_nccl_stream_create(device, &device->clears);
    return status == DTRAIN_OK ? load_kernels(device) : status;
}

dtrain_status_t dt_nccl_device_create(const dt_cuda_api_t *cuda, const dt_nccl_api_t *nccl,
                                      const void *hint, int local_rank, dt_nccl_device_t **out)
{
    dt_nccl_device_t *device = dt_calloc(1, sizeof *device);
    dt_nccl_visit_t visit;
    if (!device)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a device");
    device->base.ops = &ops;
    device->cuda = cuda;
    device->nccl = nccl;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->registers_lock, NULL);
    dtrain_status_t status = choose(device, hint, local_rank);
    if (status == DTRAIN_OK)
        status = dt_nccl_enter(device, &visit);
    if (status == DTRAIN_OK) {
        status = set_up(device);
        dt_nccl_leave(device, &visit);
    }
    if (status != DTRAIN_OK) {
        char why[DT_ERROR_MAX]; /* without a driver nothing works, and that has a text too */
        snprintf(why, sizeof why, "%s", dt_last_error());
        destroy(&device->base);
        return dt_fail(status, "%s", why);
    }
    dt_log(DTRAIN_LOG_INFO, "nccl", "GPU %d: %s, NCCL %d from %s", device->number,
           device->card.name, device->card.nccl_version, device->card.nccl_path);
    *out = device;
    return DTRAIN_OK;
}
