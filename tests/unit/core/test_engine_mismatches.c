/* Operation × mismatch: whatever one rank gives otherwise than the others, or wrongly, is an error
 * on every rank that takes part, which names the tensor, the ranks and both values; and the next
 * operation of the same name works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "engine_world.h"

#define ROWS 12 /* divides by 2, 3 and 4 */
#define COLUMNS 6
#define BUFFER_BYTES (ENGINE_RANKS_MAX * ROWS * COLUMNS * 8)

static const dt_kind_t kinds[] = {DT_KIND_ALLREDUCE,     DT_KIND_BROADCAST, DT_KIND_ALLGATHER,
                                  DT_KIND_REDUCESCATTER, DT_KIND_ALLTOALL,  DT_KIND_REDUCE,
                                  DT_KIND_GATHER,        DT_KIND_SCATTER,   DT_KIND_TRANSFER};
#define NUM_KINDS ((int)(sizeof kinds / sizeof kinds[0]))

/* One rank's call, with room for what it points to. */
typedef struct call {
    engine_op_t op;
    int64_t shape[3];
    int64_t splits[ENGINE_RANKS_MAX];
} call_t;

/* ---- What can be wrong ---------------------------------------------------------------------- */

#define REDUCES 1U   /* for operations with a reduction */
#define ROOTED 2U    /* with a root */
#define ROWED 4U     /* that deal in rows */
#define SIZED 8U     /* whose rows differ by rank */
#define TO_ALL 16U   /* alltoall */
#define TRANSFER 32U /* transfers too */
#define ANY 0U

typedef struct fault {
    const char *what;
    unsigned needs; /* of the operation; all of these, but for TRANSFER */
    void (*apply)(call_t *call, int size);
    dtrain_status_t status;
    const char *parts[3]; /* in every rank's text; "<kind>" is the operation's name */
    const char *told;     /* in the text of the ranks whose call was right; or NULL */
} fault_t;

static void other_type(call_t *call, int size)
{
    (void)size;
    call->op.dtype = DTRAIN_DTYPE_I32;
}

static void other_operation(call_t *call, int size)
{
    (void)size;
    call->op.kind = call->op.kind == DT_KIND_ALLREDUCE ? DT_KIND_BROADCAST : DT_KIND_ALLREDUCE;
    call->op.out = call->op.out ? call->op.out : (void *)call->op.in;
    call->op.in = call->op.out;
    call->op.root = 0;
    call->op.out_bytes = 0;
}

static void other_shape(call_t *call, int size)
{
    (void)size;
    call->op.ndim = 3; /* of the same count */
    call->shape[1] = COLUMNS / 2;
    call->shape[2] = 2;
}

static void other_extent(call_t *call, int size)
{
    (void)size;
    call->shape[1] = COLUMNS - 1;
}

static void other_prescale(call_t *call, int size)
{
    (void)size;
    call->op.prescale = 0.25;
}

static void other_postscale(call_t *call, int size)
{
    (void)size;
    call->op.postscale = 0.25;
}

static void other_reduction(call_t *call, int size)
{
    (void)size;
    call->op.op = DTRAIN_OP_MAX;
}

static void other_root(call_t *call, int size)
{
    (void)size;
    call->op.root = 1;
}

static void other_device(call_t *call, int size)
{
    (void)size;
    call->op.device = 3;
}

static void no_such_root(call_t *call, int size)
{
    call->op.root = size;
}

static void no_such_type(call_t *call, int size)
{
    (void)size;
    call->op.dtype = (dtrain_dtype_t)99;
}

static void no_such_reduction(call_t *call, int size)
{
    (void)size;
    call->op.op = (dtrain_op_t)77;
}

static void adasum_of_integers(call_t *call, int size)
{
    (void)size;
    call->op.op = DTRAIN_OP_ADASUM;
    call->op.dtype = DTRAIN_DTYPE_I32;
}

static void no_rows(call_t *call, int size)
{
    (void)size;
    call->op.ndim = 0;
}

static void negative_extent(call_t *call, int size)
{
    (void)size;
    call->shape[0] = -3;
}

static void no_input(call_t *call, int size)
{
    (void)size;
    call->op.in = NULL;
    if (call->op.kind == DT_KIND_BROADCAST) /* where one buffer may stand for both */
        call->op.out = NULL;
}

static void splits_beyond_rows(call_t *call, int size)
{
    call->splits[size - 1] += 1;
}

static void splits_short_of_rows(call_t *call, int size)
{
    call->splits[size - 1] -= 1;
}

static void splits_negative(call_t *call, int size)
{
    (void)size;
    call->splits[0] = -1;
}

static void splits_too_few(call_t *call, int size)
{
    call->op.num_splits = size + 1;
}

static void rows_indivisible(call_t *call, int size)
{
    (void)size;
    call->op.splits = NULL;
    call->shape[0] = ROWS + 1;
}

static void no_room(call_t *call, int size)
{
    (void)size;
    call->op.out_bytes = 8;
}

static void overlaps(call_t *call, int size)
{
    (void)size;
    call->op.out = (char *)call->op.in + 4;
}

static const fault_t faults[] = {
    {"type", TRANSFER, other_type, DTRAIN_ERR_MISMATCH, {"types differ", "float32", "int32"}, NULL},
    {"operation",
     TRANSFER,
     other_operation,
     DTRAIN_ERR_MISMATCH,
     {"operations differ", "<kind>", "rank"},
     NULL},
    {"shape of the same count",
     TRANSFER,
     other_shape,
     DTRAIN_ERR_MISMATCH,
     {"shapes differ", ", 6]", ", 3, 2]"},
     NULL},
    {"extent",
     TRANSFER,
     other_extent,
     DTRAIN_ERR_MISMATCH,
     {"shapes differ", ", 6]", ", 5]"},
     NULL},
    {"prescale",
     REDUCES,
     other_prescale,
     DTRAIN_ERR_MISMATCH,
     {"prescales differ", "0.5", "0.25"},
     NULL},
    {"postscale",
     REDUCES,
     other_postscale,
     DTRAIN_ERR_MISMATCH,
     {"postscales differ", ": 1", "0.25"},
     NULL},
    {"reduction",
     REDUCES,
     other_reduction,
     DTRAIN_ERR_MISMATCH,
     {"reductions differ", "sum", "max"},
     NULL},
    {"root", ROOTED, other_root, DTRAIN_ERR_MISMATCH, {"roots differ", ": 0", ": 1"}, NULL},
    {"device",
     TRANSFER,
     other_device,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"there is no", "device 3"},
     "rank"},
    {"bad root",
     ROOTED,
     no_such_root,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"root", "is not a rank of"},
     "rank"},
    {"unknown type",
     TRANSFER,
     no_such_type,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"99 is no element type"},
     "rank"},
    {"unknown reduction",
     REDUCES,
     no_such_reduction,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"77 is no reduction"},
     "rank"},
    {"adasum", REDUCES, adasum_of_integers, DTRAIN_ERR_UNSUPPORTED, {"adasum of int32"}, "rank"},
    {"scalar", ROWED, no_rows, DTRAIN_ERR_INVALID_ARGUMENT, {"0 dimensions has no rows"}, "rank"},
    {"negative extent",
     TRANSFER,
     negative_extent,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"negative", "-3"},
     "rank"},
    {"no input", ANY, no_input, DTRAIN_ERR_INVALID_ARGUMENT, {"buffer is NULL"}, "rank"},
    {"splits that add up to more",
     TO_ALL,
     splits_beyond_rows,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"the split for rank", "of 12 rows"},
     "rank"},
    {"splits that add up to less",
     TO_ALL,
     splits_short_of_rows,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"add up to 11", "12"},
     "rank"},
    {"a split below 0",
     TO_ALL,
     splits_negative,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"the split for rank 0 is -1"},
     "rank"},
    {"a wrong number of splits",
     TO_ALL,
     splits_too_few,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"splits for", "ranks"},
     "rank"},
    {"rows that do not divide",
     TO_ALL,
     rows_indivisible,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"13 rows cannot be shared out evenly"},
     "rank"},
    {"no room",
     SIZED,
     no_room,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"has room for 8 bytes", "and needs", "rank"},
     NULL},
    {"overlapping buffers",
     SIZED,
     overlaps,
     DTRAIN_ERR_INVALID_ARGUMENT,
     {"overlap", "rank"},
     NULL},
};
#define NUM_FAULTS ((int)(sizeof faults / sizeof faults[0]))

/* ---- The table ------------------------------------------------------------------------------ */

static unsigned traits_of(dt_kind_t kind)
{
    const dt_kind_traits_t *traits = dt_kind_traits((uint8_t)kind);
    if (kind == DT_KIND_TRANSFER)
        return TRANSFER;
    return (traits->reduces ? REDUCES : 0) | (traits->has_root ? ROOTED : 0) |
           (traits->deals_rows ? ROWED : 0) | (traits->rows_differ ? SIZED : 0) |
           (kind == DT_KIND_ALLTOALL ? TO_ALL : 0);
}

static int applies(const fault_t *fault, dt_kind_t kind)
{
    unsigned has = traits_of(kind), needs = fault->needs & ~TRANSFER;
    if (has == TRANSFER)
        return (fault->needs & TRANSFER) != 0;
    return (has & needs) == needs;
}

/* A call that is right. Who gathers is the last rank, as is the one whose calls are wrong. */
static void make_call(engine_rank_t *self, dt_kind_t kind, call_t *call)
{
    static const char *const names[] = {
        [DT_KIND_ALLREDUCE] = "w/allreduce", [DT_KIND_BROADCAST] = "w/broadcast",
        [DT_KIND_ALLGATHER] = "w/allgather", [DT_KIND_REDUCESCATTER] = "w/reducescatter",
        [DT_KIND_ALLTOALL] = "w/alltoall",   [DT_KIND_REDUCE] = "w/reduce",
        [DT_KIND_GATHER] = "w/gather",       [DT_KIND_SCATTER] = "w/scatter",
        [DT_KIND_TRANSFER] = "w/transfer"};
    char *memory = engine_buffer(self, 2 * (size_t)BUFFER_BYTES);
    *call = (call_t){.shape = {ROWS, COLUMNS, 0}};
    call->op = (engine_op_t){.name = names[kind],
                             .kind = kind,
                             .in = memory,
                             .out = memory + BUFFER_BYTES,
                             .ndim = 2,
                             .shape = call->shape};
    if (dt_kind_traits((uint8_t)kind)->reduces)
        call->op.prescale = 0.5;
    if (dt_kind_traits((uint8_t)kind)->rows_differ)
        call->op.out_bytes = BUFFER_BYTES;
    for (int rank = 0; rank < self->size; rank++)
        call->splits[rank] = ROWS / self->size;
    if (kind == DT_KIND_ALLTOALL)
        call->op.splits = call->splits;
    if (kind == DT_KIND_TRANSFER) {
        call->op.root = self->rank == 0 ? self->size - 1 : 0;
        call->op.is_receiver = self->rank != 0;
    }
}

static int takes_part(const engine_rank_t *self, dt_kind_t kind)
{
    return kind != DT_KIND_TRANSFER || self->rank == 0 || self->rank == self->size - 1;
}

static void check_good(engine_rank_t *self, dt_kind_t kind)
{
    call_t call;
    make_call(self, kind, &call);
    float *in = (float *)call.op.in, *out = call.op.out;
    in[0] = (float)(self->rank + 1);
    if (!takes_part(self, kind))
        return;
    ENGINE_OK(self, engine_do(self, &call.op));
    if (kind == DT_KIND_ALLREDUCE)
        ENGINE_CHECK(self, out[0] == 0.5F * (float)(self->size * (self->size + 1) / 2));
    else if (kind == DT_KIND_BROADCAST || kind == DT_KIND_ALLGATHER ||
             (kind == DT_KIND_TRANSFER && self->rank > 0))
        ENGINE_CHECK(self, out[0] == 1);
}

/* Which rank's call is wrong. Only the root's room counts in a gather, and only its input in a
 * broadcast and a scatter; a buffer is checked before the others are told, so any rank will do
 * for the rest. */
static int culprit(const engine_rank_t *self, const fault_t *fault, dt_kind_t kind)
{
    int is_root_alone =
        (kind == DT_KIND_GATHER && (fault->apply == no_room || fault->apply == overlaps)) ||
        (fault->apply == no_input && (kind == DT_KIND_BROADCAST || kind == DT_KIND_SCATTER));
    return is_root_alone ? 0 : self->size - 1;
}

static void check_fault(engine_rank_t *self, const fault_t *fault, dt_kind_t kind)
{
    call_t call;
    make_call(self, kind, &call);
    int is_wrong = self->rank == culprit(self, fault, kind);
    int is_mixed = kind == DT_KIND_TRANSFER && fault->apply == other_operation;
    /* Who else meets the wrong operation takes part in it. */
    if (is_wrong || (is_mixed && self->rank > 0))
        fault->apply(&call, self->size);
    if (!is_mixed && !takes_part(self, kind))
        return;
    ENGINE_STATUS(self, engine_do(self, &call.op), fault->status);
    const char *text = dt_last_error();
    int ok = ENGINE_TEXT(self, text, call.op.name);
    for (int i = 0; i < 3 && fault->parts[i]; i++)
        ok &= ENGINE_TEXT(self, text,
                          strcmp(fault->parts[i], "<kind>") == 0 ? dt_kind_name((uint8_t)kind)
                                                                 : fault->parts[i]);
    if (fault->told && !is_wrong) {
        char who[32];
        snprintf(who, sizeof who, "%s %d", fault->told, culprit(self, fault, kind));
        ok &= ENGINE_TEXT(self, text, who);
    }
    if (fault->status == DTRAIN_ERR_MISMATCH) {
        char who[32];
        snprintf(who, sizeof who, "%d: ", self->size - 1);
        ok &= ENGINE_TEXT(self, text, who);
    }
    if (!ok)
        fprintf(stderr, "in %s, %s of rank %d\n", dt_kind_name((uint8_t)kind), fault->what,
                culprit(self, fault, kind));
}

static void table(engine_rank_t *self)
{
    for (int k = 0; k < NUM_KINDS; k++) {
        for (int f = 0; f < NUM_FAULTS; f++) {
            if (!applies(&faults[f], kinds[k]))
                continue;
            engine_meet(self); /* ranks that a transfer does not concern would run ahead */
            check_fault(self, &faults[f], kinds[k]);
            check_good(self, kinds[k]);
            check_good(self, kinds[k]); /* from now on it is known by an id */
        }
    }
    engine_check_works(self, "after");
}

static void test_engine_mismatch_of_2_ranks_is_an_error_on_both(void **state)
{
    (void)state;
    engine_run(2, NULL, table, NULL);
}

static void test_engine_mismatch_of_3_ranks_is_an_error_on_all(void **state)
{
    (void)state;
    engine_run(3, NULL, table, NULL);
}

static void test_engine_mismatch_of_4_ranks_is_an_error_on_all(void **state)
{
    (void)state;
    engine_run(4, NULL, table, NULL);
}

/* ---- Transfers' ends ------------------------------------------------------------------------- */

/* Rank 0 sends to rank 1, which waits for rank 2. */
static void wrong_peer(engine_rank_t *self)
{
    float value = 7;
    engine_op_t op = {.name = "x",
                      .kind = DT_KIND_TRANSFER,
                      .in = &value,
                      .out = &value,
                      .count = 1,
                      .root = self->rank == 0 ? 1 : 2,
                      .is_receiver = self->rank};
    if (self->rank < 2) {
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_MISMATCH);
        ENGINE_TEXT(self, dt_last_error(), "transfer 'x': the ranks' senders differ");
    }
    engine_meet(self);
    op.root = self->size - 1 - self->rank; /* 0 with the last one */
    if (self->rank == 0 || self->rank == self->size - 1)
        ENGINE_OK(self, engine_do(self, &op));
    ENGINE_CHECK(self, value == 7);
    engine_meet(self);
    op.root = self->rank;
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "itself");
    op.name = "y";
    op.root = self->size;
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "peer 3 is not a rank of 3");
    engine_check_works(self, "z");
}

static void test_engine_transfer_between_ranks_that_disagree_fails_on_both(void **state)
{
    (void)state;
    engine_run(3, NULL, wrong_peer, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_mismatch_of_2_ranks_is_an_error_on_both),
        cmocka_unit_test(test_engine_mismatch_of_3_ranks_is_an_error_on_all),
        cmocka_unit_test(test_engine_mismatch_of_4_ranks_is_an_error_on_all),
        cmocka_unit_test(test_engine_transfer_between_ranks_that_disagree_fails_on_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
