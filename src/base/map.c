#include "base/map.h"

#include <string.h>

#include "base/memory.h"

#define FIRST_CAPACITY 16

uint64_t dt_hash(const void *bytes, size_t length)
{
    /* Odd constants with bits all over; each step is one-to-one in what was hashed so far. */
    const uint64_t step = UINT64_C(0x9FB21C651E98DF25);
    const uint64_t final = UINT64_C(0xD6E8FEB86659FD93);
    const uint8_t *at = bytes;
    uint64_t hash = (uint64_t)length * final;
    while (length > 0) {
        uint64_t word = 0;
        size_t n = length < sizeof word ? length : sizeof word;
        memcpy(&word, at, n);
        hash = (hash ^ word) * step;
        hash ^= hash >> 32;
        at += n;
        length -= n;
    }
    hash *= final;
    return hash ^ (hash >> 32);
}

static size_t home(const dt_map_t *map, uint64_t hash)
{
    return (size_t)hash & (map->capacity - 1);
}

static size_t after(const dt_map_t *map, size_t index)
{
    return (index + 1) & (map->capacity - 1);
}

/* The slot of a key, or the free one where it would go. There is always a free one. */
static size_t find(const dt_map_t *map, const char *key, size_t length, uint64_t hash)
{
    size_t index = home(map, hash);
    for (;; index = after(map, index)) {
        const dt_map_slot_t *slot = &map->slots[index];
        if (!slot->key ||
            (slot->hash == hash && slot->length == length && memcmp(slot->key, key, length) == 0))
            return index;
    }
}

static int grow(dt_map_t *map)
{
    dt_map_t bigger = {.capacity = map->capacity ? map->capacity * 2 : FIRST_CAPACITY,
                       .count = map->count};
    bigger.slots = dt_calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots)
        return -1;
    for (size_t i = 0; i < map->capacity; i++) {
        const dt_map_slot_t *slot = &map->slots[i];
        if (slot->key)
            bigger.slots[find(&bigger, slot->key, slot->length, slot->hash)] = *slot;
    }
    dt_free(map->slots);
    *map = bigger;
    return 0;
}

void *dt_map_get(const dt_map_t *map, const char *key, size_t length)
{
    if (map->count == 0)
        return NULL;
    return map->slots[find(map, key, length, dt_hash(key, length))].value;
}

int dt_map_add(dt_map_t *map, const char *key, size_t length, void *value)
{
    /* At most three quarters full: probes stay short and find always ends. */
    if (map->count + 1 > map->capacity / 4 * 3 && grow(map) != 0)
        return -1;
    uint64_t hash = dt_hash(key, length);
    map->slots[find(map, key, length, hash)] =
        (dt_map_slot_t){.key = key, .length = length, .hash = hash, .value = value};
    map->count++;
    return 0;
}

/*
 * Frees a slot without leaving a mark: entries behind it move up as long as that does not carry
 * them in front of their home, so every entry can still be reached from its home without a gap.
 */
static void vacate(dt_map_t *map, size_t hole)
{
    size_t mask = map->capacity - 1;
    for (size_t index = after(map, hole); map->slots[index].key; index = after(map, index)) {
        size_t from_home = (index - home(map, map->slots[index].hash)) & mask;
        size_t from_hole = (index - hole) & mask;
        if (from_home < from_hole)
            continue;
        map->slots[hole] = map->slots[index];
        hole = index;
    }
    map->slots[hole] = (dt_map_slot_t){0};
}

void *dt_map_remove(dt_map_t *map, const char *key, size_t length)
{
    if (map->count == 0)
        return NULL;
    size_t index = find(map, key, length, dt_hash(key, length));
    if (!map->slots[index].key)
        return NULL;
    void *value = map->slots[index].value;
    vacate(map, index);
    map->count--;
    return value;
}

void *dt_map_next(const dt_map_t *map, size_t *at)
{
    while (*at < map->capacity) {
        const dt_map_slot_t *slot = &map->slots[(*at)++];
        if (slot->key)
            return slot->value;
    }
    return NULL;
}

void dt_map_free(dt_map_t *map)
{
    dt_free(map->slots);
    *map = (dt_map_t){0};
}
