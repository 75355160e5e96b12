#include "core/rank_set.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static size_t words(int size)
{
    return ((size_t)size + 63) / 64;
}

int dt_rank_set_init(dt_rank_set_t *set, int size)
{
    set->bits = dt_calloc(words(size), sizeof *set->bits);
    set->size = size;
    set->count = 0;
    return set->bits ? 0 : -1;
}

void dt_rank_set_free(dt_rank_set_t *set)
{
    dt_free(set->bits);
    set->bits = NULL;
}

void dt_rank_set_clear(dt_rank_set_t *set)
{
    memset(set->bits, 0, words(set->size) * sizeof *set->bits);
    set->count = 0;
}

int dt_rank_set_has(const dt_rank_set_t *set, int rank)
{
    return (int)(set->bits[rank / 64] >> (rank % 64) & 1);
}

int dt_rank_set_add(dt_rank_set_t *set, int rank)
{
    if (dt_rank_set_has(set, rank))
        return 0;
    set->bits[rank / 64] |= UINT64_C(1) << (rank % 64);
    set->count++;
    return 1;
}

void dt_rank_set_remove(dt_rank_set_t *set, int rank)
{
    if (!dt_rank_set_has(set, rank))
        return;
    set->bits[rank / 64] &= ~(UINT64_C(1) << (rank % 64));
    set->count--;
}

void dt_rank_set_unite(dt_rank_set_t *set, const dt_rank_set_t *other)
{
    set->count = 0;
    for (size_t w = 0; w < words(set->size); w++) {
        set->bits[w] |= other->bits[w];
        set->count += __builtin_popcountll(set->bits[w]);
    }
}

void dt_rank_set_subtract(dt_rank_set_t *result, const dt_rank_set_t *a, const dt_rank_set_t *b)
{
    result->count = 0;
    for (size_t w = 0; w < words(a->size); w++) {
        result->bits[w] = a->bits[w] & ~(b ? b->bits[w] : 0);
        result->count += __builtin_popcountll(result->bits[w]);
    }
}

int dt_rank_set_is_covered(const dt_rank_set_t *set, const dt_rank_set_t *a, const dt_rank_set_t *b)
{
    for (size_t w = 0; w < words(set->size); w++) {
        if (set->bits[w] & ~(a->bits[w] | b->bits[w]))
            return 0;
    }
    return 1;
}

/* The first rank at or after `from` whose membership is `wanted`; size when there is none. */
static int find(const dt_rank_set_t *set, int from, int wanted)
{
    while (from < set->size && dt_rank_set_has(set, from) != wanted)
        from++;
    return from;
}

const char *dt_rank_set_describe(const dt_rank_set_t *set, int missing, char *text, size_t cap)
{
    int wanted = !missing;
    int total = missing ? set->size - set->count : set->count;
    size_t used = (size_t)snprintf(text, cap, total == 1 ? "rank " : "ranks ");
    const char *separator = "";
    for (int from = find(set, 0, wanted); from < set->size; from = find(set, from, wanted)) {
        int end = find(set, from, !wanted); /* one past the run */
        if (used + 32 >= cap) {
            snprintf(text + used, cap - used, ", …");
            break;
        }
        if (end - from == 1)
            used += (size_t)snprintf(text + used, cap - used, "%s%d", separator, from);
        else
            used += (size_t)snprintf(text + used, cap - used, "%s%d-%d", separator, from, end - 1);
        separator = ", ";
        from = end;
    }
    return text;
}
