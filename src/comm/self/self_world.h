/* self_world.h - a world of one rank: no launcher, no MPI call, no thread. */
#ifndef DT_COMM_SELF_SELF_WORLD_H
#define DT_COMM_SELF_SELF_WORLD_H

#include "comm/world.h"

dtrain_status_t dt_self_join(dt_world_t *world);

#endif
