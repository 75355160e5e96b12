/*
 * schedule.h - who moves what to whom: index arithmetic alone, no buffers, no transport. All
 * ranks compute the same from the same numbers, so nothing of it is ever sent.
 *
 * Counts are elements, 64-bit, of any size up to INT64_MAX.
 */
#ifndef DT_COMM_ALGO_SCHEDULE_H
#define DT_COMM_ALGO_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

/* Shares and segments start at multiples of this many elements: whole cache lines of fp32. */
#define DT_SCHEDULE_GRAIN 16

/* Elements lo … hi-1; empty when lo == hi. */
typedef struct dt_span {
    int64_t lo, hi;
} dt_span_t;

/*
 * The share of one of n ranks in a vector of `count` elements. Shares are as even as the grain
 * allows; a lower rank's is never shorter than a higher one's, and some are empty where the
 * vector is short.
 */
dt_span_t dt_schedule_share(int64_t count, int n, int rank);

/*
 * Elements of a segment such that it has at most about `segment_bytes` and that the longest of
 * n shares is cut evenly: a multiple of the grain, at least one grain.
 */
int64_t dt_schedule_segment(int64_t count, int n, size_t element_bytes, int64_t segment_bytes);

/* How many segments of `segment` elements cover `count`. */
int64_t dt_schedule_num_segments(int64_t count, int64_t segment);

/* The k-th segment of a span; empty when the span has fewer. */
dt_span_t dt_schedule_cut(dt_span_t span, int64_t segment, int64_t k);

/*
 * Where each rank's part of a vector begins, of which counts[r] elements belong to rank r: n + 1
 * entries, the last one is where it ends. dt_schedule_longest is the longest part's length.
 */
void dt_schedule_places(const int64_t *counts, int n, int64_t *places);
int64_t dt_schedule_longest(const int64_t *places, int n);

/* The rank `step` (0 … n) places further on the ring of n, and as many back. */
int dt_schedule_ahead(int rank, int n, int step);
int dt_schedule_behind(int rank, int n, int step);

/*
 * The binomial tree of n ranks over `root`: the parent of a rank, -1 for the root, and its
 * children, the one with the largest subtree first. Returns how many children there are, at
 * most DT_SCHEDULE_CHILDREN_MAX.
 */
#define DT_SCHEDULE_CHILDREN_MAX 31
int dt_schedule_tree_parent(int rank, int n, int root);
int dt_schedule_tree_children(int rank, int n, int root, int children[DT_SCHEDULE_CHILDREN_MAX]);

/* The chain root, root + 1, … around the ring: who comes before and after; -1 at its ends. */
int dt_schedule_chain_before(int rank, int n, int root);
int dt_schedule_chain_after(int rank, int n, int root);

#endif
