#include "random_program.h"

/* ---- Order ---------------------------------------------------------------------------------- */

static void shuffle(uint64_t *seed, int *order, int n)
{
    for (int i = 0; i < n; i++) {
        int j = (int)random_below(seed, (uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}

static void sort_barriers(const round_t *round, int *order)
{
    for (int i = 0; i < round->num_actions; i++) {
        for (int j = i + 1; j < round->num_actions; j++) {
            const action_t *a = &round->actions[order[i]], *b = &round->actions[order[j]];
            if (a->kind == DT_KIND_BARRIER && b->kind == DT_KIND_BARRIER && order[i] > order[j]) {
                int later = order[i];
                order[i] = order[j];
                order[j] = later;
            }
        }
    }
}

void part_draw_order(const round_t *round, uint64_t *seed, int *order)
{
    shuffle(seed, order, round->num_actions);
    sort_barriers(round, order);
}

/* ---- Slips ---------------------------------------------------------------------------------- */

/* Another member than the root. */
static int other_root(const action_t *action)
{
    for (int m = 0; m < action->num_members; m++) {
        if (action->members[m] != action->root)
            return action->members[m];
    }
    return action->root;
}

void part_slip(action_t *action)
{
    switch (action->slip) {
    case SLIP_DTYPE:
        action->dtype = action->dtype == DTRAIN_DTYPE_F32 ? DTRAIN_DTYPE_I32 : DTRAIN_DTYPE_F32;
        break;
    case SLIP_SHAPE:
        action->row++;
        break;
    case SLIP_OP:
        action->op = action->op == DTRAIN_OP_SUM
                         ? action->kind == DT_KIND_SPARSE ? DTRAIN_OP_AVERAGE : DTRAIN_OP_MAX
                         : DTRAIN_OP_SUM;
        break;
    case SLIP_SCALE:
        action->postscale *= 2;
        break;
    case SLIP_ROOT:
        action->root = other_root(action);
        break;
    case SLIP_KIND:
        action->kind = action->kind == DT_KIND_ALLREDUCE ? DT_KIND_BROADCAST : DT_KIND_ALLREDUCE;
        action->codec = NULL;
        break;
    case SLIP_CODEC:
        action->codec = NULL;
        break;
    default:
        break;
    }
}

int part_has_absent(const round_t *round)
{
    int has = 0;
    for (int i = 0; i < round->num_actions; i++)
        has |= round->actions[i].slip == SLIP_ABSENT;
    return has;
}

/* ---- Memory --------------------------------------------------------------------------------- */

int part_may_be_provided(const action_t *action)
{
    return dt_kind_traits((uint8_t)action->kind)->deals_rows && action->kind != DT_KIND_SPARSE;
}

int part_may_be_in_place(const action_t *action)
{
    return action->kind == DT_KIND_ALLREDUCE || action->kind == DT_KIND_REDUCE ||
           action->kind == DT_KIND_BROADCAST;
}

size_t part_room(const action_t *action)
{
    return (size_t)(6 * PROGRAM_RANKS_MAX + PROGRAM_SPARSE_ROWS) * (size_t)(action->row + 1) * 8;
}

/* ---- Joins ---------------------------------------------------------------------------------- */

/* Those of this round where an operation of it has waited for those who joined in an earlier one.
 */
unsigned part_may_be_last(const program_t *program, const round_t *round, int set)
{
    unsigned ranks = 0;
    for (int i = 0; i < round->num_actions; i++) {
        const action_t *action = &round->actions[i];
        if (action->set == set && action->kind != DT_KIND_TRANSFER && action->slip != SLIP_ABSENT)
            return round->joining[set];
    }
    for (int i = 0; i < program->num_members[set]; i++)
        ranks |= 1u << program->members[set][i];
    return ranks;
}
