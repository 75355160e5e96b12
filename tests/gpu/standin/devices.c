/* devices.c - devices, which of them a thread uses, and their contexts: as in CUDA from version 12
 * on to choose a device makes its context, and so does any call that needs one. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "standin.h"

#define DEVICES_MAX 16

static _Thread_local int current;
static _Atomic int has_context[DEVICES_MAX];

int standin_current(void)
{
    return current;
}

void standin_touch(int device)
{
    atomic_store(&has_context[device], 1);
}

int standin_has_context(int device)
{
    return device >= 0 && device < DEVICES_MAX && atomic_load(&has_context[device]);
}

STANDIN_API cudaError_t cudaGetDeviceCount(int *count)
{
    if (standin_fault("cudaGetDeviceCount") != STANDIN_NONE)
        return standin_note(cudaErrorInsufficientDriver);
    *count = (int)standin_setting("STANDIN_DEVICES", 1);
    return *count > 0 ? cudaSuccess : standin_note(cudaErrorNoDevice);
}

STANDIN_API cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaSetDevice(int device)
{
    if (standin_fault("cudaSetDevice") != STANDIN_NONE)
        return standin_note(cudaErrorDevicesUnavailable);
    if (device < 0 || device >= standin_setting("STANDIN_DEVICES", 1))
        return standin_note(cudaErrorInvalidDevice);
    current = device;
    standin_touch(device);
    return cudaSuccess;
}

/* Each process has devices of its own, unless they are said to be the same. */
STANDIN_API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "Stand-in for a GPU");
    int owner = standin_setting("STANDIN_SAME_UUID", 0) ? 0 : standin_rank();
    properties->uuid.bytes[0] = (char)device;
    properties->uuid.bytes[1] = (char)owner;
    properties->uuid.bytes[2] = (char)0xd7;
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->totalGlobalMem = (size_t)4 << 30;
    return standin_fault("cudaGetDeviceProperties") == STANDIN_NONE
               ? cudaSuccess
               : standin_note(cudaErrorInvalidDevice);
}

STANDIN_API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
                                               int device)
{
    (void)device;
    *value = attribute == cudaDevAttrMultiProcessorCount ? 4 : 0;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    snprintf(text, (size_t)length, "0000:%02x:00.0", device);
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = standin_begin("cudaDeviceSynchronize");
    if (error == cudaSuccess)
        standin_drain_all();
    return error;
}

STANDIN_API cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

STANDIN_API cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
