/* The real libraries of CUDA and NCCL on a machine without a GPU: whatever asks for one is refused
 * on all ranks at once, with the reason, and the host's operations go on. With a GPU: skipped. */
#include <stdio.h>

#include <dtrain/dtrain_cuda.h>

#include "check.h"

int main(void)
{
    check_begin("test_no_device", 50);
    if (!CHECK_OK(check_init(0)))
        return check_end();
    int device;
    if (dtrain_cuda_device(&device) == DTRAIN_OK) {
        printf("skipped: there is a GPU here\n");
        dtrain_shutdown();
        return 77;
    }
    CHECK_ERROR_HAS("no GPU");
    void *memory;
    CHECK_STATUS(dtrain_mem_alloc(&memory, 100, DTRAIN_DEVICE_CUDA), DTRAIN_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("no GPU");
    float host[4] = {0};
    const int64_t count = 4;
    dtrain_handle_t handle = 0;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = "on a GPU",
                              .in = host,
                              .out = host,
                              .ndim = 1,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32,
                              .device = DTRAIN_DEVICE_CUDA};
    CHECK_STATUS(dtrain_allreduce_async(&tensor, NULL, &handle), DTRAIN_ERR_UNSUPPORTED);
    dtrain_gradset_t *set = NULL;
    dtrain_param_t param = {.struct_size = sizeof param,
                            .name = "w",
                            .ndim = 1,
                            .shape = &count,
                            .dtype = DTRAIN_DTYPE_F32};
    dtrain_gradset_desc_t desc = {.struct_size = sizeof desc, .device = DTRAIN_DEVICE_CUDA};
    CHECK_STATUS(dtrain_gradset_create(&desc, &param, 1, &set), DTRAIN_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("no GPU");
    check_works("of the host");
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
