#include "comm/shm/shm_eager.h"

#include <string.h>

#include "base/memory.h"

dt_shm_eager_t *dt_shm_eager_create(uint8_t *const *places, int rank, int size)
{
    dt_shm_eager_t *eager = dt_calloc(1, sizeof *eager);
    if (!eager)
        return NULL;
    eager->places = dt_calloc((size_t)size, sizeof *eager->places);
    eager->sources = dt_calloc((size_t)size, sizeof *eager->sources);
    if (!eager->places || !eager->sources) {
        dt_shm_eager_free(eager);
        return NULL;
    }
    memcpy(eager->places, places, (size_t)size * sizeof *places);
    eager->rank = rank;
    eager->size = size;
    return eager;
}

void dt_shm_eager_free(dt_shm_eager_t *eager)
{
    if (!eager)
        return;
    dt_free(eager->places);
    dt_free(eager->sources);
    dt_free(eager);
}

static uint8_t *place(const dt_shm_eager_t *eager, int rank, uint32_t slot)
{
    return eager->places[rank] + (2 * (size_t)slot + eager->second[slot]) * DT_EAGER_BYTES;
}

void dt_shm_eager_post(dt_shm_eager_t *eager, uint32_t slot, const void *in, size_t bytes)
{
    memcpy(place(eager, eager->rank, slot), in, bytes);
}

void dt_shm_eager_take(dt_shm_eager_t *eager, uint32_t slot, const dt_reduction_t *reduction,
                       void *out, size_t count)
{
    for (int rank = 0; rank < eager->size; rank++)
        eager->sources[rank] = place(eager, rank, slot);
    dt_reduce(reduction, &out, 1, eager->sources, eager->size, count);
    eager->second[slot] ^= 1;
}

void dt_shm_eager_collect(dt_shm_eager_t *eager, uint32_t slot, void *out, size_t bytes)
{
    for (int rank = 0; rank < eager->size; rank++)
        memcpy((uint8_t *)out + (size_t)rank * bytes, place(eager, rank, slot), bytes);
    eager->second[slot] ^= 1;
}
