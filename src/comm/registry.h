/* registry.h - which bootstrap makes the world. */
#ifndef DT_COMM_REGISTRY_H
#define DT_COMM_REGISTRY_H

#include "comm/world.h"

/*
 * Joins the world that `config->backend` names; "auto": MPI when a launcher is seen or the
 * application has initialised MPI, else a world of one. Settings that ranks must share are
 * replaced in *config by rank 0's, with a warning where they differ. On error nothing is left.
 */
dtrain_status_t dt_registry_join(dt_config_t *config, dt_world_t *world);

#endif
