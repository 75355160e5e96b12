/*
 * negotiator_state.h - the negotiator from inside, for its files: negotiator.c takes in reports,
 * negotiator_decide.c finds out what can be decided, negotiator_stray.c finds who waits for a call
 * on no set, negotiator_verdict.c tells what was decided, negotiator_text.c puts into words what
 * went wrong.
 */
#ifndef DT_CORE_NEGOTIATOR_STATE_H
#define DT_CORE_NEGOTIATOR_STATE_H

#include "base/map.h"
#include "core/negotiator.h"
#include "core/tally.h"

/* Remembered hashes of (name, signature) pairs that came once. Two pairs that share a place only
 * make one of them wait for its id. */
#define DT_RECENT_COUNT 16384

/* What an id stands for; without a tally it is free, and `variant` the next free one. */
typedef struct dt_cached {
    dt_tally_t *tally;
    int variant;
} dt_cached_t;

/* An entry of the verdict written last. */
typedef struct dt_written {
    size_t end;           /* offset behind it */
    const dt_pset_t *set; /* whom it concerns; NULL: all ranks */
} dt_written_t;

/* Tensors that are agreed on together. */
typedef struct dt_group {
    uint64_t key; /* the signatures' `group` */
    uint32_t num_held;
    dt_tally_t *held;
} dt_group_t;

struct dt_negotiator {
    const dt_topology_t *topology;
    const dt_psets_t *psets;
    dt_map_t names;   /* name → tally */
    dt_map_t groups;  /* key → group of which some tensors are held */
    dt_cached_t *ids; /* by id */
    uint32_t num_ids, ids_capacity;
    int64_t free_id; /* -1: none */
    dt_written_t *written;
    uint32_t num_written, written_capacity;
    int is_partial;          /* some of them do not concern all ranks */
    uint64_t *recent;        /* DT_RECENT_COUNT hashes */
    uint32_t *absent;        /* scratch: one entry a rank */
    dt_tally_list_t waiting; /* some ranks are missing; oldest first */
    dt_tally_list_t decided; /* since the last verdict */
    dt_tally_list_t settled; /* for the next verdicts, in order */
    uint64_t num_settled;
    int has_priorities;             /* of a settled one, at some time */
    int num_strays;                 /* refusals of calls on no set that nobody was given */
    dt_rank_set_t gone;             /* ranks that said BYE */
    dt_rank_set_t some;             /* scratch */
    dt_silent_fn_t describe_silent; /* or NULL */
    void *silent_context;
};

/* Decides a tally that waits for ranks, when it can be. */
dtrain_status_t dt_negotiator_judge(dt_negotiator_t *negotiator, dt_tally_t *tally);

/* The operation fails on all ranks that have submitted it; the first reason stands. */
void dt_negotiator_fail(dt_negotiator_t *negotiator, dt_tally_t *tally, dtrain_status_t status,
                        const char *text);

/* Fails a tally that waits for a rank that has left, or to which one that has joined is needed. */
void dt_negotiator_check_missing(dt_negotiator_t *negotiator, dt_tally_t *tally);

/* Moves what was decided to what is settled. */
void dt_negotiator_settle(dt_negotiator_t *negotiator);

/* Whom a tally waits for; valid until the next call. */
const dt_rank_set_t *dt_negotiator_missing(dt_negotiator_t *negotiator, const dt_tally_t *tally);

/* What a tally waits for, written into `text`. */
const char *dt_negotiator_describe_missing(dt_negotiator_t *negotiator, const dt_tally_t *tally,
                                           char *text, size_t cap);

dtrain_status_t dt_negotiator_no_memory(void);

/* The bare name of a refused call on no set, and its length; NULL: the request is none. */
const char *dt_stray_name(const dt_request_t *request, size_t *length);

/* Notes a rank's refused call in the tally of its bare name, before it is marked there. */
dtrain_status_t dt_stray_note(dt_negotiator_t *negotiator, dt_tally_t *tally, int rank);

/* The rank reports what a refusal was taken for: it counts in its place. */
void dt_stray_supersede(dt_tally_t *tally, int rank);

/* After a rank was marked: gives a refusal to a tally that waits for its rank, if the tally is one
 * of the two and there is the other. */
dtrain_status_t dt_stray_match(dt_negotiator_t *negotiator, dt_tally_t *tally, int rank);

/* The tally is complete: it fails with the refusal that it was given, if any. */
void dt_stray_apply(dt_tally_t *tally);

/* The tally is decided. */
void dt_stray_end(dt_negotiator_t *negotiator, dt_tally_t *tally);

#endif
