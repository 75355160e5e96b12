/* data.h - inputs whose reduction is known exactly, and the check against it. */
#ifndef DT_BENCH_DATA_H
#define DT_BENCH_DATA_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

/* One period of a repeating pattern: each rank's input, and what they reduce to. */
typedef struct bench_pattern {
    int size; /* ranks */
    unsigned char **inputs;
    unsigned char *reduced;
    size_t bytes;
} bench_pattern_t;

/* 0, or -1: memory ran out. */
int bench_pattern_make(bench_pattern_t *pattern, dtrain_dtype_t dtype, dtrain_op_t op, int size);
void bench_pattern_free(bench_pattern_t *pattern);

/* Fills a tensor of `bytes` with a rank's input. */
void bench_fill(const bench_pattern_t *pattern, int rank, void *tensor, size_t bytes);

/* Elements of `element` bytes that differ from what is expected: `part`, an input or what they
 * reduce to, from `offset` bytes on. */
int64_t bench_count_errors(const bench_pattern_t *pattern, const unsigned char *part, size_t offset,
                           const void *tensor, size_t bytes, size_t element);

#endif
