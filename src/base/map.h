/* map.h - a hash map from byte strings to pointers (open addressing). Not thread-safe. */
#ifndef DT_BASE_MAP_H
#define DT_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct dt_map_slot {
    const char *key; /* borrowed: lives in the value; NULL when the slot is free */
    size_t length;
    uint64_t hash;
    void *value;
} dt_map_slot_t;

/* All zeros is an empty map. */
typedef struct dt_map {
    dt_map_slot_t *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
} dt_map_t;

uint64_t dt_hash(const void *bytes, size_t length);

/* The value of a key, or NULL. */
void *dt_map_get(const dt_map_t *map, const char *key, size_t length);

/* Adds a key that is not there yet. Key and value are borrowed. 0, or -1 when memory ran out. */
int dt_map_add(dt_map_t *map, const char *key, size_t length, void *value);

/* Takes a key out and returns its value, or NULL. */
void *dt_map_remove(dt_map_t *map, const char *key, size_t length);

/* Walks the map: starts with *at = 0, returns each value in turn, NULL at the end. The map must
 * not change meanwhile. */
void *dt_map_next(const dt_map_t *map, size_t *at);

void dt_map_free(dt_map_t *map); /* the table; not keys or values */

#endif
