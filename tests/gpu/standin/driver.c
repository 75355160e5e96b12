/* driver.c - what is asked of CUDA's driver. */
#include "standin.h"

STANDIN_API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active);

STANDIN_API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    *flags = 0;
    *is_active = standin_has_context(device);
    return 0;
}
