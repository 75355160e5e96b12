/*
 * detect_join.h - how detectors come to be connected:
 *
 *   1. each rank makes its place (dt_detect_place_make); the lowest rank of a node, its leader,
 *      listens;
 *   2. the bootstrap brings all places to all ranks;
 *   3. each rank connects to its node's leader, and each leader to leaders of other nodes
 *      (dt_detector_join). The higher of two connects to the lower one, so the lowest wait for
 *      nobody, and nobody waits in a circle.
 *
 * Then nobody listens any more. Neighbours of a node are, with the nodes in a ring, those 1, 2, 4,
 * … behind it and before it.
 */
#ifndef DT_COMM_DETECT_DETECT_JOIN_H
#define DT_COMM_DETECT_DETECT_JOIN_H

#include "base/clock.h"
#include "comm/detect/detect_process.h"
#include "comm/detector.h"
#include "comm/sock/sock_control.h"
#include "comm/topology.h"

/* What a rank tells all others: plain bytes of a fixed size. */
typedef struct dt_detect_place {
    dt_detect_process_t process;
    uint64_t network_namespace; /* Unix sockets reach no further */
    dt_sock_address_t address;  /* a leader's */
} dt_detect_place_t;

typedef struct dt_detector_settings {
    int64_t heartbeat_ns;
    int64_t timeout_ns; /* a node that acknowledges nothing for so long is lost */
    dt_clock_t clock;
} dt_detector_settings_t;

/* `between_nodes`: TCP is needed too. *listener stays NULL but on a leader that has company. */
dtrain_status_t dt_detect_place_make(const dt_topology_t *topology, int between_nodes,
                                     const char *network_interface, dt_detect_place_t *place,
                                     dt_sock_listener_t **listener);

/*
 * Connects, until the deadline (dt_now_ns), and takes the listener in every case. `places` has an
 * entry a rank. The topology's peers are borrowed until the detector is destroyed. TIMEOUT,
 * COMMUNICATION, OUT_OF_MEMORY: on this rank alone; the bootstrap tells the others.
 */
dtrain_status_t dt_detector_join(const dt_topology_t *topology, const dt_detect_place_t *places,
                                 dt_sock_listener_t *listener,
                                 const dt_detector_settings_t *settings, int64_t deadline_ns,
                                 dt_sock_meanwhile_t meanwhile, dt_detector_t **detector);

#define DT_DETECT_NEIGHBOURS_MAX 64

/* The neighbours of a node among `num_nodes`, in ascending order. Returns how many. */
int dt_detect_neighbours(int node, int num_nodes, int neighbours[DT_DETECT_NEIGHBOURS_MAX]);

#endif
