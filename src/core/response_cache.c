#include "core/response_cache.h"

#include <string.h>

#include "base/memory.h"
#include "core/wire.h"

static void name_free(dt_name_t *name)
{
    dt_free(name->cached);
    dt_free(name->text);
    dt_free(name);
}

void dt_response_cache_free(dt_response_cache_t *cache)
{
    size_t at = 0;
    for (dt_name_t *name; (name = dt_map_next(&cache->names, &at));)
        name_free(name);
    dt_map_free(&cache->names);
    dt_free(cache->by_id);
    memset(cache, 0, sizeof *cache);
}

dt_name_t *dt_response_cache_find(const dt_response_cache_t *cache, const char *text, size_t length)
{
    return dt_map_get(&cache->names, text, length);
}

dt_name_t *dt_response_cache_get(dt_response_cache_t *cache, const char *text, size_t length)
{
    dt_name_t *name = dt_map_get(&cache->names, text, length);
    if (name)
        return name;
    name = dt_calloc(1, sizeof *name);
    if (!name)
        return NULL;
    name->length = length;
    name->text = dt_alloc(length + 1);
    if (!name->text) {
        name_free(name);
        return NULL;
    }
    memcpy(name->text, text, length);
    name->text[length] = '\0';
    if (dt_map_add(&cache->names, name->text, length, name)) {
        name_free(name);
        return NULL;
    }
    return name;
}

dt_name_t *dt_response_cache_by_id(const dt_response_cache_t *cache, uint32_t id)
{
    return id < cache->capacity ? cache->by_id[id] : NULL;
}

uint32_t dt_response_cache_id(const dt_name_t *name, const dt_signature_t *signature)
{
    for (int i = 0; i < name->num_cached; i++) {
        if (dt_signature_equal(&name->cached[i].signature, signature))
            return name->cached[i].id;
    }
    return DT_ID_NONE;
}

static int reserve(dt_response_cache_t *cache, uint32_t id)
{
    if (id < cache->capacity)
        return 0;
    uint32_t capacity = cache->capacity ? cache->capacity : 256;
    while (capacity <= id)
        capacity *= 2;
    dt_name_t **by_id = dt_realloc(cache->by_id, capacity * sizeof *by_id);
    if (!by_id)
        return -1;
    memset(by_id + cache->capacity, 0, (capacity - cache->capacity) * sizeof *by_id);
    cache->by_id = by_id;
    cache->capacity = capacity;
    return 0;
}

int dt_response_cache_learn(dt_response_cache_t *cache, dt_name_t *name,
                            const dt_signature_t *signature, uint32_t id)
{
    if (reserve(cache, id))
        return -1;
    size_t bytes = ((size_t)name->num_cached + 1) * sizeof *name->cached;
    dt_cached_signature_t *cached = dt_realloc(name->cached, bytes);
    if (!cached)
        return -1;
    name->cached = cached;
    cached[name->num_cached].signature = *signature;
    cached[name->num_cached++].id = id;
    cache->by_id[id] = name;
    return 0;
}

void dt_response_cache_drop(dt_response_cache_t *cache, dt_name_t *name)
{
    if (name->in_flight || name->num_cached > 0)
        return;
    dt_map_remove(&cache->names, name->text, name->length);
    name_free(name);
}

const char *dt_operation_name(const dt_operation_t *operation)
{
    return operation->name ? operation->name->text : "";
}
