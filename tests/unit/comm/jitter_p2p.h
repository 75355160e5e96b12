/*
 * jitter_p2p.h - a p2p transport around another that holds back the news of completion at random
 * and watches what its user does with borrowed memory. For tests.
 */
#ifndef DT_TEST_JITTER_P2P_H
#define DT_TEST_JITTER_P2P_H

#include <stdint.h>

#include "comm/p2p.h"

/* What the transports of a test have seen; one for each rank's. */
typedef struct jitter_report {
    int num_overlaps;  /* a receive was begun into memory that another request still uses */
    int num_scribbles; /* the memory of a send changed before the send was complete */
    int num_left;      /* requests under way when the transport was destroyed */
    int num_empty;     /* messages without bytes */
    int64_t num_messages;
    int64_t longest;   /* bytes */
    uint64_t last_sum; /* of the memory of a request that was left */
} jitter_report_t;

/*
 * Takes over `inner`. After `fail_after` calls of test, test fails with COMMUNICATION; -1: never.
 * `report` must outlive the transport. NULL when memory ran out.
 */
dt_p2p_t *jitter_p2p_create(dt_p2p_t *inner, uint64_t seed, int64_t fail_after,
                            jitter_report_t *report);

#endif
