#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "engine_world.h"
#include "reduce/reduce.h"

/* ---- Every type and reduction ------------------------------------------------------------ */

#define ELEMENT_MAX 8
#define COUNT 37

/* Small values that every type has: of rank `rank`, for element `i`. */
static int small_value(int rank, int i)
{
    return 1 + (rank * 7 + i * 3) % 5;
}

static void put_value(dtrain_dtype_t dtype, void *buffer, int i, int value)
{
    static const uint16_t f16[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};
    static const uint16_t bf16[] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0};
    float single = (float)value;
    double wide = value;
    int64_t integer = value;
    const void *bytes = &integer;
    if (dtype == DTRAIN_DTYPE_F32)
        bytes = &single;
    else if (dtype == DTRAIN_DTYPE_F64)
        bytes = &wide;
    else if (dtype == DTRAIN_DTYPE_F16)
        bytes = &f16[value];
    else if (dtype == DTRAIN_DTYPE_BF16)
        bytes = &bf16[value];
    else if (dtype == DTRAIN_DTYPE_BOOL)
        integer = value % 2;
    size_t size = dt_dtype_size(dtype);
    memcpy((char *)buffer + (size_t)i * size, bytes, size);
}

static void fill(dtrain_dtype_t dtype, void *buffer, int count, int rank)
{
    for (int i = 0; i < count; i++)
        put_value(dtype, buffer, i, small_value(rank, i));
}

/* What the reduction of all ranks' values is. */
static void reduce_all(const dt_reduction_t *reduction, int size, int count, void *result)
{
    char inputs[ENGINE_RANKS_MAX][COUNT * ELEMENT_MAX];
    const void *sources[ENGINE_RANKS_MAX];
    for (int rank = 0; rank < size; rank++) {
        fill(reduction->dtype, inputs[rank], count, rank);
        sources[rank] = inputs[rank];
    }
    dt_reduce(reduction, &result, 1, sources, size, (size_t)count);
}

static void check_reduction(engine_rank_t *self, const dt_reduction_t *reduction, int in_place)
{
    char in[COUNT * ELEMENT_MAX], out[COUNT * ELEMENT_MAX], wanted[COUNT * ELEMENT_MAX], name[64];
    snprintf(name, sizeof name, "%s.%s.%d.%g", dt_dtype_name(reduction->dtype),
             dt_op_name(reduction->op), in_place, reduction->prescale);
    fill(reduction->dtype, in, COUNT, self->rank);
    engine_op_t op = {.name = name,
                      .in = in,
                      .out = in_place ? in : out,
                      .count = COUNT,
                      .dtype = reduction->dtype,
                      .op = reduction->op,
                      .prescale = reduction->prescale,
                      .postscale = reduction->postscale};
    if (!ENGINE_OK(self, engine_do(self, &op)))
        return;
    reduce_all(reduction, self->size, COUNT, wanted);
    size_t bytes = COUNT * dt_dtype_size(reduction->dtype);
    engine_check(self, memcmp(op.out, wanted, bytes) == 0, name, __FILE__, __LINE__);
    if (!in_place) {
        fill(reduction->dtype, wanted, COUNT, self->rank);
        engine_check(self, memcmp(in, wanted, bytes) == 0, "the input is unchanged", __FILE__,
                     __LINE__);
    }
}

static void check_all_reductions(engine_rank_t *self)
{
    for (int type = 1; type < DT_DTYPE_COUNT; type++) {
        for (int op = 0; op < DT_OP_COUNT; op++) {
            dt_reduction_t reduction = {.dtype = (dtrain_dtype_t)type,
                                        .op = (dtrain_op_t)op,
                                        .divisor = op == DTRAIN_OP_AVERAGE ? self->size : 1,
                                        .prescale = 1,
                                        .postscale = 1};
            if (dt_reduction_check(&reduction) != DTRAIN_OK)
                continue;
            check_reduction(self, &reduction, 0);
            check_reduction(self, &reduction, 1);
            reduction.prescale = 0.5;
            reduction.postscale = 3;
            if (dt_reduction_check(&reduction) == DTRAIN_OK)
                check_reduction(self, &reduction, op % 2);
        }
    }
}

static void test_engine_every_type_and_reduction_gives_the_reduction_of_all(void **state)
{
    (void)state;
    for (int size = 1; size <= ENGINE_RANKS_MAX; size = size < 4 ? size + 1 : size + 2)
        engine_run(size, NULL, check_all_reductions, NULL);
    engine_run(7, NULL, check_all_reductions, NULL);
}

/* ---- Case 15, 13, 14: what users are surprised by ------------------------------------------ */

static void average_large_halves(engine_rank_t *self)
{
    uint16_t value = 0x78e2; /* 40000 in binary16 */
    engine_op_t op = {.name = "half",
                      .in = &value,
                      .out = &value,
                      .count = 1,
                      .dtype = DTRAIN_DTYPE_F16,
                      .op = DTRAIN_OP_AVERAGE};
    ENGINE_OK(self, engine_do(self, &op));
    ENGINE_CHECK(self, value == 0x78e2);
}

static void test_engine_average_of_large_halves_does_not_overflow(void **state)
{
    (void)state;
    engine_run(2, NULL, average_large_halves, NULL);
}

static void average_integers(engine_rank_t *self)
{
    int32_t values[2] = {1, 2};
    if (self->rank == 1) {
        values[0] = -2;
        values[1] = 5;
    }
    engine_op_t op = {.name = "integers",
                      .in = values,
                      .out = values,
                      .count = 2,
                      .dtype = DTRAIN_DTYPE_I32,
                      .op = DTRAIN_OP_AVERAGE};
    ENGINE_OK(self, engine_do(self, &op));
    ENGINE_CHECK(self, values[0] == 0); /* -1 / 2 */
    ENGINE_CHECK(self, values[1] == 3); /* 7 / 2 */
}

static void test_engine_average_of_integers_truncates(void **state)
{
    (void)state;
    engine_run(2, NULL, average_integers, NULL);
}

static void reduce_bools(engine_rank_t *self)
{
    static const struct {
        const char *name;
        dtrain_op_t op;
        uint8_t mixed; /* of true on rank 0 and false elsewhere */
    } cases[] = {{"sum", DTRAIN_OP_SUM, 1},
                 {"max", DTRAIN_OP_MAX, 1},
                 {"min", DTRAIN_OP_MIN, 0},
                 {"product", DTRAIN_OP_PRODUCT, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t values[3] = {self->rank == 0 ? 7 : 0, 0, 255};
        engine_op_t op = {.name = cases[i].name,
                          .in = values,
                          .out = values,
                          .count = 3,
                          .dtype = DTRAIN_DTYPE_BOOL,
                          .op = cases[i].op};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, values[0] == cases[i].mixed && values[1] == 0 && values[2] == 1);
    }
    uint8_t value = 1;
    engine_op_t average = {.name = "average",
                           .in = &value,
                           .out = &value,
                           .count = 1,
                           .dtype = DTRAIN_DTYPE_BOOL,
                           .op = DTRAIN_OP_AVERAGE};
    ENGINE_STATUS(self, engine_do(self, &average), DTRAIN_ERR_UNSUPPORTED);
}

static void test_engine_bool_reductions_are_or_and_and(void **state)
{
    (void)state;
    engine_run(3, NULL, reduce_bools, NULL);
}

/* ---- Broadcast -------------------------------------------------------------------------- */

static void broadcast_from(engine_rank_t *self, int root, int count)
{
    char name[32];
    snprintf(name, sizeof name, "from.%d.%d", root, count);
    int32_t *values = calloc((size_t)count + 1, sizeof *values);
    int32_t *copy = calloc((size_t)count + 1, sizeof *copy);
    if (!ENGINE_CHECK(self, values && copy))
        return;
    for (int i = 0; i < count; i++)
        values[i] = self->rank == root ? i * 11 + root : -1;
    /* The root has its output elsewhere, or none; the others give no input. */
    engine_op_t op = {.name = name,
                      .kind = DT_KIND_BROADCAST,
                      .root = root,
                      .count = count,
                      .dtype = DTRAIN_DTYPE_I32};
    op.in = self->rank == root ? values : NULL;
    op.out = self->rank == root ? (count % 2 ? copy : NULL) : values;
    ENGINE_OK(self, engine_do(self, &op));
    for (int i = 0; i < count; i++)
        ENGINE_CHECK(self, values[i] == i * 11 + root);
    if (self->rank == root && op.out)
        ENGINE_CHECK(self, memcmp(copy, values, (size_t)count * sizeof *values) == 0);
    free(values);
    free(copy);
}

static void broadcast_from_each(engine_rank_t *self)
{
    for (int root = 0; root < self->size; root++) {
        broadcast_from(self, root, 1);
        broadcast_from(self, root, 1000);
        broadcast_from(self, root, 1001);
    }
}

static void test_engine_broadcast_from_each_root_reaches_all(void **state)
{
    (void)state;
    for (int size = 1; size <= ENGINE_RANKS_MAX; size += size < 5 ? 1 : 3)
        engine_run(size, NULL, broadcast_from_each, NULL);
}

/* ---- Barriers --------------------------------------------------------------------------- */

#define BARRIERS 12

static void count_barriers(engine_rank_t *self)
{
    _Atomic int *arrived = self->argument;
    for (int i = 0; i < BARRIERS; i++) {
        atomic_fetch_add(&arrived[i], 1);
        engine_op_t op = {.kind = DT_KIND_BARRIER};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, atomic_load(&arrived[i]) == self->size);
    }
}

static void test_engine_barrier_is_done_when_every_rank_has_come(void **state)
{
    (void)state;
    for (int size = 1; size <= ENGINE_RANKS_MAX; size += 3) {
        _Atomic int arrived[BARRIERS] = {0};
        engine_run(size, NULL, count_barriers, arrived);
    }
}

static void many_barriers(engine_rank_t *self)
{
    _Atomic int *arrived = self->argument;
    dtrain_handle_t handles[BARRIERS];
    engine_op_t op = {.kind = DT_KIND_BARRIER};
    for (int i = 0; i < BARRIERS; i++) {
        atomic_fetch_add(&arrived[i], 1);
        ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
    }
    for (int i = 0; i < BARRIERS; i++) {
        ENGINE_OK(self, engine_finish(self, handles[i]));
        ENGINE_CHECK(self, atomic_load(&arrived[i]) == self->size);
    }
}

static void test_engine_several_barriers_in_flight_match_in_order(void **state)
{
    (void)state;
    for (int size = 2; size <= ENGINE_RANKS_MAX; size += 2) {
        _Atomic int arrived[BARRIERS] = {0};
        engine_run(size, NULL, many_barriers, arrived);
    }
}

/* ---- Order and number ---------------------------------------------------------------------- */

#define MANY 1000

/* Submits MANY small tensors, each rank in an order of its own, `rounds` times over. */
static void submit_many(engine_rank_t *self)
{
    float *values = engine_buffer(self, MANY * sizeof *values);
    dtrain_handle_t *handles = engine_buffer(self, MANY * sizeof *handles);
    int bad = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            int k = (i * 7 + self->rank * 131) % MANY;
            char name[32];
            snprintf(name, sizeof name, "many.%d", k);
            values[k] = (float)(k + self->rank);
            engine_op_t op = {.name = name, .in = &values[k], .out = &values[k], .count = 1};
            ENGINE_OK(self, engine_submit(self, &op, &handles[k]));
        }
        for (int k = 0; k < MANY; k++) {
            ENGINE_OK(self, engine_finish(self, handles[k]));
            int n = self->size;
            bad += values[k] != (float)(k * n + n * (n - 1) / 2);
        }
    }
    ENGINE_CHECK(self, bad == 0);
    ENGINE_CHECK(self, dt_handle_count(self->runtime->handles) == 0);
}

static void test_engine_many_tensors_in_flight_in_different_orders(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 4, 7};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        engine_run(sizes[i], NULL, submit_many, NULL);
}

static void three_names(engine_rank_t *self)
{
    static const char *const names[2][3] = {{"a", "b", "c"}, {"c", "b", "a"}};
    float values[3];
    dtrain_handle_t handles[3];
    for (int i = 0; i < 3; i++) {
        values[i] = (float)(names[self->rank][i][0] - 'a' + 1);
        engine_op_t op = {
            .name = names[self->rank][i], .in = &values[i], .out = &values[i], .count = 1};
        ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
    }
    for (int i = 0; i < 3; i++) {
        ENGINE_OK(self, engine_finish(self, handles[i]));
        ENGINE_CHECK(self, values[i] == (float)(2 * (names[self->rank][i][0] - 'a' + 1)));
    }
}

static void test_engine_names_in_opposite_order_meet(void **state)
{
    (void)state;
    engine_run(2, NULL, three_names, NULL);
}

/* ---- Shapes and names ---------------------------------------------------------------------- */

static void scalars_and_empty(engine_rank_t *self)
{
    static const int64_t none[2] = {3, 0};
    float value = 2, one = 1;
    engine_op_t scalar = {.name = "scalar", .in = &value, .out = &value, .shape = none, .ndim = 0};
    engine_op_t empty = {.name = "empty", .shape = none, .ndim = 2};
    engine_op_t empty_broadcast = {.name = "empty.broadcast", .kind = DT_KIND_BROADCAST};
    engine_op_t beside = {.name = "beside", .in = &one, .out = &one, .count = 1};
    engine_op_t empty_too = {.name = "empty.too"};
    for (int round = 0; round < 3; round++) {
        value = 2;
        ENGINE_OK(self, engine_do(self, &scalar));
        ENGINE_CHECK(self, value == (float)(2 * self->size));
        ENGINE_OK(self, engine_do(self, &empty));
        ENGINE_OK(self, engine_do(self, &empty_broadcast));
        dtrain_handle_t handles[3];
        one = 1;
        ENGINE_OK(self, engine_submit(self, &empty_too, &handles[0]));
        ENGINE_OK(self, engine_submit(self, &beside, &handles[1]));
        ENGINE_OK(self, engine_submit(self, &empty, &handles[2]));
        for (int i = 0; i < 3; i++)
            ENGINE_OK(self, engine_finish(self, handles[i]));
        ENGINE_CHECK(self, one == (float)self->size);
    }
}

static void test_engine_scalars_and_empty_tensors_work(void **state)
{
    (void)state;
    engine_run(1, NULL, scalars_and_empty, NULL);
    engine_run(3, NULL, scalars_and_empty, NULL);
}

static void unusual_names(engine_rank_t *self)
{
    char longest[DTRAIN_NAME_MAX + 2];
    memset(longest, 'n', sizeof longest);
    longest[DTRAIN_NAME_MAX] = '\0';
    const char *names[] = {"g:1", "g:2", "a/b", "a", "gr\303\244dient", "\345\261\244", longest};
    enum { NUM = sizeof names / sizeof names[0] };
    float values[NUM];
    dtrain_handle_t handles[NUM];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < NUM; i++) {
            int k = self->rank % 2 ? NUM - 1 - i : i;
            values[k] = (float)k;
            engine_op_t op = {.name = names[k], .in = &values[k], .out = &values[k], .count = 1};
            ENGINE_OK(self, engine_submit(self, &op, &handles[k]));
        }
        for (int i = 0; i < NUM; i++) {
            ENGINE_OK(self, engine_finish(self, handles[i]));
            ENGINE_CHECK(self, values[i] == (float)(i * self->size));
        }
    }
    longest[DTRAIN_NAME_MAX] = 'n';
    longest[DTRAIN_NAME_MAX + 1] = '\0';
    engine_op_t over = {.name = longest, .in = values, .out = values, .count = 1};
    ENGINE_STATUS(self, engine_do(self, &over), DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_TEXT(self, dt_last_error(), "4096");
}

static void test_engine_unusual_names_are_distinct(void **state)
{
    (void)state;
    engine_run(2, NULL, unusual_names, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_every_type_and_reduction_gives_the_reduction_of_all),
        cmocka_unit_test(test_engine_average_of_large_halves_does_not_overflow),
        cmocka_unit_test(test_engine_average_of_integers_truncates),
        cmocka_unit_test(test_engine_bool_reductions_are_or_and_and),
        cmocka_unit_test(test_engine_broadcast_from_each_root_reaches_all),
        cmocka_unit_test(test_engine_barrier_is_done_when_every_rank_has_come),
        cmocka_unit_test(test_engine_several_barriers_in_flight_match_in_order),
        cmocka_unit_test(test_engine_many_tensors_in_flight_in_different_orders),
        cmocka_unit_test(test_engine_names_in_opposite_order_meet),
        cmocka_unit_test(test_engine_scalars_and_empty_tensors_work),
        cmocka_unit_test(test_engine_unusual_names_are_distinct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
