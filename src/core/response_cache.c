#include "core/response_cache.h"

#include <string.h>

#include "base/memory.h"
#include "core/pset_key.h"
#include "core/stand_in.h"
#include "core/wire.h"

static void name_free(dt_name_t *name)
{
    if (name->cached != &name->first)
        dt_free(name->cached);
    dt_free(name);
}

void dt_response_cache_free(dt_response_cache_t *cache)
{
    size_t at = 0;
    for (dt_name_t *name; (name = dt_map_next(&cache->names, &at));)
        name_free(name);
    dt_map_free(&cache->names);
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
    name = dt_alloc(sizeof *name + length + 1);
    if (!name)
        return NULL;
    *name = (dt_name_t){.length = length};
    name->cached = &name->first;
    memcpy(name->text, text, length);
    name->text[length] = '\0';
    if (dt_map_add(&cache->names, name->text, length, name)) {
        name_free(name);
        return NULL;
    }
    return name;
}

uint32_t dt_response_cache_id(const dt_name_t *name, const dt_signature_t *signature)
{
    for (int i = 0; i < name->num_cached; i++) {
        if (dt_signature_equal(&name->cached[i].signature, signature))
            return name->cached[i].id;
    }
    return DT_ID_NONE;
}

/* Room for one more cached signature; NULL when memory ran out. */
static dt_cached_signature_t *extend(dt_name_t *name)
{
    size_t count = (size_t)name->num_cached;
    if (count == 0)
        return &name->first;
    int is_own = name->cached == &name->first;
    dt_cached_signature_t *cached =
        dt_realloc(is_own ? NULL : name->cached, (count + 1) * sizeof *cached);
    if (!cached)
        return NULL;
    if (is_own)
        cached[0] = name->first;
    name->cached = cached;
    return &cached[count];
}

int dt_response_cache_learn(dt_name_t *name, const dt_signature_t *signature, uint32_t id)
{
    dt_cached_signature_t *cached = extend(name);
    if (!cached)
        return -1;
    cached->signature = *signature;
    cached->id = id;
    name->num_cached++;
    return 0;
}

void dt_response_cache_forget(dt_response_cache_t *cache, int32_t pset)
{
    /* Collected first, since the map must not change while it is walked. */
    dt_name_t *forgotten = NULL;
    size_t at = 0;
    for (dt_name_t *name; (name = dt_map_next(&cache->names, &at));) {
        if (name->num_cached > 0 && dt_pset_key_read(name->text, name->length, NULL) == pset) {
            name->next = forgotten;
            forgotten = name;
        }
    }
    while (forgotten) {
        dt_name_t *name = forgotten;
        forgotten = name->next;
        if (name->cached != &name->first)
            dt_free(name->cached);
        name->cached = &name->first;
        name->num_cached = 0;
        dt_response_cache_drop(cache, name);
    }
}

void dt_response_cache_drop(dt_response_cache_t *cache, dt_name_t *name)
{
    if (name->in_flight || name->num_cached > 0)
        return;
    dt_map_remove(&cache->names, name->text, name->length);
    name_free(name);
}

const char *dt_operation_key(const dt_operation_t *operation)
{
    if (operation->stand_in)
        return operation->stand_in->key;
    return operation->name ? operation->name->text : "";
}
