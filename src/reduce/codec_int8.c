#include <float.h>
#include <math.h>
#include <string.h>

#include "reduce/codec.h"

#define LEVELS 127.0f

/* Added and taken away again it rounds what is far below 2^22 to a whole number, to nearest even.
 */
#define ROUNDER 0x1.8p23f

static int64_t blocks_of(int64_t count)
{
    return count / DT_INT8_BLOCK + (count % DT_INT8_BLOCK != 0);
}

static int64_t length_of(int64_t block, int64_t count)
{
    int64_t left = count - block * DT_INT8_BLOCK;
    return left < DT_INT8_BLOCK ? left : DT_INT8_BLOCK;
}

int64_t dt_int8_bytes(const dtrain_codec_t *codec, int64_t count)
{
    (void)codec;
    return count + blocks_of(count) * (int64_t)sizeof(float);
}

/* The largest magnitude's bits, which are in the order of magnitudes; a NaN's are above all. */
static uint32_t largest_bits(const float *in, int64_t count)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Returns the scale. A block too small for one that is a normal number is zero. */
static float encode_block(const float *in, int64_t count, int8_t *out)
{
    uint32_t bits = largest_bits(in, count);
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    if (!isfinite(largest)) {
        memset(out, 1, (size_t)count);
        return NAN;
    }
    float scale = largest / LEVELS;
    if (scale < FLT_MIN) {
        memset(out, 0, (size_t)count);
        return 0;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = (int8_t)(int32_t)((in[i] / scale + ROUNDER) - ROUNDER);
    return scale;
}

void dt_int8_encode(const dtrain_codec_t *codec, const float *in, int64_t count, void *out)
{
    (void)codec;
    int64_t blocks = blocks_of(count);
    char *scales = out;
    int8_t *levels = (int8_t *)out + blocks * (int64_t)sizeof(float);
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * DT_INT8_BLOCK;
        float scale = encode_block(in + first, length_of(block, count), levels + first);
        memcpy(scales + block * (int64_t)sizeof scale, &scale, sizeof scale);
    }
}

int dt_int8_decode(const dtrain_codec_t *codec, const void *in, int64_t count, float *out)
{
    (void)codec;
    int64_t blocks = blocks_of(count);
    const char *scales = in;
    const int8_t *levels = (const int8_t *)in + blocks * (int64_t)sizeof(float);
    for (int64_t block = 0; block < blocks; block++) {
        float scale;
        memcpy(&scale, scales + block * (int64_t)sizeof scale, sizeof scale);
        int64_t first = block * DT_INT8_BLOCK, end = first + length_of(block, count);
        for (int64_t i = first; i < end; i++)
            out[i] = (float)levels[i] * scale;
    }
    return 0;
}
