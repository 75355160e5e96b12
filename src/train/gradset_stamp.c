/*
 * gradset_stamp.c - the steps of a gradient set are the same ones on all ranks, or an error.
 *
 * A rank counts its waits, whether they do anything or not (sync may be off), and stamps each run
 * with the step that it is of (core/stamp.h), so that a rank that has waited once more or less than
 * others meets them with another number. Two slips do not show in it. A step that the program
 * brought nothing for is most likely one wait too many, where other ranks brought something. And
 * where a wait is left out the next step's marks are refused, so that the step which is still to
 * come has nothing left to be marked with: it is ended with the one before (catch_up), and fails.
 *
 * Where numbers differ they have to become one again, or each later step would fail too: all ranks
 * go on behind the furthest one. Ranks that join and come back have missed steps rightly: behind a
 * join all count anew.
 */
#include <stdio.h>

#include "base/status.h"
#include "core/stranded.h"
#include "train/gradset_step.h"

static uint32_t num_joins(const dtrain_gradset_t *set)
{
    return dt_psets_num_joins(&set->runtime->psets, set->talk.pset);
}

/* The number of the step that is under way. */
static uint32_t step_number(const dtrain_gradset_t *set, uint32_t joins)
{
    return joins == set->joins ? set->step + 1 : 1;
}

dt_stamp_t dt_gradset_stamp(dtrain_gradset_t *set)
{
    return (dt_stamp_t){.step = step_number(set, num_joins(set)),
                        .passes = (uint16_t)set->passes,
                        .kind = (uint16_t)atomic_load(&set->kind)};
}

void dt_gradset_judge_step(dtrain_gradset_t *set)
{
    int is_empty = 1, is_early = atomic_load(&set->num_refused) > 0;
    for (int i = 0; i < set->layout.n; i++) {
        const dt_grad_slot_t *slot = &set->slots[i];
        if (atomic_load(&slot->marks) == 0)
            continue;
        is_empty = 0;
        is_early = is_early && atomic_load(&slot->refused) >= set->passes;
    }
    set->is_early = is_early && !is_empty;
    atomic_store(&set->kind, is_empty ? DT_STAMP_EMPTY : DT_STAMP_USUAL);
}

void dt_gradset_count_step(dtrain_gradset_t *set)
{
    uint32_t joins = num_joins(set), step = step_number(set, joins);
    for (int i = 0; i < set->plan.num_runs; i++) {
        uint32_t furthest = set->works[i].outcomes[set->rounds % 2].furthest;
        if (furthest > step)
            step = furthest;
    }
    set->step = step;
    set->joins = joins;
}

static dtrain_status_t end_early_step(dtrain_gradset_t *set)
{
    char text[DT_ERROR_MAX];
    atomic_store(&set->kind, DT_STAMP_EARLY);
    for (int i = 0; i < set->layout.n; i++) {
        atomic_store(&set->slots[i].marks, set->passes);
        dt_gradset_complete(set, i);
    }
    dtrain_status_t status = dt_gradset_await_runs(set);
    if (dt_is_stranded(set->runtime))
        return status;
    /* All ranks made the same slip, or this is the only one. */
    if (status == DTRAIN_OK)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                         "gradient set '%.100s': step %u was marked before step %u was ended",
                         set->name, set->step + 1, set->step);
    snprintf(text, sizeof text, "%s", dt_last_error());
    dt_gradset_end_step(set, status);
    return dt_fail(status, "%s", text);
}

dtrain_status_t dt_gradset_catch_up(dtrain_gradset_t *set, dtrain_status_t status)
{
    char text[DT_ERROR_MAX];
    if (!set->is_early || dt_is_stranded(set->runtime))
        return status;
    set->is_early = 0;
    snprintf(text, sizeof text, "%s", status == DTRAIN_OK ? "" : dt_last_error());
    dtrain_status_t second = end_early_step(set);
    return status == DTRAIN_OK ? second : dt_fail(status, "%s", text);
}
