#include "comm/collective.h"

#include "base/dtype.h"
#include "base/status.h"

int dt_collective_has_counts(const dt_collective_t *collective)
{
    return collective->kind == DT_REDUCE_SCATTER || collective->kind == DT_ALLGATHER ||
           collective->kind == DT_EXCHANGE;
}

/* -1: not a number of elements. */
static int64_t add(int64_t sum, int64_t more)
{
    return sum < 0 || more < 0 || more > INT64_MAX - sum ? -1 : sum + more;
}

static int64_t sum_of(const int64_t *counts, int size)
{
    int64_t sum = counts ? 0 : -1;
    for (int rank = 0; rank < size && sum >= 0; rank++)
        sum = add(sum, counts[rank]);
    return sum;
}

int64_t dt_collective_in_count(const dt_collective_t *collective, int rank, int size)
{
    if (collective->kind == DT_REDUCE_SCATTER || collective->kind == DT_EXCHANGE)
        return sum_of(collective->counts, size);
    return collective->kind == DT_ALLGATHER ? collective->counts[rank] : collective->count;
}

int64_t dt_collective_out_count(const dt_collective_t *collective, int rank, int size)
{
    if (collective->kind == DT_ALLGATHER)
        return sum_of(collective->counts, size);
    if (collective->kind == DT_EXCHANGE)
        return sum_of(collective->recv_counts, size);
    return collective->kind == DT_REDUCE_SCATTER ? collective->counts[rank] : collective->count;
}

/* -1: none that makes sense. */
static int64_t count_of(const dt_collective_t *collective, int size)
{
    int64_t sum = 0;
    if (dt_collective_has_counts(collective)) {
        sum = sum_of(collective->counts, size);
        if (collective->kind != DT_EXCHANGE || sum < 0)
            return sum;
        int64_t received = sum_of(collective->recv_counts, size);
        return received < 0 || received > sum ? received : sum;
    }
    for (int i = 0; i < collective->num_pieces; i++)
        sum = add(sum, collective->pieces[i].count);
    return sum;
}

static int is_known(const dt_collective_t *collective, int size)
{
    int has_root = collective->kind == DT_BROADCAST || collective->kind == DT_REDUCE;
    return collective->kind >= DT_ALLREDUCE && collective->kind <= DT_EXCHANGE &&
           dt_dtype_size(collective->reduction.dtype) > 0 &&
           (!has_root || (collective->root >= 0 && collective->root < size));
}

dtrain_status_t dt_collective_check(const dt_collective_t *collective, int size, int takes_pieces,
                                    const char *who)
{
    int takes_more =
        takes_pieces && (collective->kind == DT_ALLREDUCE || collective->kind == DT_BROADCAST);
    if (is_known(collective, size) && collective->num_pieces >= 1 &&
        (collective->num_pieces == 1 || takes_more) &&
        count_of(collective, size) == collective->count)
        return DTRAIN_OK;
    return dt_fail(DTRAIN_ERR_INTERNAL,
                   "%s was given kind %d, type %d, root %d and %d pieces of %lld elements", who,
                   (int)collective->kind, (int)collective->reduction.dtype, collective->root,
                   collective->num_pieces, (long long)collective->count);
}
