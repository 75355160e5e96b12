/* Operations whose rows differ by rank and from one time to the next, under names that have an id:
 * what ranks tell each other of them goes with the report, where they share memory. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define ROUNDS 24
#define COLUMNS 3
#define ROWS_MAX 5

static int rank, size;

static int64_t rows_of(int from, int round)
{
    return (from * 7 + round * 5) % (ROWS_MAX + 1);
}

static int32_t value(int from, int to, int64_t element)
{
    return (int32_t)(from * 10007 + to * 101 + element);
}

/* Whether `out` has what rank `from` sends to `to`; goes on behind it. */
static int has_part(const int32_t **out, int from, int to, int64_t rows)
{
    int is_right = 1;
    for (int64_t i = 0; i < rows * COLUMNS; i++)
        is_right &= (*out)[i] == value(from, to, i);
    *out += rows * COLUMNS;
    return is_right;
}

static dtrain_tensor_t tensor_of(const char *name, const void *in, void *out, const int64_t *shape)
{
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 2,
                              .name = name,
                              .in = in,
                              .out = out,
                              .shape = shape,
                              .dtype = DTRAIN_DTYPE_I32,
                              .out_bytes = (int64_t)size * ROWS_MAX * COLUMNS * 4};
    return tensor;
}

/* An output is the library's now and then, on some rank; or too small, which fails on all. */
static dtrain_status_t outcome(dtrain_tensor_t *tensor, int round, int64_t needed)
{
    int culprit = round % size;
    if (round % 4 == 2 && rank == culprit)
        tensor->out = NULL;
    if (round % 4 == 3 && rank == culprit)
        tensor->out_bytes = needed - 1;
    if (round % 4 == 2 && rank == culprit)
        tensor->out_bytes = 0;
    return round % 4 == 3 ? DTRAIN_ERR_INVALID_ARGUMENT : DTRAIN_OK;
}

/* Waits, and returns the output, NULL after an error. */
static const int32_t *finish(dtrain_handle_t handle, dtrain_status_t wanted)
{
    const void *out = NULL;
    CHECK_STATUS(dtrain_wait(handle), wanted);
    if (wanted != DTRAIN_OK) {
        CHECK_ERROR_HAS("the output has room for");
        return NULL;
    }
    CHECK_OK(dtrain_output(handle, &out, NULL, NULL));
    return out;
}

static void check_gathers(int32_t *in, int32_t *out, int round, int root)
{
    int64_t shape[2] = {rows_of(rank, round), COLUMNS}, total = 0;
    for (int from = 0; from < size; from++)
        total += rows_of(from, round);
    for (int64_t i = 0; i < shape[0] * COLUMNS; i++)
        in[i] = value(rank, 0, i);
    dtrain_tensor_t tensor = tensor_of(root < 0 ? "allgather" : "gather", in, out, shape);
    dtrain_status_t wanted = DTRAIN_OK;
    if (total > 0 && (root < 0 || root == round % size))
        wanted = outcome(&tensor, round, total * COLUMNS * 4);
    dtrain_handle_t handle;
    CHECK_OK(root < 0 ? dtrain_allgather_async(&tensor, NULL, &handle)
                      : dtrain_gather_async(&tensor, root, NULL, &handle));
    const int32_t *got = finish(handle, wanted);
    for (int from = 0; from < size && got && (root < 0 || root == rank); from++)
        CHECK(has_part(&got, from, 0, rows_of(from, round)));
    CHECK_OK(dtrain_release(handle));
}

static void check_alltoall(int32_t *in, int32_t *out, int round)
{
    int64_t splits[64], shape[2] = {0, COLUMNS}, needed = 0;
    for (int to = 0; to < size; to++) {
        splits[to] = rows_of(rank + to, round);
        for (int64_t i = 0; i < splits[to] * COLUMNS; i++)
            in[shape[0] * COLUMNS + i] = value(rank, to, i);
        shape[0] += splits[to];
    }
    int fails = 0;
    for (int from = 0; from < size; from++) {
        needed += rows_of(from + rank, round);
        fails += (int)rows_of(from + round % size, round);
    }
    dtrain_tensor_t tensor = tensor_of("alltoall", in, out, shape);
    dtrain_status_t wanted = fails ? outcome(&tensor, round, needed * COLUMNS * 4) : DTRAIN_OK;
    dtrain_handle_t handle;
    CHECK_OK(dtrain_alltoall_async(&tensor, splits, size, NULL, &handle));
    const int32_t *got = finish(handle, wanted);
    for (int from = 0; from < size && got; from++)
        CHECK(has_part(&got, from, rank, rows_of(from + rank, round)));
    CHECK_OK(dtrain_release(handle));
}

int main(void)
{
    check_begin("test_sizes", 90);
    CHECK_OK(check_init(0));
    rank = dtrain_rank();
    size = dtrain_size();
    size_t room = (size_t)size * ROWS_MAX * COLUMNS + 1;
    int32_t *in = calloc(room, sizeof *in), *out = calloc(room, sizeof *out);
    for (int round = 0; round < ROUNDS; round++) {
        check_gathers(in, out, round, -1);
        check_gathers(in, out, round, size - 1);
        check_alltoall(in, out, round);
        check_works("between");
    }
    CHECK_OK(dtrain_shutdown());
    free(in);
    free(out);
    return check_end();
}
