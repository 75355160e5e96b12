#include "core/errands.h"

#include <stddef.h>

void dt_errands_add(dt_errands_t *errands, dt_errand_t *errand)
{
    dt_errand_t *before = atomic_load(&errands->last);
    do {
        errand->next = before;
    } while (!atomic_compare_exchange_weak(&errands->last, &before, errand));
}

int dt_errands_are_waiting(dt_errands_t *errands)
{
    return atomic_load(&errands->last) != NULL;
}

dt_errand_t *dt_errands_take(dt_errands_t *errands)
{
    /* Most steps find nothing, and should not take the cache line from who adds. */
    if (!dt_errands_are_waiting(errands))
        return NULL;
    dt_errand_t *errand = atomic_exchange(&errands->last, NULL), *first = NULL;
    while (errand) {
        dt_errand_t *before = errand->next;
        errand->next = first;
        first = errand;
        errand = before;
    }
    return first;
}
