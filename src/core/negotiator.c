#include "core/negotiator.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "core/negotiator_state.h"

dt_negotiator_t *dt_negotiator_create(const dt_topology_t *topology, const dt_psets_t *psets)
{
    dt_negotiator_t *negotiator = dt_calloc(1, sizeof *negotiator);
    if (!negotiator)
        return NULL;
    negotiator->topology = topology;
    negotiator->psets = psets;
    negotiator->free_id = -1;
    negotiator->recent = dt_calloc(DT_RECENT_COUNT, sizeof *negotiator->recent);
    negotiator->absent = dt_calloc((size_t)topology->size, sizeof *negotiator->absent);
    if (dt_rank_set_init(&negotiator->gone, topology->size) ||
        dt_rank_set_init(&negotiator->some, topology->size) || !negotiator->recent ||
        !negotiator->absent) {
        dt_negotiator_free(negotiator);
        return NULL;
    }
    return negotiator;
}

void dt_negotiator_free(dt_negotiator_t *negotiator)
{
    if (!negotiator)
        return;
    size_t at = 0;
    for (dt_tally_t *tally; (tally = dt_map_next(&negotiator->names, &at));)
        dt_tally_free(tally);
    at = 0;
    for (dt_group_t *group; (group = dt_map_next(&negotiator->groups, &at));)
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

dtrain_status_t dt_negotiator_no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory in the negotiation");
}

/* What a tally is about follows from its key. */
static void classify(dt_negotiator_t *negotiator, dt_tally_t *tally)
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
static dt_tally_t *find_tally(dt_negotiator_t *negotiator, const char *name, size_t length)
{
    dt_tally_t *tally = dt_map_get(&negotiator->names, name, length);
    if (tally)
        return tally;
    tally = dt_calloc(1, sizeof *tally);
    if (!tally)
        return NULL;
    tally->refused_by = -1;
    tally->length = length;
    tally->name = dt_alloc(length + 1);
    if (!tally->name || dt_rank_set_init(&tally->ready, negotiator->topology->size)) {
        dt_tally_free(tally);
        return NULL;
    }
    memcpy(tally->name, name, length);
    tally->name[length] = '\0';
    classify(negotiator, tally);
    if (dt_map_add(&negotiator->names, tally->name, length, tally)) {
        dt_tally_free(tally);
        return NULL;
    }
    return tally;
}

/* A thread of a rank that has joined was a little late: it takes part after all. */
static void take_late(dt_tally_t *tally)
{
    if (tally->absent.bits)
        dt_rank_set_subtract(&tally->absent, &tally->absent, &tally->ready);
}

/* Notes that a rank has reported the name. */
static dtrain_status_t mark(dt_negotiator_t *negotiator, dt_tally_t *tally, int rank,
                            int64_t now_ns)
{
    dt_stray_supersede(tally, rank);
    if (tally->ready.count == 0) {
        tally->since_ns = now_ns;
        tally->warn_ns = 0;
        dt_tally_append(&negotiator->waiting, tally);
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
        snprintf(text, sizeof text, "%s %s: the process set was removed", dt_tally_kind(tally),
                 dt_tally_what(tally, what));
        dt_negotiator_fail(negotiator, tally, DTRAIN_ERR_INVALID_ARGUMENT, text);
        return DTRAIN_OK;
    }
    dtrain_status_t status = dt_negotiator_judge(negotiator, tally);
    return status == DTRAIN_OK ? dt_stray_match(negotiator, tally, rank) : status;
}

/* A rank joins a set: what waits on it for this rank alone goes on. */
static dtrain_status_t take_join(dt_negotiator_t *negotiator, const dt_tally_t *join, int rank)
{
    dt_pset_t *set = join->set;
    dt_rank_set_add(&set->joined, rank);
    set->last_joined = rank;
    dtrain_status_t status = DTRAIN_OK;
    for (dt_tally_t *tally = negotiator->waiting.first, *next; tally && status == DTRAIN_OK;
         tally = next) {
        next = tally->next;
        if (tally->set != set || tally == join)
            continue;
        status = dt_negotiator_judge(negotiator, tally);
        /* The last of a group takes the others along, which may be next. */
        if (tally->is_decided && dt_tally_signature(tally) && dt_tally_signature(tally)->group)
            next = negotiator->waiting.first;
    }
    return status;
}

/* The variant of an id, or, when ranks are ready with another stamp, one of this stamp beside it;
 * -1: memory ran out. */
static int stamped_variant(const dt_cached_t *cached, dt_stamp_t stamp)
{
    dt_request_t request = {.signature = cached->tally->variants[cached->variant].signature,
                            .stamp = stamp};
    return dt_tally_find_variant(cached->tally, &request);
}

static dtrain_status_t take_ready(dt_negotiator_t *negotiator, int rank, uint32_t id,
                                  const dt_stamp_t *stamp, int64_t now_ns)
{
    if (id >= negotiator->num_ids || !negotiator->ids[id].tally)
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d reported id %u, which was never given", rank,
                       id);
    dt_tally_t *tally = negotiator->ids[id].tally;
    int variant =
        stamp ? stamped_variant(&negotiator->ids[id], *stamp) : negotiator->ids[id].variant;
    if (variant < 0)
        return dt_negotiator_no_memory();
    dt_rank_set_add(&tally->variants[variant].who, rank);
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
            dtrain_status_t status = take_ready(negotiator, rank, (uint32_t)id, NULL, now_ns);
            if (status != DTRAIN_OK)
                return status;
        }
    }
    return DTRAIN_OK;
}

static dtrain_status_t take_stamped(dt_negotiator_t *negotiator, int rank, dt_reader_t *reader,
                                    int64_t now_ns)
{
    dtrain_status_t status = DTRAIN_OK;
    uint32_t count = dt_get_u32(reader);
    for (uint32_t i = 0; i < count && status == DTRAIN_OK; i++) {
        uint32_t id = dt_get_u32(reader);
        dt_stamp_t stamp = dt_get_stamp(reader);
        if (reader->failed)
            break;
        status = take_ready(negotiator, rank, id, &stamp, now_ns);
    }
    return status;
}

static void take_refusal(dt_tally_t *tally, int rank, const dt_request_t *request)
{
    if (tally->refused_by >= 0)
        return;
    char text[DT_ERROR_MAX];
    snprintf(text, sizeof text, "rank %d: %.*s", rank, (int)request->text_length, request->text);
    tally->refused_by = rank;
    tally->status = (dtrain_status_t)request->status;
    tally->text = dt_strdup(text);
}

static dtrain_status_t take_wish(dt_tally_t *tally, int rank, const dt_request_t *request)
{
    if (!dt_rank_set_has(&tally->set->members, rank))
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d reported '%.200s' of a set that it is not in",
                       rank, tally->name);
    if (!dt_signature_has_ranks(&request->signature, tally->ready.size))
        return dt_fail(DTRAIN_ERR_INTERNAL,
                       "rank %d reported '%.200s' with a rank that there is not", rank,
                       tally->name);
    int variant = dt_tally_find_variant(tally, request);
    if (variant < 0)
        return dt_negotiator_no_memory();
    dt_rank_set_add(&tally->variants[variant].who, rank);
    return DTRAIN_OK;
}

static dtrain_status_t take_request(dt_negotiator_t *negotiator, int rank,
                                    const dt_request_t *request, int64_t now_ns)
{
    size_t length = request->name_length;
    const char *stray = dt_stray_name(request, &length);
    dt_tally_t *tally = find_tally(negotiator, stray ? stray : request->name, length);
    if (!tally)
        return dt_negotiator_no_memory();
    dtrain_status_t status = DTRAIN_OK;
    if (request->status != DTRAIN_OK)
        take_refusal(tally, rank, request);
    if (stray)
        status = dt_stray_note(negotiator, tally, rank);
    else if (request->status == DTRAIN_OK)
        status = take_wish(tally, rank, request);
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
    dt_tally_t *tally = dt_map_get(&negotiator->names, name, length);
    if (!tally || tally->is_decided || !dt_rank_set_has(&tally->ready, rank))
        return;
    char missing[256], silent[DT_ERROR_MAX / 3] = "", text[DT_ERROR_MAX], what[DT_KEY_TEXT_MAX];
    dt_negotiator_describe_missing(negotiator, tally, missing, sizeof missing);
    if (negotiator->describe_silent)
        negotiator->describe_silent(negotiator->silent_context, silent, sizeof silent);
    snprintf(text, sizeof text,
             "%s %s was given up by rank %d after its deadline of %.3g s: %s did not submit it%s%s",
             dt_tally_kind(tally), dt_tally_what(tally, what), rank, seconds, missing,
             silent[0] ? "; " : "", silent);
    dt_negotiator_fail(negotiator, tally, DTRAIN_ERR_TIMEOUT, text);
}

dtrain_status_t dt_negotiator_report(dt_negotiator_t *negotiator, int rank, const void *report,
                                     size_t length, int64_t now_ns)
{
    dt_reader_t reader = dt_reader_make(report, length);
    dtrain_status_t status = take_bits(negotiator, rank, &reader, now_ns);
    if (status == DTRAIN_OK)
        status = take_stamped(negotiator, rank, &reader, now_ns);
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
    for (dt_tally_t *tally = negotiator->waiting.first, *next; tally; tally = next) {
        next = tally->next;
        dt_negotiator_check_missing(negotiator, tally);
    }
    return DTRAIN_OK;
}

int dt_negotiator_is_over(const dt_negotiator_t *negotiator)
{
    return negotiator->gone.count == negotiator->topology->size && !negotiator->decided.first &&
           !negotiator->settled.first;
}
