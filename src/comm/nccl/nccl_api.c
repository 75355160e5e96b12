#include "comm/nccl/nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#include "base/log.h"

const dt_cuda_api_t dt_cuda_real = {
    .get_device_count = cudaGetDeviceCount,
    .get_device = cudaGetDevice,
    .set_device = cudaSetDevice,
    .get_device_properties = cudaGetDeviceProperties,
    .get_priority_range = cudaDeviceGetStreamPriorityRange,
    .device_synchronize = cudaDeviceSynchronize,
    .get_error_name = cudaGetErrorName,
    .get_error_string = cudaGetErrorString,
    .get_last_error = cudaGetLastError,
    .pointer_get_attributes = cudaPointerGetAttributes,
    .allocate = cudaMalloc,
    .deallocate = cudaFree,
    .host_register = cudaHostRegister,
    .host_unregister = cudaHostUnregister,
    .memcpy_async = cudaMemcpyAsync,
    .memset_async = cudaMemsetAsync,
    .stream_create = cudaStreamCreateWithPriority,
    .stream_destroy = cudaStreamDestroy,
    .stream_synchronize = cudaStreamSynchronize,
    .stream_wait_event = cudaStreamWaitEvent,
    .event_create = cudaEventCreateWithFlags,
    .event_destroy = cudaEventDestroy,
    .event_record = cudaEventRecord,
    .event_query = cudaEventQuery,
    .event_synchronize = cudaEventSynchronize,
    .stream_is_capturing = cudaStreamIsCapturing,
    .exchange_capture_mode = cudaThreadExchangeStreamCaptureMode,
    .library_load = cudaLibraryLoadData,
    .library_unload = cudaLibraryUnload,
    .library_get_kernel = cudaLibraryGetKernel,
    .launch_kernel = cudaLaunchKernel,
};

#define LIBRARY "libnccl.so.2"

typedef struct function {
    const char *name;
    size_t offset; /* of its pointer in the table */
} function_t;

static const function_t functions[] = {
    {"ncclGetVersion", offsetof(dt_nccl_api_t, get_version)},
    {"ncclGetErrorString", offsetof(dt_nccl_api_t, get_error_string)},
    {"ncclGetLastError", offsetof(dt_nccl_api_t, get_last_error)},
    {"ncclGetUniqueId", offsetof(dt_nccl_api_t, get_unique_id)},
    {"ncclCommInitRankConfig", offsetof(dt_nccl_api_t, comm_init)},
    {"ncclCommGetAsyncError", offsetof(dt_nccl_api_t, comm_get_async_error)},
    {"ncclCommDestroy", offsetof(dt_nccl_api_t, comm_destroy)},
    {"ncclCommAbort", offsetof(dt_nccl_api_t, comm_abort)},
    {"ncclMemAlloc", offsetof(dt_nccl_api_t, mem_alloc)},
    {"ncclMemFree", offsetof(dt_nccl_api_t, mem_free)},
    {"ncclAllReduce", offsetof(dt_nccl_api_t, all_reduce)},
    {"ncclReduce", offsetof(dt_nccl_api_t, reduce)},
    {"ncclBroadcast", offsetof(dt_nccl_api_t, broadcast)},
    {"ncclAllGather", offsetof(dt_nccl_api_t, all_gather)},
    {"ncclReduceScatter", offsetof(dt_nccl_api_t, reduce_scatter)},
    {"ncclSend", offsetof(dt_nccl_api_t, send)},
    {"ncclRecv", offsetof(dt_nccl_api_t, recv)},
    {"ncclGroupStart", offsetof(dt_nccl_api_t, group_start)},
    {"ncclGroupEnd", offsetof(dt_nccl_api_t, group_end)},
};

/* NULL in the table where NCCL is too old to have it. */
static const function_t newer_functions[] = {
    {"ncclCommSplit", offsetof(dt_nccl_api_t, comm_split)},
    {"ncclCommRevoke", offsetof(dt_nccl_api_t, comm_revoke)},
    {"ncclCommRegister", offsetof(dt_nccl_api_t, comm_register)},
    {"ncclCommDeregister", offsetof(dt_nccl_api_t, comm_deregister)},
    {"ncclCommWindowRegister", offsetof(dt_nccl_api_t, window_register)},
    {"ncclCommWindowDeregister", offsetof(dt_nccl_api_t, window_deregister)},
};

static dt_nccl_api_t table;
static int is_complete;

/* The name of the first one that is not there, or NULL. */
static const char *find(void *library, const function_t *wanted, size_t n)
{
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(library, wanted[i].name);
        *(void **)((char *)&table + wanted[i].offset) = found;
        if (!found && !missing)
            missing = wanted[i].name;
    }
    return missing;
}

/* It stays loaded. */
static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        dt_log(DTRAIN_LOG_INFO, "nccl", "no NCCL: %s", dlerror());
        return;
    }
    const char *missing = find(library, functions, sizeof functions / sizeof functions[0]);
    is_complete = !missing;
    if (missing)
        dt_log(DTRAIN_LOG_WARN, "nccl", LIBRARY " is too old: it has no %s", missing);
    else
        find(library, newer_functions, sizeof newer_functions / sizeof newer_functions[0]);
}

const dt_nccl_api_t *dt_nccl_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return is_complete ? &table : NULL;
}
