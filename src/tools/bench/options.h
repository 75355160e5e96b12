/* options.h - the command line of dtrain-bench. */
#ifndef DT_BENCH_OPTIONS_H
#define DT_BENCH_OPTIONS_H

#include <stdint.h>

#include <dtrain/dtrain.h>

#include "tools/bench/kinds.h"

typedef struct bench_options {
    bench_kind_t kind;
    int64_t min_bytes, max_bytes;
    int64_t factor; /* from one size to the next */
    dtrain_dtype_t dtype;
    dtrain_op_t op;
    int iterations; /* 0: choose by size */
    int warmup;
    int library_buffers;
    int in_place;
    int tensors;       /* each size is that of one tensor */
    const char *model; /* NULL: sizes */
    int vs_mpi, vs_memcpy;
    const char *json;      /* a file's name, or NULL */
    dtrain_codec_t *codec; /* or NULL; to be destroyed */
    int is_lossy;          /* the codec is: results are not exact */
} bench_options_t;

/* 0: go on; 1: the help was printed; -1: a text was printed to stderr. Prints only when `speaks`.
 */
int bench_options_parse(bench_options_t *options, int argc, char **argv, int speaks);

#endif
