#include "tools/bench/data.h"

#include <stdlib.h>
#include <string.h>

/* Least bytes of a pattern: long enough for memcpy and memcmp to run at their speed. */
#define PATTERN_BYTES 65536

/* Small enough that every type holds sums over a few dozen ranks exactly. */
static double value(dtrain_op_t op, int64_t i, int rank, int size)
{
    int turn = (int)((i + rank) % size);
    return op == DTRAIN_OP_PRODUCT ? 1 + (turn == 0) : turn + (double)(i % 4);
}

static double reduced(dtrain_op_t op, int64_t i, int size)
{
    double result = value(op, i, 0, size);
    for (int rank = 1; rank < size; rank++) {
        double next = value(op, i, rank, size);
        if (op == DTRAIN_OP_MIN)
            result = next < result ? next : result;
        else if (op == DTRAIN_OP_MAX)
            result = next > result ? next : result;
        else if (op == DTRAIN_OP_PRODUCT)
            result *= next;
        else
            result += next;
    }
    return op == DTRAIN_OP_AVERAGE ? result / size : result;
}

/* A float that fp16 holds exactly: 0, or normal with at most 10 fraction bits. */
static uint16_t to_half(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (number == 0)
        return 0;
    return (uint16_t)(((bits >> 23) - 112) << 10 | (bits >> 13 & 0x3ff));
}

static void store(unsigned char *to, dtrain_dtype_t dtype, double number)
{
    float single = (float)number;
    int64_t whole = (int64_t)number; /* towards zero, as integer averages are */
    uint32_t bits;
    uint16_t half;
    switch (dtype) {
    case DTRAIN_DTYPE_F32:
        memcpy(to, &single, sizeof single);
        break;
    case DTRAIN_DTYPE_F64:
        memcpy(to, &number, sizeof number);
        break;
    case DTRAIN_DTYPE_F16:
        half = to_half(single);
        memcpy(to, &half, sizeof half);
        break;
    case DTRAIN_DTYPE_BF16:
        memcpy(&bits, &single, sizeof bits);
        half = (uint16_t)(bits >> 16);
        memcpy(to, &half, sizeof half);
        break;
    default: /* integers: the low bytes */
        memcpy(to, &whole, dtrain_dtype_size(dtype));
        break;
    }
}

int bench_pattern_make(bench_pattern_t *pattern, dtrain_dtype_t dtype, dtrain_op_t op, int size)
{
    size_t element = dtrain_dtype_size(dtype);
    int64_t period = 4 * (int64_t)size; /* of value() in i */
    int64_t count = (PATTERN_BYTES / (int64_t)element + period - 1) / period * period;
    pattern->size = size;
    pattern->bytes = (size_t)count * element;
    pattern->inputs = calloc((size_t)size, sizeof *pattern->inputs);
    pattern->reduced = malloc(pattern->bytes);
    int failed = !pattern->inputs || !pattern->reduced;
    for (int rank = 0; !failed && rank < size; rank++) {
        pattern->inputs[rank] = malloc(pattern->bytes);
        failed = !pattern->inputs[rank];
        for (int64_t i = 0; !failed && i < count; i++)
            store(pattern->inputs[rank] + (size_t)i * element, dtype, value(op, i, rank, size));
    }
    for (int64_t i = 0; !failed && i < count; i++)
        store(pattern->reduced + (size_t)i * element, dtype, reduced(op, i, size));
    if (failed)
        bench_pattern_free(pattern);
    return failed ? -1 : 0;
}

void bench_pattern_free(bench_pattern_t *pattern)
{
    for (int rank = 0; pattern->inputs && rank < pattern->size; rank++)
        free(pattern->inputs[rank]);
    free(pattern->inputs);
    free(pattern->reduced);
    pattern->inputs = NULL;
    pattern->reduced = NULL;
}

void bench_fill(const bench_pattern_t *pattern, int rank, void *tensor, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += pattern->bytes) {
        size_t part = bytes - at < pattern->bytes ? bytes - at : pattern->bytes;
        memcpy((char *)tensor + at, pattern->inputs[rank], part);
    }
}

static int64_t count_in(const unsigned char *expected, const unsigned char *found, size_t bytes,
                        size_t element)
{
    int64_t errors = 0;
    for (size_t at = 0; at < bytes; at += element)
        errors += memcmp(expected + at, found + at, element) != 0;
    return errors;
}

int64_t bench_count_errors(const bench_pattern_t *pattern, const unsigned char *part, size_t offset,
                           const void *tensor, size_t bytes, size_t element)
{
    int64_t errors = 0;
    const unsigned char *found = tensor;
    for (size_t at = 0, length; at < bytes; at += length) {
        size_t from = (offset + at) % pattern->bytes;
        length = pattern->bytes - from < bytes - at ? pattern->bytes - from : bytes - at;
        if (memcmp(part + from, found + at, length) != 0)
            errors += count_in(part + from, found + at, length, element);
    }
    return errors;
}
