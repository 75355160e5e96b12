/*
 * Sets of the ranks of a node. Which region a set has follows from its number, and nobody talks:
 *
 *   - A set counts from a base that grows with its number, so that to its members what an earlier
 *     set in the region has left reads as nothing.
 *   - A rank writes to its region only when all members of the set that it was last in there have
 *     left that one: they may still have been reading. Until then the new set stands still.
 */
#include "base/memory.h"
#include "base/status.h"
#include "comm/shm/shm_backend.h"
#include "comm/shm/shm_segment.h"

/* No set counts further from its base. */
#define COUNTS_MAX (UINT64_C(1) << 40)

static uint64_t base_of(int set)
{
    return (uint64_t)(set / DT_SUBSETS_MAX) * COUNTS_MAX;
}

/* What others wait for that have a region after this set. */
static dt_shm_past_t *make_past(const dt_shm_stream_t *stream)
{
    size_t size = (size_t)stream->size;
    dt_shm_past_t *past = dt_calloc(1, sizeof *past + size * sizeof past->left[0]);
    if (!past)
        return NULL;
    past->value = stream->base + COUNTS_MAX;
    past->size = stream->size;
    for (int rank = 0; rank < stream->size; rank++)
        past->left[rank] = &stream->boards[rank]->counters[DT_SHM_LEFT];
    return past;
}

void dt_shm_set_leave(dt_shm_backend_t *shm, int clean)
{
    dt_shm_stream_t *stream = &shm->stream;
    if (!clean || !shm->own)
        return;
    atomic_store_explicit(&stream->boards[stream->rank]->counters[DT_SHM_LEFT].value,
                          shm->own->value, memory_order_release);
    dt_shm_past_t **past = &shm->parent->pasts[shm->index];
    *past = stream->past ? stream->past : shm->own;
    dt_free(stream->past ? shm->own : NULL);
    stream->past = NULL;
    shm->own = NULL;
}

/* Of this rank in the set, or -1; and the members' heaps. */
static int find_members(const dt_shm_backend_t *parent, const int *ranks, int num_ranks,
                        uint8_t **heaps)
{
    int own = -1;
    for (int i = 0; i < num_ranks; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->stream.size)
            return -1;
        heaps[i] = parent->stream.heaps[ranks[i]];
        if (ranks[i] == parent->stream.rank)
            own = i;
    }
    return own;
}

static dtrain_status_t fill_set(dt_shm_backend_t *shm, int rank, int num_ranks,
                                uint8_t *const *heaps)
{
    const dt_shm_backend_t *parent = shm->parent;
    size_t offset = parent->sets_offset + (size_t)shm->index * parent->set_bytes;
    if (dt_shm_layout_fit(&parent->tuning, num_ranks, parent->set_bytes, &shm->stream.layout) != 0)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                       "a set of %d ranks does not fit into %zu bytes of shared memory", num_ranks,
                       parent->set_bytes);
    if (dt_shm_backend_fill_stream(shm, rank, num_ranks, heaps, offset) == 0)
        shm->own = make_past(&shm->stream);
    return shm->own
               ? DTRAIN_OK
               : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a set of %d ranks", num_ranks);
}

dtrain_status_t dt_shm_subset(dt_backend_t *backend, const int *ranks, int num_ranks, int set,
                              dt_backend_t **subset)
{
    dt_shm_backend_t *parent = (dt_shm_backend_t *)backend;
    dt_shm_backend_t *shm = dt_calloc(1, sizeof *shm);
    uint8_t **heaps = dt_calloc((size_t)num_ranks, sizeof *heaps);
    dtrain_status_t status = DTRAIN_OK;
    int rank = shm && heaps ? find_members(parent, ranks, num_ranks, heaps) : -1;
    if (!shm || !heaps)
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a set of %d ranks", num_ranks);
    else if (rank < 0 || set < 1)
        status = dt_fail(DTRAIN_ERR_INTERNAL, "set %d of %d ranks, without this one or beyond %d",
                         set, num_ranks, parent->stream.size);
    if (status == DTRAIN_OK) {
        shm->base.ops = &dt_shm_plain_ops;
        shm->base.takes_pieces = 1;
        shm->node = parent->node;
        shm->heap = parent->heap;
        shm->parent = parent;
        shm->index = set % DT_SUBSETS_MAX;
        shm->stream.base = base_of(set);
        status = fill_set(shm, rank, num_ranks, heaps);
    }
    dt_free(heaps);
    if (status != DTRAIN_OK) {
        if (shm)
            dt_shm_backend_free(shm);
        return status;
    }
    shm->stream.past = parent->pasts[shm->index];
    parent->pasts[shm->index] = NULL;
    *subset = &shm->base;
    return DTRAIN_OK;
}
