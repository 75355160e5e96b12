/*
 * shm_packet.h - what the ranks of a node say to each other while heaps are shared out: packets of
 * one size over a Unix socket, with descriptors beside them.
 */
#ifndef DT_COMM_SHM_SHM_PACKET_H
#define DT_COMM_SHM_SHM_PACKET_H

#include <stdint.h>

#include "comm/sock/sock_control.h"

/* Descriptors beside one packet; the kernel takes 253. */
#define DT_SHM_PACKET_FDS 128

/* Plain bytes, between processes of one machine. */
typedef struct dt_shm_packet {
    int32_t status;   /* dtrain_status_t of who sends it */
    int32_t size;     /* ranks of the node, as who sends it was told */
    uint64_t bytes;   /* of a heap */
    int32_t num_fds;  /* descriptors beside this packet */
    int32_t reserved; /* 0 */
    char text[232];   /* why, when status is an error */
} dt_shm_packet_t;

/* Until when a packet is waited for, and what is done meanwhile. */
typedef struct dt_shm_patience {
    int64_t deadline_ns;
    dt_sock_meanwhile_t meanwhile;
} dt_shm_patience_t;

/* A packet of a status; an error with the thread's last error text. */
dt_shm_packet_t dt_shm_packet_of(dtrain_status_t status);

/* Sends packet->num_fds of `fds` beside it; they stay open. TIMEOUT or COMMUNICATION. */
dtrain_status_t dt_shm_packet_send(int socket, const dt_shm_packet_t *packet, const int *fds,
                                   const dt_shm_patience_t *patience);

/*
 * Receives a packet that has at most DT_SHM_PACKET_FDS descriptors and takes them over: fds has
 * room for as many. The status is that of receiving, not the packet's; when it is an error no
 * descriptor was taken.
 */
dtrain_status_t dt_shm_packet_receive(int socket, dt_shm_packet_t *packet, int *fds,
                                      const dt_shm_patience_t *patience);

/* The status that a packet brought; an error with its text as the last error. */
dtrain_status_t dt_shm_packet_status(const dt_shm_packet_t *packet);

void dt_shm_close_all(const int *fds, int count);

#endif
