#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "core/negotiator_state.h"

static void decide(dt_negotiator_t *negotiator, dt_tally_t *tally)
{
    if (tally->is_decided)
        return;
    tally->is_decided = 1;
    tally->is_held = 0;
    dt_stray_end(negotiator, tally);
    /* Whatever is decided from here on finds that nobody has joined. */
    if (tally->is_join) {
        tally->last_joined = tally->set->last_joined;
        dt_rank_set_clear(&tally->set->joined);
    }
    dt_tally_remove(&negotiator->waiting, tally);
    dt_tally_append(&negotiator->decided, tally);
}

void dt_negotiator_fail(dt_negotiator_t *negotiator, dt_tally_t *tally, dtrain_status_t status,
                        const char *text)
{
    if (tally->status == DTRAIN_OK) {
        tally->status = status;
        tally->text = dt_strdup(text); /* NULL: an error without a text */
    }
    decide(negotiator, tally);
}

/* The ranks that the tally waits for: in the negotiator's scratch. */
const dt_rank_set_t *dt_negotiator_missing(dt_negotiator_t *negotiator, const dt_tally_t *tally)
{
    dt_rank_set_t *missing = &negotiator->some;
    const dt_signature_t *transfer = dt_tally_transfer(tally);
    if (transfer) {
        dt_rank_set_clear(missing);
        dt_rank_set_add(missing, transfer->root);
        dt_rank_set_add(missing, transfer->peer);
        dt_rank_set_subtract(missing, missing, &tally->ready);
        return missing;
    }
    dt_rank_set_subtract(missing, &tally->set->members, &tally->ready);
    if (dt_tally_goes_on_without(tally))
        dt_rank_set_subtract(missing, missing, &tally->set->joined);
    return missing;
}

const char *dt_negotiator_describe_missing(dt_negotiator_t *negotiator, const dt_tally_t *tally,
                                           char *text, size_t cap)
{
    if (tally->is_held)
        snprintf(text, cap, "the others of its group");
    else
        dt_rank_set_describe(dt_negotiator_missing(negotiator, tally), 0, text, cap);
    return text;
}

void dt_negotiator_check_missing(dt_negotiator_t *negotiator, dt_tally_t *tally)
{
    const dt_rank_set_t *gone = &negotiator->gone, *joined = &tally->set->joined;
    int needs_joined = joined->count > 0 && (tally->is_change || dt_tally_transfer(tally));
    if (tally->is_held || (gone->count == 0 && !needs_joined))
        return;
    const dt_rank_set_t *missing = dt_negotiator_missing(negotiator, tally);
    for (int rank = 0; rank < missing->size; rank++) {
        int has_joined = needs_joined && dt_rank_set_has(joined, rank);
        if (!dt_rank_set_has(missing, rank) || (!has_joined && !dt_rank_set_has(gone, rank)))
            continue;
        char text[DT_ERROR_MAX], what[DT_KEY_TEXT_MAX];
        snprintf(text, sizeof text, "%s %s needs rank %d, which has called %s",
                 dt_tally_kind(tally), dt_tally_what(tally, what), rank,
                 has_joined ? "dtrain_join" : "dtrain_shutdown");
        dt_negotiator_fail(negotiator, tally,
                           has_joined ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_ERR_SHUT_DOWN, text);
        return;
    }
}

/* All ranks agree on one of a group's tensors: it is decided with the last one of the group. */
static dtrain_status_t hold(dt_negotiator_t *negotiator, dt_tally_t *tally,
                            const dt_signature_t *signature)
{
    const char *key = (const char *)&signature->group;
    dt_group_t *group = dt_map_get(&negotiator->groups, key, sizeof signature->group);
    if (!group) {
        group = dt_calloc(1, sizeof *group);
        if (!group)
            return dt_negotiator_no_memory();
        group->key = signature->group;
        if (dt_map_add(&negotiator->groups, (const char *)&group->key, sizeof group->key, group)) {
            dt_free(group);
            return dt_negotiator_no_memory();
        }
    }
    tally->is_held = 1;
    tally->next_held = group->held;
    group->held = tally;
    if (++group->num_held < signature->group_size)
        return DTRAIN_OK;
    dt_map_remove(&negotiator->groups, (const char *)&group->key, sizeof group->key);
    for (dt_tally_t *member = group->held; member; member = member->next_held)
        decide(negotiator, member);
    dt_free(group);
    return DTRAIN_OK;
}

/* Whatever is still waiting of a group fails with it. */
static void fail_group(dt_negotiator_t *negotiator, const dt_signature_t *signature,
                       const dt_tally_t *culprit)
{
    char text[DT_ERROR_MAX];
    uint64_t key = signature->group; /* the signature may move */
    snprintf(text, sizeof text, "a group of %u: %.900s", signature->group_size,
             culprit->text ? culprit->text : culprit->name);
    dt_free(dt_map_remove(&negotiator->groups, (const char *)&key, sizeof key));
    for (dt_tally_t *tally = negotiator->waiting.first, *next; tally; tally = next) {
        next = tally->next;
        for (int i = 0; i < tally->num_variants; i++) {
            if (tally->variants[i].who.count > 0 && tally->variants[i].signature.group == key) {
                dt_negotiator_fail(negotiator, tally, culprit->status, text);
                break;
            }
        }
    }
}

/* Everyone is there, or has joined: notes who has joined instead. */
static dtrain_status_t note_absent(dt_negotiator_t *negotiator, dt_tally_t *tally)
{
    if (!dt_tally_goes_on_without(tally))
        return DTRAIN_OK;
    if (!tally->absent.bits && dt_rank_set_init(&tally->absent, negotiator->topology->size))
        return dt_negotiator_no_memory();
    dt_rank_set_subtract(&tally->absent, &tally->set->members, &tally->ready);
    return DTRAIN_OK;
}

/* Enough ranks have reported. */
static dtrain_status_t complete(dt_negotiator_t *negotiator, dt_tally_t *tally)
{
    const dt_variant_t *first, *second;
    dtrain_status_t status = note_absent(negotiator, tally);
    if (status != DTRAIN_OK)
        return status;
    dt_stray_apply(tally);
    dt_tally_ready(tally, &first, &second);
    if (first && !second && first->signature.group && tally->status == DTRAIN_OK)
        return hold(negotiator, tally, &first->signature);
    decide(negotiator, tally);
    return DTRAIN_OK;
}

dtrain_status_t dt_negotiator_judge(dt_negotiator_t *negotiator, dt_tally_t *tally)
{
    if (tally->is_held)
        return DTRAIN_OK;
    if (dt_tally_is_complete(tally))
        return complete(negotiator, tally);
    dt_negotiator_check_missing(negotiator, tally);
    return DTRAIN_OK;
}

/* What waits on a set that is removed: calls that were refused. */
static void fail_waiting(dt_negotiator_t *negotiator, int32_t pset)
{
    for (dt_tally_t *tally = negotiator->waiting.first, *next; tally; tally = next) {
        next = tally->next;
        if (dt_pset_key_read(tally->name, tally->length, NULL) != pset)
            continue;
        char text[DT_ERROR_MAX], what[DT_KEY_TEXT_MAX];
        snprintf(text, sizeof text, "%s %s: the process set was removed", dt_tally_kind(tally),
                 dt_tally_what(tally, what));
        dt_negotiator_fail(negotiator, tally, DTRAIN_ERR_INVALID_ARGUMENT, text);
    }
}

/* Finds out whether what the ranks said can be done. */
static void examine(dt_tally_t *tally, const dt_variant_t *first, const dt_variant_t *second)
{
    char text[DT_ERROR_MAX];
    if (tally->status != DTRAIN_OK)
        return;
    if (second) {
        dt_tally_describe_mismatch(tally, first, second, text, sizeof text);
        tally->status = DTRAIN_ERR_MISMATCH;
    } else if (dt_tally_describe_absence(tally, first, text, sizeof text)) {
        tally->status = DTRAIN_ERR_INVALID_ARGUMENT;
    } else {
        return;
    }
    tally->text = dt_strdup(text);
}

/* Finds out what becomes of a decided tally, and of its group when it fails. */
static void settle(dt_negotiator_t *negotiator, dt_tally_t *tally)
{
    const dt_variant_t *first, *second;
    dt_tally_ready(tally, &first, &second);
    examine(tally, first, second);
    if (tally->status == DTRAIN_OK && first->signature.kind == DT_KIND_PSET_REMOVE)
        fail_waiting(negotiator, first->signature.pset);
    tally->number = negotiator->num_settled++;
    /* A join comes behind all that was decided before it, which the ranks stand in for. */
    tally->priority = tally->is_join ? INT32_MIN : first ? first->signature.priority : 0;
    for (int i = 0; i < tally->num_variants; i++) {
        const dt_variant_t *variant = &tally->variants[i];
        if (variant->who.count == 0)
            continue;
        if (variant->signature.priority > tally->priority)
            tally->priority = variant->signature.priority;
        if (tally->status != DTRAIN_OK && variant->signature.group)
            fail_group(negotiator, &variant->signature, tally);
    }
    negotiator->has_priorities |= tally->priority != 0 && !tally->is_join;
}

static int by_priority(const void *left, const void *right)
{
    const dt_tally_t *a = *(dt_tally_t *const *)left, *b = *(dt_tally_t *const *)right;
    if (dt_tally_is_light(a) != dt_tally_is_light(b))
        return dt_tally_is_light(a) ? -1 : 1;
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return a->number < b->number ? -1 : 1;
}

/* Without memory the order stays as it is, which is right too. */
static void sort_settled(dt_negotiator_t *negotiator)
{
    size_t count = 0, at = 0;
    for (const dt_tally_t *tally = negotiator->settled.first; tally; tally = tally->next)
        count++;
    dt_tally_t **order = dt_alloc(count * sizeof *order);
    if (!order)
        return;
    for (dt_tally_t *tally = negotiator->settled.first; tally; tally = tally->next)
        order[at++] = tally;
    qsort(order, count, sizeof *order, by_priority);
    negotiator->settled.first = negotiator->settled.last = NULL;
    for (at = 0; at < count; at++)
        dt_tally_append(&negotiator->settled, order[at]);
    dt_free(order);
}

void dt_negotiator_settle(dt_negotiator_t *negotiator)
{
    if (!negotiator->decided.first)
        return;
    while (negotiator->decided.first) {
        dt_tally_t *tally = negotiator->decided.first;
        settle(negotiator, tally); /* may decide more */
        dt_tally_remove(&negotiator->decided, tally);
        dt_tally_append(&negotiator->settled, tally);
    }
    if (negotiator->has_priorities)
        sort_settled(negotiator);
}
