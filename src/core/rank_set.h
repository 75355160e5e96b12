/* rank_set.h - a set of ranks as bits, and how it is written in a message. */
#ifndef DT_CORE_RANK_SET_H
#define DT_CORE_RANK_SET_H

#include <stddef.h>
#include <stdint.h>

typedef struct dt_rank_set {
    uint64_t *bits;
    int size;  /* of the world */
    int count; /* ranks in the set */
} dt_rank_set_t;

int dt_rank_set_init(dt_rank_set_t *set, int size); /* empty; 0, or -1 when memory ran out */
void dt_rank_set_free(dt_rank_set_t *set);
void dt_rank_set_clear(dt_rank_set_t *set);
int dt_rank_set_has(const dt_rank_set_t *set, int rank);
/* 1 when the rank was not in it before. */
int dt_rank_set_add(dt_rank_set_t *set, int rank);
void dt_rank_set_remove(dt_rank_set_t *set, int rank);

/* Adds those of a set of the same size. */
void dt_rank_set_unite(dt_rank_set_t *set, const dt_rank_set_t *other);

/* Sets of the same size: result = a without those in b; b may be NULL. */
void dt_rank_set_subtract(dt_rank_set_t *result, const dt_rank_set_t *a, const dt_rank_set_t *b);
/* 1 when every rank of `set` is in a or in b. */
int dt_rank_set_is_covered(const dt_rank_set_t *set, const dt_rank_set_t *a,
                           const dt_rank_set_t *b);

/* Writes "rank 3" or "ranks 0-2, 5" (the set, or the ranks that are not in it), cut with "…" where
 * it does not fit, and returns text. */
const char *dt_rank_set_describe(const dt_rank_set_t *set, int missing, char *text, size_t cap);

#endif
