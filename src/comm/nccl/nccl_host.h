/* nccl_host.h - who loaded this library. */
#ifndef DT_COMM_NCCL_HOST_H
#define DT_COMM_NCCL_HOST_H

#include "comm/device.h"

/* Defines dt_fail, dt_last_error and dt_log of base/ in terms of the loader's. */
void dt_nccl_set_host(const dt_device_host_t *loader);

#endif
