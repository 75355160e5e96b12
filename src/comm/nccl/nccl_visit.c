/* nccl_visit.c - what a thread is set to while it is in the library: the device, and its mode of
 * stream capture. */
#include <dlfcn.h>

#include "comm/nccl/nccl_device.h"

#define DRIVER "libcuda.so.1"

/* cuDevicePrimaryCtxGetState: of a device of this number as the driver counts, which is the
 * runtime's count. The runtime has no function for it. */
typedef int (*get_state_fn_t)(int device, unsigned *flags, int *is_active);

static get_state_fn_t get_state; /* NULL: not to be had */

static void find_driver(void)
{
    void *driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL);
    if (driver)
        *(void **)&get_state = dlsym(driver, "cuDevicePrimaryCtxGetState");
}

/*
 * Whether the process uses a device. Since CUDA 12 cudaSetDevice makes a context, of hundreds of
 * megabytes: to go back to a device that nobody uses would leave one of each rank on the first GPU.
 */
static int is_in_use(int device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned flags;
    int is_active = 0;
    pthread_once(&once, find_driver);
    return !get_state || get_state(device, &flags, &is_active) != 0 || is_active;
}

void dt_nccl_settle(const dt_cuda_api_t *cuda, int device)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cuda->exchange_capture_mode(&mode);
    cuda->set_device(device);
}

dtrain_status_t dt_nccl_enter(dt_nccl_device_t *device, dt_nccl_visit_t *visit)
{
    const dt_cuda_api_t *cuda = device->cuda;
    visit->changed = 0;
    visit->mode = cudaStreamCaptureModeRelaxed;
    cuda->exchange_capture_mode(&visit->mode);
    cudaError_t error = cuda->get_device(&visit->before);
    if (error == cudaSuccess && visit->before != device->number) {
        error = cuda->set_device(device->number);
        visit->changed = error == cudaSuccess;
    }
    if (error == cudaSuccess)
        return DTRAIN_OK;
    cuda->exchange_capture_mode(&visit->mode);
    return dt_nccl_cuda_error(device, error, "cudaSetDevice");
}

void dt_nccl_leave(dt_nccl_device_t *device, const dt_nccl_visit_t *visit)
{
    enum cudaStreamCaptureMode mode = visit->mode;
    if (visit->changed && is_in_use(visit->before))
        device->cuda->set_device(visit->before);
    device->cuda->exchange_capture_mode(&mode);
}
