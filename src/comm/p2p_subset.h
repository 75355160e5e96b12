/* p2p_subset.h - some ranks of a p2p transport, numbered anew, as a transport of their own. */
#ifndef DT_COMM_P2P_SUBSET_H
#define DT_COMM_P2P_SUBSET_H

#include "comm/p2p.h"

/*
 * Rank i of the subset is rank ranks[i] of `parent`, which is one of them. Its tag t is the
 * parent's first_tag + t, so that others on the same parent keep to tags of their own.
 *
 * The parent is borrowed, and does everything: so it is the parent's destroy that gives messages
 * under way up, and when that may be needed it comes before the subset's, and before their buffers
 * are freed.
 */
dtrain_status_t dt_p2p_subset_create(dt_p2p_t *parent, const int *ranks, int size, int first_tag,
                                     dt_p2p_t **subset);

#endif
