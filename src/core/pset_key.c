#include "core/pset_key.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "dtrain.set."
#define PREFIX_LENGTH (sizeof PREFIX - 1)

size_t dt_pset_key(int32_t pset, const char *name, size_t length, char key[DT_KEY_MAX + 1])
{
    size_t used = 0;
    if (pset != DTRAIN_PSET_WORLD)
        used = (size_t)snprintf(key, DT_KEY_MAX + 1, PREFIX "%d/", pset);
    memcpy(key + used, name, length);
    key[used + length] = '\0';
    return used + length;
}

int32_t dt_pset_key_read(const char *key, size_t length, const char **name)
{
    size_t at = PREFIX_LENGTH;
    int64_t pset = 0;
    if (name)
        *name = key;
    if (length <= PREFIX_LENGTH || memcmp(key, PREFIX, PREFIX_LENGTH) != 0)
        return DTRAIN_PSET_WORLD;
    for (; at < length && key[at] >= '0' && key[at] <= '9' && pset <= INT32_MAX; at++)
        pset = pset * 10 + (key[at] - '0');
    if (at == length || at == PREFIX_LENGTH || key[at] != '/' || pset > INT32_MAX)
        return DTRAIN_PSET_WORLD;
    if (name)
        *name = key + at + 1;
    return (int32_t)pset;
}

const char *dt_pset_key_describe(const char *key, size_t length, char *text, size_t cap)
{
    const char *name;
    int32_t pset = dt_pset_key_read(key, length, &name);
    int shown = (int)(length - (size_t)(name - key));
    if (shown > 200)
        shown = 200;
    if (pset == DTRAIN_PSET_WORLD)
        snprintf(text, cap, "'%.*s'", shown, name);
    else
        snprintf(text, cap, "'%.*s' of process set %d", shown, name, pset);
    return text;
}
