/* gradsets.h - what the calls on gradient sets and on their optimizers share. */
#ifndef DT_API_GRADSETS_H
#define DT_API_GRADSETS_H

#include <dtrain/dtrain.h>

/* Enters the world that a set is of; dt_api_leave must follow, unless the answer is an error.
 * `what` is NULL's, or too old, for the text: "gradient set", or what has one. */
dtrain_status_t dt_api_enter_set(const dtrain_gradset_t *set, const char *what);

/* Writes the fields of a public struct of `size` bytes behind its struct_size, as many as the
 * caller's has room for, which its own struct_size says. */
void dt_api_fill(void *theirs, const void *fields, size_t size);

#endif
