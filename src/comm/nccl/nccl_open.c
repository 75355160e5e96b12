/* nccl_open.c - the entry of libdtrain_nccl.so. */
#include "base/status.h"
#include "comm/nccl/nccl_device.h"
#include "comm/nccl/nccl_host.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT dtrain_status_t dt_nccl_open(const dt_device_host_t *host, const void *hint, int local_rank,
                                    dt_device_t **device);

dtrain_status_t dt_nccl_open(const dt_device_host_t *host, const void *hint, int local_rank,
                             dt_device_t **device)
{
    if (host->version != DT_DEVICE_VERSION)
        return host->fail(DTRAIN_ERR_UNSUPPORTED,
                          "libdtrain_nccl.so is of another build than libdtrain.so");
    dt_nccl_set_host(host);
    dt_nccl_device_t *opened = NULL;
    dtrain_status_t status =
        dt_nccl_device_create(&dt_cuda_real, dt_nccl_load(), hint, local_rank, &opened);
    if (status == DTRAIN_OK)
        *device = &opened->base;
    return status;
}
