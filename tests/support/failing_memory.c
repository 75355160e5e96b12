#include "failing_memory.h"

#include <stdatomic.h>
#include <stddef.h>

/* The linker's --wrap fixes these names. */
void *__wrap_dt_alloc(size_t bytes);
void *__wrap_dt_calloc(size_t count, size_t bytes);
void *__wrap_dt_realloc(void *old, size_t bytes);
void *__wrap_dt_alloc_aligned(size_t align, size_t bytes);
char *__wrap_dt_strdup(const char *text);
void __wrap_dt_free(void *memory);
void *__real_dt_alloc(size_t bytes);
void *__real_dt_calloc(size_t count, size_t bytes);
void *__real_dt_realloc(void *old, size_t bytes);
void *__real_dt_alloc_aligned(size_t align, size_t bytes);
char *__real_dt_strdup(const char *text);
void __real_dt_free(void *memory);

static _Atomic int live;
static _Atomic int countdown; /* 0: nothing fails; 1: everything does */
static _Atomic int has_failed;

int memory_live(void)
{
    return atomic_load(&live);
}

void memory_fail_at(int n)
{
    atomic_store(&countdown, n);
    atomic_store(&has_failed, 0);
}

int memory_has_failed(void)
{
    return atomic_load(&has_failed);
}

static int fails(void)
{
    int left = atomic_load(&countdown);
    if (left == 1)
        atomic_store(&has_failed, 1);
    else if (left > 1)
        atomic_store(&countdown, left - 1);
    return left == 1;
}

static void *counted(void *memory)
{
    if (memory)
        atomic_fetch_add(&live, 1);
    return memory;
}

void *__wrap_dt_alloc(size_t bytes)
{
    return fails() ? NULL : counted(__real_dt_alloc(bytes));
}

void *__wrap_dt_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : counted(__real_dt_calloc(count, bytes));
}

void *__wrap_dt_realloc(void *old, size_t bytes)
{
    if (fails())
        return NULL;
    void *memory = __real_dt_realloc(old, bytes);
    return old ? memory : counted(memory);
}

void *__wrap_dt_alloc_aligned(size_t align, size_t bytes)
{
    return fails() ? NULL : counted(__real_dt_alloc_aligned(align, bytes));
}

char *__wrap_dt_strdup(const char *text)
{
    return fails() ? NULL : counted(__real_dt_strdup(text));
}

void __wrap_dt_free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&live, 1);
    __real_dt_free(memory);
}
