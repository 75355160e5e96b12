/*
 * negotiator.h - rank 0's half of the negotiation: which operations have all ranks submitted,
 * and do they mean the same? Plain data in, a verdict out; no thread, no I/O, no clock.
 *
 * Every name that some rank has submitted has a tally: who is ready, with which signature. When
 * the last rank of its process set has reported, the verdict says "go" (all signatures equal) or
 * "error". The order of verdicts is the order in which every rank starts the operations. Rank 0
 * need not be a member.
 *
 * Join: a rank that has joined a set is not waited for. The verdict on what is decided without it
 * names it and has the whole signature, so that it can stand in with the operation's identity. When
 * all members have joined, all joins are done and nobody has joined any more.
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
#include "core/pset.h"

typedef struct dt_negotiator dt_negotiator_t;

/* Both are borrowed; the sets' `joined` is kept here. NULL when memory ran out. */
dt_negotiator_t *dt_negotiator_create(const dt_topology_t *topology, const dt_psets_t *psets);
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
 * The part of the verdict written last that concerns a rank, since what is agreed on a process set
 * is told to its members only: 0 when all ranks are told the whole, else 1 with a PART in `part`,
 * which is empty when nothing concerns the rank.
 */
int dt_negotiator_part(const dt_negotiator_t *negotiator, int rank, const dt_buffer_t *verdict,
                       dt_buffer_t *part);

/* A process set is removed: forgets its names and ids. None of them waits: the verdict that removes
 * it has failed what did. */
void dt_negotiator_forget(dt_negotiator_t *negotiator, int32_t pset);

/*
 * Logs a warning for each tally that has waited for `after_ns` (then twice as long, and so on),
 * with the ranks that are missing, which are put into `missing` too. Returns when to look again,
 * DT_NEVER when nothing waits.
 */
int64_t dt_negotiator_warn(dt_negotiator_t *negotiator, int64_t after_ns, int64_t now_ns,
                           dt_rank_set_t *missing);

#endif
