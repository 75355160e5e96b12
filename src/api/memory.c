/* memory.c - dtrain_mem_alloc and dtrain_mem_free: dtrain.h says what each does. */
#include "api/world.h"

dtrain_status_t dtrain_mem_alloc(void **memory, size_t bytes, int device)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_user_memory_alloc(&runtime->memory, bytes, device, memory);
    dt_api_leave();
    return status;
}

dtrain_status_t dtrain_mem_free(void *memory)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_runtime_t *runtime = dt_api_enter(&status);
    if (!runtime)
        return status;
    status = dt_user_memory_free(&runtime->memory, memory);
    dt_api_leave();
    return status;
}
