#include "core/negotiator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/pset_key.h"
#include "core/wire.h"

/* Remembered hashes of (name, signature) pairs that came once. Two pairs that share a place only
 * make one of them wait for its id. */
#define RECENT_COUNT 16384

/* Signatures of one name that get an id; the shapes of a name that changes with every step are
 * not remembered beyond that. */
#define VARIANTS_CACHED_MAX 64

/* Some ranks' signature for a name. */
typedef struct variant {
    dt_signature_t signature;
    char *definition;  /* of a process set, in a PSET_ADD; else NULL */
    uint32_t id;       /* DT_ID_NONE: not cached */
    dt_rank_set_t who; /* ready with this signature */
} variant_t;

typedef struct tally {
    char *name; /* its key (pset_key.h), zero-terminated */
    size_t length;
    dt_pset_t *set;       /* the world for one that does not exist */
    int is_join;          /* the ranks that join */
    int is_change;        /* of process sets: needs all ranks, joined or not */
    int is_lost;          /* its set does not exist */
    dt_rank_set_t ready;  /* whoever has reported it, in whatever way */
    int num_ready;        /* members of the set among them */
    dt_rank_set_t absent; /* joined instead, as decided; no bits: never used */
    int last_joined;      /* is_join, as decided */
    variant_t *variants;  /* in the order of arrival; cached ones stay between operations */
    int num_variants;
    int refused_by;         /* a rank whose call was refused; -1: none */
    dtrain_status_t status; /* when not OK: the operation fails with it, ready or not */
    char *text;
    int64_t since_ns;              /* the first rank's report */
    int64_t warn_ns;               /* next warning */
    int is_decided;                /* in the queue of decided ones, or settled */
    int is_held;                   /* all ranks agree; it waits for the others of its group */
    int32_t priority;              /* [settled] the highest that a rank gave */
    uint64_t number;               /* [settled] in the order of becoming so */
    struct tally *next_held;       /* in its group */
    struct tally *next, *previous; /* in the list of waiting, decided or settled ones */
} tally_t;

typedef struct list {
    tally_t *first, *last;
} list_t;

/* What an id stands for; without a tally it is free, and `variant` the next free one. */
typedef struct cached {
    tally_t *tally;
    int variant;
} cached_t;

/* An entry of the verdict written last. */
typedef struct written {
    size_t end;           /* offset behind it */
    const dt_pset_t *set; /* whom it concerns; NULL: all ranks */
} written_t;

/* Tensors that are agreed on together. */
typedef struct group {
    uint64_t key; /* the signatures' `group` */
    uint32_t num_held;
    tally_t *held;
} group_t;

struct dt_negotiator {
    const dt_topology_t *topology;
    const dt_psets_t *psets;
    dt_map_t names;  /* name → tally */
    dt_map_t groups; /* key → group of which some tensors are held */
    cached_t *ids;   /* by id */
    uint32_t num_ids, ids_capacity;
    int64_t free_id; /* -1: none */
    written_t *written;
    uint32_t num_written, written_capacity;
    int is_partial;   /* some of them do not concern all ranks */
    uint64_t *recent; /* RECENT_COUNT hashes */
    uint32_t *absent; /* scratch: one entry a rank */
    list_t waiting;   /* some ranks are missing; oldest first */
    list_t decided;   /* since the last verdict */
    list_t settled;   /* for the next verdicts, in order */
    uint64_t num_settled;
    int has_priorities;             /* of a settled one, at some time */
    dt_rank_set_t gone;             /* ranks that said BYE */
    dt_rank_set_t some;             /* scratch */
    dt_silent_fn_t describe_silent; /* or NULL */
    void *silent_context;
};

static void list_append(list_t *list, tally_t *tally)
{
    tally->next = NULL;
    tally->previous = list->last;
    if (list->last)
        list->last->next = tally;
    else
        list->first = tally;
    list->last = tally;
}

static void list_remove(list_t *list, tally_t *tally)
{
    if (tally->previous)
        tally->previous->next = tally->next;
    else
        list->first = tally->next;
    if (tally->next)
        tally->next->previous = tally->previous;
    else
        list->last = tally->previous;
}

dt_negotiator_t *dt_negotiator_create(const dt_topology_t *topology, const dt_psets_t *psets)
{
    dt_negotiator_t *negotiator = dt_calloc(1, sizeof *negotiator);
    if (!negotiator)
        return NULL;
    negotiator->topology = topology;
    negotiator->psets = psets;
    negotiator->free_id = -1;
    negotiator->recent = dt_calloc(RECENT_COUNT, sizeof *negotiator->recent);
    negotiator->absent = dt_calloc((size_t)topology->size, sizeof *negotiator->absent);
    if (dt_rank_set_init(&negotiator->gone, topology->size) ||
        dt_rank_set_init(&negotiator->some, topology->size) || !negotiator->recent ||
        !negotiator->absent) {
        dt_negotiator_free(negotiator);
        return NULL;
    }
    return negotiator;
}

static void variant_free(variant_t *variant)
{
    dt_rank_set_free(&variant->who);
    dt_free(variant->definition);
}

static void tally_free(tally_t *tally)
{
    for (int i = 0; i < tally->num_variants; i++)
        variant_free(&tally->variants[i]);
    dt_free(tally->variants);
    dt_rank_set_free(&tally->ready);
    dt_rank_set_free(&tally->absent);
    dt_free(tally->text);
    dt_free(tally->name);
    dt_free(tally);
}

void dt_negotiator_free(dt_negotiator_t *negotiator)
{
    if (!negotiator)
        return;
    size_t at = 0;
    for (tally_t *tally; (tally = dt_map_next(&negotiator->names, &at));)
        tally_free(tally);
    at = 0;
    for (group_t *group; (group = dt_map_next(&negotiator->groups, &at));)
        dt_free(group);
    dt_map_free(&negotiator->groups);
    dt_map_free(&negotiator->names);
    dt_rank_set_free(&negotiator->gone);
    dt_rank_set_free(&negotiator->some);
    dt_free(negotiator->written);
    dt_free(negotiator->recent);
    dt_free(negotiator->absent);
    dt_free(negotiator->ids);
    dt_free(negotiator);
}

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory in the negotiation");
}

/* What a tally is about follows from its key. */
static void classify(dt_negotiator_t *negotiator, tally_t *tally)
{
    const char *name;
    int32_t pset = dt_pset_key_read(tally->name, tally->length, &name);
    tally->set = dt_psets_find(negotiator->psets, pset);
    tally->is_lost = !tally->set;
    if (!tally->set)
        tally->set = dt_psets_find(negotiator->psets, DTRAIN_PSET_WORLD);
    tally->is_join = strcmp(name, DT_NAME_JOIN) == 0;
    tally->is_change = strcmp(name, DT_NAME_PSET) == 0;
}

/* The name's tally, made when there is none; NULL when memory ran out. */
static tally_t *find_tally(dt_negotiator_t *negotiator, const char *name, size_t length)
{
    tally_t *tally = dt_map_get(&negotiator->names, name, length);
    if (tally)
        return tally;
    tally = dt_calloc(1, sizeof *tally);
    if (!tally)
        return NULL;
    tally->refused_by = -1;
    tally->length = length;
    tally->name = dt_alloc(length + 1);
    if (!tally->name || dt_rank_set_init(&tally->ready, negotiator->topology->size)) {
        tally_free(tally);
        return NULL;
    }
    memcpy(tally->name, name, length);
    tally->name[length] = '\0';
    classify(negotiator, tally);
    if (dt_map_add(&negotiator->names, tally->name, length, tally)) {
        tally_free(tally);
        return NULL;
    }
    return tally;
}

static int is_variant(const variant_t *variant, const dt_request_t *request)
{
    if (!dt_signature_equal(&variant->signature, &request->signature))
        return 0;
    return !variant->definition ||
           (strlen(variant->definition) == request->text_length &&
            memcmp(variant->definition, request->text, request->text_length) == 0);
}

/* The index of a request's signature among the tally's variants, added when new; -1: memory ran
 * out. */
static int find_variant(dt_negotiator_t *negotiator, tally_t *tally, const dt_request_t *request)
{
    for (int i = 0; i < tally->num_variants; i++) {
        if (is_variant(&tally->variants[i], request))
            return i;
    }
    size_t bytes = ((size_t)tally->num_variants + 1) * sizeof *tally->variants;
    variant_t *variants = dt_realloc(tally->variants, bytes);
    if (!variants)
        return -1;
    tally->variants = variants;
    variant_t *variant = &variants[tally->num_variants];
    memset(variant, 0, sizeof *variant);
    variant->signature = request->signature;
    variant->id = DT_ID_NONE;
    if (request->signature.kind == DT_KIND_PSET_ADD) {
        variant->definition = dt_alloc(request->text_length + 1);
        if (!variant->definition)
            return -1;
        memcpy(variant->definition, request->text, request->text_length);
        variant->definition[request->text_length] = '\0';
    }
    if (dt_rank_set_init(&variant->who, negotiator->topology->size)) {
        variant_free(variant);
        return -1;
    }
    return tally->num_variants++;
}

static void decide(dt_negotiator_t *negotiator, tally_t *tally)
{
    if (tally->is_decided)
        return;
    tally->is_decided = 1;
    tally->is_held = 0;
    /* Whatever is decided from here on finds that nobody has joined. */
    if (tally->is_join) {
        tally->last_joined = tally->set->last_joined;
        dt_rank_set_clear(&tally->set->joined);
    }
    list_remove(&negotiator->waiting, tally);
    list_append(&negotiator->decided, tally);
}

/* The operation fails on all ranks that have submitted it; the first reason stands. */
static void decide_error(dt_negotiator_t *negotiator, tally_t *tally, dtrain_status_t status,
                         const char *text)
{
    if (tally->status == DTRAIN_OK) {
        tally->status = status;
        tally->text = dt_strdup(text); /* NULL: an error without a text */
    }
    decide(negotiator, tally);
}

/* What the first rank submitted; NULL when all that came was refused. */
static const dt_signature_t *tally_signature(const tally_t *tally)
{
    for (int i = 0; i < tally->num_variants; i++) {
        if (tally->variants[i].who.count > 0)
            return &tally->variants[i].signature;
    }
    return NULL;
}

static const char *tally_kind(const tally_t *tally)
{
    const dt_signature_t *signature = tally_signature(tally);
    return dt_kind_name(signature ? signature->kind : 0);
}

/* How much data an agreed operation moves, as far as it is known. */
static int64_t tally_bytes(const tally_t *tally)
{
    const dt_signature_t *signature = tally_signature(tally);
    return dt_signature_count(signature) * (int64_t)dt_dtype_size((dtrain_dtype_t)signature->dtype);
}

static const char *tally_what(const tally_t *tally, char text[DT_KEY_TEXT_MAX])
{
    return dt_pset_key_describe(tally->name, tally->length, text, DT_KEY_TEXT_MAX);
}

static int variants_agree(const variant_t *a, const variant_t *b)
{
    return dt_signature_agrees(&a->signature, &b->signature) &&
           (!a->definition || strcmp(a->definition, b->definition) == 0);
}

/* The first and the second variant that ranks are ready with; *second NULL when all agree. */
static void ready_variants(const tally_t *tally, const variant_t **first, const variant_t **second)
{
    *first = *second = NULL;
    for (int i = 0; i < tally->num_variants && !*second; i++) {
        const variant_t *variant = &tally->variants[i];
        if (variant->who.count == 0)
            continue;
        if (!*first)
            *first = variant;
        else if (!variants_agree(*first, variant))
            *second = variant;
    }
}

/* The transfer that a tally is about; NULL when a rank has submitted something else. */
static const dt_signature_t *transfer_of(const tally_t *tally)
{
    const dt_signature_t *transfer = NULL;
    for (int i = tally->num_variants - 1; i >= 0; i--) {
        if (tally->variants[i].who.count == 0)
            continue;
        transfer = &tally->variants[i].signature;
        if (transfer->kind != DT_KIND_TRANSFER)
            return NULL;
    }
    return transfer;
}

/* Whether ranks that have joined are not waited for. A transfer needs its two ranks, and the others
 * have nothing to give anyway. */
static int goes_on_without(const tally_t *tally)
{
    return tally->set->joined.count > 0 && !tally->is_join && !tally->is_change &&
           !transfer_of(tally);
}

/* The ranks that the tally waits for: in the negotiator's scratch. */
static const dt_rank_set_t *missing_ranks(dt_negotiator_t *negotiator, const tally_t *tally)
{
    dt_rank_set_t *missing = &negotiator->some;
    const dt_signature_t *transfer = transfer_of(tally);
    if (transfer) {
        dt_rank_set_clear(missing);
        dt_rank_set_add(missing, transfer->root);
        dt_rank_set_add(missing, transfer->peer);
        dt_rank_set_subtract(missing, missing, &tally->ready);
        return missing;
    }
    dt_rank_set_subtract(missing, &tally->set->members, &tally->ready);
    if (goes_on_without(tally))
        dt_rank_set_subtract(missing, missing, &tally->set->joined);
    return missing;
}

/* Whether enough ranks have reported to decide. A transfer needs two; when those who report do not
 * even agree on which two, nobody else can make it right. */
static int is_complete(const tally_t *tally)
{
    const variant_t *first, *second;
    const dt_pset_t *set = tally->set;
    const dt_signature_t *transfer = transfer_of(tally);
    if (transfer) {
        ready_variants(tally, &first, &second);
        return second || (dt_rank_set_has(&tally->ready, transfer->root) &&
                          dt_rank_set_has(&tally->ready, transfer->peer));
    }
    return tally->num_ready == set->size ||
           (goes_on_without(tally) &&
            dt_rank_set_is_covered(&set->members, &tally->ready, &set->joined));
}

static const char *describe_missing(dt_negotiator_t *negotiator, const tally_t *tally, char *text,
                                    size_t cap)
{
    if (tally->is_held)
        snprintf(text, cap, "the others of its group");
    else
        dt_rank_set_describe(missing_ranks(negotiator, tally), 0, text, cap);
    return text;
}

/* Fails a tally that waits for a rank that has left, or to which one that has joined is needed. */
static void check_missing(dt_negotiator_t *negotiator, tally_t *tally)
{
    const dt_rank_set_t *gone = &negotiator->gone, *joined = &tally->set->joined;
    int needs_joined = joined->count > 0 && (tally->is_change || transfer_of(tally));
    if (tally->is_held || (gone->count == 0 && !needs_joined))
        return;
    const dt_rank_set_t *missing = missing_ranks(negotiator, tally);
    for (int rank = 0; rank < missing->size; rank++) {
        int has_joined = needs_joined && dt_rank_set_has(joined, rank);
        if (!dt_rank_set_has(missing, rank) || (!has_joined && !dt_rank_set_has(gone, rank)))
            continue;
        char text[DT_ERROR_MAX], what[DT_KEY_TEXT_MAX];
        snprintf(text, sizeof text, "%s %s needs rank %d, which has called %s", tally_kind(tally),
                 tally_what(tally, what), rank, has_joined ? "dtrain_join" : "dtrain_shutdown");
        decide_error(negotiator, tally,
                     has_joined ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_ERR_SHUT_DOWN, text);
        return;
    }
}

/* All ranks agree on one of a group's tensors: it is decided with the last one of the group. */
static dtrain_status_t hold(dt_negotiator_t *negotiator, tally_t *tally,
                            const dt_signature_t *signature)
{
    const char *key = (const char *)&signature->group;
    group_t *group = dt_map_get(&negotiator->groups, key, sizeof signature->group);
    if (!group) {
        group = dt_calloc(1, sizeof *group);
        if (!group)
            return no_memory();
        group->key = signature->group;
        if (dt_map_add(&negotiator->groups, (const char *)&group->key, sizeof group->key, group)) {
            dt_free(group);
            return no_memory();
        }
    }
    tally->is_held = 1;
    tally->next_held = group->held;
    group->held = tally;
    if (++group->num_held < signature->group_size)
        return DTRAIN_OK;
    dt_map_remove(&negotiator->groups, (const char *)&group->key, sizeof group->key);
    for (tally_t *member = group->held; member; member = member->next_held)
        decide(negotiator, member);
    dt_free(group);
    return DTRAIN_OK;
}

/* Whatever is still waiting of a group fails with it. */
static void fail_group(dt_negotiator_t *negotiator, const dt_signature_t *signature,
                       const tally_t *culprit)
{
    char text[DT_ERROR_MAX];
    uint64_t key = signature->group; /* the signature may move */
    snprintf(text, sizeof text, "a group of %u: %.900s", signature->group_size,
             culprit->text ? culprit->text : culprit->name);
    dt_free(dt_map_remove(&negotiator->groups, (const char *)&key, sizeof key));
    for (tally_t *tally = negotiator->waiting.first, *next; tally; tally = next) {
        next = tally->next;
        for (int i = 0; i < tally->num_variants; i++) {
            if (tally->variants[i].who.count > 0 && tally->variants[i].signature.group == key) {
                decide_error(negotiator, tally, culprit->status, text);
                break;
            }
        }
    }
}

/* Everyone is there, or has joined: notes who has joined instead. */
static dtrain_status_t note_absent(dt_negotiator_t *negotiator, tally_t *tally)
{
    if (!goes_on_without(tally))
        return DTRAIN_OK;
    if (!tally->absent.bits && dt_rank_set_init(&tally->absent, negotiator->topology->size))
        return no_memory();
    dt_rank_set_subtract(&tally->absent, &tally->set->members, &tally->ready);
    return DTRAIN_OK;
}

/* Enough ranks have reported. */
static dtrain_status_t complete(dt_negotiator_t *negotiator, tally_t *tally)
{
    const variant_t *first, *second;
    dtrain_status_t status = note_absent(negotiator, tally);
    if (status != DTRAIN_OK)
        return status;
    ready_variants(tally, &first, &second);
    if (first && !second && first->signature.group && tally->status == DTRAIN_OK)
        return hold(negotiator, tally, &first->signature);
    decide(negotiator, tally);
    return DTRAIN_OK;
}

/* Decides a tally that waits for ranks, when it can be. */
static dtrain_status_t judge(dt_negotiator_t *negotiator, tally_t *tally)
{
    if (tally->is_held)
        return DTRAIN_OK;
    if (is_complete(tally))
        return complete(negotiator, tally);
    check_missing(negotiator, tally);
    return DTRAIN_OK;
}

/* A thread of a rank that has joined was a little late: it takes part after all. */
static void take_late(tally_t *tally)
{
    if (tally->absent.bits)
        dt_rank_set_subtract(&tally->absent, &tally->absent, &tally->ready);
}

/* Notes that a rank has reported the name. */
static dtrain_status_t mark(dt_negotiator_t *negotiator, tally_t *tally, int rank, int64_t now_ns)
{
    if (tally->ready.count == 0) {
        tally->since_ns = now_ns;
        tally->warn_ns = 0;
        list_append(&negotiator->waiting, tally);
    }
    if (!dt_rank_set_add(&tally->ready, rank))
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d reported '%.200s' twice", rank, tally->name);
    tally->num_ready += dt_rank_set_has(&tally->set->members, rank);
    if (tally->is_decided || tally->is_held) {
        take_late(tally);
        return DTRAIN_OK;
    }
    if (tally->is_lost) {
        char text[DT_ERROR_MAX], what[DT_KEY_TEXT_MAX];
        snprintf(text, sizeof text, "%s %s: the process set was removed", tally_kind(tally),
                 tally_what(tally, what));
        decide_error(negotiator, tally, DTRAIN_ERR_INVALID_ARGUMENT, text);
        return DTRAIN_OK;
    }
    return judge(negotiator, tally);
}

/* A rank joins a set: what waits on it for this rank alone goes on. */
static dtrain_status_t take_join(dt_negotiator_t *negotiator, const tally_t *join, int rank)
{
    dt_pset_t *set = join->set;
    dt_rank_set_add(&set->joined, rank);
    set->last_joined = rank;
    dtrain_status_t status = DTRAIN_OK;
    for (tally_t *tally = negotiator->waiting.first, *next; tally && status == DTRAIN_OK;
         tally = next) {
        next = tally->next;
        if (tally->set != set || tally == join)
            continue;
        status = judge(negotiator, tally);
        /* The last of a group takes the others along, which may be next. */
        if (tally->is_decided && tally_signature(tally) && tally_signature(tally)->group)
            next = negotiator->waiting.first;
    }
    return status;
}

static dtrain_status_t take_ready(dt_negotiator_t *negotiator, int rank, uint32_t id,
                                  int64_t now_ns)
{
    if (id >= negotiator->num_ids || !negotiator->ids[id].tally)
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d reported id %u, which was never given", rank,
                       id);
    tally_t *tally = negotiator->ids[id].tally;
    dt_rank_set_add(&tally->variants[negotiator->ids[id].variant].who, rank);
    return mark(negotiator, tally, rank, now_ns);
}

static dtrain_status_t take_bits(dt_negotiator_t *negotiator, int rank, dt_reader_t *reader,
                                 int64_t now_ns)
{
    uint32_t first = dt_get_u32(reader);
    uint32_t words = dt_get_u32(reader);
    for (uint32_t w = 0; w < words && !reader->failed; w++) {
        uint64_t bits = dt_get_u64(reader);
        while (bits) {
            uint64_t id = 64 * ((uint64_t)first + w) + (uint64_t)__builtin_ctzll(bits);
            bits &= bits - 1;
            if (id >= DT_ID_NONE)
                return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d reported a wrong id", rank);
            dtrain_status_t status = take_ready(negotiator, rank, (uint32_t)id, now_ns);
            if (status != DTRAIN_OK)
                return status;
        }
    }
    return DTRAIN_OK;
}

static void take_refusal(tally_t *tally, int rank, const dt_request_t *request)
{
    if (tally->refused_by >= 0)
        return;
    char text[DT_ERROR_MAX];
    snprintf(text, sizeof text, "rank %d: %.*s", rank, (int)request->text_length, request->text);
    tally->refused_by = rank;
    tally->status = (dtrain_status_t)request->status;
    tally->text = dt_strdup(text);
}

static dtrain_status_t take_wish(dt_negotiator_t *negotiator, tally_t *tally, int rank,
                                 const dt_request_t *request)
{
    if (!dt_rank_set_has(&tally->set->members, rank))
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d reported '%.200s' of a set that it is not in",
                       rank, tally->name);
    int variant = find_variant(negotiator, tally, request);
    if (variant < 0)
        return no_memory();
    dt_rank_set_add(&tally->variants[variant].who, rank);
    return DTRAIN_OK;
}

static dtrain_status_t take_request(dt_negotiator_t *negotiator, int rank,
                                    const dt_request_t *request, int64_t now_ns)
{
    tally_t *tally = find_tally(negotiator, request->name, request->name_length);
    if (!tally)
        return no_memory();
    dtrain_status_t status = DTRAIN_OK;
    if (request->status != DTRAIN_OK)
        take_refusal(tally, rank, request);
    else
        status = take_wish(negotiator, tally, rank, request);
    if (status == DTRAIN_OK && tally->is_join && request->status == DTRAIN_OK && !tally->is_lost)
        status = take_join(negotiator, tally, rank);
    return status == DTRAIN_OK ? mark(negotiator, tally, rank, now_ns) : status;
}

void dt_negotiator_ask_silent(dt_negotiator_t *negotiator, dt_silent_fn_t describe, void *context)
{
    negotiator->describe_silent = describe;
    negotiator->silent_context = context;
}

/* A rank's deadline for a name has passed. It may be decided by now: then that stands. */
static void take_withdrawal(dt_negotiator_t *negotiator, int rank, double seconds, const char *name,
                            size_t length)
{
    tally_t *tally = dt_map_get(&negotiator->names, name, length);
    if (!tally || tally->is_decided || !dt_rank_set_has(&tally->ready, rank))
        return;
    char missing[256], silent[DT_ERROR_MAX / 3] = "", text[DT_ERROR_MAX], what[DT_KEY_TEXT_MAX];
    describe_missing(negotiator, tally, missing, sizeof missing);
    if (negotiator->describe_silent)
        negotiator->describe_silent(negotiator->silent_context, silent, sizeof silent);
    snprintf(text, sizeof text,
             "%s %s was given up by rank %d after its deadline of %.3g s: %s did not submit it%s%s",
             tally_kind(tally), tally_what(tally, what), rank, seconds, missing,
             silent[0] ? "; " : "", silent);
    decide_error(negotiator, tally, DTRAIN_ERR_TIMEOUT, text);
}

dtrain_status_t dt_negotiator_report(dt_negotiator_t *negotiator, int rank, const void *report,
                                     size_t length, int64_t now_ns)
{
    dt_reader_t reader = dt_reader_make(report, length);
    dtrain_status_t status = take_bits(negotiator, rank, &reader, now_ns);
    uint32_t requests = dt_get_u32(&reader);
    for (uint32_t i = 0; i < requests && status == DTRAIN_OK && !reader.failed; i++) {
        dt_request_t request;
        if (dt_get_request(&reader, &request) == 0)
            status = take_request(negotiator, rank, &request, now_ns);
    }
    uint32_t withdrawals = dt_get_u32(&reader);
    for (uint32_t i = 0; i < withdrawals && status == DTRAIN_OK && !reader.failed; i++) {
        double seconds = dt_get_f64(&reader);
        size_t name_length;
        const char *name = dt_get_text(&reader, &name_length);
        if (!reader.failed)
            take_withdrawal(negotiator, rank, seconds, name, name_length);
    }
    if (status == DTRAIN_OK && reader.failed)
        status = dt_fail(DTRAIN_ERR_INTERNAL, "a malformed report came from rank %d", rank);
    return status;
}

dtrain_status_t dt_negotiator_bye(dt_negotiator_t *negotiator, int rank)
{
    if (!dt_rank_set_add(&negotiator->gone, rank))
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d said goodbye twice", rank);
    for (tally_t *tally = negotiator->waiting.first, *next; tally; tally = next) {
        next = tally->next;
        check_missing(negotiator, tally);
    }
    return DTRAIN_OK;
}

int dt_negotiator_is_over(const dt_negotiator_t *negotiator)
{
    return negotiator->gone.count == negotiator->topology->size && !negotiator->decided.first &&
           !negotiator->settled.first;
}

/* Copies a definition; of a long one, what is around the place where the other begins to differ. */
static void copy_definition(const char *definition, const char *other, char *text, size_t cap)
{
    size_t same = 0, length = strlen(definition);
    while (same < length && definition[same] == other[same])
        same++;
    size_t from = length > cap - 8 && same > cap / 2 ? same - cap / 2 : 0;
    while (from > 0 && definition[from] != ' ')
        from--;
    snprintf(text, cap, "%s%.*s%s", from > 0 ? "…" : "", (int)(cap - 8), definition + from,
             length - from > cap - 8 ? "…" : "");
}

static const char *variant_difference(const variant_t *a, const variant_t *b, char *a_value,
                                      char *b_value, size_t cap)
{
    if (!a->definition || !b->definition)
        return dt_signature_difference(&a->signature, &b->signature, a_value, b_value, cap);
    copy_definition(a->definition, b->definition, a_value, cap);
    copy_definition(b->definition, a->definition, b_value, cap);
    return "process set";
}

/* "…: the ranks' shapes differ: rank 0: [3]; ranks 1-2: [4]": the first field in which two differ,
 * with every value of it that differs from the first. */
static void describe_mismatch(const tally_t *tally, const variant_t *first, const variant_t *second,
                              char *text, size_t cap)
{
    char value[300], first_value[300], ranks[128], name[DT_KEY_TEXT_MAX];
    const char *what = variant_difference(first, second, first_value, value, sizeof value);
    int used = snprintf(text, cap, "%s %s: the ranks' %ss differ: %s: %s", tally_kind(tally),
                        tally_what(tally, name), what,
                        dt_rank_set_describe(&first->who, 0, ranks, sizeof ranks), first_value);
    for (const variant_t *other = second;
         other < tally->variants + tally->num_variants && used < (int)cap; other++) {
        const char *field = other->who.count == 0 ? NULL
                                                  : variant_difference(first, other, first_value,
                                                                       value, sizeof value);
        if (field && strcmp(field, what) == 0)
            used += snprintf(text + used, cap - (size_t)used, "; %s: %s",
                             dt_rank_set_describe(&other->who, 0, ranks, sizeof ranks), value);
    }
}

/* Why what was agreed cannot go on without the ranks that have joined; 0 when it can. */
static int describe_absence(const tally_t *tally, const variant_t *agreed, char *text, size_t cap)
{
    const dt_signature_t *signature = &agreed->signature;
    char ranks[128], what[DT_KEY_TEXT_MAX];
    if (!tally->absent.bits || tally->absent.count == 0)
        return 0;
    int root_gives = signature->kind == DT_KIND_BROADCAST || signature->kind == DT_KIND_SCATTER;
    if (root_gives && dt_rank_set_has(&tally->absent, signature->root)) {
        snprintf(text, cap, "%s %s: its root, rank %d, has joined", tally_kind(tally),
                 tally_what(tally, what), signature->root);
        return 1;
    }
    if (dt_kind_traits(signature->kind)->reduces && signature->op == DTRAIN_OP_PRODUCT &&
        signature->prescale != 1) {
        snprintf(text, cap,
                 "%s %s: a product with a prescale has nothing to put in for a rank that has "
                 "joined: %s",
                 tally_kind(tally), tally_what(tally, what),
                 dt_rank_set_describe(&tally->absent, 0, ranks, sizeof ranks));
        return 1;
    }
    return 0;
}

/* Gives the pair of name and signature an id when it has come before. What only two ranks know has
 * none; nor has what ranks give different priorities, since an id stands for a priority too. */
static void give_id(dt_negotiator_t *negotiator, tally_t *tally, variant_t *variant)
{
    if (variant->signature.kind == DT_KIND_TRANSFER || variant->who.count != tally->ready.count)
        return;
    uint64_t hash = dt_hash(tally->name, tally->length) ^ dt_signature_hash(&variant->signature);
    hash |= 1; /* never the empty place's 0 */
    uint64_t *place = &negotiator->recent[(hash >> 1) % RECENT_COUNT];
    if (*place != hash) {
        *place = hash;
        return;
    }
    if (tally->num_variants > VARIANTS_CACHED_MAX)
        return;
    cached_t cached = {.tally = tally, .variant = (int)(variant - tally->variants)};
    if (negotiator->free_id >= 0) {
        variant->id = (uint32_t)negotiator->free_id;
        negotiator->free_id = negotiator->ids[variant->id].variant;
        negotiator->ids[variant->id] = cached;
        return;
    }
    if (negotiator->num_ids == negotiator->ids_capacity) {
        uint32_t capacity = negotiator->ids_capacity ? 2 * negotiator->ids_capacity : 256;
        cached_t *ids = dt_realloc(negotiator->ids, capacity * sizeof *ids);
        if (!ids)
            return; /* it works without */
        negotiator->ids = ids;
        negotiator->ids_capacity = capacity;
    }
    negotiator->ids[negotiator->num_ids] = cached;
    variant->id = negotiator->num_ids++;
}

/* Lists the ranks of a set in the entry. */
static void put_ranks(dt_negotiator_t *negotiator, const dt_rank_set_t *set, dt_entry_t *entry)
{
    for (int rank = 0; rank < set->size; rank++) {
        if (dt_rank_set_has(set, rank))
            negotiator->absent[entry->num_absent++] = (uint32_t)rank;
    }
    entry->absent = (const uint8_t *)negotiator->absent;
}

static void put_error(dt_negotiator_t *negotiator, const tally_t *tally, dt_entry_t *entry)
{
    const dt_rank_set_t *world = &dt_psets_find(negotiator->psets, DTRAIN_PSET_WORLD)->members;
    entry->kind = DT_ENTRY_ERROR;
    entry->status = tally->status;
    entry->text_length = strlen(entry->text);
    dt_rank_set_subtract(&negotiator->some, world, &tally->ready);
    put_ranks(negotiator, &negotiator->some, entry);
}

static void put_agreed(dt_negotiator_t *negotiator, tally_t *tally, variant_t *agreed,
                       dt_entry_t *entry)
{
    /* A rank that has joined may not know what an id means, and does not learn it. */
    int is_without = tally->absent.bits && tally->absent.count > 0;
    int may_have_id = !is_without && !tally->is_join && !tally->is_change &&
                      agreed->who.count == tally->ready.count;
    if (agreed->id != DT_ID_NONE && may_have_id) {
        entry->kind = DT_ENTRY_CACHED;
        entry->id = agreed->id;
        return;
    }
    if (may_have_id)
        give_id(negotiator, tally, agreed);
    entry->kind = DT_ENTRY_NEW;
    entry->id = may_have_id ? agreed->id : DT_ID_NONE;
    entry->signature = agreed->signature;
    if (tally->is_join)
        entry->signature.root = tally->last_joined;
    if (is_without)
        put_ranks(negotiator, &tally->absent, entry);
}

static int note_written(dt_negotiator_t *negotiator, const tally_t *tally,
                        const dt_buffer_t *verdict)
{
    if (negotiator->num_written == negotiator->written_capacity) {
        uint32_t capacity = negotiator->written_capacity ? 2 * negotiator->written_capacity : 256;
        written_t *written = dt_realloc(negotiator->written, capacity * sizeof *written);
        if (!written)
            return -1;
        negotiator->written = written;
        negotiator->written_capacity = capacity;
    }
    const dt_pset_t *set = tally->status == DTRAIN_OK ? tally->set : NULL;
    written_t entry = {.end = verdict->length, .set = set};
    negotiator->written[negotiator->num_written++] = entry;
    negotiator->is_partial |= set && set->size < negotiator->topology->size;
    return 0;
}

static void put_verdict(dt_negotiator_t *negotiator, tally_t *tally, dt_buffer_t *verdict)
{
    dt_entry_t entry = {.name = tally->name, .name_length = tally->length};
    const variant_t *first, *second;
    ready_variants(tally, &first, &second);
    entry.text = tally->text ? tally->text : "";
    if (tally->status != DTRAIN_OK)
        put_error(negotiator, tally, &entry);
    else
        put_agreed(negotiator, tally, &tally->variants[first - tally->variants], &entry);
    dt_put_entry(verdict, &entry);
    if (note_written(negotiator, tally, verdict))
        verdict->failed = 1;
}

/* Makes the tally ready for the next operation of its name, or drops it when nothing of it is
 * cached. Variants without an id go; those with one keep their index, which ids[] points to. */
static void reset(dt_negotiator_t *negotiator, tally_t *tally)
{
    int kept = 0;
    for (int i = 0; i < tally->num_variants; i++) {
        if (tally->variants[i].id != DT_ID_NONE) {
            dt_rank_set_clear(&tally->variants[i].who);
            if (kept != i) {
                variant_t moved = tally->variants[i];
                tally->variants[i] = tally->variants[kept];
                tally->variants[kept] = moved;
                negotiator->ids[moved.id].variant = kept;
            }
            kept++;
        }
    }
    for (int i = kept; i < tally->num_variants; i++)
        variant_free(&tally->variants[i]);
    tally->num_variants = kept;
    if (kept == 0) {
        dt_map_remove(&negotiator->names, tally->name, tally->length);
        tally_free(tally);
        return;
    }
    dt_rank_set_clear(&tally->ready);
    if (tally->absent.bits)
        dt_rank_set_clear(&tally->absent);
    tally->num_ready = 0;
    dt_free(tally->text);
    tally->text = NULL;
    tally->status = DTRAIN_OK;
    tally->refused_by = -1;
    tally->is_decided = tally->is_held = 0;
}

/* What waits on a set that is removed: calls that were refused. */
static void fail_waiting(dt_negotiator_t *negotiator, int32_t pset)
{
    for (tally_t *tally = negotiator->waiting.first, *next; tally; tally = next) {
        next = tally->next;
        if (dt_pset_key_read(tally->name, tally->length, NULL) != pset)
            continue;
        char text[DT_ERROR_MAX], what[DT_KEY_TEXT_MAX];
        snprintf(text, sizeof text, "%s %s: the process set was removed", tally_kind(tally),
                 tally_what(tally, what));
        decide_error(negotiator, tally, DTRAIN_ERR_INVALID_ARGUMENT, text);
    }
}

/* Finds out whether what the ranks said can be done. */
static void examine(tally_t *tally, const variant_t *first, const variant_t *second)
{
    char text[DT_ERROR_MAX];
    if (tally->status != DTRAIN_OK)
        return;
    if (second) {
        describe_mismatch(tally, first, second, text, sizeof text);
        tally->status = DTRAIN_ERR_MISMATCH;
    } else if (describe_absence(tally, first, text, sizeof text)) {
        tally->status = DTRAIN_ERR_INVALID_ARGUMENT;
    } else {
        return;
    }
    tally->text = dt_strdup(text);
}

/* Finds out what becomes of a decided tally, and of its group when it fails. */
static void settle(dt_negotiator_t *negotiator, tally_t *tally)
{
    const variant_t *first, *second;
    ready_variants(tally, &first, &second);
    examine(tally, first, second);
    if (tally->status == DTRAIN_OK && first->signature.kind == DT_KIND_PSET_REMOVE)
        fail_waiting(negotiator, first->signature.pset);
    tally->number = negotiator->num_settled++;
    /* A join comes behind all that was decided before it, which the ranks stand in for. */
    tally->priority = tally->is_join ? INT32_MIN : first ? first->signature.priority : 0;
    for (int i = 0; i < tally->num_variants; i++) {
        const variant_t *variant = &tally->variants[i];
        if (variant->who.count == 0)
            continue;
        if (variant->signature.priority > tally->priority)
            tally->priority = variant->signature.priority;
        if (tally->status != DTRAIN_OK && variant->signature.group)
            fail_group(negotiator, &variant->signature, tally);
    }
    negotiator->has_priorities |= tally->priority != 0 && !tally->is_join;
}

/* Errors and barriers first: they move no data. */
static int is_light(const tally_t *tally)
{
    return tally->status != DTRAIN_OK ||
           (dt_kind_traits(tally_signature(tally)->kind)->is_control && !tally->is_join);
}

static int by_priority(const void *left, const void *right)
{
    const tally_t *a = *(tally_t *const *)left, *b = *(tally_t *const *)right;
    if (is_light(a) != is_light(b))
        return is_light(a) ? -1 : 1;
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

/* Without memory the order stays as it is, which is right too. */
static void sort_settled(dt_negotiator_t *negotiator)
{
    size_t count = 0, at = 0;
    for (const tally_t *tally = negotiator->settled.first; tally; tally = tally->next)
        count++;
    tally_t **order = dt_alloc(count * sizeof *order);
    if (!order)
        return;
    for (tally_t *tally = negotiator->settled.first; tally; tally = tally->next)
        order[at++] = tally;
    qsort(order, count, sizeof *order, by_priority);
    negotiator->settled.first = negotiator->settled.last = NULL;
    for (at = 0; at < count; at++)
        list_append(&negotiator->settled, order[at]);
    dt_free(order);
}

/* Moves what was decided to what is settled. */
static void settle_all(dt_negotiator_t *negotiator)
{
    if (!negotiator->decided.first)
        return;
    while (negotiator->decided.first) {
        tally_t *tally = negotiator->decided.first;
        settle(negotiator, tally); /* may decide more */
        list_remove(&negotiator->decided, tally);
        list_append(&negotiator->settled, tally);
    }
    if (negotiator->has_priorities)
        sort_settled(negotiator);
}

uint32_t dt_negotiator_verdict(dt_negotiator_t *negotiator, int64_t room, dt_buffer_t *verdict)
{
    settle_all(negotiator);
    if (!negotiator->has_priorities)
        room = INT64_MAX;
    uint32_t count = 0;
    size_t count_at = 0;
    negotiator->num_written = 0;
    negotiator->is_partial = 0;
    for (tally_t *tally; (tally = negotiator->settled.first) && (room > 0 || is_light(tally));) {
        if (count++ == 0) {
            dt_put_header(verdict, DT_MESSAGE_VERDICT);
            count_at = verdict->length;
            dt_put_u32(verdict, 0);
        }
        if (!is_light(tally))
            room -= tally_bytes(tally) + 1;
        put_verdict(negotiator, tally, verdict);
        list_remove(&negotiator->settled, tally);
        reset(negotiator, tally);
    }
    if (count > 0)
        dt_patch_u32(verdict, count_at, count);
    return count;
}

int dt_negotiator_part(const dt_negotiator_t *negotiator, int rank, const dt_buffer_t *verdict,
                       dt_buffer_t *part)
{
    if (!negotiator->is_partial)
        return 0;
    uint32_t count = 0;
    dt_buffer_clear(part);
    dt_put_header(part, DT_MESSAGE_PART);
    size_t count_at = part->length, at = count_at + sizeof count;
    dt_put_u32(part, 0);
    for (uint32_t i = 0; i < negotiator->num_written; i++) {
        const written_t *written = &negotiator->written[i];
        if (!written->set || dt_rank_set_has(&written->set->members, rank)) {
            dt_buffer_append(part, verdict->data + at, written->end - at);
            count++;
        }
        at = written->end;
    }
    dt_patch_u32(part, count_at, count);
    if (count == 0)
        part->length = 0;
    return 1;
}

/* Frees a tally's ids for others. */
static void free_ids(dt_negotiator_t *negotiator, const tally_t *tally)
{
    for (int i = 0; i < tally->num_variants; i++) {
        uint32_t id = tally->variants[i].id;
        if (id == DT_ID_NONE)
            continue;
        cached_t freed = {.tally = NULL, .variant = (int)negotiator->free_id};
        negotiator->ids[id] = freed;
        negotiator->free_id = id;
    }
}

void dt_negotiator_forget(dt_negotiator_t *negotiator, int32_t pset)
{
    for (uint32_t id = 0; id < negotiator->num_ids; id++) {
        tally_t *tally = negotiator->ids[id].tally;
        if (!tally || dt_pset_key_read(tally->name, tally->length, NULL) != pset)
            continue;
        free_ids(negotiator, tally);
        dt_map_remove(&negotiator->names, tally->name, tally->length);
        tally_free(tally);
    }
}

static void warn(dt_negotiator_t *negotiator, tally_t *tally, int64_t now_ns)
{
    char missing[256], ready[256], name[DT_KEY_TEXT_MAX], what[320] = "";
    const variant_t *first, *second;
    ready_variants(tally, &first, &second);
    if (first)
        dt_signature_describe(&first->signature, what, sizeof what);
    dt_log(DTRAIN_LOG_WARN, "core", "%s %s%s%s waits since %.1f s for %s (of %d); submitted by %s",
           tally_kind(tally), tally_what(tally, name), *what ? " " : "", what,
           (double)(now_ns - tally->since_ns) / (double)DT_NS_PER_S,
           describe_missing(negotiator, tally, missing, sizeof missing), tally->set->size,
           dt_rank_set_describe(&tally->ready, 0, ready, sizeof ready));
}

int64_t dt_negotiator_warn(dt_negotiator_t *negotiator, int64_t after_ns, int64_t now_ns)
{
    int64_t next = DT_NEVER;
    if (after_ns == DT_NEVER)
        return next;
    for (tally_t *tally = negotiator->waiting.first; tally; tally = tally->next) {
        if (tally->is_join)
            continue; /* to wait is what it is for */
        if (tally->warn_ns == 0)
            tally->warn_ns = tally->since_ns + after_ns;
        if (tally->warn_ns <= now_ns) {
            warn(negotiator, tally, now_ns);
            tally->warn_ns = now_ns + (now_ns - tally->since_ns);
        }
        if (tally->warn_ns < next)
            next = tally->warn_ns;
    }
    return next;
}
