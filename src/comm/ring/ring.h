/*
 * ring.h - the ring backend: all collectives, over any p2p transport.
 *
 * Allreduce: a vector of N elements is cut into one share a rank, and shares into segments.
 * Reduce-scatter by shifts of the ring: in step s every rank sends its part of share r + s to rank
 * r + s, so that a share's owner has all ranks' values at hand and reduces them in the canonical
 * order of reduce.h, 16-bit floats in fp32 and rounded once. Then allgather around the ring, each
 * rank passing on to rank r + 1 what it got from r - 1. Segments are pipelined: a few are under way
 * at once. Every byte of a share crosses the wire as often as in the classic ring, 2 (n - 1) / n
 * times, but the order of additions depends on rank numbers alone.
 *
 * A short vector takes one round instead: every rank sends all of it to every other, and all
 * reduce the same values in the same order, to the same bits.
 *
 * The other kinds are parts of that, or simpler:
 *
 *     reduce          the shares' owners send their results to the root; of a short vector, all
 *                     send everything to the root
 *     reduce-scatter  shares are what each rank gets, and stay there
 *     allgather       shares are what each rank brings, and go around the ring; short ones from
 *                     each rank to each
 *     exchange        from each rank to each, a few pairs at a time
 *     broadcast       down a binomial tree when it is short, else in segments along the chain
 *                     root, root + 1, …
 *
 * Sets of ranks are rings on the same transport, with tags of their own. MPI promises no more than
 * 32768 tags: a ring has some for every segment that may be under way of a collective, and for as
 * many collectives as fit: 256 of the world's at the usual number of segments, and 14 of a set's.
 */
#ifndef DT_COMM_RING_RING_H
#define DT_COMM_RING_RING_H

#include "comm/backend.h"
#include "comm/p2p.h"

/* A ring uses the tags from 0 up to here, so that another one can share its transport; the rest is
 * for sets. */
#define DT_RING_TAG_COUNT 2048
#define DT_RING_SETS_TAG (2 * DT_RING_TAG_COUNT)
#define DT_RING_SET_TAG_COUNT 112

/* Sizes that only tests change, but for those of rings beside the world's; zero means default. They
 * do not change the bits. */
typedef struct dt_ring_tuning {
    int64_t segment_bytes;  /* longest message */
    int segments_in_flight; /* at most 16 */
    int64_t direct_bytes;   /* longest vector that goes in one round; -1: none */
    int tag_count;
} dt_ring_tuning_t;

/* Takes over `p2p`, also on error. `tuning` may be NULL. */
dtrain_status_t dt_ring_create(dt_p2p_t *p2p, const dt_ring_tuning_t *tuning,
                               dt_backend_t **backend);

#endif
