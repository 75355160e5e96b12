/*
 * p2p.h - the vtable under the ring backend: messages between any two ranks, without blocking.
 * Implemented over MPI and, for tests, between threads of one process.
 */
#ifndef DT_COMM_P2P_H
#define DT_COMM_P2P_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

/* Longest message in bytes, and one above the highest tag. */
#define DT_P2P_MESSAGE_MAX (1u << 30)
#define DT_P2P_TAG_COUNT 32768

/* A send or receive under way. All zeros: none, and test says it is complete. */
typedef struct dt_p2p_request {
    uint64_t word[2]; /* the transport's own */
} dt_p2p_request_t;

typedef struct dt_p2p dt_p2p_t;

/* Messages of the same peer and tag match in the order of the calls. The buffer is borrowed
 * until test has said complete. A receive's length is the length sent. */
typedef struct dt_p2p_ops {
    const char *name;
    dtrain_status_t (*send)(dt_p2p_t *p2p, int peer, int tag, const void *data, size_t length,
                            dt_p2p_request_t *request);
    dtrain_status_t (*receive)(dt_p2p_t *p2p, int peer, int tag, void *data, size_t length,
                               dt_p2p_request_t *request);
    /* OK: complete (the request is zeroed); IN_PROGRESS; or an error with a text. */
    dtrain_status_t (*test)(dt_p2p_t *p2p, dt_p2p_request_t *request);
    /* See dt_backend_ops_t.destroy. Requests still under way are given up. */
    void (*destroy)(dt_p2p_t *p2p, int clean);
    /* See dt_backend_ops_t.linger; NULL where complete means delivered. */
    void (*linger)(dt_p2p_t *p2p);
} dt_p2p_ops_t;

/* First member of every p2p transport. */
struct dt_p2p {
    const dt_p2p_ops_t *ops;
    int rank, size; /* [const] */
};

#endif
