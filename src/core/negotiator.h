/*
 * negotiator.h - rank 0's half of the negotiation: which operations have all ranks submitted,
 * and do they mean the same? Plain data in, a verdict out; no thread, no I/O, no clock.
 *
 * Every name that some rank has submitted has a tally: who is ready, with which signature. When
 * the last rank has reported, the verdict says "go" (all signatures equal) or "error". The order
 * of verdicts is the order in which every rank starts the operations.
 *
 * A tensor of a group waits, once it is agreed on, until all tensors of the group are; when one of
 * them fails, so do all. A transfer takes two ranks, but its verdict goes to all, since all start
 * the same collectives.
 *
 * Cache: when a name comes a second time with the same signature it gets an id, and from then on
 * ranks report it by a bit. Names that come once (a counter in them, say) leave nothing behind.
 */
#ifndef DT_CORE_NEGOTIATOR_H
#define DT_CORE_NEGOTIATOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "comm/topology.h"

typedef struct dt_negotiator dt_negotiator_t;

/* `topology` is borrowed. NULL when memory ran out. */
dt_negotiator_t *dt_negotiator_create(const dt_topology_t *topology);
void dt_negotiator_free(dt_negotiator_t *negotiator);

/* Whom texts of deadlines ask for ranks that are stopped: writes them, or nothing; see
 * dt_detector_describe_silent. */
typedef size_t (*dt_silent_fn_t)(void *context, char *text, size_t cap);
void dt_negotiator_ask_silent(dt_negotiator_t *negotiator, dt_silent_fn_t describe, void *context);

/*
 * Takes in one rank's REPORT, without its header. INTERNAL when it is malformed or contradicts
 * what the rank reported before; OUT_OF_MEMORY. After an error the world cannot go on.
 */
dtrain_status_t dt_negotiator_report(dt_negotiator_t *negotiator, int rank, const void *report,
                                     size_t length, int64_t now_ns);

/* A rank has said BYE: whatever needs it, now and later, fails with SHUT_DOWN. */
dtrain_status_t dt_negotiator_bye(dt_negotiator_t *negotiator, int rank);

/* 1 when every rank has said BYE. */
int dt_negotiator_is_over(const dt_negotiator_t *negotiator);

/*
 * Writes a VERDICT over what was decided since the last one. Returns its number of entries; 0 when
 * there is nothing to say (and nothing was written). Once a program has used priorities, verdicts
 * are in their order and stop when operations of `room` bytes or more are in them, so that what
 * comes later may overtake the rest.
 */
uint32_t dt_negotiator_verdict(dt_negotiator_t *negotiator, int64_t room, dt_buffer_t *verdict);

/*
 * Logs a warning for each tally that has waited for `after_ns` (then twice as long, and so on),
 * with the ranks that are missing. Returns when to look again, DT_NEVER when nothing waits.
 */
int64_t dt_negotiator_warn(dt_negotiator_t *negotiator, int64_t after_ns, int64_t now_ns);

#endif
