/*
 * response_cache.h - a rank's half of the cache: for each name, the signatures that rank 0 has
 * given an id. Grows as needed, forgets what has an id only with its process set; a name without
 * one is dropped when its operation is done. Not thread-safe: the intake's lock is held.
 */
#ifndef DT_CORE_RESPONSE_CACHE_H
#define DT_CORE_RESPONSE_CACHE_H

#include "base/map.h"
#include "core/operation.h"

typedef struct dt_cached_signature {
    dt_signature_t signature;
    uint32_t id;
} dt_cached_signature_t;

struct dt_name {
    dt_operation_t *in_flight; /* this rank's operation of that name, or NULL */
    size_t length;
    int num_cached;
    dt_cached_signature_t *cached; /* num_cached; `first` as long as that is enough */
    dt_cached_signature_t first;
    struct dt_name *next; /* of those that are being forgotten */
    char text[];          /* zero-terminated */
};

typedef struct dt_response_cache {
    dt_map_t names; /* text → dt_name_t */
} dt_response_cache_t;

/* The key (pset_key.h) of an operation in flight, for a text; "" for a bystander. */
const char *dt_operation_key(const dt_operation_t *operation);

void dt_response_cache_free(dt_response_cache_t *cache);

/* A name that is known, or NULL; and one that is made when it is not (NULL: memory ran out). */
dt_name_t *dt_response_cache_find(const dt_response_cache_t *cache, const char *text,
                                  size_t length);
dt_name_t *dt_response_cache_get(dt_response_cache_t *cache, const char *text, size_t length);

/* The id of a name with a signature, or DT_ID_NONE. */
uint32_t dt_response_cache_id(const dt_name_t *name, const dt_signature_t *signature);

/* Notes the id that rank 0 gave to a name with a signature. 0, or -1: memory ran out. */
int dt_response_cache_learn(dt_name_t *name, const dt_signature_t *signature, uint32_t id);

/* Forgets the ids of names on a process set, and these names unless they are in flight. */
void dt_response_cache_forget(dt_response_cache_t *cache, int32_t pset);

/* Drops a name that is not in flight and has no id; leaves any other alone. */
void dt_response_cache_drop(dt_response_cache_t *cache, dt_name_t *name);

#endif
