#include "core/collective.h"

#include <string.h>

#include "core/operand.h"

/* One vector that is shared out over the ranks by rows. */
static void share_out(int64_t *counts, const dt_signature_t *signature, int size)
{
    int64_t row_count = dt_signature_row_count(signature);
    for (int rank = 0; rank < size; rank++)
        counts[rank] = dt_rows_of(signature->shape[0], size, rank) * row_count;
}

static int64_t sum(const int64_t *counts, int size)
{
    int64_t total = 0;
    for (int rank = 0; rank < size; rank++)
        total += counts[rank];
    return total;
}

/* What goes to each rank (sends) and comes from each (receives), in an exchange. */
static void fill_exchange(const dt_operation_t *operation, dt_ranks_t ranks, int64_t *sends,
                          int64_t *receives)
{
    const dt_signature_t *signature = &operation->signature;
    size_t bytes = (size_t)ranks.size * sizeof *sends;
    int is_root = operation->root == ranks.rank;
    memset(sends, 0, 2 * bytes);
    switch ((dt_kind_t)signature->kind) {
    case DT_KIND_GATHER:
    case DT_KIND_ALLTOALL: {
        int64_t row_count = dt_signature_row_count(signature);
        int is_all = signature->kind == DT_KIND_ALLTOALL;
        for (int rank = 0; rank < ranks.size; rank++) {
            if (is_all || rank == operation->root)
                sends[rank] = operation->splits[rank] * row_count;
            if (is_all || is_root)
                receives[rank] = operation->splits[ranks.size + rank] * row_count;
        }
        break;
    }
    case DT_KIND_SCATTER:
        share_out(sends, signature, ranks.size);
        receives[operation->root] = sends[ranks.rank];
        if (!is_root)
            memset(sends, 0, bytes);
        break;
    case DT_KIND_TRANSFER:
        if (is_root)
            sends[operation->peer] = operation->count;
        if (operation->peer == ranks.rank)
            receives[operation->root] = operation->count;
        break;
    default:
        break;
    }
}

dt_reduction_t dt_collective_reduction(const dt_operation_t *operation)
{
    const dt_signature_t *signature = &operation->signature;
    return (dt_reduction_t){.dtype = (dtrain_dtype_t)signature->dtype,
                            .op = (dtrain_op_t)signature->op,
                            .divisor = signature->op == DTRAIN_OP_AVERAGE ? operation->divisor : 1,
                            .prescale = signature->prescale,
                            .postscale = signature->postscale};
}

void dt_collective_fill(dt_collective_t *collective, const dt_operation_t *operation,
                        dt_ranks_t ranks, int64_t *counts)
{
    const dt_signature_t *signature = &operation->signature;
    memset(collective, 0, sizeof *collective);
    collective->root = operation->root;
    collective->reduction = dt_collective_reduction(operation);
    collective->count = operation->count;
    switch ((dt_kind_t)signature->kind) {
    case DT_KIND_ALLREDUCE:
    case DT_KIND_BARRIER: /* these move no data, and do not come here */
    case DT_KIND_JOIN:
    case DT_KIND_PSET_ADD:
    case DT_KIND_PSET_REMOVE:
    case DT_KIND_SPARSE: /* sparse.h has its own */
        collective->kind = DT_ALLREDUCE;
        break;
    case DT_KIND_BROADCAST:
        collective->kind = DT_BROADCAST;
        break;
    case DT_KIND_REDUCE:
        collective->kind = DT_REDUCE;
        break;
    case DT_KIND_REDUCESCATTER:
        collective->kind = DT_REDUCE_SCATTER;
        collective->counts = counts;
        share_out(counts, signature, ranks.size);
        break;
    case DT_KIND_COLLECT:
        collective->kind = DT_ALLGATHER;
        collective->counts = counts;
        share_out(counts, signature, ranks.size);
        break;
    case DT_KIND_ALLGATHER: {
        int64_t row_count = dt_signature_row_count(signature);
        collective->kind = DT_ALLGATHER;
        collective->counts = counts;
        for (int rank = 0; rank < ranks.size; rank++)
            counts[rank] = operation->splits[ranks.size + rank] * row_count;
        collective->count = sum(counts, ranks.size);
        break;
    }
    case DT_KIND_ALLTOALL:
    case DT_KIND_GATHER:
    case DT_KIND_SCATTER:
    case DT_KIND_TRANSFER: {
        int64_t *receives = counts + ranks.size;
        collective->kind = DT_EXCHANGE;
        collective->counts = counts;
        collective->recv_counts = receives;
        fill_exchange(operation, ranks, counts, receives);
        int64_t sent = sum(counts, ranks.size), received = sum(receives, ranks.size);
        collective->count = sent > received ? sent : received;
        break;
    }
    }
}

int dt_collective_is_empty(const dt_operation_t *operation, int size)
{
    const dt_signature_t *signature = &operation->signature;
    if (!dt_kind_traits(signature->kind)->is_sized)
        return dt_signature_count(signature) == 0;
    if (signature->kind == DT_KIND_SPARSE)
        return dt_signature_count(signature) == 0 || sum(operation->splits + size, size) == 0;
    if (dt_signature_row_count(signature) == 0)
        return 1;
    /* In an alltoall a rank knows only its own rows. */
    return signature->kind != DT_KIND_ALLTOALL && sum(operation->splits + size, size) == 0;
}
