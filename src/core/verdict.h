/* verdict.h - a rank carries out what rank 0 decided. */
#ifndef DT_CORE_VERDICT_H
#define DT_CORE_VERDICT_H

#include "core/runtime.h"
#include "core/wire.h"

/*
 * Reads a VERDICT, or a PART of one (is_part), after its header, and acts on it: failed operations
 * and barriers end, agreed ones go to the executor in the verdict's order. INTERNAL for what cannot
 * be; then the world cannot go on.
 */
dtrain_status_t dt_verdict_apply(dt_runtime_t *runtime, dt_reader_t *reader, int is_part);

#endif
