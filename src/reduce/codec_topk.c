#include <string.h>

#include "reduce/codec.h"

/* The 31 bits of a magnitude, looked at in three digits from the highest on. */
#define DIGITS 3
#define DIGIT_BITS 11
#define DIGIT_COUNT (1 << DIGIT_BITS)

typedef struct pair {
    uint32_t index;
    float value;
} pair_t;

/* Rounded up, so that something of every tensor travels. */
static int64_t kept(const dtrain_codec_t *codec, int64_t count)
{
    return (((const dt_codec_t *)codec)->keep * count + 999999) / 1000000;
}

int64_t dt_topk_bytes(const dtrain_codec_t *codec, int64_t count)
{
    return count > UINT32_MAX ? -1 : kept(codec, count) * (int64_t)sizeof(pair_t);
}

static uint32_t magnitude(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffff;
}

/* The digit's lowest bit: 20, 9 and 0, the last digit being short of two bits. */
static int shift_of(int digit)
{
    int shift = 31 - DIGIT_BITS * (digit + 1);
    return shift > 0 ? shift : 0;
}

/*
 * The k-th largest magnitude, 1 <= k <= count: digit by digit, counting those that have all higher
 * digits in common with it. *equals receives how many of that very magnitude are among the k.
 */
static uint32_t find_threshold(const float *in, int64_t count, int64_t k, int64_t *equals)
{
    uint32_t threshold = 0;
    int above = 31; /* the bits from here on are known */
    for (int digit = 0; digit < DIGITS; digit++) {
        int64_t counts[DIGIT_COUNT] = {0};
        int shift = shift_of(digit);
        uint32_t mask = (1u << (above - shift)) - 1;
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = magnitude(in[i]);
            if ((uint64_t)bits >> above == (uint64_t)threshold >> above)
                counts[bits >> shift & mask]++;
        }
        uint32_t value = mask;
        for (; counts[value] < k; value--)
            k -= counts[value];
        threshold |= value << shift;
        above = shift;
    }
    *equals = k;
    return threshold;
}

void dt_topk_encode(const dtrain_codec_t *codec, const float *in, int64_t count, void *out)
{
    int64_t k = kept(codec, count), equals;
    if (k == 0)
        return;
    uint32_t threshold = find_threshold(in, count, k, &equals);
    char *indices = out, *values = (char *)out + k * (int64_t)sizeof(uint32_t);
    for (int64_t i = 0, at = 0; at < k; i++) {
        uint32_t bits = magnitude(in[i]), index = (uint32_t)i;
        if (bits < threshold || (bits == threshold && equals-- <= 0))
            continue;
        memcpy(indices + at * (int64_t)sizeof index, &index, sizeof index);
        memcpy(values + at * (int64_t)sizeof in[i], &in[i], sizeof in[i]);
        at++;
    }
}

int dt_topk_decode(const dtrain_codec_t *codec, const void *in, int64_t count, float *out)
{
    int64_t k = kept(codec, count);
    const char *indices = in, *values = (const char *)in + k * (int64_t)sizeof(uint32_t);
    if (count == 0)
        return 0;
    memset(out, 0, (size_t)count * sizeof *out);
    for (int64_t at = 0; at < k; at++) {
        uint32_t index;
        memcpy(&index, indices + at * (int64_t)sizeof index, sizeof index);
        if (index >= count)
            return -1;
        memcpy(&out[index], values + at * (int64_t)sizeof *out, sizeof *out);
    }
    return 0;
}
