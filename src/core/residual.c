#include "core/residual.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "core/response_cache.h"

static void residual_free(dt_residual_t *residual)
{
    dt_free(residual->name);
    dt_free(residual->tensor);
    dt_free(residual->share);
    dt_free(residual);
}

static int is_for(const dt_residual_t *residual, const dt_operation_t *operation,
                  int64_t share_count)
{
    return residual->count == operation->count && residual->share_count == share_count &&
           strcmp(residual->codec, operation->signature.codec) == 0;
}

static float *zeros(int64_t count)
{
    return dt_calloc((size_t)count + 1, sizeof(float)); /* never nothing */
}

dt_residual_t *dt_residual_of(dt_residuals_t *residuals, const dt_operation_t *operation,
                              int64_t share_count)
{
    const char *key = dt_operation_key(operation);
    dt_residual_t *residual = dt_map_get(residuals, key, strlen(key));
    if (residual && is_for(residual, operation, share_count))
        return residual;
    if (residual) {
        dt_map_remove(residuals, key, strlen(key));
        residual_free(residual);
    }
    residual = dt_calloc(1, sizeof *residual);
    if (!residual)
        return NULL;
    residual->name = dt_strdup(key);
    residual->count = operation->count;
    residual->share_count = share_count;
    memcpy(residual->codec, operation->signature.codec, sizeof residual->codec);
    residual->tensor = zeros(operation->count);
    residual->share = zeros(share_count);
    if (!residual->name || !residual->tensor || !residual->share ||
        dt_map_add(residuals, residual->name, strlen(residual->name), residual)) {
        residual_free(residual);
        return NULL;
    }
    return residual;
}

void dt_residuals_free(dt_residuals_t *residuals)
{
    size_t at = 0;
    for (dt_residual_t *residual; (residual = dt_map_next(residuals, &at));)
        residual_free(residual);
    dt_map_free(residuals);
}

void dt_encode_with_residual(const dtrain_codec_t *codec, const float *in, int64_t count, void *out,
                             float *residual, float *scratch)
{
    float *wanted = scratch, *decoded = scratch + count;
    for (int64_t i = 0; i < count; i++)
        wanted[i] = in[i] + residual[i];
    codec->encode(codec, wanted, count, out);
    (void)codec->decode(codec, out, count, decoded); /* what it has encoded itself */
    for (int64_t i = 0; i < count; i++) {
        float left = wanted[i] - decoded[i];
        residual[i] = isfinite(left) ? left : 0;
    }
}
