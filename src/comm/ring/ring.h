/*
 * ring.h - the ring backend: allreduce and broadcast over any p2p transport.
 *
 * A vector of N elements is cut into one share a rank, and shares into segments. Reduce-scatter
 * by shifts of the ring: in step s every rank sends its part of share r + s to rank r + s, so that
 * a share's owner has all ranks' values at hand and reduces them in the canonical order of
 * reduce.h, 16-bit floats in fp32 and rounded once. Then allgather around the ring, each rank
 * passing on to rank r + 1 what it got from r - 1. Segments are pipelined: a few are under way at
 * once. Every byte of a share crosses the wire as often as in the classic ring, 2 (n - 1) / n
 * times, but the order of additions depends on rank numbers alone.
 *
 * A short vector takes one round instead: every rank sends all of it to every other, and all
 * reduce the same values in the same order, to the same bits. Broadcast goes down a binomial tree
 * when it is short, else in segments along the chain root, root + 1, …
 *
 * At most 512 collectives may be under way at once.
 */
#ifndef DT_COMM_RING_RING_H
#define DT_COMM_RING_RING_H

#include "comm/backend.h"
#include "comm/p2p.h"

/* A ring uses the tags from 0 up to here: half of all, so that two can share a transport. */
#define DT_RING_TAG_COUNT (DT_P2P_TAG_COUNT / 2)

/* Sizes that only tests change; zero means default. They do not change the bits. */
typedef struct dt_ring_tuning {
    int64_t segment_bytes;  /* longest message */
    int segments_in_flight; /* at most 16 */
    int64_t direct_bytes;   /* longest vector that goes in one round; -1: none */
} dt_ring_tuning_t;

/* Takes over `p2p`, also on error. `tuning` may be NULL. */
dtrain_status_t dt_ring_create(dt_p2p_t *p2p, const dt_ring_tuning_t *tuning,
                               dt_backend_t **backend);

#endif
