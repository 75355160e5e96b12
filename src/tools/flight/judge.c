/*
 * judge.c - an operation that is not finished holds up whoever has come as far as the others, and
 * is held up by whoever has not. Who holds up the most ranks, over all such operations, is behind.
 */
#include "tools/flight/judge.h"

#include <stdlib.h>
#include <string.h>

#include <dtrain/dtrain.h>

enum { SUBMITTED, AGREED, STARTED, FINISHED };

/* For each rank how far it has come. */
typedef struct progress {
    uint64_t *last_place; /* in the world */
    uint64_t *last_good;  /* number of the last operation that went well, in any set */
} progress_t;

/* Not finished; or the world ended under it, or it met its deadline and nothing went well since. */
static int is_open(const progress_t *progress, const flight_op_t *op)
{
    switch (op->status) {
    case DTRAIN_IN_PROGRESS:
    case DTRAIN_ERR_RANK_LOST:
    case DTRAIN_ERR_ABORTED:
    case DTRAIN_ERR_COMMUNICATION:
    case DTRAIN_ERR_INTERNAL:
        return 1;
    case DTRAIN_ERR_TIMEOUT:
    case DTRAIN_ERR_SHUT_DOWN:
        return op->number > progress->last_good[op->rank];
    default:
        return 0;
    }
}

static int is_same(const flight_op_t *a, const flight_op_t *b)
{
    return a->set == b->set && strcmp(a->name, b->name) == 0 && strcmp(a->kind, b->kind) == 0;
}

static flight_wait_t *new_wait(const flight_dump_t *dump, flight_verdict_t *verdict,
                               const flight_op_t *op)
{
    flight_wait_t *waits =
        realloc(verdict->waits, (verdict->num_waits + 1) * sizeof *verdict->waits);
    if (!waits)
        return NULL;
    verdict->waits = waits;
    flight_wait_t *wait = &waits[verdict->num_waits];
    *wait = (flight_wait_t){.op = op,
                            .is_there = calloc((size_t)dump->size, 1),
                            .is_late = calloc((size_t)dump->size, 1)};
    verdict->num_waits++;
    return wait->is_there && wait->is_late ? wait : NULL;
}

static flight_wait_t *find_wait(const flight_verdict_t *verdict, const flight_op_t *op)
{
    for (size_t i = 0; i < verdict->num_waits; i++) {
        flight_wait_t *wait = &verdict->waits[i];
        int is_agreed = op->place > 0;
        if (wait->is_agreed == is_agreed && is_same(wait->op, op) &&
            (!is_agreed || wait->op->place == op->place))
            return wait;
    }
    return NULL;
}

/* ---- Operations that some ranks have not submitted ------------------------------------------ */

static int gather_waiting(const flight_dump_t *dump, const progress_t *progress,
                          flight_verdict_t *verdict)
{
    for (size_t i = 0; i < dump->num_ops; i++) {
        const flight_op_t *op = &dump->ops[i];
        if (op->place != 0 || !is_open(progress, op))
            continue;
        flight_wait_t *wait = find_wait(verdict, op);
        if (!wait && !(wait = new_wait(dump, verdict, op)))
            return -1;
        wait->is_there[op->rank] = 1;
    }
    return 0;
}

/* Whether a rank knows that an operation was agreed on of which others do not know yet. */
static int knows_more(const flight_dump_t *dump, const flight_wait_t *wait, int rank)
{
    uint64_t last = 0;
    for (size_t i = 0; i < dump->num_ops; i++) {
        const flight_op_t *op = &dump->ops[i];
        if (op->set == wait->op->set && wait->is_there[op->rank] && op->place > last)
            last = op->place;
    }
    for (size_t i = 0; i < dump->num_ops; i++) {
        const flight_op_t *op = &dump->ops[i];
        if (op->rank == rank && op->place > last && is_same(op, wait->op))
            return 1;
    }
    return 0;
}

static void find_missing(const flight_dump_t *dump, flight_verdict_t *verdict)
{
    for (size_t i = 0; i < verdict->num_waits; i++) {
        flight_wait_t *wait = &verdict->waits[i];
        for (int rank = 0; rank < dump->size && !wait->is_agreed; rank++)
            wait->is_late[rank] = !wait->is_there[rank] &&
                                  flight_dump_is_member(dump, wait->op->set, rank) &&
                                  !knows_more(dump, wait, rank);
    }
}

/* ---- Operations that all have submitted ------------------------------------------------------ */

/* The furthest stage to which any rank has come at a place; operations are sorted by it. */
static int furthest(const flight_op_t *first, size_t count)
{
    int stage = AGREED;
    for (size_t i = 0; i < count; i++) {
        for (int later = stage + 1; later <= FINISHED; later++) {
            int is_well = later < FINISHED || first[i].status == DTRAIN_OK;
            if (first[i].times_ns[later] != 0 && is_well)
                stage = later;
        }
    }
    return stage;
}

static int judge_place(const flight_dump_t *dump, const progress_t *progress, size_t begin,
                       size_t count, flight_verdict_t *verdict)
{
    const flight_op_t *first = &dump->ops[begin];
    int num_open = 0, stage = furthest(first, count);
    for (size_t i = 0; i < count; i++)
        num_open += is_open(progress, &first[i]);
    if (num_open == 0)
        return 0;
    flight_wait_t *wait = new_wait(dump, verdict, first);
    if (!wait)
        return -1;
    wait->is_agreed = 1;
    for (int rank = 0; rank < dump->size; rank++)
        wait->is_late[rank] = first->set == 0 && dump->ranks[rank].is_known &&
                              progress->last_place[rank] < first->place;
    for (size_t i = 0; i < count; i++) {
        int is_there =
            first[i].times_ns[stage] != 0 && (stage < FINISHED || first[i].status == DTRAIN_OK);
        wait->is_there[first[i].rank] = (unsigned char)is_there;
        wait->is_late[first[i].rank] = (unsigned char)!is_there;
    }
    return 0;
}

static int gather_agreed(const flight_dump_t *dump, const progress_t *progress,
                         flight_verdict_t *verdict)
{
    for (size_t begin = 0, end; begin < dump->num_ops; begin = end) {
        const flight_op_t *first = &dump->ops[begin];
        for (end = begin + 1; end < dump->num_ops && dump->ops[end].set == first->set &&
                              dump->ops[end].place == first->place;
             end++) {
        }
        if (first->place != 0 && judge_place(dump, progress, begin, end - begin, verdict) != 0)
            return -1;
    }
    return 0;
}

/* ---- Where ranks went different ways ----------------------------------------------------------
 */

static void find_fork(const flight_dump_t *dump, const progress_t *progress,
                      flight_verdict_t *verdict)
{
    flight_fork_t *fork = &verdict->fork;
    const flight_op_t *one = NULL;
    for (size_t i = 0; i < dump->num_ops; i++) {
        const flight_op_t *op = &dump->ops[i];
        if (op->place != 0 || !is_open(progress, op) || (one && op->set != one->set))
            continue;
        if (!one)
            one = op;
        const flight_op_t **first = &fork->first_after[op->rank];
        if (!*first || op->number < (*first)->number)
            *first = op;
    }
    for (int rank = 0; one && rank < dump->size; rank++) {
        const flight_op_t *first = fork->first_after[rank];
        if (dump->ranks[rank].is_known && flight_dump_is_member(dump, one->set, rank))
            verdict->has_fork |= !first || !is_same(first, one);
    }
    if (!one || !verdict->has_fork)
        return;
    fork->set = one->set;
    for (size_t i = 0; i < dump->num_ops; i++) {
        const flight_op_t *op = &dump->ops[i];
        if (op->set == fork->set && op->place != 0 && op->status == DTRAIN_OK)
            fork->common = op; /* the last, since they are sorted */
    }
}

/* ---- The verdict ------------------------------------------------------------------------------
 */

static void sum_up(const flight_dump_t *dump, flight_verdict_t *verdict)
{
    int most = 0;
    for (size_t i = 0; i < verdict->num_waits; i++) {
        const flight_wait_t *wait = &verdict->waits[i];
        int num_there = 0;
        for (int rank = 0; rank < dump->size; rank++)
            num_there += wait->is_there[rank];
        for (int rank = 0; rank < dump->size; rank++)
            verdict->blame[rank] += wait->is_late[rank] ? num_there : 0;
    }
    for (int rank = 0; rank < dump->size; rank++)
        most = verdict->blame[rank] > most ? verdict->blame[rank] : most;
    for (int rank = 0; most > 0 && rank < dump->size; rank++) {
        if (verdict->blame[rank] == most)
            verdict->behind[verdict->num_behind++] = rank;
    }
}

/* The text with which the world ended says who it was: "rank 2 on host gpu7 (pid 4711) is lost: …";
 * -1: nobody. */
static int find_lost(const flight_dump_t *dump)
{
    char *end;
    if (strncmp(dump->reason, "rank ", 5) != 0 || !strstr(dump->reason, " is lost"))
        return -1;
    long rank = strtol(dump->reason + 5, &end, 10);
    return end != dump->reason + 5 && rank >= 0 && rank < dump->size ? (int)rank : -1;
}

static int measure(const flight_dump_t *dump, progress_t *progress)
{
    size_t size = (size_t)dump->size;
    progress->last_place = calloc(size, sizeof *progress->last_place);
    progress->last_good = calloc(size, sizeof *progress->last_good);
    if (!progress->last_place || !progress->last_good)
        return -1;
    for (size_t i = 0; i < dump->num_ops; i++) {
        const flight_op_t *op = &dump->ops[i];
        if (op->status == DTRAIN_OK && op->number > progress->last_good[op->rank])
            progress->last_good[op->rank] = op->number;
        if (op->place > progress->last_place[op->rank] && op->set == 0)
            progress->last_place[op->rank] = op->place;
    }
    return 0;
}

int flight_judge(const flight_dump_t *dump, flight_verdict_t *verdict)
{
    progress_t progress = {0};
    size_t size = (size_t)dump->size;
    memset(verdict, 0, sizeof *verdict);
    verdict->lost = -1;
    verdict->blame = calloc(size, sizeof *verdict->blame);
    verdict->behind = calloc(size, sizeof *verdict->behind);
    verdict->fork.first_after = calloc(size, sizeof *verdict->fork.first_after);
    int failed = !verdict->blame || !verdict->behind || !verdict->fork.first_after ||
                 measure(dump, &progress) != 0 || gather_waiting(dump, &progress, verdict) != 0;
    if (!failed) {
        find_missing(dump, verdict);
        failed = gather_agreed(dump, &progress, verdict) != 0;
    }
    if (!failed) {
        find_fork(dump, &progress, verdict);
        sum_up(dump, verdict);
        verdict->lost = find_lost(dump);
    }
    free(progress.last_place);
    free(progress.last_good);
    return failed ? -1 : 0;
}

void flight_verdict_free(flight_verdict_t *verdict)
{
    for (size_t i = 0; i < verdict->num_waits; i++) {
        free(verdict->waits[i].is_there);
        free(verdict->waits[i].is_late);
    }
    free(verdict->waits);
    free(verdict->fork.first_after);
    free(verdict->blame);
    free(verdict->behind);
}
