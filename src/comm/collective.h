/* collective.h - what every backend asks of the collectives that it is given. */
#ifndef DT_COMM_COLLECTIVE_H
#define DT_COMM_COLLECTIVE_H

#include "comm/backend.h"

/* OK, or INTERNAL and what is wrong with a collective among `size` ranks. `who` names the backend;
 * takes_pieces as in dt_backend_t. */
dtrain_status_t dt_collective_check(const dt_collective_t *collective, int size, int takes_pieces,
                                    const char *who);

/* Whether it has counts by rank. */
int dt_collective_has_counts(const dt_collective_t *collective);

/* Elements of this rank's input and of its output, whether it has one or not. */
int64_t dt_collective_in_count(const dt_collective_t *collective, int rank, int size);
int64_t dt_collective_out_count(const dt_collective_t *collective, int rank, int size);

#endif
