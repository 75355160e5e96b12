/*
 * tally.h - what the negotiation knows of one name: who has submitted it, and as what. Rank 0 only.
 */
#ifndef DT_CORE_TALLY_H
#define DT_CORE_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include "core/pset.h"
#include "core/pset_key.h"
#include "core/wire.h"

/* Some ranks' signature for a name, and their stamp. */
typedef struct dt_variant {
    dt_signature_t signature;
    char *definition;  /* of a process set, in a PSET_ADD; else NULL */
    dt_stamp_t stamp;  /* of those who are ready */
    uint32_t id;       /* DT_ID_NONE: not cached */
    dt_rank_set_t who; /* ready with this signature */
} dt_variant_t;

typedef struct dt_tally {
    char *name; /* its key (pset_key.h), zero-terminated */
    size_t length;
    dt_pset_t *set;         /* the world for one that does not exist */
    int is_join;            /* the ranks that join */
    int is_change;          /* of process sets: needs all ranks, joined or not */
    int is_lost;            /* its set does not exist */
    dt_rank_set_t ready;    /* whoever has reported it, in whatever way */
    int num_ready;          /* members of the set among them */
    dt_rank_set_t absent;   /* joined instead, as decided; no bits: never used */
    int last_joined;        /* is_join, as decided */
    dt_variant_t *variants; /* in the order of arrival; cached ones stay between operations */
    int num_variants;
    dt_rank_set_t strays; /* ready by a call on no set (negotiator_stray.c); no bits: never used */
    dtrain_status_t stray_status; /* of such a call, and its text */
    char *stray_text;
    int refused_by;         /* a rank whose call was refused; -1: none */
    dtrain_status_t status; /* when not OK: the operation fails with it, ready or not */
    char *text;
    int64_t since_ns;                 /* the first rank's report */
    int64_t warn_ns;                  /* next warning */
    int is_decided;                   /* in the queue of decided ones, or settled */
    int is_held;                      /* all ranks agree; it waits for the others of its group */
    int32_t priority;                 /* [settled] the highest that a rank gave */
    uint64_t number;                  /* [settled] in the order of becoming so */
    struct dt_tally *next_held;       /* in its group */
    struct dt_tally *next, *previous; /* in the list of waiting, decided or settled ones */
} dt_tally_t;

typedef struct dt_tally_list {
    dt_tally_t *first, *last;
} dt_tally_list_t;

void dt_tally_append(dt_tally_list_t *list, dt_tally_t *tally);
void dt_tally_remove(dt_tally_list_t *list, dt_tally_t *tally);

void dt_variant_free(dt_variant_t *variant);
void dt_tally_free(dt_tally_t *tally);

/* The index of a request's signature and stamp among the tally's variants, added when new; -1:
 * memory ran out. */
int dt_tally_find_variant(dt_tally_t *tally, const dt_request_t *request);

/* What the first rank submitted; NULL when all that came was refused. */
const dt_signature_t *dt_tally_signature(const dt_tally_t *tally);

/* For texts: the kind of operation, and its name with its set. */
const char *dt_tally_kind(const dt_tally_t *tally);
const char *dt_tally_what(const dt_tally_t *tally, char text[DT_KEY_TEXT_MAX]);

/* How much data an agreed operation moves, as far as it is known. */
int64_t dt_tally_bytes(const dt_tally_t *tally);

/* What memory all who are ready have it in. */
dt_memory_t dt_tally_memory(const dt_tally_t *tally);

/* The furthest step of those who are ready; 0: there are no stamps. */
uint32_t dt_tally_step(const dt_tally_t *tally);

/* Errors and barriers, which move no data and so come first. */
int dt_tally_is_light(const dt_tally_t *tally);

/* The first and the second variant that ranks are ready with; *second NULL when all agree. */
void dt_tally_ready(const dt_tally_t *tally, const dt_variant_t **first,
                    const dt_variant_t **second);

/* The transfer that a tally is about; NULL when a rank has submitted something else. */
const dt_signature_t *dt_tally_transfer(const dt_tally_t *tally);

/* Whether ranks that have joined are not waited for. A transfer needs its two ranks, and the others
 * have nothing to give anyway. */
int dt_tally_goes_on_without(const dt_tally_t *tally);

/* Whether enough ranks have reported to decide. A transfer needs two; when those who report do not
 * even agree on which two, nobody else can make it right. */
int dt_tally_is_complete(const dt_tally_t *tally);

/* "…: the ranks' shapes differ: rank 0: [3]; ranks 1-2: [4]": the first field in which two differ,
 * with every value of it that differs from the first. */
void dt_tally_describe_mismatch(const dt_tally_t *tally, const dt_variant_t *first,
                                const dt_variant_t *second, char *text, size_t cap);

/* Why what was agreed cannot go on without the ranks that have joined; 0 when it can. */
int dt_tally_describe_absence(const dt_tally_t *tally, const dt_variant_t *agreed, char *text,
                              size_t cap);

#endif
