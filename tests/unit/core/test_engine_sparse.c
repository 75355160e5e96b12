/* Sparse allreduces, against an allreduce of the whole tensor: the same bits, row by row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "core/stand_in.h"
#include "engine_world.h"

#define ROWS 40
#define ROW 3
#define NNZ_MAX 60

/* ---- A rank's rows ----------------------------------------------------------------------------
 */

typedef struct rows {
    int64_t indices[NNZ_MAX];
    char values[NNZ_MAX * ROW * sizeof(double)];
    int64_t nnz;
} rows_t;

/* Small whole numbers and halves, negative ones and zeros, which every type holds. */
static void put(void *values, dtrain_dtype_t dtype, int64_t i, double value)
{
    float narrow = (float)value;
    char *to = (char *)values + (size_t)i * dt_dtype_size(dtype);
    switch (dtype) {
    case DTRAIN_DTYPE_F64:
        memcpy(to, &value, sizeof value);
        break;
    case DTRAIN_DTYPE_F32:
        memcpy(to, &narrow, sizeof narrow);
        break;
    case DTRAIN_DTYPE_F16:
    case DTRAIN_DTYPE_BF16:
        dt_narrow(dtype, &narrow, to, 1);
        break;
    default:
        *(int32_t *)(void *)to = (int32_t)value;
        break;
    }
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16 & 0x7fff;
}

/* Rank `rank`'s rows of a round: indices in no order, some of them repeated. */
static void make_rows(rows_t *rows, dtrain_dtype_t dtype, int rank, int round, int64_t nnz)
{
    unsigned seed = (unsigned)(rank * 977 + round * 31 + 5);
    rows->nnz = nnz;
    for (int64_t i = 0; i < nnz; i++) {
        rows->indices[i] = next(&seed) % ROWS;
        for (int64_t j = 0; j < ROW; j++)
            put(rows->values, dtype, i * ROW + j, ((double)(next(&seed) % 200) - 100) / 2);
    }
}

/* The whole tensor that the rows stand for. */
static void make_whole(const rows_t *rows, dtrain_dtype_t dtype, void *whole)
{
    size_t row_bytes = ROW * dt_dtype_size(dtype);
    dt_reduction_t sum = {
        .dtype = dtype, .op = DTRAIN_OP_SUM, .divisor = 1, .prescale = 1, .postscale = 1};
    dt_identity_fill(whole, ROWS * ROW, dtype, DTRAIN_OP_SUM, 1);
    for (int64_t row = 0; row < ROWS; row++) {
        const void *sources[NNZ_MAX];
        int n = 0;
        for (int64_t i = 0; i < rows->nnz; i++) {
            if (rows->indices[i] == row)
                sources[n++] = rows->values + (size_t)i * row_bytes;
        }
        void *to = (char *)whole + (size_t)row * row_bytes;
        if (n > 0)
            dt_reduce(&sum, &to, 1, sources, n, ROW);
    }
}

/* ---- Comparison -------------------------------------------------------------------------------
 */

static const int64_t shape[2] = {ROWS, ROW};

static engine_op_t sparse_op(const char *name, const rows_t *rows, dtrain_dtype_t dtype)
{
    engine_op_t op = {.kind = DT_KIND_SPARSE,
                      .name = name,
                      .dtype = dtype,
                      .shape = shape,
                      .ndim = 2,
                      .in = rows->values,
                      .indices = rows->indices,
                      .nnz = rows->nnz};
    return op;
}

/* The bits, but for the sign of a zero. */
static int is_same(const void *a, const void *b, dtrain_dtype_t dtype, int64_t count)
{
    size_t element = dt_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++) {
        const char *x = (const char *)a + (size_t)i * element;
        const char *y = (const char *)b + (size_t)i * element;
        unsigned char zero[8] = {0}, minus[8] = {0};
        minus[element - 1] = 0x80;
        int x_is_zero = memcmp(x, zero, element) == 0 || memcmp(x, minus, element) == 0;
        int y_is_zero = memcmp(y, zero, element) == 0 || memcmp(y, minus, element) == 0;
        if (memcmp(x, y, element) != 0 && !(x_is_zero && y_is_zero))
            return 0;
    }
    return 1;
}

/* Each row of the output is that of the whole result, in rising order; no row that is not zero is
 * missing. */
static void check_output(engine_rank_t *self, dtrain_handle_t handle, dtrain_dtype_t dtype,
                         const void *whole, int *is_dense)
{
    const int64_t *indices = NULL;
    const void *values = NULL;
    int64_t nnz = -1;
    size_t row_bytes = ROW * dt_dtype_size(dtype);
    ENGINE_OK(self, dt_runtime_sparse_output(self->runtime, handle, &indices, &values, &nnz));
    *is_dense = nnz > 0 && !indices;
    char *seen = engine_buffer(self, ROWS * row_bytes);
    dt_identity_fill(seen, ROWS * ROW, dtype, DTRAIN_OP_SUM, 1);
    for (int64_t i = 0; i < nnz; i++) {
        int64_t index = indices ? indices[i] : i;
        ENGINE_CHECK(self,
                     index >= 0 && index < ROWS && (i == 0 || !indices || indices[i - 1] < index));
        memcpy(seen + (size_t)index * row_bytes, (const char *)values + (size_t)i * row_bytes,
               row_bytes);
    }
    ENGINE_CHECK(self, is_same(seen, whole, dtype, ROWS * ROW));
}

static const dtrain_dtype_t dtypes[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F64, DTRAIN_DTYPE_F16,
                                        DTRAIN_DTYPE_BF16, DTRAIN_DTYPE_I32};

static void compare(engine_rank_t *self)
{
    int num_dense = 0, num_sparse = 0;
    for (int round = 0; round < 60; round++) {
        dtrain_dtype_t dtype = dtypes[round % 5];
        rows_t rows;
        int64_t most = round < 40 ? 6 : NNZ_MAX + 1;
        make_rows(&rows, dtype, self->rank, round, (self->rank + round * 7) % most);
        size_t bytes = ROWS * ROW * dt_dtype_size(dtype);
        char *whole = engine_buffer(self, bytes);
        make_whole(&rows, dtype, whole);
        engine_op_t dense = {
            .name = "dense", .dtype = dtype, .in = whole, .out = whole, .count = ROWS * ROW};
        engine_op_t sparse = sparse_op("sparse", &rows, dtype);
        dense.op = sparse.op = round % 3 ? DTRAIN_OP_AVERAGE : DTRAIN_OP_SUM;
        dense.prescale = sparse.prescale = round % 4 == 1 ? -0.5 : 1;
        dense.postscale = sparse.postscale = round % 4 == 2 ? 3 : 1;
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_do(self, &dense));
        ENGINE_OK(self, engine_submit(self, &sparse, &handle));
        memset(&rows, 0xee, sizeof rows); /* it was copied */
        ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
        int is_dense;
        check_output(self, handle, dtype, whole, &is_dense);
        num_dense += is_dense;
        num_sparse += !is_dense;
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    }
    ENGINE_CHECK(self, num_dense > 0 && num_sparse > 10); /* both ways were gone */
}

static void test_engine_sparse_has_the_bits_of_the_whole_tensor(void **state)
{
    (void)state;
    for (int size = 1; size <= 7; size++)
        engine_run(size, NULL, compare, NULL);
}

/* ---- Edges ------------------------------------------------------------------------------------
 */

static void nothing(engine_rank_t *self)
{
    const int64_t shapes[3][2] = {{ROWS, ROW}, {0, ROW}, {ROWS, 0}};
    int64_t index = 3;
    for (int i = 0; i < 3; i++) {
        engine_op_t op = {.kind = DT_KIND_SPARSE, .name = "x", .shape = shapes[i], .ndim = 2};
        if (i == 2) {
            op.indices = &index;
            op.nnz = 1;
        }
        dtrain_handle_t handle;
        const int64_t *indices;
        const void *values;
        int64_t nnz = -1;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
        ENGINE_OK(self, dt_runtime_sparse_output(self->runtime, handle, &indices, &values, &nnz));
        ENGINE_CHECK(self, nnz == 0 && !values);
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    }
}

static void test_engine_sparse_of_nothing_is_nothing(void **state)
{
    (void)state;
    engine_run(1, NULL, nothing, NULL);
    engine_run(3, NULL, nothing, NULL);
}

static void on_a_set(engine_rank_t *self)
{
    dtrain_pset_t pset;
    int ranks[2] = {2, 0};
    ENGINE_OK(self, engine_pset_add(self, ranks, 2, &pset));
    if (self->rank != 1) {
        rows_t rows = {.indices = {self->rank, 20}, .nnz = 2};
        for (int64_t i = 0; i < 2 * ROW; i++)
            put(rows.values, DTRAIN_DTYPE_F32, i, self->rank + 1);
        engine_op_t op = sparse_op("x", &rows, DTRAIN_DTYPE_F32);
        op.pset = pset;
        dtrain_handle_t handle;
        const int64_t *indices;
        const void *values;
        int64_t nnz;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
        ENGINE_OK(self, dt_runtime_sparse_output(self->runtime, handle, &indices, &values, &nnz));
        const float *found = values;
        if (ENGINE_CHECK(self, nnz == 3 && indices))
            ENGINE_CHECK(self, indices[1] == 2 && found[0] == 1 && found[3] == 3 && found[6] == 4);
        ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
    }
    ENGINE_OK(self, engine_pset_remove(self, pset));
}

static void test_engine_sparse_works_on_process_sets(void **state)
{
    (void)state;
    engine_run(3, NULL, on_a_set, NULL);
}

/* A rank that has joined has no rows; an average is over the others. */
static void without_the_joined(engine_rank_t *self)
{
    int last;
    for (int round = 0; round < 2; round++) {
        if (self->rank != 1) {
            rows_t rows;
            make_rows(&rows, DTRAIN_DTYPE_F32, 0, round, round ? NNZ_MAX : 4);
            char whole[ROWS * ROW * sizeof(float)];
            make_whole(&rows, DTRAIN_DTYPE_F32, whole);
            engine_op_t op = sparse_op("x", &rows, DTRAIN_DTYPE_F32);
            op.op = DTRAIN_OP_AVERAGE;
            dtrain_handle_t handle;
            int is_dense;
            ENGINE_OK(self, engine_submit(self, &op, &handle));
            ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
            check_output(self, handle, DTRAIN_DTYPE_F32, whole, &is_dense);
            ENGINE_CHECK(self, is_dense == round);
            ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
        }
        ENGINE_OK(self, engine_join(self, 0, &last));
    }
}

static void test_engine_sparse_goes_on_without_ranks_that_have_joined(void **state)
{
    (void)state;
    engine_run(3, NULL, without_the_joined, NULL);
}

/* ---- Errors -----------------------------------------------------------------------------------
 */

typedef struct slip {
    engine_op_t op; /* of the last rank, in place of two rows of 2 x 3 float32 */
    dtrain_status_t status;
    const char *text;
} slip_t;

static const int64_t two[2] = {0, 1}, outside[2] = {0, 2}, negative[2] = {-1, 0};
static const int64_t small[2] = {2, 3}, wide[2] = {2, 4}, tall[2] = {3, 3};
static const char zeros[64];

#define SPARSE_ROWS(where, count, extents)                                                       \
    .kind = DT_KIND_SPARSE, .name = "x", .in = zeros, .indices = where, .nnz = count, .ndim = 2, \
    .shape = extents
#define GOOD SPARSE_ROWS(two, 2, small)

static const slip_t slips[] = {
    {{GOOD, .dtype = DTRAIN_DTYPE_I32}, DTRAIN_ERR_MISMATCH, "types differ"},
    {{SPARSE_ROWS(two, 1, wide)}, DTRAIN_ERR_MISMATCH, "[2, 4]"},
    {{SPARSE_ROWS(two, 1, tall)}, DTRAIN_ERR_MISMATCH, "[3, 3]"},
    {{GOOD, .op = DTRAIN_OP_AVERAGE}, DTRAIN_ERR_MISMATCH, "reductions differ"},
    {{GOOD, .op = DTRAIN_OP_MAX}, DTRAIN_ERR_UNSUPPORTED, "for sum and average, not for max"},
    {{GOOD, .op = DTRAIN_OP_ADASUM}, DTRAIN_ERR_UNSUPPORTED, "adasum"},
    {{.name = "x", .in = zeros, .count = 0}, DTRAIN_ERR_MISMATCH, "operations differ"},
    {{SPARSE_ROWS(outside, 2, small)},
     DTRAIN_ERR_INVALID_ARGUMENT,
     "index 2 at place 1, and the tensor has 2 rows"},
    {{SPARSE_ROWS(negative, 2, small)}, DTRAIN_ERR_INVALID_ARGUMENT, "index -1 at place 0"},
    {{SPARSE_ROWS(two, -1, small)}, DTRAIN_ERR_INVALID_ARGUMENT, "nnz is -1"},
    {{.kind = DT_KIND_SPARSE, .name = "x", .in = zeros, .nnz = 1, .ndim = 2, .shape = small},
     DTRAIN_ERR_INVALID_ARGUMENT,
     "the indices are NULL"},
    {{.kind = DT_KIND_SPARSE, .name = "x", .indices = two, .nnz = 1, .ndim = 2, .shape = small},
     DTRAIN_ERR_INVALID_ARGUMENT,
     "the values are NULL"},
    {{.kind = DT_KIND_SPARSE,
      .name = "x",
      .in = zeros,
      .indices = two,
      .nnz = 1,
      .ndim = 0,
      .shape = small},
     DTRAIN_ERR_INVALID_ARGUMENT,
     "0 dimensions"},
};

static void slip(engine_rank_t *self)
{
    for (size_t i = 0; i < sizeof slips / sizeof slips[0]; i++) {
        engine_op_t op = {GOOD};
        if (self->rank == self->size - 1)
            op = slips[i].op;
        ENGINE_STATUS(self, engine_do(self, &op), slips[i].status);
        ENGINE_TEXT(self, dt_last_error(), slips[i].text);
        ENGINE_TEXT(self, dt_last_error(), "'x'");
        engine_meet(self);
        engine_check_works(self, "x");
        engine_meet(self);
    }
    const int64_t *indices;
    const void *values;
    int64_t nnz;
    float x = 1;
    dtrain_handle_t handle;
    engine_op_t op = {.name = "x", .in = &x, .out = &x, .count = 1};
    ENGINE_OK(self, engine_submit(self, &op, &handle));
    ENGINE_OK(self, dt_runtime_wait(self->runtime, handle, -1));
    ENGINE_STATUS(self, dt_runtime_sparse_output(self->runtime, handle, &indices, &values, &nnz),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
}

static void test_engine_sparse_slip_of_one_rank_is_an_error_on_all(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        engine_run(size, NULL, slip, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_sparse_has_the_bits_of_the_whole_tensor),
        cmocka_unit_test(test_engine_sparse_of_nothing_is_nothing),
        cmocka_unit_test(test_engine_sparse_works_on_process_sets),
        cmocka_unit_test(test_engine_sparse_goes_on_without_ranks_that_have_joined),
        cmocka_unit_test(test_engine_sparse_slip_of_one_rank_is_an_error_on_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
