/* Every operation on ranks that are threads: what comes out, against plain loops. */
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

#define RANKS_TESTED 5
static const int sizes[RANKS_TESTED] = {1, 2, 3, 4, 7};

#define COLUMNS 3

static void on_all_sizes(engine_fn_t fn)
{
    for (int i = 0; i < RANKS_TESTED; i++)
        engine_run(sizes[i], NULL, fn, NULL);
}

/* Element i of what rank `from` brings. Small, so that sums are exact in every type. */
static int value(int from, int64_t i)
{
    return (int)((from * 7 + i * 3) % 5);
}

static void put(void *buffer, dtrain_dtype_t dtype, int64_t i, int what)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F32:
        ((float *)buffer)[i] = (float)what;
        break;
    case DTRAIN_DTYPE_F64:
        ((double *)buffer)[i] = what;
        break;
    case DTRAIN_DTYPE_I64:
        ((int64_t *)buffer)[i] = what;
        break;
    case DTRAIN_DTYPE_I32:
        ((int32_t *)buffer)[i] = what;
        break;
    case DTRAIN_DTYPE_I16:
    case DTRAIN_DTYPE_U16:
        ((int16_t *)buffer)[i] = (int16_t)what;
        break;
    default: /* of one byte */
        ((int8_t *)buffer)[i] = (int8_t)what;
        break;
    }
}

static int get(const void *buffer, dtrain_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F32:
        return (int)((const float *)buffer)[i];
    case DTRAIN_DTYPE_F64:
        return (int)((const double *)buffer)[i];
    case DTRAIN_DTYPE_I64:
        return (int)((const int64_t *)buffer)[i];
    case DTRAIN_DTYPE_I32:
        return ((const int32_t *)buffer)[i];
    case DTRAIN_DTYPE_I16:
    case DTRAIN_DTYPE_U16:
        return ((const int16_t *)buffer)[i];
    default:
        return ((const int8_t *)buffer)[i];
    }
}

/* Types whose values put and get know: each size, and both kinds of number. */
static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_I8,  DTRAIN_DTYPE_I64,
                                        DTRAIN_DTYPE_U8,  DTRAIN_DTYPE_I16, DTRAIN_DTYPE_F64,
                                        DTRAIN_DTYPE_U16, DTRAIN_DTYPE_I32};
#define NUM_DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

/* This rank's input of `rows` rows. */
static void *input(engine_rank_t *self, dtrain_dtype_t dtype, int64_t rows)
{
    void *buffer = engine_buffer(self, (size_t)(rows * COLUMNS) * dt_dtype_size(dtype) + 1);
    for (int64_t i = 0; i < rows * COLUMNS; i++)
        put(buffer, dtype, i, value(self->rank, i));
    return buffer;
}

/* Rows from..from+rows of what rank `source` brought lie at `at` rows of the output. */
static void check_rows(engine_rank_t *self, const void *out, dtrain_dtype_t dtype, int64_t at,
                       int source, int64_t from, int64_t rows)
{
    int wrong = 0;
    for (int64_t i = 0; i < rows * COLUMNS; i++)
        wrong += get(out, dtype, at * COLUMNS + i) != value(source, from * COLUMNS + i);
    ENGINE_CHECK(self, wrong == 0);
}

static void check_output(engine_rank_t *self, dtrain_handle_t handle, const void **out,
                         int64_t rows)
{
    int64_t shape[DTRAIN_NDIM_MAX];
    int ndim = 0;
    ENGINE_OK(self, dt_runtime_output(self->runtime, handle, out, shape, &ndim));
    ENGINE_CHECK(self, ndim == 2 && shape[0] == rows && shape[1] == COLUMNS);
}

/* ---- Sizes that differ by rank ------------------------------------------------------------ */

static int64_t rows_of(int rank, int round)
{
    return (rank + round) % 3 == 0 ? 0 : (rank * 5 + round) % 11 + 1;
}

static int64_t total_rows(int size, int round)
{
    int64_t total = 0;
    for (int rank = 0; rank < size; rank++)
        total += rows_of(rank, round);
    return total;
}

static void check_gathered(engine_rank_t *self, const void *out, dtrain_dtype_t dtype, int round)
{
    int64_t at = 0;
    for (int rank = 0; rank < self->size; rank++) {
        check_rows(self, out, dtype, at, rank, 0, rows_of(rank, round));
        at += rows_of(rank, round);
    }
}

static void check_splits(engine_rank_t *self, dtrain_handle_t handle, int round)
{
    int64_t splits[ENGINE_RANKS_MAX];
    ENGINE_OK(self, dt_runtime_recv_splits(self->runtime, handle, splits, self->size));
    for (int rank = 0; rank < self->size; rank++)
        ENGINE_CHECK(self, splits[rank] == rows_of(rank, round));
}

/* The library's memory, the caller's, and in place, in turn; the second time by its id. */
static void allgather(engine_rank_t *self)
{
    for (int round = 0; round < 3 * NUM_DTYPES; round++) {
        dtrain_dtype_t dtype = dtypes[round / 3];
        int64_t mine = rows_of(self->rank, round), total = total_rows(self->size, round),
                before = 0;
        for (int rank = 0; rank < self->rank; rank++)
            before += rows_of(rank, round);
        size_t row_bytes = COLUMNS * dt_dtype_size(dtype);
        int64_t shape[2] = {mine, COLUMNS};
        engine_op_t op = {.name = "x",
                          .kind = DT_KIND_ALLGATHER,
                          .dtype = dtype,
                          .ndim = 2,
                          .shape = shape,
                          .in = mine > 0 ? input(self, dtype, mine) : NULL};
        if (round % 3 > 0) {
            op.out = engine_buffer(self, (size_t)total * row_bytes + 1);
            op.out_bytes = (int64_t)((size_t)total * row_bytes);
        }
        if (round % 3 == 2 && mine > 0) {
            char *place = (char *)op.out + (size_t)before * row_bytes;
            memcpy(place, op.in, (size_t)mine * row_bytes);
            op.in = place;
        }
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
        const void *out = NULL;
        check_output(self, handle, &out, total);
        ENGINE_CHECK(self, op.out ? out == op.out : total == 0 || out != NULL);
        check_gathered(self, out, dtype, round);
        check_splits(self, handle, round);
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    }
}

static void test_engine_allgather_of_uneven_rows_is_put_together_in_rank_order(void **state)
{
    (void)state;
    on_all_sizes(allgather);
}

static void gather(engine_rank_t *self)
{
    for (int round = 0; round < 2 * self->size; round++) {
        dtrain_dtype_t dtype = dtypes[round % NUM_DTYPES];
        int root = round % self->size, is_root = root == self->rank;
        int64_t mine = rows_of(self->rank, round), total = total_rows(self->size, round);
        int64_t shape[2] = {mine, COLUMNS};
        engine_op_t op = {.name = "x",
                          .kind = DT_KIND_GATHER,
                          .root = root,
                          .dtype = dtype,
                          .ndim = 2,
                          .shape = shape,
                          .in = input(self, dtype, mine)};
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
        const void *out = op.in;
        check_output(self, handle, &out, is_root ? total : 0);
        if (is_root)
            check_gathered(self, out, dtype, round);
        else
            ENGINE_CHECK(self, out == NULL);
        check_splits(self, handle, round);
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    }
}

static void test_engine_gather_brings_all_rows_to_the_root_alone(void **state)
{
    (void)state;
    on_all_sizes(gather);
}

static int64_t split(int from, int to, int round)
{
    return (from * 3 + to * 2 + round) % 4;
}

static void alltoall(engine_rank_t *self)
{
    for (int round = 0; round < 2 * NUM_DTYPES; round++) {
        dtrain_dtype_t dtype = dtypes[round / 2];
        int64_t splits[ENGINE_RANKS_MAX], sent = 0, received = 0;
        for (int rank = 0; rank < self->size; rank++) {
            splits[rank] = split(self->rank, rank, round);
            sent += splits[rank];
            received += split(rank, self->rank, round);
        }
        int64_t shape[2] = {sent, COLUMNS};
        engine_op_t op = {.name = "x",
                          .kind = DT_KIND_ALLTOALL,
                          .dtype = dtype,
                          .ndim = 2,
                          .shape = shape,
                          .splits = splits,
                          .in = input(self, dtype, sent)};
        if (round % 2) {
            op.out_bytes = received * COLUMNS * (int64_t)dt_dtype_size(dtype);
            op.out = engine_buffer(self, (size_t)op.out_bytes + 1);
        }
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
        const void *out;
        int64_t came[ENGINE_RANKS_MAX], at = 0;
        check_output(self, handle, &out, received);
        ENGINE_OK(self, dt_runtime_recv_splits(self->runtime, handle, came, self->size));
        for (int rank = 0; rank < self->size; rank++) {
            int64_t rows = split(rank, self->rank, round), from = 0;
            for (int other = 0; other < self->rank; other++)
                from += split(rank, other, round);
            ENGINE_CHECK(self, came[rank] == rows);
            check_rows(self, out, dtype, at, rank, from, rows);
            at += rows;
        }
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    }
}

static void test_engine_alltoall_with_uneven_splits_brings_each_rank_its_rows(void **state)
{
    (void)state;
    on_all_sizes(alltoall);
}

static void even_alltoall(engine_rank_t *self)
{
    float in[2 * ENGINE_RANKS_MAX], out[2 * ENGINE_RANKS_MAX];
    for (int i = 0; i < 2 * self->size; i++)
        in[i] = (float)(100 * self->rank + i);
    engine_op_t op = {.name = "x",
                      .kind = DT_KIND_ALLTOALL,
                      .in = in,
                      .out = out,
                      .count = 2 * self->size,
                      .out_bytes = (int64_t)sizeof out};
    ENGINE_OK(self, engine_do(self, &op));
    for (int i = 0; i < 2 * self->size; i++)
        ENGINE_CHECK(self, out[i] == (float)(100 * (i / 2) + 2 * self->rank + i % 2));
}

static void test_engine_alltoall_without_splits_shares_out_evenly(void **state)
{
    (void)state;
    on_all_sizes(even_alltoall);
}

/* ---- Rows that are shared out ------------------------------------------------------------- */

static int64_t share(int64_t rows, int size, int rank, int64_t *before)
{
    *before = 0;
    for (int i = 0; i < rank; i++)
        *before += rows / size + (i < rows % size);
    return rows / size + (rank < rows % size);
}

/* Against an allreduce of the same, bit for bit. */
static void reducescatter(engine_rank_t *self)
{
    static const dtrain_op_t reductions[] = {DTRAIN_OP_SUM, DTRAIN_OP_AVERAGE, DTRAIN_OP_MIN,
                                             DTRAIN_OP_MAX, DTRAIN_OP_PRODUCT};
    for (int round = 0; round < 3 * 5; round++) {
        int64_t rows = round * 2, before, mine = share(rows, self->size, self->rank, &before);
        int64_t shape[2] = {rows, COLUMNS};
        float *in = input(self, DTRAIN_DTYPE_F32, rows);
        for (int64_t i = 0; i < rows * COLUMNS; i++)
            in[i] = in[i] * 0.1F + (float)self->rank;
        float *whole = engine_buffer(self, (size_t)rows * COLUMNS * sizeof *whole + 1);
        engine_op_t op = {.name = "whole",
                          .op = reductions[round % 5],
                          .ndim = 2,
                          .shape = shape,
                          .in = in,
                          .out = whole,
                          .prescale = 0.7};
        ENGINE_OK(self, engine_do(self, &op));
        op.name = "x";
        op.kind = DT_KIND_REDUCESCATTER;
        op.out = round % 3 == 0   ? NULL
                 : round % 3 == 1 ? engine_buffer(self, (size_t)mine * COLUMNS * sizeof *whole + 1)
                                  : (void *)(in + before * COLUMNS);
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
        const void *out;
        check_output(self, handle, &out, mine);
        ENGINE_CHECK(self, mine == 0 || memcmp(out, whole + before * COLUMNS,
                                               (size_t)mine * COLUMNS * sizeof *whole) == 0);
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    }
}

static void test_engine_reducescatter_is_the_allreduces_slice_bit_for_bit(void **state)
{
    (void)state;
    on_all_sizes(reducescatter);
}

static void scatter(engine_rank_t *self)
{
    for (int round = 0; round < 2 * self->size; round++) {
        dtrain_dtype_t dtype = dtypes[round % NUM_DTYPES];
        int root = round % self->size;
        int64_t rows = 3 * round, before, mine = share(rows, self->size, self->rank, &before);
        int64_t shape[2] = {rows, COLUMNS};
        engine_op_t op = {.name = "x",
                          .kind = DT_KIND_SCATTER,
                          .root = root,
                          .dtype = dtype,
                          .ndim = 2,
                          .shape = shape,
                          .in = root == self->rank ? input(self, dtype, rows) : NULL};
        if (round % 2)
            op.out = engine_buffer(self, (size_t)mine * COLUMNS * dt_dtype_size(dtype) + 1);
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
        const void *out;
        check_output(self, handle, &out, mine);
        check_rows(self, out, dtype, 0, root, before, mine);
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    }
}

static void test_engine_scatter_shares_out_the_roots_rows(void **state)
{
    (void)state;
    on_all_sizes(scatter);
}

/* ---- To one rank, and between two --------------------------------------------------------- */

/* Bit for bit. */
static int is_same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static void reduce(engine_rank_t *self)
{
    for (int round = 0; round < 2 * self->size; round++) {
        float in[100], whole[100], out[100];
        int root = round % self->size;
        for (int i = 0; i < 100; i++) {
            in[i] = 0.1F * (float)value(self->rank, i);
            out[i] = -1;
        }
        engine_op_t op = {.name = "whole", .in = in, .out = whole, .count = 100};
        ENGINE_OK(self, engine_do(self, &op));
        op.name = "x";
        op.kind = DT_KIND_REDUCE;
        op.root = root;
        op.out = round % 2 == 0 ? out : root == self->rank ? in : NULL;
        ENGINE_OK(self, engine_do(self, &op));
        if (root == self->rank)
            ENGINE_CHECK(self, is_same(op.out, whole, sizeof whole));
        for (int i = 0; root != self->rank && i < 100; i++)
            ENGINE_CHECK(self, out[i] == -1);
    }
}

static void test_engine_reduce_gives_the_root_the_allreduces_bits(void **state)
{
    (void)state;
    on_all_sizes(reduce);
}

/* Every rank sends to each other one, all at once, among allreduces. */
static void transfers(engine_rank_t *self)
{
    dtrain_handle_t handles[4 * ENGINE_RANKS_MAX];
    float in[ENGINE_RANKS_MAX], out[ENGINE_RANKS_MAX], sums[ENGINE_RANKS_MAX];
    char names[3 * ENGINE_RANKS_MAX][32];
    for (int round = 0; round < 3; round++) {
        int n = 0;
        for (int peer = 0; peer < self->size; peer++) {
            char(*name)[32] = &names[3 * peer];
            snprintf(name[0], sizeof *name, "%d to %d", self->rank, peer);
            snprintf(name[1], sizeof *name, "%d to %d", peer, self->rank);
            snprintf(name[2], sizeof *name, "sum %d", peer);
            in[peer] = (float)(100 * self->rank + peer + round);
            sums[peer] = 1;
            engine_op_t sum = {.name = name[2], .in = &sums[peer], .out = &sums[peer], .count = 1};
            ENGINE_OK(self, engine_submit(self, &sum, &handles[n++]));
            if (peer == self->rank)
                continue;
            engine_op_t send = {.name = name[0],
                                .kind = DT_KIND_TRANSFER,
                                .root = peer,
                                .in = &in[peer],
                                .count = 1};
            engine_op_t receive = {.name = name[1],
                                   .kind = DT_KIND_TRANSFER,
                                   .root = peer,
                                   .is_receiver = 1,
                                   .out = &out[peer],
                                   .count = 1};
            ENGINE_OK(self, engine_submit(self, &receive, &handles[n++]));
            ENGINE_OK(self, engine_submit(self, &send, &handles[n++]));
        }
        for (int i = 0; i < n; i++)
            ENGINE_OK(self, engine_finish(self, handles[i]));
        for (int peer = 0; peer < self->size; peer++) {
            ENGINE_CHECK(self, sums[peer] == (float)self->size);
            ENGINE_CHECK(self, peer == self->rank ||
                                   out[peer] == (float)(100 * peer + self->rank + round));
        }
    }
}

static void test_engine_transfers_reach_their_peer_among_other_operations(void **state)
{
    (void)state;
    on_all_sizes(transfers);
}

/* ---- Empty tensors ------------------------------------------------------------------------- */

static void empty(engine_rank_t *self)
{
    static const dt_kind_t kinds[] = {DT_KIND_ALLGATHER, DT_KIND_REDUCESCATTER, DT_KIND_ALLTOALL,
                                      DT_KIND_REDUCE,    DT_KIND_GATHER,        DT_KIND_SCATTER};
    for (int i = 0; i < 6; i++) {
        for (int form = 0; form < 2; form++) {
            /* No rows, and rows of nothing. */
            int64_t shape[2] = {form ? self->size * (int64_t)2 : 0, form ? 0 : 4};
            engine_op_t op = {.name = "x", .kind = kinds[i], .ndim = 2, .shape = shape};
            ENGINE_OK(self, engine_do(self, &op));
        }
    }
    if (self->rank < 2 && self->size > 1) {
        engine_op_t op = {.name = "empty",
                          .kind = DT_KIND_TRANSFER,
                          .root = 1 - self->rank,
                          .is_receiver = self->rank};
        ENGINE_OK(self, engine_do(self, &op));
    }
    engine_check_works(self, "x");
}

static void test_engine_empty_tensors_need_no_buffers(void **state)
{
    (void)state;
    on_all_sizes(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_allgather_of_uneven_rows_is_put_together_in_rank_order),
        cmocka_unit_test(test_engine_gather_brings_all_rows_to_the_root_alone),
        cmocka_unit_test(test_engine_alltoall_with_uneven_splits_brings_each_rank_its_rows),
        cmocka_unit_test(test_engine_alltoall_without_splits_shares_out_evenly),
        cmocka_unit_test(test_engine_reducescatter_is_the_allreduces_slice_bit_for_bit),
        cmocka_unit_test(test_engine_scatter_shares_out_the_roots_rows),
        cmocka_unit_test(test_engine_reduce_gives_the_root_the_allreduces_bits),
        cmocka_unit_test(test_engine_transfers_reach_their_peer_among_other_operations),
        cmocka_unit_test(test_engine_empty_tensors_need_no_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
