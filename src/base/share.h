/* share.h - how things are dealt out to ranks. */
#ifndef DT_BASE_SHARE_H
#define DT_BASE_SHARE_H

#include <stdint.h>

/* The part [*begin, *end) of `rank` of `size` of `count` things: parts follow each other and differ
 * in length by one at most, the longer ones first. */
void dt_share(int64_t count, int rank, int size, int64_t *begin, int64_t *end);

#endif
