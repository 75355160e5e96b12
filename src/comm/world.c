#include "comm/world.h"

void dt_world_close(dt_world_t *world, int clean)
{
    dt_detector_destroy(world->detector); /* it wakes the control */
    if (world->control)
        world->control->ops->destroy(world->control);
    if (world->backend)
        world->backend->ops->destroy(world->backend, clean);
    if (world->leave)
        world->leave(world->context, clean);
    dt_boards_free(&world->boards);
    dt_topology_free(&world->topology);
    *world = (dt_world_t){0};
}
