#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "random_program.h"
#include "reduce/half.h"

static int has_joined(const action_t *action, int rank)
{
    return !(action->active >> rank & 1);
}

int model_submits(const action_t *action, int rank)
{
    if (has_joined(action, rank) || (action->slip == SLIP_ABSENT && rank == action->slip_rank))
        return 0;
    return action->kind != DT_KIND_TRANSFER || rank == action->root || rank == action->peer;
}

/* ---- Status -----------------------------------------------------------------------------------
 */

static int num_joined(const action_t *action)
{
    return action->num_members - __builtin_popcount(action->active);
}

/* What is agreed, and yet cannot go on without those who have joined. */
static int needs_the_joined(const action_t *action)
{
    if (action->kind == DT_KIND_TRANSFER)
        return has_joined(action, action->root) || has_joined(action, action->peer);
    if (action->kind == DT_KIND_BROADCAST || action->kind == DT_KIND_SCATTER)
        return has_joined(action, action->root);
    return num_joined(action) > 0 && action->op == DTRAIN_OP_PRODUCT && action->prescale != 1;
}

static int64_t total_rows(const action_t *action)
{
    int64_t total = 0;
    for (int i = 0; i < action->num_members; i++) {
        if (!has_joined(action, action->members[i]))
            total += action->rows[action->members[i]];
    }
    return total;
}

static int place_of(const action_t *action, int rank)
{
    int place = 0;
    while (action->members[place] != rank)
        place++;
    return place;
}

/* Rows that a rank gets in an alltoall. */
static int64_t arriving_rows(const action_t *action, int rank)
{
    int64_t total = 0;
    for (int i = 0; i < action->num_members; i++) {
        if (!has_joined(action, action->members[i]))
            total += action->splits[i][place_of(action, rank)];
    }
    return total;
}

static dtrain_status_t own_status(const action_t *action)
{
    int64_t rows;
    switch (action->slip) {
    case SLIP_NONE:
        return needs_the_joined(action) ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_OK;
    case SLIP_REFUSED:
        return DTRAIN_ERR_INVALID_ARGUMENT;
    case SLIP_ABSENT:
        return DTRAIN_ERR_TIMEOUT;
    case SLIP_ROOM: /* of one byte */
        rows = action->kind == DT_KIND_ALLTOALL ? arriving_rows(action, action->slip_rank)
                                                : total_rows(action);
        return rows * action->row * (int64_t)dt_dtype_size(action->dtype) > 1
                   ? DTRAIN_ERR_INVALID_ARGUMENT
                   : DTRAIN_OK;
    default:
        return DTRAIN_ERR_MISMATCH;
    }
}

dtrain_status_t model_status(const program_t *program, const round_t *round, int i, int rank,
                             int *now)
{
    const action_t *action = &round->actions[i];
    (void)program;
    *now = action->slip == SLIP_REFUSED && action->slip_rank == rank;
    dtrain_status_t status = own_status(action);
    for (int g = 0; g < round->num_actions && status == DTRAIN_OK && action->group >= 0; g++) {
        if (round->actions[g].group == action->group)
            status = own_status(&round->actions[g]);
    }
    return status;
}

/* ---- Data -------------------------------------------------------------------------------------
 */

/* Whole numbers so small that every type holds their sums and products, in any order. */
double model_input(const action_t *action, int rank, int64_t i)
{
    uint64_t seed = action->salt * 1000003 + (uint64_t)rank * 10007 + (uint64_t)i;
    int64_t value = (int64_t)random_below(&seed, 5);
    if (action->dtype == DTRAIN_DTYPE_BOOL)
        return (double)(value & 1);
    int is_unsigned = action->dtype == DTRAIN_DTYPE_U8 || action->dtype == DTRAIN_DTYPE_U16;
    return (double)(is_unsigned ? value : value - 2);
}

int64_t model_index(const action_t *action, int rank, int64_t i)
{
    uint64_t seed = action->salt * 7919 + (uint64_t)rank * 104729 + (uint64_t)i * 31;
    return (int64_t)random_below(&seed, PROGRAM_SPARSE_ROWS);
}

/* Rounds to the type. */
static double round_to(dtrain_dtype_t dtype, double value)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F64:
        return value;
    case DTRAIN_DTYPE_F32:
        return (double)(float)value;
    case DTRAIN_DTYPE_F16:
        return (double)dt_f16_to_f32(dt_f32_to_f16((float)value));
    case DTRAIN_DTYPE_BF16:
        return (double)dt_bf16_to_f32(dt_f32_to_bf16((float)value));
    case DTRAIN_DTYPE_U8: /* wraps around */
        return (double)(uint8_t)(int64_t)value;
    default:
        return trunc(value);
    }
}

static double combine(const action_t *action, double a, double b)
{
    int is_bool = action->dtype == DTRAIN_DTYPE_BOOL;
    switch (action->op) {
    case DTRAIN_OP_MIN:
        return a < b ? a : b;
    case DTRAIN_OP_MAX:
        return a > b ? a : b;
    case DTRAIN_OP_PRODUCT:
        return a * b;
    default:
        return is_bool ? (double)(a != 0 || b != 0) : a + b;
    }
}

/* The type in which a result travels. */
static dtrain_dtype_t wire_type(const action_t *action)
{
    if (action->codec && strcmp(action->codec, "fp16") == 0)
        return DTRAIN_DTYPE_F16;
    if (action->codec && strcmp(action->codec, "bf16") == 0)
        return DTRAIN_DTYPE_BF16;
    return action->dtype;
}

/* What scales, divisor and rounding make of a sum. */
static double finish(const program_t *program, const action_t *action, double sum)
{
    double divisor = 1;
    if (action->op == DTRAIN_OP_AVERAGE)
        divisor = program->join_divisor == DTRAIN_JOIN_DIVISOR_ALL
                      ? action->num_members
                      : action->num_members - num_joined(action);
    double quotient =
        action->dtype == DTRAIN_DTYPE_F64 ? sum / divisor : (double)((float)sum / (float)divisor);
    return round_to(wire_type(action), quotient * action->postscale);
}

/* Element i of what the ranks' tensors reduce to. */
static double reduced(const program_t *program, const action_t *action, int64_t i)
{
    double result = 0;
    int is_first = 1;
    for (int m = 0; m < action->num_members; m++) {
        int rank = action->members[m];
        if (has_joined(action, rank))
            continue;
        double value = action->prescale * model_input(action, rank, i);
        result = is_first ? value : combine(action, result, value);
        is_first = 0;
    }
    return finish(program, action, result);
}

static int64_t whole_reduction(const program_t *program, const action_t *action, int64_t first,
                               int64_t count, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = reduced(program, action, first + i);
    return count;
}

static int64_t copy_input(const action_t *action, int rank, int64_t first, int64_t count,
                          double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = model_input(action, rank, first + i);
    return count;
}

/* The rows of all ranks that have not joined. */
static int64_t gathered(const action_t *action, double *out)
{
    int64_t total = 0;
    for (int m = 0; m < action->num_members; m++) {
        int rank = action->members[m];
        if (!has_joined(action, rank))
            total += copy_input(action, rank, 0, action->rows[rank] * action->row, out + total);
    }
    return total;
}

static int64_t exchanged(const action_t *action, int rank, double *out)
{
    int to = place_of(action, rank);
    int64_t total = 0;
    for (int from = 0; from < action->num_members; from++) {
        int64_t before = 0;
        if (has_joined(action, action->members[from]))
            continue;
        for (int m = 0; m < to; m++)
            before += action->splits[from][m];
        total += copy_input(action, action->members[from], before * action->row,
                            action->splits[from][to] * action->row, out + total);
    }
    return total;
}

static int64_t sparse_sum(const program_t *program, const action_t *action, double *out)
{
    int64_t count = PROGRAM_SPARSE_ROWS * action->row;
    memset(out, 0, (size_t)count * sizeof *out);
    for (int m = 0; m < action->num_members; m++) {
        int rank = action->members[m];
        double own[PROGRAM_SPARSE_ROWS * PROGRAM_SPARSE_ROW_MAX] = {
            0}; /* its repeated rows added up */
        if (has_joined(action, rank))
            continue;
        for (int64_t i = 0; i < action->rows[rank]; i++) {
            double *row = own + model_index(action, rank, i) * action->row;
            for (int64_t j = 0; j < action->row; j++)
                row[j] =
                    action->dtype == DTRAIN_DTYPE_BOOL
                        ? combine(action, row[j], model_input(action, rank, i * action->row + j))
                        : row[j] + model_input(action, rank, i * action->row + j);
        }
        for (int64_t i = 0; i < count; i++)
            out[i] = combine(action, out[i], action->prescale * own[i]);
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = finish(program, action, out[i]);
    return count;
}

int64_t model_output(const program_t *program, const action_t *action, int rank, double *out,
                     int64_t *rows)
{
    int64_t all = action->rows[rank] * action->row, size = action->num_members;
    int64_t place = place_of(action, rank), longer = action->rows[rank] % size;
    int64_t share = action->rows[rank] / size + (place < longer);
    int64_t before = place * (action->rows[rank] / size) + (place < longer ? place : longer);
    *rows = action->rows[rank];
    switch (action->kind) {
    case DT_KIND_ALLREDUCE:
        return whole_reduction(program, action, 0, all, out);
    case DT_KIND_REDUCE:
        return rank == action->root ? whole_reduction(program, action, 0, all, out) : -1;
    case DT_KIND_REDUCESCATTER:
        *rows = share;
        return whole_reduction(program, action, before * action->row, share * action->row, out);
    case DT_KIND_BROADCAST:
        return copy_input(action, action->root, 0, all, out);
    case DT_KIND_SCATTER:
        *rows = share;
        return copy_input(action, action->root, before * action->row, share * action->row, out);
    case DT_KIND_TRANSFER:
        return rank == action->peer ? copy_input(action, action->root, 0, all, out) : -1;
    case DT_KIND_ALLGATHER:
        *rows = total_rows(action);
        return gathered(action, out);
    case DT_KIND_GATHER:
        *rows = rank == action->root ? total_rows(action) : 0;
        return rank == action->root ? gathered(action, out) : 0;
    case DT_KIND_ALLTOALL:
        *rows = arriving_rows(action, rank);
        return exchanged(action, rank, out);
    case DT_KIND_SPARSE:
        return sparse_sum(program, action, out);
    default:
        return -1;
    }
}
