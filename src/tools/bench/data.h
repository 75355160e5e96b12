/* data.h - inputs whose reduction is known exactly, and the check against it. */
#ifndef DT_BENCH_DATA_H
#define DT_BENCH_DATA_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

/* One period of a repeating pattern, as this rank's input and as the expected result. */
typedef struct bench_pattern {
    unsigned char *input, *expected;
    size_t bytes;
} bench_pattern_t;

/* `root` >= 0: the pattern of a broadcast, else of an allreduce. 0, or -1: memory ran out. */
int bench_pattern_make(bench_pattern_t *pattern, dtrain_dtype_t dtype, dtrain_op_t op, int root,
                       int rank, int size);
void bench_pattern_free(bench_pattern_t *pattern);

/* Fills a tensor of `bytes` with the input. */
void bench_fill(const bench_pattern_t *pattern, void *tensor, size_t bytes);

/* Elements of `element` bytes that differ from what is expected. */
int64_t bench_count_errors(const bench_pattern_t *pattern, const void *tensor, size_t bytes,
                           size_t element);

#endif
