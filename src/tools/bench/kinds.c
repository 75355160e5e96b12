#include "tools/bench/kinds.h"

#include <string.h>

static const bench_traits_t traits[BENCH_KINDS] = {
    [BENCH_ALLREDUCE] = {.name = "allreduce", .reduces = 1, .is_in_place = 1, .bus_turns = 2},
    [BENCH_BROADCAST] = {.name = "broadcast", .is_in_place = 1},
    [BENCH_REDUCE] = {.name = "reduce", .reduces = 1, .is_in_place = 1, .root_only = 1},
    [BENCH_REDUCESCATTER] = {.name = "reducescatter",
                             .reduces = 1,
                             .has_shared_out = 1,
                             .bus_turns = 1},
    [BENCH_ALLGATHER] = {.name = "allgather", .has_shared_in = 1, .bus_turns = 1},
    [BENCH_ALLTOALL] = {.name = "alltoall", .bus_turns = 1},
    [BENCH_GATHER] = {.name = "gather", .has_shared_in = 1, .root_only = 1, .bus_turns = 1},
    [BENCH_SCATTER] = {.name = "scatter", .has_shared_out = 1, .bus_turns = 1},
};

const bench_traits_t *bench_traits(bench_kind_t kind)
{
    return &traits[kind];
}

bench_kind_t bench_kind_find(const char *name)
{
    int kind = 0;
    while (kind < BENCH_KINDS && strcmp(traits[kind].name, name) != 0)
        kind++;
    return (bench_kind_t)kind;
}

dtrain_status_t bench_kind_submit(bench_kind_t kind, dtrain_tensor_t *tensor,
                                  const dtrain_options_t *options, dtrain_handle_t *handle)
{
    switch (kind) {
    case BENCH_BROADCAST:
        return dtrain_broadcast_async(tensor, BENCH_ROOT, options, handle);
    case BENCH_REDUCE:
        return dtrain_reduce_async(tensor, BENCH_ROOT, options, handle);
    case BENCH_REDUCESCATTER:
        return dtrain_reducescatter_async(tensor, options, handle);
    case BENCH_ALLGATHER:
        return dtrain_allgather_async(tensor, options, handle);
    case BENCH_ALLTOALL:
        return dtrain_alltoall_async(tensor, NULL, 0, options, handle);
    case BENCH_GATHER:
        return dtrain_gather_async(tensor, BENCH_ROOT, options, handle);
    case BENCH_SCATTER:
        return dtrain_scatter_async(tensor, BENCH_ROOT, options, handle);
    default:
        return dtrain_allreduce_async(tensor, options, handle);
    }
}

dtrain_status_t bench_kind_run(bench_kind_t kind, const dtrain_tensor_t *tensor, dtrain_op_t op)
{
    const char *name = tensor->name;
    const void *in = tensor->in;
    void *out = tensor->out;
    int64_t count = tensor->shape[0];
    dtrain_dtype_t dtype = tensor->dtype;
    switch (kind) {
    case BENCH_ALLREDUCE:
        return dtrain_allreduce(name, in, out, count, dtype, op);
    case BENCH_BROADCAST:
        return dtrain_broadcast(name, out, count, dtype, BENCH_ROOT);
    case BENCH_REDUCE:
        return dtrain_reduce(name, in, out, count, dtype, op, BENCH_ROOT);
    case BENCH_REDUCESCATTER:
        return dtrain_reducescatter(name, in, out, count, dtype, op);
    case BENCH_ALLGATHER:
        return dtrain_allgather(name, in, out, count, dtype);
    case BENCH_ALLTOALL:
        return dtrain_alltoall(name, in, out, count, dtype);
    case BENCH_GATHER:
        return dtrain_gather(name, in, out, count, dtype, BENCH_ROOT);
    case BENCH_SCATTER:
        return dtrain_scatter(name, in, out, count, dtype, BENCH_ROOT);
    default:
        return DTRAIN_ERR_INTERNAL;
    }
}
