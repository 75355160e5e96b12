/* residual.h - what lossy codecs have left out so far, by tensor: error feedback. One a process
 * set's executor, used by whoever has the baton. */
#ifndef DT_CORE_RESIDUAL_H
#define DT_CORE_RESIDUAL_H

#include "base/map.h"
#include "core/collective.h"

typedef struct dt_residual {
    char *name;
    char codec[DTRAIN_CODEC_NAME_MAX + 1];
    int64_t count, share_count;
    float *tensor; /* of this rank's tensor: count elements */
    float *share;  /* of the reduced share: share_count elements */
} dt_residual_t;

/* By the operation's key. All zeros is none. */
typedef dt_map_t dt_residuals_t;

/* The operation's, of zeros when it is new, or was of another shape or codec. NULL when memory ran
 * out. */
dt_residual_t *dt_residual_of(dt_residuals_t *residuals, const dt_operation_t *operation,
                              int64_t share_count);
void dt_residuals_free(dt_residuals_t *residuals);

/*
 * Encodes in[0 … count-1] into `out`, after what was left out before has been added, and keeps in
 * `residual` what is left out now: 0 where that is no finite number, so that one overflow does not
 * stay for ever. `scratch` has room for 2 * count elements.
 */
void dt_encode_with_residual(const dtrain_codec_t *codec, const float *in, int64_t count, void *out,
                             float *residual, float *scratch);

#endif
