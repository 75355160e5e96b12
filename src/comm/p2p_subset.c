#include "comm/p2p_subset.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct p2p_subset {
    dt_p2p_t base;
    dt_p2p_t *parent;
    int first_tag;
    int ranks[];
} p2p_subset_t;

static dtrain_status_t subset_send(dt_p2p_t *base, int peer, int tag, const void *data,
                                   size_t length, dt_p2p_request_t *request)
{
    const p2p_subset_t *subset = (const p2p_subset_t *)base;
    return subset->parent->ops->send(subset->parent, subset->ranks[peer], subset->first_tag + tag,
                                     data, length, request);
}

static dtrain_status_t subset_receive(dt_p2p_t *base, int peer, int tag, void *data, size_t length,
                                      dt_p2p_request_t *request)
{
    const p2p_subset_t *subset = (const p2p_subset_t *)base;
    return subset->parent->ops->receive(subset->parent, subset->ranks[peer],
                                        subset->first_tag + tag, data, length, request);
}

static dtrain_status_t subset_test(dt_p2p_t *base, dt_p2p_request_t *request)
{
    const p2p_subset_t *subset = (const p2p_subset_t *)base;
    return subset->parent->ops->test(subset->parent, request);
}

static void subset_destroy(dt_p2p_t *base, int clean)
{
    (void)clean;
    dt_free(base);
}

static const dt_p2p_ops_t subset_ops = {
    .name = "subset",
    .send = subset_send,
    .receive = subset_receive,
    .test = subset_test,
    .destroy = subset_destroy,
};

dtrain_status_t dt_p2p_subset_create(dt_p2p_t *parent, const int *ranks, int size, int first_tag,
                                     dt_p2p_t **subset)
{
    size_t ranks_bytes = (size_t)size * sizeof ranks[0];
    int rank = 0;
    while (rank < size && ranks[rank] != parent->rank)
        rank++;
    if (rank == size)
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d is not in its own subset of %d ranks",
                       parent->rank, size);
    p2p_subset_t *made = dt_alloc(sizeof *made + ranks_bytes);
    if (!made)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a subset of %d ranks", size);
    made->base = (dt_p2p_t){.ops = &subset_ops, .rank = rank, .size = size};
    made->parent = parent;
    made->first_tag = first_tag;
    memcpy(made->ranks, ranks, ranks_bytes);
    *subset = &made->base;
    return DTRAIN_OK;
}
