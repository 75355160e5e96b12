#include "random_rank.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "random_program.h"
#include "reduce/codec.h"
#include "reduce/half.h"

/* Deadline of an operation that a rank does not submit. */
#define ABSENT_MS 40

#define ELEMENTS_MAX 8192

/* ---- A rank -----------------------------------------------------------------------------------
 */

/* An action that this rank has submitted. */
typedef struct submitted {
    dtrain_handle_t handle; /* 0: refused at once, or not at all */
    dtrain_status_t refused;
    void *out; /* the caller's, or NULL */
    _Atomic int num_calls;
} submitted_t;

typedef struct rank {
    engine_rank_t *self;
    const program_t *program;
    uint64_t seed; /* of this rank's own choices: what it does first, and how it waits */
    dtrain_pset_t ids[PROGRAM_SETS_MAX];
    dtrain_handle_t joins[PROGRAM_SETS_MAX];
    submitted_t submitted[PROGRAM_ACTIONS_MAX];
    dt_codec_t codecs[PROGRAM_ACTIONS_MAX];
    double wanted[ELEMENTS_MAX];
    int64_t indices[PROGRAM_ACTIONS_MAX][8];
} rank_t;

static void fail_action(rank_t *rank, int round, const action_t *action, const char *what)
{
    char text[400];
    snprintf(text, sizeof text, "seed %llu, round %d: %s '%s' on set %d, slip %d of rank %d: %s",
             (unsigned long long)rank->program->seed, round, dt_kind_name((uint8_t)action->kind),
             action->name, action->set, (int)action->slip, action->slip_rank, what);
    engine_check(rank->self, 0, text, __FILE__, __LINE__);
}

static void put(void *buffer, dtrain_dtype_t dtype, int64_t i, double value)
{
    char *to = (char *)buffer + (size_t)i * dt_dtype_size(dtype);
    float f32 = (float)value;
    int64_t whole = (int64_t)value;
    uint16_t half = dtype == DTRAIN_DTYPE_F16 ? dt_f32_to_f16(f32) : dt_f32_to_bf16(f32);
    switch (dtype) {
    case DTRAIN_DTYPE_F64:
        memcpy(to, &value, sizeof value);
        break;
    case DTRAIN_DTYPE_F32:
        memcpy(to, &f32, sizeof f32);
        break;
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        memcpy(to, &half, sizeof half);
        break;
    default:
        memcpy(to, &whole, dt_dtype_size(dtype)); /* little-endian: the low bytes */
        break;
    }
}

static double get(const void *buffer, dtrain_dtype_t dtype, int64_t i)
{
    const char *from = (const char *)buffer + (size_t)i * dt_dtype_size(dtype);
    double f64;
    float f32;
    int64_t whole = 0;
    uint16_t half;
    switch (dtype) {
    case DTRAIN_DTYPE_F64:
        memcpy(&f64, from, sizeof f64);
        return f64;
    case DTRAIN_DTYPE_F32:
        memcpy(&f32, from, sizeof f32);
        return (double)f32;
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        memcpy(&half, from, sizeof half);
        return (double)(dtype == DTRAIN_DTYPE_F16 ? dt_f16_to_f32(half) : dt_bf16_to_f32(half));
    case DTRAIN_DTYPE_I16:
        return *(const int16_t *)(const void *)from;
    case DTRAIN_DTYPE_I32:
        return *(const int32_t *)(const void *)from;
    default:
        memcpy(&whole, from, dt_dtype_size(dtype));
        return (double)whole;
    }
}

static void count_call(uint64_t handle, dtrain_status_t status, void *user)
{
    (void)handle;
    (void)status;
    atomic_fetch_add(&((submitted_t *)user)->num_calls, 1);
}

/* ---- Submission -------------------------------------------------------------------------------
 */

/* What this rank says of action `i`. */
static engine_op_t describe(rank_t *rank, const action_t *action, int i, int64_t *shape)
{
    int me = rank->self->rank;
    int64_t rows = action->rows[me];
    shape[0] = action->kind == DT_KIND_SPARSE ? PROGRAM_SPARSE_ROWS : rows;
    shape[1] = action->row;
    void *in = engine_buffer(rank->self, part_room(action)), *out = in;
    for (int64_t e = 0; e < rows * action->row; e++)
        put(in, action->dtype, e, model_input(action, me, e));
    if (!action->in_place || !part_may_be_in_place(action))
        out = engine_buffer(rank->self, part_room(action));
    if ((!action->has_room && part_may_be_provided(action) && action->slip == SLIP_NONE) ||
        action->kind == DT_KIND_SPARSE)
        out = NULL;
    submitted_t *submitted = &rank->submitted[i];
    submitted->out = out;
    engine_op_t op = {.kind = action->kind,
                      .in = in,
                      .out = out,
                      .shape = shape,
                      .ndim = 2,
                      .dtype = action->dtype,
                      .op = action->op,
                      .prescale = action->prescale,
                      .postscale = action->postscale,
                      .root = action->root,
                      .pset = rank->ids[action->set],
                      .priority = action->priority,
                      .out_bytes = out ? (int64_t)part_room(action) : 0};
    if (action->kind == DT_KIND_TRANSFER) {
        op.is_receiver = me == action->peer;
        op.root = op.is_receiver ? action->root : action->peer;
    }
    if (action->has_callback) {
        op.callback = count_call;
        op.user = submitted;
    }
    if (action->codec && dt_codec_make(action->codec, &rank->codecs[i]) == DTRAIN_OK)
        op.codec = &rank->codecs[i].base;
    if (action->slip == SLIP_ABSENT)
        op.timeout_ms = ABSENT_MS;
    return op;
}

static void add_rows(rank_t *rank, const action_t *action, int i, engine_op_t *op)
{
    int me = rank->self->rank;
    if (action->kind == DT_KIND_ALLTOALL) {
        int place = 0;
        while (action->members[place] != me)
            place++;
        op->splits = action->splits[place];
        op->num_splits = action->num_members;
    }
    if (action->kind == DT_KIND_SPARSE) {
        for (int64_t r = 0; r < action->rows[me]; r++)
            rank->indices[i][r] = model_index(action, me, r);
        op->indices = rank->indices[i];
        op->nnz = action->rows[me];
    }
}

static void complete_op(rank_t *rank, const action_t *action, int i, engine_op_t *op,
                        int64_t *shape)
{
    action_t said = *action;
    int slips = action->slip_rank == rank->self->rank;
    if (slips)
        part_slip(&said);
    *op = describe(rank, &said, i, shape);
    op->name = action->name;
    add_rows(rank, action, i, op);
    if (slips && action->slip == SLIP_REFUSED)
        op->timeout_ms = -5;
    if (slips && action->slip == SLIP_ROOM)
        op->out_bytes = 1;
}

static void submit_alone(rank_t *rank, const action_t *action, int i)
{
    engine_op_t op;
    int64_t shape[2];
    submitted_t *submitted = &rank->submitted[i];
    complete_op(rank, action, i, &op, shape);
    submitted->refused = engine_submit(rank->self, &op, &submitted->handle);
}

static void submit_group(rank_t *rank, const round_t *round, int first)
{
    engine_op_t ops[PROGRAM_ACTIONS_MAX] = {0};
    int64_t shapes[PROGRAM_ACTIONS_MAX][2];
    dtrain_handle_t handles[PROGRAM_ACTIONS_MAX] = {0};
    int n = 0;
    for (int i = first; i < round->num_actions && round->actions[i].group == first; i++, n++)
        complete_op(rank, &round->actions[i], i, &ops[n], shapes[n]);
    dtrain_status_t status = engine_submit_group(rank->self, ops, n, handles);
    for (int i = 0; i < n; i++) {
        rank->submitted[first + i].handle = handles[i];
        rank->submitted[first + i].refused = status;
    }
}

/* ---- Results ----------------------------------------------------------------------------------
 */

static void check_sparse(rank_t *rank, int r, const action_t *action, dtrain_handle_t handle,
                         int64_t count)
{
    const int64_t *indices;
    const void *values;
    int64_t nnz;
    double found[PROGRAM_SPARSE_ROWS * 200] = {0};
    if (dt_runtime_sparse_output(rank->self->runtime, handle, &indices, &values, &nnz) != DTRAIN_OK)
        fail_action(rank, r, action, "no output");
    for (int64_t i = 0; i < nnz; i++) {
        int64_t index = indices ? indices[i] : i;
        for (int64_t j = 0; j < action->row; j++)
            found[index * action->row + j] = get(values, action->dtype, i * action->row + j);
    }
    for (int64_t i = 0; i < count; i++) {
        if (found[i] != rank->wanted[i]) {
            fail_action(rank, r, action, "wrong data");
            return;
        }
    }
}

static void check_data(rank_t *rank, int r, const action_t *action, int i)
{
    int me = rank->self->rank;
    const submitted_t *submitted = &rank->submitted[i];
    int64_t rows = 0, shape[2] = {0};
    int64_t count = model_output(rank->program, action, me, rank->wanted, &rows);
    const void *out = submitted->out;
    if (count < 0)
        return;
    if (action->kind == DT_KIND_SPARSE) {
        check_sparse(rank, r, action, submitted->handle, count);
        return;
    }
    if (part_may_be_provided(action)) {
        int ndim = 0;
        if (dt_runtime_output(rank->self->runtime, submitted->handle, &out, shape, &ndim) !=
                DTRAIN_OK ||
            ndim != 2 || shape[0] != rows || shape[1] != action->row)
            fail_action(rank, r, action, "wrong shape");
    }
    for (int64_t e = 0; e < count; e++) {
        if (!out || get(out, action->dtype, e) != rank->wanted[e]) {
            fail_action(rank, r, action, "wrong data");
            return;
        }
    }
}

static void check_result(rank_t *rank, int r, const round_t *round, int i)
{
    const action_t *action = &round->actions[i];
    submitted_t *submitted = &rank->submitted[i];
    int now;
    char text[200];
    dtrain_status_t wanted = model_status(rank->program, round, i, rank->self->rank, &now);
    dtrain_status_t found = submitted->refused;
    if (submitted->handle && !now)
        found = dt_runtime_wait(rank->self->runtime, submitted->handle, -1);
    if (found != wanted) {
        snprintf(text, sizeof text, "%s, not %s: %.100s", dt_status_string(found),
                 dt_status_string(wanted), dt_last_error());
        fail_action(rank, r, action, text);
    } else if (found == DTRAIN_OK) {
        check_data(rank, r, action, i);
    } else if (!now && action->kind != DT_KIND_BARRIER && !strstr(dt_last_error(), action->name) &&
               action->group < 0) {
        fail_action(rank, r, action, "the text does not name it");
    }
    if (submitted->handle && action->has_callback && atomic_load(&submitted->num_calls) != 1)
        fail_action(rank, r, action, "the callback was not called once");
    if (submitted->handle)
        dt_runtime_release(rank->self->runtime, submitted->handle);
}

/* ---- Rounds -----------------------------------------------------------------------------------
 */

static void do_operations(rank_t *rank, int r)
{
    const round_t *round = &rank->program->rounds[r];
    int me = rank->self->rank, order[PROGRAM_ACTIONS_MAX];
    memset(rank->submitted, 0, sizeof rank->submitted);
    part_draw_order(round, &rank->seed, order);
    for (int k = 0; k < round->num_actions; k++) {
        int i = order[k];
        const action_t *action = &round->actions[i];
        if (!model_submits(action, me) || (action->group >= 0 && action->group != i))
            continue;
        if (action->group == i)
            submit_group(rank, round, i);
        else
            submit_alone(rank, action, i);
        if (random_below(&rank->seed, 4) == 0 && rank->submitted[i].handle)
            (void)dt_runtime_wait(rank->self->runtime, rank->submitted[i].handle, 0);
    }
    part_draw_order(round, &rank->seed, order);
    for (int k = 0; k < round->num_actions; k++) {
        if (model_submits(&round->actions[order[k]], me))
            check_result(rank, r, round, order[k]);
    }
}

static void check_join(rank_t *rank, int r, int set)
{
    const round_t *round = &rank->program->rounds[r];
    int last = -1;
    ENGINE_OK(rank->self, dt_runtime_wait(rank->self->runtime, rank->joins[set], -1));
    ENGINE_OK(rank->self,
              dt_runtime_result(rank->self->runtime, rank->joins[set], DT_KIND_JOIN, &last));
    if (last < 0 || !(part_may_be_last(rank->program, round, set) >> last & 1)) {
        char text[100];
        snprintf(text, sizeof text, "seed %llu, round %d: rank %d is told as the last of set %d",
                 (unsigned long long)rank->program->seed, r, last, set);
        engine_check(rank->self, 0, text, __FILE__, __LINE__);
    }
    ENGINE_OK(rank->self, dt_runtime_release(rank->self->runtime, rank->joins[set]));
    rank->joins[set] = 0;
}

static void do_joins(rank_t *rank, int r)
{
    const round_t *round = &rank->program->rounds[r];
    for (int set = 0; set < PROGRAM_SETS_MAX; set++) {
        if (!(round->joining[set] >> rank->self->rank & 1))
            continue;
        engine_op_t op = {.kind = DT_KIND_JOIN, .pset = rank->ids[set]};
        ENGINE_OK(rank->self, engine_submit(rank->self, &op, &rank->joins[set]));
    }
    for (int set = 0; set < PROGRAM_SETS_MAX; set++) {
        if (round->completes[set] && rank->joins[set])
            check_join(rank, r, set);
    }
}

static void do_change(rank_t *rank, const round_t *round)
{
    const program_t *program = rank->program;
    int set = round->set, n = program->num_members[set];
    int members[PROGRAM_RANKS_MAX];
    memcpy(members, program->members[set], sizeof members);
    if (round->kind == ROUND_REMOVE) {
        ENGINE_OK(rank->self, engine_pset_remove(rank->self, rank->ids[set]));
        rank->ids[set] = 0;
        return;
    }
    if (!round->has_slip) {
        ENGINE_OK(rank->self, engine_pset_add(rank->self, members, n, &rank->ids[set]));
        return;
    }
    if (rank->self->rank == program->size - 1)
        members[0] = (members[0] + 1) % program->size; /* another list, or one that cannot be */
    dtrain_pset_t none = -1;
    dtrain_status_t status = engine_pset_add(rank->self, members, n, &none);
    ENGINE_CHECK(rank->self,
                 status == DTRAIN_ERR_MISMATCH || status == DTRAIN_ERR_INVALID_ARGUMENT);
}

void random_rank_run(engine_rank_t *self)
{
    rank_t *rank = engine_buffer(self, sizeof *rank);
    rank->self = self;
    rank->program = self->argument;
    rank->seed = rank->program->seed * 31 + (uint64_t)self->rank;
    for (int r = 0; r < rank->program->num_rounds; r++) {
        if (rank->program->rounds[r].kind != ROUND_OPERATIONS) {
            do_change(rank, &rank->program->rounds[r]);
            continue;
        }
        do_operations(rank, r);
        /* Were the absent rank to join while others still wait, their operation would go on. */
        if (part_has_absent(&rank->program->rounds[r]))
            engine_meet(self);
        do_joins(rank, r);
    }
    engine_meet(self); /* a rank that has left would be told of, in place of one that is absent */
}
