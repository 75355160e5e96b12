#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

void *dt_alloc(size_t bytes)
{
    return dt_fault_fails(DT_FAULT_ALLOC) ? NULL : malloc(bytes);
}

void *dt_calloc(size_t count, size_t bytes)
{
    return dt_fault_fails(DT_FAULT_ALLOC) ? NULL : calloc(count, bytes);
}

void *dt_realloc(void *old, size_t bytes)
{
    return dt_fault_fails(DT_FAULT_ALLOC) ? NULL : realloc(old, bytes);
}

void *dt_alloc_aligned(size_t align, size_t bytes)
{
    void *memory = NULL;
    if (align < sizeof(void *))
        align = sizeof(void *);
    if (dt_fault_fails(DT_FAULT_ALLOC) || posix_memalign(&memory, align, bytes) != 0)
        return NULL;
    return memory;
}

char *dt_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = dt_alloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void dt_free(void *memory)
{
    free(memory);
}
