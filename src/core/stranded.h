/*
 * stranded.h - when whoever holds the baton does not come back: it is inside a library, as MPI,
 * that waits for a rank that is lost. Nobody may touch the engine's state then. So the detector's
 * thread closes the intake and lets all others who wait come back with the end's error; their
 * operations stay as they are, and so does the runtime's memory when it is shut down, since the
 * holder may come back after all.
 */
#ifndef DT_CORE_STRANDED_H
#define DT_CORE_STRANDED_H

#include "core/runtime.h"

/* A detector's hook `overdue`, with the runtime as context. */
void dt_strand(void *context, dtrain_status_t status, const char *text);

static inline int dt_is_stranded(const dt_runtime_t *runtime)
{
    return atomic_load_explicit(&runtime->is_stranded, memory_order_acquire);
}

/* The end's status, as this thread's error. */
dtrain_status_t dt_stranded_error(const dt_runtime_t *runtime);

#endif
