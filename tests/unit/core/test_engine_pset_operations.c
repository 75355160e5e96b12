/* Every operation on process sets of ranks that are threads, with all members there and without
 * those that have joined: what comes out, against plain loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/status.h"
#include "core/operand.h"
#include "engine_world.h"

#define COLUMNS 2
#define ROWS_MAX 64

/* A set as its members see it. */
typedef struct party {
    dtrain_pset_t pset;
    int n;
    int ranks[ENGINE_RANKS_MAX];   /* of the world */
    int present[ENGINE_RANKS_MAX]; /* 0: has joined */
    int place;                     /* this rank's; -1: none */
    int first, second;             /* two places that are present; the same when there is but one */
} party_t;

/* Element i of what the rank at a place brings; 0 when it has joined. */
static float value(const party_t *party, int place, int64_t i)
{
    return party->present[place] ? (float)((party->ranks[place] * 7 + i * 3) % 5 + 1) : 0;
}

static float sum(const party_t *party, int64_t i)
{
    float total = 0;
    for (int place = 0; place < party->n; place++)
        total += value(party, place, i);
    return total;
}

static float *input(engine_rank_t *self, const party_t *party, int64_t rows)
{
    float *buffer = engine_buffer(self, (size_t)(rows * COLUMNS) * sizeof *buffer + 1);
    for (int64_t i = 0; i < rows * COLUMNS; i++)
        buffer[i] = value(party, party->place, i);
    return buffer;
}

/* Submits, waits; rows of the output that the library provides are checked before it goes. */
static void run(engine_rank_t *self, const party_t *party, engine_op_t *op, int64_t rows,
                const float *wanted, int64_t out_rows)
{
    int64_t shape[2] = {rows, COLUMNS}, out_shape[DTRAIN_NDIM_MAX] = {0};
    dtrain_handle_t handle;
    const void *out = NULL;
    int ndim = 0;
    op->ndim = 2;
    op->shape = shape;
    if (!ENGINE_OK(self, engine_submit(self, op, &handle)))
        return;
    ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
    ENGINE_OK(self, dt_runtime_output(self->runtime, handle, &out, out_shape, &ndim));
    if (wanted && ENGINE_CHECK(self, out_shape[0] == out_rows)) {
        int wrong = 0;
        for (int64_t i = 0; i < out_rows * COLUMNS; i++)
            wrong += ((const float *)out)[i] != wanted[i];
        ENGINE_CHECK(self, wrong == 0);
    }
    if (op->kind == DT_KIND_ALLGATHER || op->kind == DT_KIND_ALLTOALL) {
        int64_t came[ENGINE_RANKS_MAX], all = 0;
        ENGINE_OK(self, dt_runtime_recv_splits(self->runtime, handle, came, party->n));
        for (int place = 0; place < party->n; place++)
            all += came[place];
        ENGINE_CHECK(self, all == out_rows);
        ENGINE_CHECK(self, dt_runtime_recv_splits(self->runtime, handle, came, party->n + 1) ==
                               DTRAIN_ERR_INVALID_ARGUMENT);
    }
    ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
}

/* ---- One operation each -----------------------------------------------------------------------
 */

static int64_t rows_of(const party_t *party, int place)
{
    return party->present[place] ? (2 * place + 1) % 5 : 0;
}

static void gather_rows(engine_rank_t *self, const party_t *party, dt_kind_t kind, int root)
{
    float wanted[ROWS_MAX * COLUMNS];
    int64_t at = 0, rows = 0;
    for (int place = 0; place < party->n; place++) {
        for (int64_t i = 0; i < rows_of(party, place) * COLUMNS; i++)
            wanted[at++] = value(party, place, i);
        rows += rows_of(party, place);
    }
    int gets = kind == DT_KIND_ALLGATHER || party->place == root;
    int64_t own = rows_of(party, party->place);
    engine_op_t op = {.name = "gather",
                      .kind = kind,
                      .in = input(self, party, own),
                      .root = kind == DT_KIND_GATHER ? party->ranks[root] : 0,
                      .pset = party->pset};
    run(self, party, &op, own, wanted, gets ? rows : 0);
}

static void scatter_sum(engine_rank_t *self, const party_t *party)
{
    int64_t rows = 2 * party->n + 1, share = dt_rows_of(rows, party->n, party->place);
    int64_t before = dt_rows_before(rows, party->n, party->place) * COLUMNS;
    float wanted[ROWS_MAX * COLUMNS];
    for (int64_t i = 0; i < share * COLUMNS; i++)
        wanted[i] = sum(party, before + i);
    engine_op_t op = {.name = "reducescatter",
                      .kind = DT_KIND_REDUCESCATTER,
                      .in = input(self, party, rows),
                      .pset = party->pset};
    run(self, party, &op, rows, wanted, share);
}

/* The rank at a place sends (place + to) % 3 rows to each. */
static void exchange_rows(engine_rank_t *self, const party_t *party)
{
    int64_t splits[ENGINE_RANKS_MAX], rows = 0, at = 0;
    float wanted[ROWS_MAX * COLUMNS];
    for (int to = 0; to < party->n; to++) {
        splits[to] = (party->place + to) % 3;
        rows += splits[to];
    }
    for (int from = 0; from < party->n; from++) {
        int64_t before = 0;
        for (int to = 0; to < party->place; to++)
            before += (from + to) % 3;
        for (int64_t i = 0; party->present[from] && i < (from + party->place) % 3 * COLUMNS; i++)
            wanted[at++] = value(party, from, before * COLUMNS + i);
    }
    engine_op_t op = {.name = "alltoall",
                      .kind = DT_KIND_ALLTOALL,
                      .in = input(self, party, rows),
                      .splits = splits,
                      .num_splits = party->n,
                      .pset = party->pset};
    run(self, party, &op, rows, wanted, at / COLUMNS);
}

static void reduce_to(engine_rank_t *self, const party_t *party, int root, dt_kind_t kind)
{
    float wanted[3 * COLUMNS], *memory = input(self, party, 3);
    for (int i = 0; i < 3 * COLUMNS; i++)
        wanted[i] = sum(party, i);
    engine_op_t op = {.name = "reduce",
                      .kind = kind,
                      .in = memory,
                      .out = memory,
                      .root = kind == DT_KIND_REDUCE ? party->ranks[root] : 0,
                      .pset = party->pset};
    int gets = kind == DT_KIND_ALLREDUCE || party->place == root;
    run(self, party, &op, 3, gets ? wanted : NULL, 3);
}

static void from_root(engine_rank_t *self, const party_t *party, dt_kind_t kind)
{
    int64_t rows = kind == DT_KIND_SCATTER ? 2 * party->n + 1 : 3, before = 0, share = rows;
    if (kind == DT_KIND_SCATTER) {
        before = dt_rows_before(rows, party->n, party->place) * COLUMNS;
        share = dt_rows_of(rows, party->n, party->place);
    }
    float wanted[ROWS_MAX * COLUMNS], *memory = input(self, party, rows);
    for (int64_t i = 0; i < share * COLUMNS; i++)
        wanted[i] = value(party, party->second, before + i);
    engine_op_t op = {.name = "from root",
                      .kind = kind,
                      .in = memory,
                      .out = kind == DT_KIND_SCATTER ? NULL : memory,
                      .root = party->ranks[party->second],
                      .pset = party->pset};
    run(self, party, &op, rows, wanted, share);
}

static void transfer(engine_rank_t *self, const party_t *party)
{
    int is_sender = party->place == party->first, is_receiver = party->place == party->second;
    if (party->first == party->second || (!is_sender && !is_receiver))
        return;
    float wanted[3 * COLUMNS], *memory = input(self, party, 3);
    for (int i = 0; i < 3 * COLUMNS; i++)
        wanted[i] = value(party, party->first, i);
    engine_op_t op = {.name = "transfer",
                      .kind = DT_KIND_TRANSFER,
                      .is_receiver = is_receiver,
                      .root = party->ranks[is_receiver ? party->first : party->second],
                      .pset = party->pset};
    op.in = is_sender ? memory : NULL;
    op.out = is_receiver ? memory : NULL;
    run(self, party, &op, 3, is_receiver ? wanted : NULL, 3);
}

static void group(engine_rank_t *self, const party_t *party)
{
    static const char *const names[] = {"g0", "g1", "g2"};
    engine_op_t ops[3] = {0};
    float *memory[3];
    dtrain_handle_t handles[3];
    for (int t = 0; t < 3; t++) {
        memory[t] = input(self, party, t + 1);
        ops[t] = (engine_op_t){.name = names[t],
                               .in = memory[t],
                               .out = memory[t],
                               .count = (t + 1) * COLUMNS,
                               .pset = party->pset};
    }
    if (!ENGINE_OK(self, engine_submit_group(self, ops, 3, handles)))
        return;
    for (int t = 0; t < 3; t++) {
        ENGINE_OK(self, engine_finish(self, handles[t]));
        for (int i = 0; i < (t + 1) * COLUMNS; i++)
            ENGINE_CHECK(self, memory[t][i] == sum(party, i));
    }
}

/* Equal vectors average; with zeros, which a rank that has joined gives, a vector stays. */
static void adasum(engine_rank_t *self, const party_t *party)
{
    float *memory = engine_buffer(self, 4 * sizeof *memory);
    for (int i = 0; i < 4; i++)
        memory[i] = (float)(i + 1);
    engine_op_t op = {.name = "adasum",
                      .in = memory,
                      .out = memory,
                      .count = 4,
                      .op = DTRAIN_OP_ADASUM,
                      .pset = party->pset};
    ENGINE_OK(self, engine_do(self, &op));
    for (int i = 0; i < 4; i++)
        ENGINE_CHECK(self, memory[i] == (float)(i + 1));
}

static void run_all(engine_rank_t *self, const party_t *party)
{
    engine_op_t barrier = {.kind = DT_KIND_BARRIER, .pset = party->pset};
    for (int round = 0; round < 3; round++) {
        gather_rows(self, party, DT_KIND_ALLGATHER, 0);
        gather_rows(self, party, DT_KIND_GATHER, party->first);
        scatter_sum(self, party);
        exchange_rows(self, party);
        reduce_to(self, party, 0, DT_KIND_ALLREDUCE);
        reduce_to(self, party, party->first, DT_KIND_REDUCE);
        from_root(self, party, DT_KIND_BROADCAST);
        from_root(self, party, DT_KIND_SCATTER);
        transfer(self, party);
        group(self, party);
        adasum(self, party);
        ENGINE_OK(self, engine_do(self, &barrier));
    }
}

/* ---- Sets
 * ---------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* A set of n ranks in a random order, all of them present. */
static party_t make_party(engine_rank_t *self, uint32_t *seed, int n)
{
    party_t party = {.n = n, .place = -1};
    int all[ENGINE_RANKS_MAX];
    for (int i = 0; i < self->size; i++)
        all[i] = i;
    for (int i = 0; i < n; i++) {
        int j = i + (int)(next_random(seed) % (uint32_t)(self->size - i)), moved = all[i];
        all[i] = all[j];
        all[j] = moved;
        party.ranks[i] = all[i];
        party.present[i] = 1;
        if (all[i] == self->rank)
            party.place = i;
    }
    ENGINE_OK(self, engine_pset_add(self, party.ranks, n, &party.pset));
    party.second = n - 1;
    return party;
}

static void operations_on_sets(engine_rank_t *self)
{
    uint32_t seed = 11;
    for (int n = 1; n <= self->size; n++) {
        party_t party = make_party(self, &seed, n);
        if (party.place >= 0)
            run_all(self, &party);
        engine_check_works(self, "world");
        ENGINE_OK(self, engine_pset_remove(self, party.pset));
    }
}

static void test_engine_every_operation_works_on_sets(void **state)
{
    (void)state;
    for (int size = 1; size <= 7; size += 2)
        engine_run(size, NULL, operations_on_sets, NULL);
}

/* ---- Join
 * ------------------------------------------------------------------------------------------ */

/* Without the members at the places of `gone`. */
static void run_without(engine_rank_t *self, party_t *party, unsigned gone)
{
    int last = -1;
    party->first = party->second = -1;
    for (int place = 0; place < party->n; place++) {
        party->present[place] = !(gone >> place & 1);
        if (party->present[place] && party->first < 0)
            party->first = place;
        if (party->present[place])
            party->second = place;
    }
    if (party->place >= 0 && party->present[party->place])
        run_all(self, party);
    if (party->place >= 0) {
        ENGINE_OK(self, engine_join(self, party->pset, &last));
        ENGINE_CHECK(self, last >= 0);
    }
}

static void operations_without_joined(engine_rank_t *self)
{
    uint32_t seed = 5;
    int n = self->size - 1;
    party_t party = make_party(self, &seed, n);
    for (unsigned gone = 0; gone + 1 < 1u << n; gone++)
        run_without(self, &party, gone);
    /* And on the world. */
    party_t world = {.n = self->size, .place = self->rank};
    for (int i = 0; i < self->size; i++)
        world.ranks[i] = i;
    for (unsigned gone = 0; gone + 1 < 1u << self->size; gone += 3)
        run_without(self, &world, gone);
    engine_check_works(self, "world");
}

static void test_engine_every_operation_goes_on_without_those_who_joined(void **state)
{
    (void)state;
    engine_run(2, NULL, operations_without_joined, NULL);
    engine_run(3, NULL, operations_without_joined, NULL);
    engine_run(4, NULL, operations_without_joined, NULL);
    dt_config_t unfused = engine_config();
    unfused.fusion_threshold = 0;
    engine_run(4, &unfused, operations_without_joined, NULL);
}

/* What needs a rank that has joined is an error on those who submitted it. */
static void needs_joined(engine_rank_t *self)
{
    int last;
    if (self->rank == 1) {
        ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
        engine_check_works(self, "after");
        return;
    }
    float memory[6] = {1}, one;
    engine_op_t probe = {.name = "probe", .in = &one, .out = &one, .count = 1};
    do {
        one = 1;
        ENGINE_OK(self, engine_do(self, &probe));
    } while (one != 2);
    engine_op_t scatter = {.name = "s", .kind = DT_KIND_SCATTER, .count = 6, .root = 1};
    ENGINE_STATUS(self, engine_do(self, &scatter), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "scatter 's': its root, rank 1, has joined");
    engine_op_t send = {.name = "t", .kind = DT_KIND_TRANSFER, .in = memory, .count = 6, .root = 1};
    if (self->rank == 0) {
        ENGINE_STATUS(self, engine_do(self, &send), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "needs rank 1, which has called dtrain_join");
    }
    /* What is sent to one who only receives goes on: its part is thrown away. */
    engine_op_t gather = {.name = "g", .kind = DT_KIND_GATHER, .in = memory, .count = 6, .root = 1};
    ENGINE_OK(self, engine_do(self, &gather));
    engine_op_t reduce = {.name = "r", .kind = DT_KIND_REDUCE, .in = memory, .count = 6, .root = 1};
    ENGINE_OK(self, engine_do(self, &reduce));
    ENGINE_OK(self, engine_join(self, DTRAIN_PSET_WORLD, &last));
    engine_check_works(self, "after");
}

static void test_engine_operation_that_a_joined_rank_gives_to_is_an_error(void **state)
{
    (void)state;
    engine_run(3, NULL, needs_joined, NULL);
}

/* Ranks that a call names must be members. */
static void names_a_stranger(engine_rank_t *self)
{
    int ranks[] = {0, 1};
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    float memory[6] = {1};
    engine_op_t op = {
        .name = "t", .kind = DT_KIND_TRANSFER, .in = memory, .count = 6, .root = 2, .pset = pset};
    if (self->rank == 0) {
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "peer 2 is not in process set 1");
    }
    op.kind = DT_KIND_GATHER;
    op.name = "g";
    if (self->rank < 2) {
        ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_INVALID_ARGUMENT);
        ENGINE_TEXT(self, dt_last_error(), "root 2 is not in process set 1");
    }
    engine_check_works(self, "after");
}

static void test_engine_ranks_named_in_a_call_are_members(void **state)
{
    (void)state;
    engine_run(3, NULL, names_a_stranger, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_every_operation_works_on_sets),
        cmocka_unit_test(test_engine_every_operation_goes_on_without_those_who_joined),
        cmocka_unit_test(test_engine_operation_that_a_joined_rank_gives_to_is_an_error),
        cmocka_unit_test(test_engine_ranks_named_in_a_call_are_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
