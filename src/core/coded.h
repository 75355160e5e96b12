/*
 * coded.h - allreduces that travel encoded. Each rank adds up one share of every tensor, as in any
 * allreduce: the shares of its tensors go to their ranks encoded, which decode those of all ranks,
 * reduce them in rank order and encode the result, which all collect and decode. A share is
 * encoded by itself, and a tensor's shares follow from its size, so what is fused has the same bits
 * as what is not.
 *
 * Codecs that only round to another type (fp16, bf16) need none of this: the executor packs such
 * tensors as that type, and they go the way of any other.
 */
#ifndef DT_CORE_CODED_H
#define DT_CORE_CODED_H

#include "core/residual.h"
#include "core/staged.h"
#include "reduce/codec.h"

typedef struct dt_coded dt_coded_t;

/* What is kept from one operation to the next. All zeros is nothing. */
typedef struct dt_coding {
    dt_residuals_t residuals;
    dt_coded_t *spare; /* with their memory, to be used again */
} dt_coding_t;

/* Fills in an operation's codec, which may be NULL, once its tensor and reduction are. An error,
 * with a text, is one that the other ranks must learn of. `name` is for the text. */
dtrain_status_t dt_coded_describe(dt_operation_t *operation, const dtrain_codec_t *codec,
                                  const char *name);

/* The type that an operation's codec rounds to; 0: it has no codec, or another. */
dtrain_dtype_t dt_coded_cast(const dt_operation_t *operation);

/* Of operations with the same reduction, which are borrowed. `coding` outlives what is made here.
 * NULL when memory ran out. */
dt_staged_t *dt_coded_create(dt_coding_t *coding, dt_operation_t *const *operations, int n,
                             dt_ranks_t ranks);

void dt_coding_free(dt_coding_t *coding);

#endif
