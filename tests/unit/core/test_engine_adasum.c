/* Adasum on ranks that are threads, against the definition in double over whole tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "engine_world.h"
#include "reduce/half.h"

#define COUNT_MAX 5000

/* ---- The definition ------------------------------------------------------------------------- */

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* a = adasum(a, b) */
static void pair(double *a, const double *b, int n)
{
    double ab = dot(a, b, n), aa = dot(a, a, n), bb = dot(b, b, n);
    for (int i = 0; i < n; i++)
        a[i] = (aa == 0 ? 1 : 1 - ab / (2 * aa)) * a[i] + (bb == 0 ? 1 : 1 - ab / (2 * bb)) * b[i];
}

/* Leaves the result of x[lo … hi-1] in x[lo]. */
static void tree(double (*x)[COUNT_MAX], int lo, int hi, int n)
{
    if (hi - lo < 2)
        return;
    int half = 1;
    while (2 * half < hi - lo)
        half *= 2;
    tree(x, lo, lo + half, n);
    tree(x, lo + half, hi, n);
    pair(x[lo], x[lo + half], n);
}

/* ---- Tensors -----------------------------------------------------------------------------------
 */

static void put(void *buffer, dtrain_dtype_t dtype, int i, double value)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        ((uint16_t *)buffer)[i] = dt_f32_to_f16((float)value);
        break;
    case DTRAIN_DTYPE_BF16:
        ((uint16_t *)buffer)[i] = dt_f32_to_bf16((float)value);
        break;
    case DTRAIN_DTYPE_F32:
        ((float *)buffer)[i] = (float)value;
        break;
    default:
        ((double *)buffer)[i] = value;
        break;
    }
}

static double get(const void *buffer, dtrain_dtype_t dtype, int i)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return (double)dt_f16_to_f32(((const uint16_t *)buffer)[i]);
    case DTRAIN_DTYPE_BF16:
        return (double)dt_bf16_to_f32(((const uint16_t *)buffer)[i]);
    case DTRAIN_DTYPE_F32:
        return (double)((const float *)buffer)[i];
    default:
        return ((const double *)buffer)[i];
    }
}

/* Half of what a type's last bit is worth, relative; with some room for the other order of
 * additions in fp64. */
static double tolerance(dtrain_dtype_t dtype)
{
    switch (dtype) {
    case DTRAIN_DTYPE_F16:
        return 0x1p-11;
    case DTRAIN_DTYPE_BF16:
        return 0x1p-8;
    case DTRAIN_DTYPE_F32:
        return 0x1.01p-24;
    default:
        return 0x1p-48;
    }
}

static double gradient(int rank, int i)
{
    return sin(1 + rank * 0.7 + i * 0.013 * (1 + rank % 3)) * (1 + rank);
}

static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F64, DTRAIN_DTYPE_F16,
                                        DTRAIN_DTYPE_BF16};
static const int counts[] = {1, 2, 3, 64, 1000, COUNT_MAX};

#define NUM_COUNTS 6

static void compare(engine_rank_t *self)
{
    double(*x)[COUNT_MAX] = engine_buffer(self, sizeof(double) * ENGINE_RANKS_MAX * COUNT_MAX);
    for (int round = 0; round < 4 * NUM_COUNTS; round++) {
        dtrain_dtype_t dtype = dtypes[round % 4];
        int n = counts[round / 4];
        size_t bytes = (size_t)n * dt_dtype_size(dtype);
        void *in = engine_buffer(self, bytes), *out = round % 2 ? in : engine_buffer(self, bytes);
        for (int rank = 0; rank < self->size; rank++) {
            for (int i = 0; i < n; i++) {
                put(in, dtype, i, gradient(rank, i));
                x[rank][i] = 0.5 * get(in, dtype, i);
            }
        }
        for (int i = 0; i < n; i++)
            put(in, dtype, i, gradient(self->rank, i));
        tree(x, 0, self->size, n);
        engine_op_t op = {.name = "x",
                          .op = DTRAIN_OP_ADASUM,
                          .dtype = dtype,
                          .in = in,
                          .out = out,
                          .count = n,
                          .prescale = 0.5,
                          .postscale = 4};
        ENGINE_OK(self, engine_do(self, &op));
        double scale = sqrt(dot(x[0], x[0], n) / n) * 4, worst = 0;
        for (int i = 0; i < n; i++) {
            double difference = fabs(get(out, dtype, i) - 4 * x[0][i]);
            double bound = tolerance(dtype) * fabs(4 * x[0][i]) + 0x1p-48 * scale + 0x1p-25;
            worst = fmax(worst, difference / bound);
        }
        ENGINE_CHECK(self, worst <= 1);
    }
}

static void test_engine_adasum_is_as_defined_in_double(void **state)
{
    (void)state;
    for (int size = 1; size <= 8; size++)
        engine_run(size, NULL, compare, NULL);
}

/* ---- What it is for
 * ------------------------------------------------------------------------------ */

static void orthogonal_and_parallel(engine_rank_t *self)
{
    float apart[ENGINE_RANKS_MAX] = {0}, alike[3] = {1, -2, 8}, nothing[3] = {0};
    apart[self->rank] = (float)(self->rank + 1);
    dtrain_handle_t handles[3];
    engine_op_t ops[3] = {{.name = "apart", .in = apart, .out = apart, .count = self->size},
                          {.name = "alike", .in = alike, .out = alike, .count = 3},
                          {.name = "nothing", .in = nothing, .out = nothing, .count = 3}};
    for (int i = 0; i < 3; i++) {
        ops[i].op = DTRAIN_OP_ADASUM;
        ENGINE_OK(self, engine_submit(self, &ops[i], &handles[i]));
    }
    for (int i = 0; i < 3; i++)
        ENGINE_OK(self, engine_finish(self, handles[i]));
    for (int rank = 0; rank < self->size; rank++)
        ENGINE_CHECK(self, apart[rank] == (float)(rank + 1));             /* they add */
    ENGINE_CHECK(self, alike[0] == 1 && alike[1] == -2 && alike[2] == 8); /* they average */
    ENGINE_CHECK(self, nothing[0] == 0 && nothing[1] == 0 && nothing[2] == 0);
}

static void test_engine_adasum_adds_the_orthogonal_and_averages_the_equal(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        engine_run(size, NULL, orthogonal_and_parallel, NULL);
}

/* Bit for bit. */
static int is_same(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

/* Among other operations, and the same bits on every rank: an allreduce of the results by max and
 * by min gives the same. */
static void agree(engine_rank_t *self)
{
    float grad[777], sum[50], low[777], high[777];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 777; i++)
            grad[i] = (float)gradient(self->rank + round, i);
        for (int i = 0; i < 50; i++)
            sum[i] = 1;
        dtrain_handle_t handles[2];
        engine_op_t ops[2] = {
            {.name = "sum", .in = sum, .out = sum, .count = 50},
            {.name = "grad", .op = DTRAIN_OP_ADASUM, .in = grad, .out = grad, .count = 777}};
        for (int i = 0; i < 2; i++)
            ENGINE_OK(self, engine_submit(self, &ops[i], &handles[i]));
        for (int i = 0; i < 2; i++)
            ENGINE_OK(self, engine_finish(self, handles[i]));
        ENGINE_CHECK(self, sum[49] == (float)self->size);
        engine_op_t op = {.name = "low", .op = DTRAIN_OP_MIN, .in = grad, .out = low, .count = 777};
        ENGINE_OK(self, engine_do(self, &op));
        op = (engine_op_t){
            .name = "high", .op = DTRAIN_OP_MAX, .in = grad, .out = high, .count = 777};
        ENGINE_OK(self, engine_do(self, &op));
        ENGINE_CHECK(self, is_same(low, high, sizeof low));
    }
}

static void test_engine_adasum_gives_all_ranks_the_same_bits(void **state)
{
    (void)state;
    engine_run(3, NULL, agree, NULL);
    engine_run(4, NULL, agree, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_adasum_is_as_defined_in_double),
        cmocka_unit_test(test_engine_adasum_adds_the_orthogonal_and_averages_the_equal),
        cmocka_unit_test(test_engine_adasum_gives_all_ranks_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
