/* kinds.h - the operations that are timed, and what each does with a tensor of `count` elements,
 * of which every rank has a share. */
#ifndef DT_BENCH_KINDS_H
#define DT_BENCH_KINDS_H

#include <stdint.h>

#include <dtrain/dtrain.h>

typedef enum bench_kind {
    BENCH_ALLREDUCE,
    BENCH_BROADCAST,
    BENCH_REDUCE,
    BENCH_REDUCESCATTER,
    BENCH_ALLGATHER,
    BENCH_ALLTOALL,
    BENCH_GATHER,
    BENCH_SCATTER,
    BENCH_KINDS
} bench_kind_t;

#define BENCH_ROOT 0

typedef struct bench_traits {
    const char *name;
    int reduces;
    int is_in_place;   /* where the user does not say otherwise; 0: never */
    int has_shared_in; /* the input is a share, else all */
    int has_shared_out;
    int root_only; /* the output is the root's alone */
    int bus_turns; /* bus bandwidth is algorithm bandwidth times turns * (n - 1) / n; 0: times 1 */
} bench_traits_t;

const bench_traits_t *bench_traits(bench_kind_t kind);

/* The kind of a name; BENCH_KINDS: unknown. */
bench_kind_t bench_kind_find(const char *name);

/* Submits it. `out_bytes` is what the output has room for. */
dtrain_status_t bench_kind_submit(bench_kind_t kind, dtrain_tensor_t *tensor,
                                  const dtrain_options_t *options, dtrain_handle_t *handle);

/* The blocking call, where there is one. */
dtrain_status_t bench_kind_run(bench_kind_t kind, const dtrain_tensor_t *tensor, dtrain_op_t op);

#endif
