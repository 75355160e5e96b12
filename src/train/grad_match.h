/* grad_match.h - all ranks have the same layout of a gradient set, or all know what differs. */
#ifndef DT_TRAIN_GRAD_MATCH_H
#define DT_TRAIN_GRAD_MATCH_H

#include "base/buffer.h"
#include "train/grad_layout.h"
#include "train/talk.h"

/* Settings of a set that have to be the same on all ranks, too. */
typedef struct dt_grad_terms {
    int32_t op;
    int32_t is_order_fixed;
    int32_t device; /* DTRAIN_DEVICE_CPU or DTRAIN_DEVICE_CUDA */
    double prescale, postscale;
    int64_t first_bucket_bytes, bucket_bytes;
    char codec[DTRAIN_CODEC_NAME_MAX + 1]; /* "": none */
} dt_grad_terms_t;

/* Appends both as bytes without a pointer. */
void dt_grad_match_write(const dt_grad_layout_t *layout, const dt_grad_terms_t *terms,
                         dt_buffer_t *buffer);

/*
 * Compares them with what rank `other_rank` wrote. 0 when they agree. Else 1, and `text` names the
 * tensor and both values: "tensor 'w': shape is [3] on rank 1, and [4] on rank 0". -1 for bytes
 * that are none.
 */
int dt_grad_match_compare(const dt_grad_layout_t *layout, const dt_grad_terms_t *terms, int rank,
                          const void *bytes, size_t length, int other_rank, char *text, size_t cap);

/* Collective. OK, or on all ranks MISMATCH with the text for the first rank that differs from the
 * set's first. */
dtrain_status_t dt_grad_match(const dt_talk_t *talk, const dt_grad_layout_t *layout,
                              const dt_grad_terms_t *terms);

#endif
