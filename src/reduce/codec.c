#include "reduce/codec.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "reduce/reduce.h"

#define MILLION 1000000

static int64_t half_bytes(const dtrain_codec_t *codec, int64_t count)
{
    (void)codec;
    return 2 * count;
}

static void half_encode(const dtrain_codec_t *codec, const float *in, int64_t count, void *out)
{
    dt_narrow(((const dt_codec_t *)codec)->cast, in, out, (size_t)count);
}

static int half_decode(const dtrain_codec_t *codec, const void *in, int64_t count, float *out)
{
    dt_widen(((const dt_codec_t *)codec)->cast, in, out, (size_t)count);
    return 0;
}

static const dt_codec_t codecs[] = {
    {.name = "fp16",
     .cast = DTRAIN_DTYPE_F16,
     .base = {.coded_bytes = half_bytes, .encode = half_encode, .decode = half_decode}},
    {.name = "bf16",
     .cast = DTRAIN_DTYPE_BF16,
     .base = {.coded_bytes = half_bytes, .encode = half_encode, .decode = half_decode}},
    {.name = "int8",
     .base = {.flags = DTRAIN_CODEC_FEEDBACK,
              .coded_bytes = dt_int8_bytes,
              .encode = dt_int8_encode,
              .decode = dt_int8_decode}},
    {.name = "topk",
     .keep = MILLION / 100,
     .base = {.flags = DTRAIN_CODEC_FEEDBACK,
              .coded_bytes = dt_topk_bytes,
              .encode = dt_topk_encode,
              .decode = dt_topk_decode}},
};

#define NUM_CODECS (sizeof codecs / sizeof codecs[0])

/* The codec that a name, without its parameter, stands for; NULL: none. */
static const dt_codec_t *find(const char *name)
{
    size_t length = strcspn(name, ":");
    for (size_t i = 0; i < NUM_CODECS; i++) {
        if (strlen(codecs[i].name) == length && strncmp(codecs[i].name, name, length) == 0)
            return &codecs[i];
    }
    return NULL;
}

int dt_codec_is_own(const char *name)
{
    return find(name) != NULL;
}

/* A number from 0 to 1 with up to six decimals, in millionths; -1: it is none. Not strtod, whose
 * point is a comma in some locales. */
static int64_t read_millionths(const char *text)
{
    int64_t value = *text - '0', unit = MILLION;
    if ((value != 0 && value != 1) || (text[1] != '.' && text[1] != '\0'))
        return -1;
    value *= unit;
    for (text += text[1] ? 2 : 1; *text >= '0' && *text <= '9' && unit > 1; text++)
        value += (*text - '0') * (unit /= 10);
    return *text || value > MILLION ? -1 : value;
}

/* Reads what follows the colon of "topk:0.05", and puts it into the name in one way of writing, so
 * that ranks that mean the same say the same. */
static dtrain_status_t read_parameter(const char *text, dt_codec_t *codec)
{
    if (!codec->keep) {
        if (!*text)
            return DTRAIN_OK;
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "codec %s has no parameter: '%.50s'",
                       codec->name, text);
    }
    int64_t keep = *text ? read_millionths(text) : codec->keep;
    if (keep <= 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "codec %s: '%.50s' is no part of the elements: 0.000001 to 1", codec->name,
                       text);
    codec->keep = keep;
    size_t used = strlen(codec->name);
    used += (size_t)snprintf(codec->name + used, sizeof codec->name - used, ":%d.%06d",
                             (int)(keep / MILLION), (int)(keep % MILLION));
    while (codec->name[used - 1] == '0')
        codec->name[--used] = '\0';
    if (codec->name[used - 1] == '.')
        codec->name[--used] = '\0';
    return DTRAIN_OK;
}

dtrain_status_t dt_codec_make(const char *name, dt_codec_t *codec)
{
    const dt_codec_t *found = find(name);
    if (!found)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "'%.50s' is no codec: there are fp16, bf16, int8 and topk "
                       "(with the part of the elements that travels: topk:0.01)",
                       name);
    *codec = *found;
    codec->base.struct_size = sizeof codec->base;
    codec->base.name = codec->name;
    const char *colon = strchr(name, ':');
    return read_parameter(colon ? colon + 1 : "", codec);
}

dtrain_status_t dt_codec_check(const dtrain_codec_t *codec)
{
    if (codec->struct_size < sizeof *codec)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_codec_t: struct_size is %u, not %zu: set it to sizeof",
                       codec->struct_size, sizeof *codec);
    if (!codec->name || !codec->name[0] ||
        strnlen(codec->name, DTRAIN_CODEC_NAME_MAX + 1) > DTRAIN_CODEC_NAME_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "a codec needs a name of 1 to %d bytes",
                       DTRAIN_CODEC_NAME_MAX);
    if (!codec->coded_bytes || !codec->encode || !codec->decode)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "codec %s: coded_bytes, encode and decode must be set", codec->name);
    if (codec->flags & ~(uint32_t)DTRAIN_CODEC_FEEDBACK)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "codec %s: %#x are no flags", codec->name,
                       codec->flags);
    const dt_codec_t *own = find(codec->name);
    if (own && own->base.encode != codec->encode)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "codec %s: the name is one of the library's own codecs", codec->name);
    return DTRAIN_OK;
}
