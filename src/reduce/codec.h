/* codec.h - the library's own codecs, by which a tensor of fp32 travels in fewer bytes. */
#ifndef DT_REDUCE_CODEC_H
#define DT_REDUCE_CODEC_H

#include <dtrain/dtrain.h>

typedef struct dt_codec {
    dtrain_codec_t base; /* first: it is what `encode` and so on are given */
    char name[DTRAIN_CODEC_NAME_MAX + 1];
    dtrain_dtype_t cast; /* F16, BF16: all there is to it is to be of that type; else 0 */
    int64_t keep;        /* topk: how many of a million elements travel */
} dt_codec_t;

/*
 * Makes the codec of a name ("int8", "topk:0.05") in *codec, which holds no other memory and must
 * not be moved. INVALID_ARGUMENT, with a text, for a name that the library has none for.
 */
dtrain_status_t dt_codec_make(const char *name, dt_codec_t *codec);

/* Whether a name is the library's, so that no other codec may have it. */
int dt_codec_is_own(const char *name);

/* OK, or why a codec that a caller brought is none: INVALID_ARGUMENT, with a text. */
dtrain_status_t dt_codec_check(const dtrain_codec_t *codec);

/*
 * int8: blocks of DT_INT8_BLOCK elements, each with a scale by which its largest magnitude becomes
 * 127. All scales come first. A block with an element that is not finite is NaN when decoded, so
 * that it is not lost what a loss scaler looks for.
 */
#define DT_INT8_BLOCK 256
int64_t dt_int8_bytes(const dtrain_codec_t *codec, int64_t count);
void dt_int8_encode(const dtrain_codec_t *codec, const float *in, int64_t count, void *out);
int dt_int8_decode(const dtrain_codec_t *codec, const void *in, int64_t count, float *out);

/* topk: the elements of largest magnitude, of equals the first ones, as uint32 indices in rising
 * order and then their values. A NaN is larger than all. Up to 2^32 - 1 elements. */
int64_t dt_topk_bytes(const dtrain_codec_t *codec, int64_t count);
void dt_topk_encode(const dtrain_codec_t *codec, const float *in, int64_t count, void *out);
int dt_topk_decode(const dtrain_codec_t *codec, const void *in, int64_t count, float *out);

#endif
