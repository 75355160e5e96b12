#include "samples.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "test_random.h"

int sample_reductions(dt_reduction_t all[SAMPLE_REDUCTIONS_MAX])
{
    int n = 0;
    for (int dtype = 1; dtype < DT_DTYPE_COUNT; dtype++) {
        for (int op = 0; op < DT_OP_COUNT; op++) {
            all[n] = (dt_reduction_t){(dtrain_dtype_t)dtype, (dtrain_op_t)op, 1, 1, 1};
            if (dt_dtype_size(all[n].dtype) > 0 && dt_reduction_check(&all[n]) == DTRAIN_OK)
                n++;
        }
    }
    return n;
}

static void fill_value(uint8_t *at, dtrain_dtype_t dtype, uint64_t random)
{
    double value = (double)(int32_t)random * ldexp(1, (int)(random >> 32) % 24 - 40);
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    uint16_t bf16 = (uint16_t)(bits >> 16);
    uint16_t f16 = (uint16_t)(random & 0xbfff);
    switch (dtype) {
    case DTRAIN_DTYPE_F64:
        memcpy(at, &value, sizeof value);
        break;
    case DTRAIN_DTYPE_F32:
        memcpy(at, &single, sizeof single);
        break;
    case DTRAIN_DTYPE_BF16:
        memcpy(at, &bf16, sizeof bf16);
        break;
    case DTRAIN_DTYPE_F16:
        memcpy(at, &f16, sizeof f16);
        break;
    case DTRAIN_DTYPE_BOOL:
        *at = random % 3 ? 0 : (uint8_t)(random >> 8);
        break;
    default:
        memcpy(at, &random, dt_dtype_size(dtype));
        break;
    }
}

void sample_values(void *values, int64_t count, dtrain_dtype_t dtype, uint64_t seed)
{
    size_t element = dt_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++)
        fill_value((uint8_t *)values + (size_t)i * element, dtype, test_random(&seed));
}
