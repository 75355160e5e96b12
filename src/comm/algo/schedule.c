#include "comm/algo/schedule.h"

static int64_t divide_up(int64_t dividend, int64_t divisor)
{
    return dividend / divisor + (dividend % divisor != 0);
}

/* The element at which a grain begins, or the end of the vector; no product overflows. */
static int64_t grain_start(int64_t grain, int64_t num_grains, int64_t count)
{
    return grain < num_grains ? grain * DT_SCHEDULE_GRAIN : count;
}

dt_span_t dt_schedule_share(int64_t count, int n, int rank)
{
    int64_t num_grains = divide_up(count, DT_SCHEDULE_GRAIN);
    int64_t each = num_grains / n;
    int64_t left_over = num_grains % n;
    int64_t first = rank * each + (rank < left_over ? rank : left_over);
    int64_t last = first + each + (rank < left_over);
    return (dt_span_t){grain_start(first, num_grains, count), grain_start(last, num_grains, count)};
}

int64_t dt_schedule_segment(int64_t count, int n, size_t element_bytes, int64_t segment_bytes)
{
    int64_t limit = segment_bytes / (int64_t)element_bytes / DT_SCHEDULE_GRAIN;
    dt_span_t longest = dt_schedule_share(count, n, 0);
    int64_t grains = divide_up(longest.hi - longest.lo, DT_SCHEDULE_GRAIN);
    if (limit < 1)
        limit = 1;
    if (grains < 1)
        return DT_SCHEDULE_GRAIN;
    return divide_up(grains, divide_up(grains, limit)) * DT_SCHEDULE_GRAIN;
}

int64_t dt_schedule_num_segments(int64_t count, int64_t segment)
{
    return divide_up(count, segment);
}

dt_span_t dt_schedule_cut(dt_span_t span, int64_t segment, int64_t k)
{
    int64_t length = span.hi - span.lo;
    if (k >= divide_up(length, segment))
        return (dt_span_t){span.hi, span.hi};
    int64_t lo = span.lo + k * segment;
    return (dt_span_t){lo, span.hi - lo > segment ? lo + segment : span.hi};
}

void dt_schedule_places(const int64_t *counts, int n, int64_t *places)
{
    places[0] = 0;
    for (int rank = 0; rank < n; rank++)
        places[rank + 1] = places[rank] + counts[rank];
}

int64_t dt_schedule_longest(const int64_t *places, int n)
{
    int64_t longest = 0;
    for (int rank = 0; rank < n; rank++) {
        int64_t length = places[rank + 1] - places[rank];
        longest = length > longest ? length : longest;
    }
    return longest;
}

int dt_schedule_ahead(int rank, int n, int step)
{
    return step < n - rank ? rank + step : rank - (n - step);
}

int dt_schedule_behind(int rank, int n, int step)
{
    return step <= rank ? rank - step : rank + (n - step);
}

/*
 * In the tree ranks are counted from the root. The parent of v is v without its lowest set bit;
 * its children are v with one bit more below that bit.
 */
int dt_schedule_tree_parent(int rank, int n, int root)
{
    int v = dt_schedule_behind(rank, n, root);
    return v == 0 ? -1 : dt_schedule_ahead(v & (v - 1), n, root);
}

int dt_schedule_tree_children(int rank, int n, int root, int children[DT_SCHEDULE_CHILDREN_MAX])
{
    int v = dt_schedule_behind(rank, n, root);
    unsigned lowest = v == 0 ? 1u << 31 : (unsigned)v & -(unsigned)v;
    int num_children = 0;
    for (unsigned bit = lowest >> 1; bit > 0; bit >>= 1)
        if (bit < (unsigned)(n - v))
            children[num_children++] = dt_schedule_ahead(v + (int)bit, n, root);
    return num_children;
}

int dt_schedule_chain_before(int rank, int n, int root)
{
    return rank == root ? -1 : dt_schedule_behind(rank, n, 1);
}

int dt_schedule_chain_after(int rank, int n, int root)
{
    int next = dt_schedule_ahead(rank, n, 1);
    return next == root ? -1 : next;
}
