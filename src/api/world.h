/*
 * world.h - the library's one global: the process's runtime, and who is inside it. Every public
 * call that needs a world is bracketed by dt_api_enter and dt_api_leave, so that dtrain_shutdown
 * frees nothing under another thread's feet.
 */
#ifndef DT_API_WORLD_H
#define DT_API_WORLD_H

#include "core/runtime.h"

/* The runtime, or NULL with a text and *status set (NOT_INITIALIZED, FORKED). After a runtime was
 * given, dt_api_leave must follow. */
dt_runtime_t *dt_api_enter(dtrain_status_t *status);
void dt_api_leave(void);

/* The same without an error: NULL when there is no world. */
dt_runtime_t *dt_api_peek(void);

/* Which world of this process it is: the first is 1. Between dt_api_enter and dt_api_leave. */
uint64_t dt_api_generation(void);

/*
 * Makes a world with `join` and publishes it. ALREADY_INITIALIZED when there is one. `join` fills
 * in the world, and may change settings to those that all ranks share.
 */
typedef dtrain_status_t (*dt_api_join_fn_t)(const void *argument, dt_config_t *config,
                                            dt_world_t *world);
dtrain_status_t dt_api_init(const dtrain_config_t *config, dt_api_join_fn_t join,
                            const void *argument);

#endif
