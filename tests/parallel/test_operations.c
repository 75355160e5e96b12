/* Every operation through the public API: several sizes, in memory of the program's and of the
 * library's, in place where that is possible, against values known beforehand. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int rank, size;

#define COLUMNS 3

/* ---- Memory and values --------------------------------------------------------------------------
 */

static int is_librarys; /* where buffers come from */

static int32_t *buffer(int64_t rows)
{
    void *memory = NULL;
    size_t bytes = (size_t)(rows + 1) * COLUMNS * sizeof(int32_t);
    if (is_librarys)
        CHECK_OK(dtrain_mem_alloc(&memory, bytes, DTRAIN_DEVICE_CPU));
    else
        memory = malloc(bytes);
    if (!memory)
        abort();
    memset(memory, 0x5a, bytes);
    return memory;
}

static void drop(int32_t *memory)
{
    if (is_librarys)
        CHECK_OK(dtrain_mem_free(memory));
    else
        free(memory);
}

static int32_t value(int from, int64_t i)
{
    return (int32_t)(from * 1000003 + i * 7);
}

static void fill(int32_t *to, int64_t rows)
{
    for (int64_t i = 0; i < rows * COLUMNS; i++)
        to[i] = value(rank, i);
}

/* Rows from `from` on of what `source` brought. */
static int has_rows(const int32_t *at, int source, int64_t from, int64_t rows)
{
    for (int64_t i = 0; i < rows * COLUMNS; i++) {
        if (at[i] != value(source, from * COLUMNS + i))
            return 0;
    }
    return 1;
}

/* Of the sums over all ranks. */
static int has_sums(const int32_t *at, int64_t from, int64_t rows)
{
    for (int64_t i = 0; i < rows * COLUMNS; i++) {
        int32_t sum = 0;
        for (int r = 0; r < size; r++)
            sum += value(r, from * COLUMNS + i);
        if (at[i] != sum)
            return 0;
    }
    return 1;
}

static int64_t share(int64_t rows, int of)
{
    return rows / size + (of < rows % size);
}

static int64_t before(int64_t rows, int of)
{
    int64_t sum = 0;
    for (int r = 0; r < of; r++)
        sum += share(rows, r);
    return sum;
}

/* ---- Calls
 * ---------------------------------------------------------------------------------------- */

static dtrain_tensor_t tensor_of(const char *name, const void *in, void *out, int64_t *shape)
{
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 2,
                              .name = name,
                              .in = in,
                              .out = out,
                              .shape = shape,
                              .dtype = DTRAIN_DTYPE_I32};
    return tensor;
}

static const int32_t *wait_output(dtrain_handle_t handle, int64_t *rows)
{
    const void *data = NULL;
    int64_t shape[DTRAIN_NDIM_MAX] = {-1, -1};
    int ndim = 0;
    CHECK_OK(dtrain_wait(handle));
    CHECK_OK(dtrain_output(handle, &data, shape, &ndim));
    CHECK(ndim == 2 && shape[1] == COLUMNS);
    *rows = shape[0];
    return data;
}

/* Rank r brings `rows` and some more. */
static int64_t brought(int64_t rows, int by)
{
    return by == 0 && size > 2 ? 0 : rows + by;
}

static void check_allgather(int64_t rows, int in_place)
{
    int64_t total = 0, mine_at = 0, mine = brought(rows, rank), found;
    for (int r = 0; r < size; r++) {
        mine_at = r == rank ? total : mine_at;
        total += brought(rows, r);
    }
    int64_t shape[2] = {mine, COLUMNS};
    int32_t *all = in_place ? buffer(total) : NULL;
    int32_t *in = in_place ? all + mine_at * COLUMNS : buffer(mine);
    fill(in, mine);
    dtrain_tensor_t tensor = tensor_of("allgather", in, all, shape);
    tensor.out_bytes = in_place ? total * COLUMNS * (int64_t)sizeof(int32_t) : 0;
    dtrain_handle_t handle;
    CHECK_OK(dtrain_allgather_async(&tensor, NULL, &handle));
    const int32_t *out = wait_output(handle, &found);
    CHECK(found == total);
    for (int r = 0; r < size; r++) {
        CHECK(has_rows(out, r, 0, brought(rows, r)));
        out += brought(rows, r) * COLUMNS;
    }
    CHECK_OK(dtrain_release(handle));
    drop(in_place ? all : in);
}

static void check_gather(int64_t rows, int root)
{
    int64_t mine = brought(rows, rank), found, shape[2] = {mine, COLUMNS};
    int32_t *in = buffer(mine);
    fill(in, mine);
    dtrain_tensor_t tensor = tensor_of("gather", in, NULL, shape);
    dtrain_handle_t handle;
    CHECK_OK(dtrain_gather_async(&tensor, root, NULL, &handle));
    const int32_t *out = wait_output(handle, &found);
    int64_t splits[16];
    CHECK_OK(dtrain_recv_splits(handle, splits, size));
    for (int r = 0; r < size; r++) {
        CHECK(splits[r] == brought(rows, r));
        if (rank != root)
            continue;
        CHECK(has_rows(out, r, 0, brought(rows, r)));
        out += brought(rows, r) * COLUMNS;
    }
    CHECK(rank == root || (found == 0 && out == NULL));
    CHECK_OK(dtrain_release(handle));
    drop(in);
}

static void check_alltoall(int64_t rows)
{
    int64_t splits[16], total = 0, found, shape[2] = {0, COLUMNS};
    for (int r = 0; r < size; r++) {
        splits[r] = (rank + r) % 3 ? rows + r : 0;
        shape[0] += splits[r];
    }
    int32_t *in = buffer(shape[0]);
    fill(in, shape[0]);
    dtrain_tensor_t tensor = tensor_of("alltoall", in, NULL, shape);
    dtrain_handle_t handle;
    CHECK_OK(dtrain_alltoall_async(&tensor, splits, size, NULL, &handle));
    const int32_t *out = wait_output(handle, &found);
    for (int r = 0; r < size; r++) {
        int64_t came = (rank + r) % 3 ? rows + rank : 0, from = 0;
        for (int to = 0; to < rank; to++)
            from += (r + to) % 3 ? rows + to : 0;
        CHECK(has_rows(out + total * COLUMNS, r, from, came));
        total += came;
    }
    CHECK(found == total);
    CHECK_OK(dtrain_release(handle));
    drop(in);
}

static void check_reducescatter(int64_t rows, int in_place)
{
    int64_t mine = share(rows, rank), at = before(rows, rank), found, shape[2] = {rows, COLUMNS};
    int32_t *in = buffer(rows);
    fill(in, rows);
    dtrain_tensor_t tensor =
        tensor_of("reducescatter", in, in_place ? in + at * COLUMNS : NULL, shape);
    dtrain_handle_t handle;
    CHECK_OK(dtrain_reducescatter_async(&tensor, NULL, &handle));
    const int32_t *out = wait_output(handle, &found);
    CHECK(found == mine && has_sums(out, at, mine));
    CHECK_OK(dtrain_release(handle));
    drop(in);
}

static void check_scatter(int64_t rows, int root)
{
    int64_t mine = share(rows, rank), found, shape[2] = {rows, COLUMNS};
    int32_t *in = rank == root ? buffer(rows) : NULL, *out = buffer(mine);
    if (in)
        fill(in, rows);
    dtrain_tensor_t tensor = tensor_of("scatter", in, out, shape);
    dtrain_handle_t handle;
    CHECK_OK(dtrain_scatter_async(&tensor, root, NULL, &handle));
    CHECK(wait_output(handle, &found) == out);
    CHECK(found == mine && has_rows(out, root, before(rows, rank), mine));
    CHECK_OK(dtrain_release(handle));
    drop(out);
    if (in)
        drop(in);
}

static void check_reduce(int64_t rows, int root)
{
    int32_t *in = buffer(rows), *out = buffer(rows);
    fill(in, rows);
    CHECK_OK(
        dtrain_reduce("reduce", in, out, rows * COLUMNS, DTRAIN_DTYPE_I32, DTRAIN_OP_SUM, root));
    CHECK(rank == root ? has_sums(out, 0, rows) : out[0] == 0x5a5a5a5a);
    drop(in);
    drop(out);
}

/* A ring: all send at once, with an allreduce between. */
static void check_transfers(int64_t rows)
{
    if (size == 1)
        return;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int64_t shape[2] = {rows, COLUMNS};
    char sent[32], received[32];
    snprintf(sent, sizeof sent, "%d to %d", rank, to);
    snprintf(received, sizeof received, "%d to %d", from, rank);
    int32_t *in = buffer(rows), *out = buffer(rows);
    fill(in, rows);
    dtrain_handle_t handles[2];
    dtrain_tensor_t tensor = tensor_of(sent, in, NULL, shape);
    CHECK_OK(dtrain_send_async(&tensor, to, NULL, &handles[0]));
    check_works("between");
    tensor = tensor_of(received, NULL, out, shape);
    CHECK_OK(dtrain_recv_async(&tensor, from, NULL, &handles[1]));
    CHECK_OK(dtrain_wait_all(handles, 2, NULL));
    CHECK(has_rows(out, from, 0, rows));
    CHECK_OK(dtrain_release(handles[0]));
    CHECK_OK(dtrain_release(handles[1]));
    drop(in);
    drop(out);
}

/* Short sums that have an id, and of which a rank changes its priority now and then. */
static void check_priorities(void)
{
    for (int round = 0; round < 30; round++) {
        float sum = 1;
        int64_t one = 1;
        dtrain_tensor_t tensor = tensor_of("priority", &sum, &sum, &one);
        tensor.ndim = 1;
        tensor.dtype = DTRAIN_DTYPE_F32;
        dtrain_options_t options = {.struct_size = sizeof options,
                                    .priority = rank == round % size && round % 4 == 3 ? 7 : 1};
        dtrain_handle_t handle;
        CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle));
        CHECK_OK(check_finish(handle));
        CHECK(sum == (float)size);
    }
}

static void check_shorthands(void)
{
    int32_t in[16], out[16], all[16 * 16];
    for (int i = 0; i < 16; i++)
        in[i] = value(rank, i);
    CHECK_OK(dtrain_allgather("ag", in, all, 16, DTRAIN_DTYPE_I32));
    for (int r = 0; r < size; r++)
        CHECK(all[16 * r + 5] == value(r, 5));
    CHECK_OK(dtrain_alltoall("a2a", in, out, 2 * size, DTRAIN_DTYPE_I32));
    for (int r = 0; r < size; r++)
        CHECK(out[2 * r + 1] == value(r, 2 * rank + 1));
    CHECK_OK(dtrain_reducescatter("rs", in, out, size, DTRAIN_DTYPE_I32, DTRAIN_OP_MAX));
    CHECK(out[0] == value(size - 1, rank));
    CHECK_OK(dtrain_gather("g", in, all, 16, DTRAIN_DTYPE_I32, size - 1));
    for (int r = 0; r < size; r++)
        CHECK(rank < size - 1 || all[16 * r + 6] == value(r, 6));
    CHECK_OK(dtrain_scatter("s", in, out, 2 * size, DTRAIN_DTYPE_I32, size - 1));
    CHECK(out[1] == value(size - 1, 2 * rank + 1));
    if (size > 1 && rank < 2) {
        CHECK_OK(rank == 0 ? dtrain_send("p2p", in, 16, DTRAIN_DTYPE_I32, 1)
                           : dtrain_recv("p2p", out, 16, DTRAIN_DTYPE_I32, 0));
        CHECK(rank == 0 || out[15] == value(0, 15));
    }
    /* The output is not for the library to provide, since the call frees what it would. */
    CHECK_STATUS(dtrain_allgather("ag", in, NULL, 16, DTRAIN_DTYPE_I32),
                 DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("NULL");
    CHECK_STATUS(dtrain_reducescatter("rs", in, NULL, size, DTRAIN_DTYPE_I32, DTRAIN_OP_MAX),
                 DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gather("g", in, NULL, 16, DTRAIN_DTYPE_I32, 0),
                 rank == 0 || size > 1 ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_OK);
    check_works("after");
}

/* ---- Mismatches
 * ------------------------------------------------------------------------------------ */

static void check_mismatch(const char *name, dtrain_status_t wanted, const char *text,
                           dtrain_status_t status, dtrain_handle_t handle)
{
    if (status == DTRAIN_OK)
        status = check_finish(handle);
    CHECK_STATUS(status, wanted);
    CHECK_ERROR_HAS(name);
    CHECK_ERROR_HAS(text);
}

static void check_mismatches(void)
{
    int is_odd = rank == size - 1;
    int32_t *in = buffer(64), *out = buffer(64 * size);
    int64_t shape[2] = {16, is_odd ? COLUMNS - 1 : COLUMNS};
    dtrain_tensor_t tensor = tensor_of("m", in, NULL, shape);
    dtrain_handle_t handle = 0;
    dtrain_status_t status = dtrain_allgather_async(&tensor, NULL, &handle);
    check_mismatch("allgather 'm'", DTRAIN_ERR_MISMATCH, "[*, 2]", status, handle);
    shape[1] = COLUMNS;
    status = dtrain_reducescatter_async(&tensor, NULL, &handle);
    if (status == DTRAIN_OK)
        status = check_finish(handle);
    CHECK_OK(status);
    status = is_odd ? dtrain_gather_async(&tensor, 1, NULL, &handle)
                    : dtrain_gather_async(&tensor, 0, NULL, &handle);
    check_mismatch("gather 'm'", DTRAIN_ERR_MISMATCH, "roots differ", status, handle);
    tensor.out = out;
    tensor.out_bytes = is_odd ? 4 : 64 * size * COLUMNS * 4;
    status = dtrain_allgather_async(&tensor, NULL, &handle);
    check_mismatch("allgather 'm'", DTRAIN_ERR_INVALID_ARGUMENT, "has room for 4 bytes", status,
                   handle);
    int64_t splits[16] = {0};
    splits[0] = is_odd ? 17 : 16;
    status = dtrain_alltoall_async(&tensor, splits, size, NULL, &handle);
    check_mismatch("alltoall 'm'", DTRAIN_ERR_INVALID_ARGUMENT, "is 17", status, handle);
    shape[0] = 0;
    status = dtrain_allgather_async(&tensor, NULL, &handle);
    if (status == DTRAIN_OK)
        status = check_finish(handle);
    CHECK_OK(status);
    drop(in);
    drop(out);
}

int main(void)
{
    static const int64_t counts[] = {0, 1, 5, 1000, 120000};
    check_begin("operations", 100);
    CHECK_OK(check_init(0));
    rank = dtrain_rank();
    size = dtrain_size();
    for (is_librarys = 0; is_librarys < 2; is_librarys++) {
        for (int i = 0; i < 5; i++) {
            for (int again = 0; again < 2;
                 again++) { /* the second time by its id, the last in place */
                int root = (i + again) % size;
                check_allgather(counts[i], again);
                check_gather(counts[i], root);
                check_alltoall(counts[i]);
                check_reducescatter(counts[i], again);
                check_scatter(counts[i], root);
                check_reduce(counts[i], root);
                check_transfers(counts[i]);
            }
        }
        check_shorthands();
        check_priorities();
        if (size > 1)
            check_mismatches();
    }
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
