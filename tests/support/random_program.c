#include "random_program.h"

#include <stdio.h>
#include <string.h>

#include "test_random.h"

uint64_t random_below(uint64_t *seed, uint64_t n)
{
    return test_random(seed) % n;
}

/* Where the program stands while it is drawn. */
typedef struct draw {
    program_t *program;
    const program_limits_t *limits;
    uint64_t seed;
    int exists[PROGRAM_SETS_MAX];
    unsigned joined[PROGRAM_SETS_MAX];
    int num_unique; /* names that are not used again */
} draw_t;

static int below(draw_t *draw, int n)
{
    return (int)random_below(&draw->seed, (uint64_t)n);
}

/* True once in n. */
static int once_in(draw_t *draw, int n)
{
    return below(draw, n) == 0;
}

static unsigned bit(int rank)
{
    return 1u << rank;
}

static int count_bits(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* The k-th of some ranks. */
static int nth(unsigned bits, int k)
{
    for (; k > 0; k--)
        bits &= bits - 1;
    return __builtin_ctz(bits);
}

static int any_of(draw_t *draw, unsigned bits)
{
    return nth(bits, below(draw, count_bits(bits)));
}

static unsigned members_of(const program_t *program, int set)
{
    unsigned bits = 0;
    for (int i = 0; i < program->num_members[set]; i++)
        bits |= bit(program->members[set][i]);
    return bits;
}

/* ---- Operations -------------------------------------------------------------------------------
 */

static int has_rows(dt_kind_t kind)
{
    return dt_kind_traits((uint8_t)kind)->rows_differ;
}

static int reduces(dt_kind_t kind)
{
    return dt_kind_traits((uint8_t)kind)->reduces;
}

static int is_float(dtrain_dtype_t dtype)
{
    return dtype == DTRAIN_DTYPE_F16 || dtype == DTRAIN_DTYPE_BF16 || dtype == DTRAIN_DTYPE_F32 ||
           dtype == DTRAIN_DTYPE_F64;
}

static void draw_reduction(draw_t *draw, action_t *action)
{
    action->op = (dtrain_op_t)below(draw, action->kind == DT_KIND_SPARSE ? 2 : 5);
    if (action->dtype == DTRAIN_DTYPE_BOOL && action->op == DTRAIN_OP_AVERAGE)
        action->op = DTRAIN_OP_SUM;
    if (is_float(action->dtype) && once_in(draw, 4)) {
        action->prescale = once_in(draw, 2) ? 0.5 : 2;
        action->postscale = once_in(draw, 2) ? 1 : 4;
    }
    if (action->kind == DT_KIND_ALLREDUCE && action->dtype == DTRAIN_DTYPE_F32 &&
        action->op <= DTRAIN_OP_AVERAGE && once_in(draw, 3)) {
        static const char *const codecs[] = {"fp16", "bf16", "topk:1"};
        action->codec = codecs[below(draw, 3)];
    }
}

/* The extents. A sparse tensor has PROGRAM_SPARSE_ROWS rows, of which ranks have some. */
static void draw_shape(draw_t *draw, action_t *action)
{
    action->row = once_in(draw, 6)    ? PROGRAM_SPARSE_ROW_MAX
                  : once_in(draw, 12) ? 0
                                      : 1 + below(draw, 4);
    if (action->row == PROGRAM_SPARSE_ROW_MAX && action->kind != DT_KIND_SPARSE)
        action->row = draw->limits->longer;
    int64_t same = below(draw, 9);
    for (int rank = 0; rank < PROGRAM_RANKS_MAX; rank++) {
        int differs = has_rows(action->kind) || action->kind == DT_KIND_SPARSE;
        action->rows[rank] = differs ? below(draw, 6) : same;
    }
    if (action->kind != DT_KIND_ALLTOALL)
        return;
    for (int from = 0; from < action->num_members; from++) {
        int64_t *rows = &action->rows[action->members[from]];
        *rows = 0;
        for (int to = 0; to < action->num_members; to++)
            *rows += action->splits[from][to] = below(draw, 4);
    }
}

static int may_slip(const action_t *action, slip_t slip)
{
    int has_data = action->kind != DT_KIND_BARRIER;
    unsigned others = 0;
    for (int i = 0; i < action->num_members; i++)
        others += action->members[i] != action->root;
    switch (slip) {
    case SLIP_DTYPE:
        return has_data && !action->codec;
    case SLIP_SHAPE:
        return has_data;
    case SLIP_OP:
        return reduces(action->kind) && !action->codec &&
               (action->kind != DT_KIND_SPARSE || action->dtype != DTRAIN_DTYPE_BOOL);
    case SLIP_SCALE:
        return reduces(action->kind) && is_float(action->dtype);
    case SLIP_ROOT:
        return dt_kind_traits((uint8_t)action->kind)->has_root &&
               action->kind != DT_KIND_TRANSFER && others > 0;
    case SLIP_KIND:
        return has_data && action->kind != DT_KIND_TRANSFER;
    case SLIP_CODEC:
        return action->codec != NULL;
    case SLIP_ROOM:
        return action->kind == DT_KIND_ALLGATHER || action->kind == DT_KIND_ALLTOALL;
    case SLIP_ABSENT:
        return has_data && action->group < 0;
    default:
        return 1;
    }
}

/* A name that no other operation has, since whoever has no part in this one, or is late for it, may
 * be in another round. */
static void name_once(draw_t *draw, action_t *action)
{
    snprintf(action->name, sizeof action->name, "once.%d", draw->num_unique++);
}

static void draw_slip(draw_t *draw, action_t *action)
{
    unsigned able = action->active;
    if (action->kind == DT_KIND_TRANSFER)
        able &= bit(action->root) | bit(action->peer);
    if (count_bits(able) < 2 || !once_in(draw, 4))
        return;
    slip_t slip = (slip_t)(1 + below(draw, SLIP_ROOM));
    if (slip == SLIP_ABSENT && !once_in(draw, 4))
        return; /* each takes as long as its deadline */
    if (!may_slip(action, slip))
        return;
    action->slip = slip;
    action->slip_rank = any_of(draw, able);
    if (slip == SLIP_ABSENT)
        name_once(draw, action);
}

static dt_kind_t draw_kind(draw_t *draw)
{
    static const dt_kind_t kinds[] = {DT_KIND_ALLREDUCE,     DT_KIND_ALLREDUCE, DT_KIND_ALLREDUCE,
                                      DT_KIND_BROADCAST,     DT_KIND_BARRIER,   DT_KIND_ALLGATHER,
                                      DT_KIND_ALLTOALL,      DT_KIND_REDUCE,    DT_KIND_GATHER,
                                      DT_KIND_REDUCESCATTER, DT_KIND_SCATTER,   DT_KIND_TRANSFER,
                                      DT_KIND_SPARSE};
    return kinds[below(draw, sizeof kinds / sizeof kinds[0])];
}

static void draw_ranks(draw_t *draw, action_t *action, int set)
{
    const program_t *program = draw->program;
    action->set = set;
    action->num_members = program->num_members[set];
    memcpy(action->members, program->members[set], sizeof action->members);
    action->active = members_of(program, set) & ~draw->joined[set];
    action->root = action->members[below(draw, action->num_members)];
    if (action->kind != DT_KIND_TRANSFER)
        return;
    action->peer = any_of(draw, members_of(program, set) & ~bit(action->root));
    if (!(action->active & (bit(action->root) | bit(action->peer))))
        action->root = any_of(draw, action->active & ~bit(action->peer));
}

static void draw_action(draw_t *draw, action_t *action, int set, dt_kind_t kind)
{
    static const dtrain_dtype_t dtypes[] = {
        DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F64, DTRAIN_DTYPE_F16, DTRAIN_DTYPE_BF16,
        DTRAIN_DTYPE_I32, DTRAIN_DTYPE_I64, DTRAIN_DTYPE_U8,  DTRAIN_DTYPE_I16, DTRAIN_DTYPE_BOOL};
    memset(action, 0, sizeof *action);
    action->kind = kind;
    if (kind == DT_KIND_TRANSFER && draw->program->num_members[set] < 2)
        action->kind = DT_KIND_BROADCAST;
    action->group = -1;
    action->prescale = action->postscale = 1;
    action->salt = random_below(&draw->seed, 1000000);
    draw_ranks(draw, action, set);
    if (action->kind == DT_KIND_BARRIER)
        return;
    action->dtype = dtypes[below(draw, sizeof dtypes / sizeof dtypes[0])];
    if (draw->limits->all_types && once_in(draw, 6))
        action->dtype = once_in(draw, 2) ? DTRAIN_DTYPE_I8 : DTRAIN_DTYPE_U16;
    action->has_callback = once_in(draw, 5);
    action->in_place = once_in(draw, 3);
    action->has_room = once_in(draw, 2);
    action->priority = once_in(draw, 6) ? below(draw, 7) - 3 : 0;
    draw_shape(draw, action);
    if (reduces(action->kind))
        draw_reduction(draw, action);
    draw_slip(draw, action);
}

/* A name that no other action of the round has on the set; mostly one of few, so that it comes
 * again, as something else or as the same. */
static void draw_name(draw_t *draw, const round_t *round, action_t *action)
{
    int is_taken;
    if (action->kind == DT_KIND_TRANSFER)
        name_once(draw, action);
    if (action->kind == DT_KIND_TRANSFER || action->slip == SLIP_ABSENT)
        return;
    do {
        snprintf(action->name, sizeof action->name, "t%d", below(draw, 2 * PROGRAM_ACTIONS_MAX));
        is_taken = 0;
        for (int i = 0; i < round->num_actions; i++)
            is_taken |= round->actions[i].set == action->set &&
                        strcmp(round->actions[i].name, action->name) == 0;
    } while (is_taken);
}

/* Several actions that are one group: one kind, one set of options, one slip at most. */
static void draw_group(draw_t *draw, round_t *round, int set)
{
    static const dt_kind_t kinds[] = {DT_KIND_ALLREDUCE, DT_KIND_ALLGATHER, DT_KIND_REDUCESCATTER};
    dt_kind_t kind = kinds[below(draw, 3)];
    int first = round->num_actions, n = 2 + below(draw, 2), has_slip = 0;
    for (int i = 0; i < n; i++) {
        action_t *action = &round->actions[round->num_actions];
        draw_action(draw, action, set, kind);
        action->group = first;
        action->op = DTRAIN_OP_SUM;
        action->prescale = action->postscale = 1;
        action->codec = NULL;
        action->priority = action->has_callback = 0;
        if (has_slip || action->slip > SLIP_SHAPE)
            action->slip = SLIP_NONE;
        has_slip |= action->slip != SLIP_NONE;
        draw_name(draw, round, action);
        round->num_actions++;
    }
}

static int any_set(draw_t *draw)
{
    int set;
    do {
        set = below(draw, PROGRAM_SETS_MAX);
    } while (!draw->exists[set] || !(members_of(draw->program, set) & ~draw->joined[set]));
    return set;
}

/* The operations of the round before come again, so that ids are used. */
static void repeat_round(draw_t *draw, round_t *round, const round_t *before)
{
    *round = *before;
    for (int i = 0; i < round->num_actions; i++) {
        action_t *action = &round->actions[i];
        action->salt = random_below(&draw->seed, 1000000);
        if (action->slip == SLIP_ABSENT)
            name_once(draw, action);
        action->slip = SLIP_NONE;
    }
    memset(round->joining, 0, sizeof round->joining);
    memset(round->completes, 0, sizeof round->completes);
}

static void draw_operations(draw_t *draw, round_t *round)
{
    int wanted = 1 + below(draw, PROGRAM_ACTIONS_MAX - 3);
    while (round->num_actions < wanted) {
        int set = any_set(draw);
        if (once_in(draw, 6)) {
            draw_group(draw, round, set);
            continue;
        }
        action_t *action = &round->actions[round->num_actions];
        draw_action(draw, action, set, draw_kind(draw));
        if (action->kind != DT_KIND_BARRIER)
            draw_name(draw, round, action);
        round->num_actions++;
    }
}

/* ---- Sets and joins ---------------------------------------------------------------------------
 */

/* Behind the round's operations some ranks of a set join; sometimes all that are left. */
static void draw_joins(draw_t *draw, round_t *round, int is_last)
{
    for (int set = 0; set < PROGRAM_SETS_MAX; set++) {
        unsigned left = members_of(draw->program, set) & ~draw->joined[set];
        if (!draw->exists[set])
            continue;
        unsigned joining = 0;
        if (is_last || (draw->joined[set] && once_in(draw, 2)))
            joining = draw->joined[set] ? left : 0;
        else if (once_in(draw, 5))
            joining = bit(any_of(draw, left));
        round->joining[set] = joining;
        round->completes[set] = joining == left && joining;
        draw->joined[set] = joining == left ? 0 : draw->joined[set] | joining;
    }
}

static void draw_members(draw_t *draw, int set)
{
    program_t *program = draw->program;
    unsigned left = (1u << program->size) - 1;
    program->num_members[set] = 1 + below(draw, program->size);
    for (int i = 0; i < program->num_members[set]; i++) {
        int rank = any_of(draw, left);
        left &= ~bit(rank);
        program->members[set][i] = rank;
    }
}

/* Adds a set or removes one, where no rank has joined; 0: there is none to. */
static int draw_change(draw_t *draw, round_t *round)
{
    int set = 1 + below(draw, PROGRAM_SETS_MAX - 1);
    if (draw->joined[0] || draw->joined[set])
        return 0;
    /* Members of a set are the same for the whole program, once they are drawn. */
    if (!draw->program->num_members[set])
        draw_members(draw, set);
    round->set = set;
    round->kind = draw->exists[set] ? ROUND_REMOVE : ROUND_ADD;
    round->has_slip = round->kind == ROUND_ADD && draw->program->size > 1 && once_in(draw, 5);
    if (!round->has_slip)
        draw->exists[set] = !draw->exists[set];
    return 1;
}

void program_make(program_t *program, uint64_t seed, const program_limits_t *limits)
{
    draw_t draw = {.program = program, .limits = limits, .seed = seed};
    memset(program, 0, sizeof *program);
    program->seed = seed;
    program->size = limits->size > 0 ? limits->size : 1 + below(&draw, PROGRAM_RANKS_MAX);
    static const int64_t thresholds[] = {0, 64, 4096, 64 << 20};
    program->fusion_threshold = thresholds[below(&draw, 4)];
    program->join_divisor = below(&draw, 2);
    program->num_members[0] = program->size;
    for (int rank = 0; rank < program->size; rank++)
        program->members[0][rank] = rank;
    draw.exists[0] = 1;
    program->num_rounds = 2 + below(&draw, PROGRAM_ROUNDS_MAX - 1);
    for (int r = 0; r < program->num_rounds; r++) {
        round_t *round = &program->rounds[r];
        int is_last = r == program->num_rounds - 1;
        if (!is_last && once_in(&draw, 3) && draw_change(&draw, round))
            continue;
        const round_t *before = r > 0 ? &program->rounds[r - 1] : NULL;
        int may_repeat = before && before->kind == ROUND_OPERATIONS;
        for (int set = 0; may_repeat && set < PROGRAM_SETS_MAX; set++)
            may_repeat = !before->joining[set];
        if (may_repeat && once_in(&draw, 2))
            repeat_round(&draw, round, before);
        else
            draw_operations(&draw, round);
        draw_joins(&draw, round, is_last);
    }
}
