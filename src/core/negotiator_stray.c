/*
 * negotiator_stray.c - calls on a process set that does not exist, or not any more. The other ranks
 * wait for such a call in the set that was meant, which nobody can know; but they know the name. So
 * the refusal is kept under the bare name, as one of a call on the world, and given to the first
 * tally of that name in another set that waits for the rank. There it counts as the rank's report,
 * so that all members come to the same end, unless the rank makes the right call before that.
 */
#include <string.h>

#include "base/memory.h"
#include "core/negotiator_state.h"

/* Where refusals are kept. */
static int is_of_world(const dt_tally_t *tally)
{
    return dt_pset_key_read(tally->name, tally->length, NULL) == DTRAIN_PSET_WORLD;
}

static int has_strays(const dt_tally_t *tally)
{
    return tally->strays.bits && tally->strays.count > 0;
}

static int is_open(const dt_tally_t *tally)
{
    return !tally->is_decided && !tally->is_held && !tally->is_lost;
}

/* Nobody in the world waits for what these ranks have called: they meant another set. */
static int is_stray(const dt_tally_t *tally)
{
    return has_strays(tally) && is_open(tally) && tally->strays.count == tally->ready.count;
}

static dtrain_status_t add(dt_tally_t *tally, int rank)
{
    if (!tally->strays.bits && dt_rank_set_init(&tally->strays, tally->ready.size))
        return dt_negotiator_no_memory();
    dt_rank_set_add(&tally->strays, rank);
    return DTRAIN_OK;
}

const char *dt_stray_name(const dt_request_t *request, size_t *length)
{
    const char *name;
    if (request->status == DTRAIN_OK ||
        dt_pset_key_read(request->name, request->name_length, &name) != DT_PSET_NONE)
        return NULL;
    *length = request->name_length - (size_t)(name - request->name);
    return dt_pset_key_read(name, *length, NULL) == DTRAIN_PSET_WORLD ? name : NULL;
}

void dt_stray_supersede(dt_tally_t *tally, int rank)
{
    if (!has_strays(tally) || is_of_world(tally) || !dt_rank_set_has(&tally->strays, rank))
        return;
    dt_rank_set_remove(&tally->strays, rank);
    dt_rank_set_remove(&tally->ready, rank);
    tally->num_ready--;
    if (has_strays(tally))
        return;
    dt_free(tally->stray_text);
    tally->stray_text = NULL;
}

void dt_stray_apply(dt_tally_t *tally)
{
    if (!has_strays(tally) || tally->status != DTRAIN_OK)
        return;
    tally->status = tally->stray_status;
    tally->text = tally->stray_text;
    tally->stray_text = NULL;
}

void dt_stray_end(dt_negotiator_t *negotiator, dt_tally_t *tally)
{
    if (has_strays(tally)) {
        if (is_of_world(tally))
            negotiator->num_strays -= tally->strays.count;
        else /* they have nothing in flight here that could be told */
            dt_rank_set_subtract(&tally->ready, &tally->ready, &tally->strays);
        dt_rank_set_clear(&tally->strays);
    }
    dt_free(tally->stray_text);
    tally->stray_text = NULL;
}

/* The tally that waits takes a rank's refusal over. */
static dtrain_status_t take_over(dt_tally_t *waiting, int rank, const dt_tally_t *stray)
{
    if (add(waiting, rank) != DTRAIN_OK)
        return dt_negotiator_no_memory();
    dt_rank_set_add(&waiting->ready, rank);
    waiting->num_ready++;
    if (!waiting->stray_text) {
        waiting->stray_text = stray->text ? dt_strdup(stray->text) : NULL;
        waiting->stray_status = stray->status;
    }
    return DTRAIN_OK;
}

/* Gives a tally that waits whatever it waits for. *is_given 0: nothing. */
static dtrain_status_t give(dt_negotiator_t *negotiator, dt_tally_t *stray, dt_tally_t *waiting,
                            int *is_given)
{
    const dt_rank_set_t *missing = dt_negotiator_missing(negotiator, waiting);
    *is_given = 0;
    for (int rank = 0; rank < missing->size; rank++) {
        if (!dt_rank_set_has(missing, rank) || !dt_rank_set_has(&stray->strays, rank))
            continue;
        if (take_over(waiting, rank, stray) != DTRAIN_OK)
            return dt_negotiator_no_memory();
        *is_given = 1;
    }
    if (!*is_given)
        return DTRAIN_OK;
    dt_negotiator_fail(negotiator, stray, stray->status, "");
    return dt_negotiator_judge(negotiator, waiting);
}

/* Whether a tally, which waits, is of this bare name in a set. */
static int has_name(const dt_tally_t *tally, const dt_tally_t *stray)
{
    const char *name;
    int32_t pset = dt_pset_key_read(tally->name, tally->length, &name);
    return pset != DTRAIN_PSET_WORLD && is_open(tally) && strcmp(name, stray->name) == 0;
}

/* The refusals of the name have just been given away, and here is another one. */
static dtrain_status_t give_late(dt_negotiator_t *negotiator, const dt_tally_t *stray, int rank)
{
    for (dt_tally_t *waiting = negotiator->waiting.first; waiting; waiting = waiting->next) {
        if (!has_name(waiting, stray) ||
            !dt_rank_set_has(dt_negotiator_missing(negotiator, waiting), rank))
            continue;
        dtrain_status_t status = take_over(waiting, rank, stray);
        return status == DTRAIN_OK ? dt_negotiator_judge(negotiator, waiting) : status;
    }
    return DTRAIN_OK;
}

dtrain_status_t dt_stray_note(dt_negotiator_t *negotiator, dt_tally_t *tally, int rank)
{
    if (!is_open(tally))
        return give_late(negotiator, tally, rank);
    negotiator->num_strays++;
    return add(tally, rank);
}

/*
 * A rank has reported a tally of a set. If it made a call on no set before that, and the tally is
 * not the one that waits for that call, then those who mean the same have made the same slip, or
 * will: it stays a call on the world.
 */
static dtrain_status_t match_set(dt_negotiator_t *negotiator, dt_tally_t *tally, int rank)
{
    const char *name;
    int is_given;
    dt_pset_key_read(tally->name, tally->length, &name);
    dt_tally_t *stray = dt_map_get(&negotiator->names, name, strlen(name));
    if (!stray || !is_open(stray) || !has_strays(stray))
        return DTRAIN_OK;
    if (dt_rank_set_has(&stray->strays, rank)) {
        dt_rank_set_remove(&stray->strays, rank);
        negotiator->num_strays--;
    }
    return is_open(tally) && is_stray(stray) ? give(negotiator, stray, tally, &is_given)
                                             : DTRAIN_OK;
}

dtrain_status_t dt_stray_match(dt_negotiator_t *negotiator, dt_tally_t *tally, int rank)
{
    int is_given = 0;
    dtrain_status_t status = DTRAIN_OK;
    if (negotiator->num_strays == 0 || tally->is_lost)
        return DTRAIN_OK;
    if (!is_of_world(tally))
        return match_set(negotiator, tally, rank);
    for (dt_tally_t *waiting = negotiator->waiting.first, *next;
         waiting && !is_given && status == DTRAIN_OK && is_stray(tally); waiting = next) {
        next = waiting->next;
        if (has_name(waiting, tally))
            status = give(negotiator, tally, waiting, &is_given);
    }
    return status;
}
