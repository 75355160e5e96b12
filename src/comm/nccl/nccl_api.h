/* nccl_api.h - every function of CUDA's runtime and of NCCL that is called, in two tables, so that
 * a test can put others in their place. */
#ifndef DT_COMM_NCCL_API_H
#define DT_COMM_NCCL_API_H

#include <cuda_runtime_api.h>
#include <nccl.h>

typedef struct dt_cuda_api {
    __typeof__(cudaGetDeviceCount) *get_device_count;
    __typeof__(cudaGetDevice) *get_device;
    __typeof__(cudaSetDevice) *set_device;
    __typeof__(cudaGetDeviceProperties) *get_device_properties;
    __typeof__(cudaDeviceGetStreamPriorityRange) *get_priority_range;
    __typeof__(cudaDeviceSynchronize) *device_synchronize;
    __typeof__(cudaGetErrorName) *get_error_name;
    __typeof__(cudaGetErrorString) *get_error_string;
    __typeof__(cudaGetLastError) *get_last_error;
    __typeof__(cudaPointerGetAttributes) *pointer_get_attributes;
    __typeof__(cudaMalloc) *allocate;
    __typeof__(cudaFree) *deallocate;
    __typeof__(cudaHostRegister) *host_register;
    __typeof__(cudaHostUnregister) *host_unregister;
    __typeof__(cudaMemcpyAsync) *memcpy_async;
    __typeof__(cudaMemsetAsync) *memset_async;
    __typeof__(cudaStreamCreateWithPriority) *stream_create;
    __typeof__(cudaStreamDestroy) *stream_destroy;
    __typeof__(cudaStreamSynchronize) *stream_synchronize;
    __typeof__(cudaStreamWaitEvent) *stream_wait_event;
    __typeof__(cudaEventCreateWithFlags) *event_create;
    __typeof__(cudaEventDestroy) *event_destroy;
    __typeof__(cudaEventRecord) *event_record;
    __typeof__(cudaEventQuery) *event_query;
    __typeof__(cudaEventSynchronize) *event_synchronize;
    __typeof__(cudaStreamIsCapturing) *stream_is_capturing;
    __typeof__(cudaThreadExchangeStreamCaptureMode) *exchange_capture_mode;
    __typeof__(cudaLibraryLoadData) *library_load;
    __typeof__(cudaLibraryUnload) *library_unload;
    __typeof__(cudaLibraryGetKernel) *library_get_kernel;
    __typeof__(cudaLaunchKernel) *launch_kernel;
} dt_cuda_api_t;

/* NCCL_WIN_COLL_SYMMETRIC, which older headers lack. */
#define DT_NCCL_WINDOW_SYMMETRIC 1

typedef struct dt_nccl_api {
    __typeof__(ncclGetVersion) *get_version;
    __typeof__(ncclGetErrorString) *get_error_string;
    __typeof__(ncclGetLastError) *get_last_error;
    __typeof__(ncclGetUniqueId) *get_unique_id;
    __typeof__(ncclCommInitRankConfig) *comm_init;
    __typeof__(ncclCommGetAsyncError) *comm_get_async_error;
    __typeof__(ncclCommDestroy) *comm_destroy;
    __typeof__(ncclCommAbort) *comm_abort;
    __typeof__(ncclCommSplit) *comm_split;                   /* from 2.18 on; NULL before */
    ncclResult_t (*comm_revoke)(ncclComm_t comm, int flags); /* from 2.28.7 on; NULL before */
    /* From 2.19 on; NULL before. */
    ncclResult_t (*comm_register)(ncclComm_t comm, void *memory, size_t bytes, void **handle);
    ncclResult_t (*comm_deregister)(ncclComm_t comm, void *handle);
    /* From 2.27 on; NULL before. Windows are pointers. */
    ncclResult_t (*window_register)(ncclComm_t comm, void *memory, size_t bytes, void **window,
                                    int flags);
    ncclResult_t (*window_deregister)(ncclComm_t comm, void *window);
    __typeof__(ncclMemAlloc) *mem_alloc;
    __typeof__(ncclMemFree) *mem_free;
    __typeof__(ncclAllReduce) *all_reduce;
    __typeof__(ncclReduce) *reduce;
    __typeof__(ncclBroadcast) *broadcast;
    __typeof__(ncclAllGather) *all_gather;
    __typeof__(ncclReduceScatter) *reduce_scatter;
    __typeof__(ncclSend) *send;
    __typeof__(ncclRecv) *recv;
    __typeof__(ncclGroupStart) *group_start;
    __typeof__(ncclGroupEnd) *group_end;
} dt_nccl_api_t;

/* The runtime that this library is linked to. */
extern const dt_cuda_api_t dt_cuda_real;

/* Loads NCCL, which need not be there: without it GPU tensors go over the host's memory. NULL, and
 * a text in the log, when it is not there or lacks a function. */
const dt_nccl_api_t *dt_nccl_load(void);

#endif
