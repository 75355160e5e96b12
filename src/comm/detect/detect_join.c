#include "comm/detect/detect_join.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/detect/detect_state.h"
#include "comm/sock/sock_meet.h"
#include "comm/sock/sock_net.h"

/* Leaders give up so much before members, which wait for them. */
#define EARLIER_NS (DT_NS_PER_S / 2)

int dt_detect_neighbours(int node, int num_nodes, int neighbours[DT_DETECT_NEIGHBOURS_MAX])
{
    int count = 0;
    for (int distance = 1; distance < num_nodes && distance > 0; distance *= 2) {
        const int found[2] = {(int)(((int64_t)node + distance) % num_nodes),
                              (int)(((int64_t)node + num_nodes - distance) % num_nodes)};
        for (int i = 0; i < 2; i++) {
            int at = count;
            while (at > 0 && neighbours[at - 1] > found[i])
                at--;
            if (at > 0 && neighbours[at - 1] == found[i])
                continue;
            memmove(&neighbours[at + 1], &neighbours[at],
                    (size_t)(count - at) * sizeof neighbours[0]);
            neighbours[at] = found[i];
            count++;
        }
    }
    return count;
}

dtrain_status_t dt_detect_place_make(const dt_topology_t *topology, int between_nodes,
                                     const char *network_interface, dt_detect_place_t *place,
                                     dt_sock_listener_t **listener)
{
    struct stat space;
    dt_detect_process_self(&place->process);
    if (stat("/proc/self/ns/net", &space) == 0)
        place->network_namespace = (uint64_t)space.st_ino;
    if (topology->local_rank != 0 || topology->size == 1)
        return DTRAIN_OK;
    return dt_sock_listen(between_nodes, network_interface, &place->address, listener);
}

/* A detector in the making. */
typedef struct joining {
    const dt_topology_t *topology;
    const dt_detect_place_t *places;
    const dt_detector_settings_t *settings;
    int64_t deadline_ns;
    dt_sock_meanwhile_t meanwhile;
    dt_detect_link_t *links;
    int num_links, max_links;
    dt_detect_watch_t *watches;
    int num_watches;
} joining_t;

static int leader_of(const dt_topology_t *topology, int node)
{
    int rank = 0;
    while (topology->peers[rank].node != node || topology->peers[rank].local_rank != 0)
        rank++;
    return rank;
}

static int node_of(const dt_topology_t *topology, int rank)
{
    return topology->peers[rank].node;
}

static int count_of_node(const dt_topology_t *topology, int node)
{
    int count = 0;
    for (int rank = 0; rank < topology->size; rank++)
        count += topology->peers[rank].node == node;
    return count;
}

static void add_link(joining_t *self, int fd, int rank)
{
    dt_detect_link_open(&self->links[self->num_links++], fd, rank, self->settings->timeout_ns,
                        self->settings->clock.now(self->settings->clock.context));
}

/*
 * A leader's callers have slots: its members their local ranks, then come the leaders of higher
 * neighbours. This is the slot of this rank at the leader of `node`.
 */
static int slot_at(const dt_topology_t *topology, int node)
{
    int neighbours[DT_DETECT_NEIGHBOURS_MAX];
    int own = node_of(topology, topology->rank);
    if (own == node)
        return topology->local_rank;
    int count = dt_detect_neighbours(node, topology->num_nodes, neighbours);
    int slot = count_of_node(topology, node);
    for (int i = 0; i < count && neighbours[i] < own; i++)
        slot += neighbours[i] > node;
    return slot;
}

static dtrain_status_t call(joining_t *self, int node, int64_t deadline_ns)
{
    const dt_topology_t *topology = self->topology;
    int leader = leader_of(topology, node);
    const dt_detect_place_t *place = &self->places[leader];
    int shares = node == node_of(topology, topology->rank) &&
                 place->network_namespace == self->places[topology->rank].network_namespace;
    dt_sock_names_t names = {.self = topology->rank, .other = leader};
    int fd = -1;
    dtrain_status_t status = dt_sock_reach(&place->address, slot_at(topology, node), &names, shares,
                                           deadline_ns, self->meanwhile, &fd);
    if (status == DTRAIN_OK)
        add_link(self, fd, leader);
    return status;
}

/* Writes the ranks of the slots; returns how many there are, slot 0 being the leader itself. */
static int list_callers(const dt_topology_t *topology, int *callers)
{
    int neighbours[DT_DETECT_NEIGHBOURS_MAX];
    int node = node_of(topology, topology->rank);
    int slots = 0;
    for (int rank = 0; rank < topology->size; rank++) {
        if (topology->peers[rank].node == node)
            callers[slots++] = rank;
    }
    int count = dt_detect_neighbours(node, topology->num_nodes, neighbours);
    for (int i = 0; i < count; i++) {
        if (neighbours[i] > node)
            callers[slots++] = leader_of(topology, neighbours[i]);
    }
    return slots;
}

static dtrain_status_t receive_callers(joining_t *self, const dt_sock_listener_t *listener)
{
    int max = self->max_links + 1;
    int *callers = dt_calloc((size_t)max, 2 * sizeof *callers);
    if (!callers)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the failure detector");
    int *fds = callers + max;
    int slots = list_callers(self->topology, callers);
    dtrain_status_t status = DTRAIN_OK;
    if (slots > 1)
        status = dt_sock_gather(listener, slots, callers, self->deadline_ns - EARLIER_NS,
                                self->meanwhile, fds);
    for (int slot = 1; slot < slots; slot++) {
        if (fds[slot] >= 0)
            add_link(self, fds[slot], callers[slot]);
    }
    dt_free(callers);
    return status;
}

static dtrain_status_t connect_all(joining_t *self, const dt_sock_listener_t *listener)
{
    const dt_topology_t *topology = self->topology;
    int neighbours[DT_DETECT_NEIGHBOURS_MAX];
    int node = node_of(topology, topology->rank);
    if (topology->local_rank != 0)
        return call(self, node, self->deadline_ns);
    dtrain_status_t status = DTRAIN_OK;
    int count = dt_detect_neighbours(node, topology->num_nodes, neighbours);
    for (int i = 0; i < count && neighbours[i] < node && status == DTRAIN_OK; i++)
        status = call(self, neighbours[i], self->deadline_ns - EARLIER_NS);
    return status == DTRAIN_OK ? receive_callers(self, listener) : status;
}

static dtrain_status_t watch_node(joining_t *self)
{
    const dt_topology_t *topology = self->topology;
    const dt_detect_process_t *own = &self->places[topology->rank].process;
    int node = node_of(topology, topology->rank);
    for (int rank = 0; rank < topology->size; rank++) {
        const dt_detect_process_t *process = &self->places[rank].process;
        if (topology->peers[rank].node != node || rank == topology->rank)
            continue;
        dt_detect_watch_t *watch = &self->watches[self->num_watches];
        dtrain_status_t status = dt_detect_process_watch(own, process, &watch->fd);
        if (status != DTRAIN_OK)
            return status;
        watch->rank = rank;
        self->num_watches++;
    }
    return DTRAIN_OK;
}

static dtrain_status_t allocate(joining_t *self)
{
    const dt_topology_t *topology = self->topology;
    int neighbours[DT_DETECT_NEIGHBOURS_MAX];
    int num_neighbours =
        dt_detect_neighbours(node_of(topology, topology->rank), topology->num_nodes, neighbours);
    self->max_links = topology->local_rank == 0 ? num_neighbours + topology->local_size - 1 : 1;
    self->links = dt_calloc((size_t)self->max_links + 1, sizeof *self->links);
    self->watches = dt_calloc((size_t)topology->local_size, sizeof *self->watches);
    if (!self->links || !self->watches)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for the failure detector");
    dt_sock_reserve_descriptors(self->max_links + 2 * topology->local_size);
    return DTRAIN_OK;
}

/* The error's text survives. */
static void give_up(joining_t *self)
{
    for (int i = 0; i < self->num_links; i++)
        dt_detect_link_close(&self->links[i]);
    for (int i = 0; i < self->num_watches; i++) {
        if (self->watches[i].fd >= 0)
            close(self->watches[i].fd);
    }
    dt_free(self->links);
    dt_free(self->watches);
}

dtrain_status_t dt_detector_join(const dt_topology_t *topology, const dt_detect_place_t *places,
                                 dt_sock_listener_t *listener,
                                 const dt_detector_settings_t *settings, int64_t deadline_ns,
                                 dt_sock_meanwhile_t meanwhile, dt_detector_t **detector)
{
    joining_t self = {.topology = topology,
                      .places = places,
                      .settings = settings,
                      .deadline_ns = deadline_ns,
                      .meanwhile = meanwhile};
    dtrain_status_t status = allocate(&self);
    if (status == DTRAIN_OK)
        status = connect_all(&self, listener);
    if (status == DTRAIN_OK)
        status = watch_node(&self);
    dt_sock_listener_free(listener);
    if (status == DTRAIN_OK)
        status = dt_detector_make(topology, settings, self.links, self.num_links, self.watches,
                                  self.num_watches, detector);
    if (status != DTRAIN_OK)
        give_up(&self);
    return status;
}
