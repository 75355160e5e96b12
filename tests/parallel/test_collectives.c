/* Every collective, type and reduction through the public API, against values known beforehand. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int rank, size;

/* ---- Values of every type ----------------------------------------------------------------------
 */

#define COUNT 41

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Whole numbers from 0 to 2048. */
static uint16_t to_f16(int value)
{
    if (value == 0)
        return 0;
    int exponent = 31 - __builtin_clz((unsigned)value);
    return (uint16_t)((exponent + 15) << 10 | ((value << (10 - exponent)) & 0x3ff));
}

static void put(void *buffer, dtrain_dtype_t dtype, int i, int value)
{
    size_t bytes = dtrain_dtype_size(dtype);
    char *at = (char *)buffer + (size_t)i * bytes;
    int64_t integer = value;
    float single = (float)value;
    double wide = value;
    uint16_t half = dtype == DTRAIN_DTYPE_F16 ? to_f16(value) : to_bf16(single);
    if (dtype == DTRAIN_DTYPE_F32)
        memcpy(at, &single, bytes);
    else if (dtype == DTRAIN_DTYPE_F64)
        memcpy(at, &wide, bytes);
    else if (dtype == DTRAIN_DTYPE_F16 || dtype == DTRAIN_DTYPE_BF16)
        memcpy(at, &half, bytes);
    else
        memcpy(at, &integer, bytes);
}

/* Chosen so that every result is a small whole number: exact in every type, 7 ranks or fewer. */
static int input(dtrain_op_t op, dtrain_dtype_t dtype, int r, int i)
{
    if (dtype == DTRAIN_DTYPE_BOOL)
        return (r + i) % 3 == 0;
    if (op == DTRAIN_OP_AVERAGE)
        return 8 + i % 5 + 2 * r - (size - 1);
    if (op == DTRAIN_OP_PRODUCT)
        return 1 + ((r + i) % 2 && r < 6);
    return 1 + (r * 5 + i) % 7;
}

static int result(dtrain_op_t op, dtrain_dtype_t dtype, int i)
{
    int value = input(op, dtype, 0, i);
    int is_bool = dtype == DTRAIN_DTYPE_BOOL;
    for (int r = 1; r < size; r++) {
        int next = input(op, dtype, r, i);
        if (op == DTRAIN_OP_MIN)
            value = next < value ? next : value;
        else if (op == DTRAIN_OP_MAX)
            value = next > value ? next : value;
        else if (op == DTRAIN_OP_PRODUCT)
            value = value * next;
        else
            value = is_bool ? value || next : value + next;
    }
    return op == DTRAIN_OP_AVERAGE ? value / size : value;
}

static void check_reduction(dtrain_dtype_t dtype, dtrain_op_t op, int in_place)
{
    char in[COUNT * 8], out[COUNT * 8], wanted[COUNT * 8], name[64];
    for (int i = 0; i < COUNT; i++) {
        put(in, dtype, i, input(op, dtype, rank, i));
        put(wanted, dtype, i, result(op, dtype, i));
    }
    void *to = in_place ? in : out;
    snprintf(name, sizeof name, "%s of %s, in place %d", dtrain_op_name(op),
             dtrain_dtype_name(dtype), in_place);
    CHECK_OK(dtrain_allreduce(name, in, to, COUNT, dtype, op));
    check_that(memcmp(to, wanted, COUNT * dtrain_dtype_size(dtype)) == 0, name, __FILE__, __LINE__);
}

static void check_reductions(void)
{
    for (int dtype = DTRAIN_DTYPE_U8; dtype <= DTRAIN_DTYPE_I16; dtype++) {
        for (int op = DTRAIN_OP_SUM; op <= DTRAIN_OP_PRODUCT; op++) {
            if (dtype == DTRAIN_DTYPE_BOOL && op == DTRAIN_OP_AVERAGE)
                continue;
            check_reduction((dtrain_dtype_t)dtype, (dtrain_op_t)op, 0);
            check_reduction((dtrain_dtype_t)dtype, (dtrain_op_t)op, 1);
        }
    }
}

/* ---- Sizes
 * --------------------------------------------------------------------------------------- */

static void check_count(int64_t count)
{
    char name[64];
    snprintf(name, sizeof name, "count %lld", (long long)count);
    int32_t *in = malloc(((size_t)count + 1) * sizeof *in);
    int32_t *out = malloc(((size_t)count + 1) * sizeof *out);
    if (!CHECK(in && out))
        return;
    for (int64_t i = 0; i <= count; i++) {
        in[i] = (int32_t)(i * 7 + rank * 13);
        out[i] = -5;
    }
    CHECK_OK(dtrain_allreduce(name, in, out, count, DTRAIN_DTYPE_I32, DTRAIN_OP_SUM));
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad += out[i] != (int32_t)(i * 7 * size + 13 * size * (size - 1) / 2);
    check_that(bad == 0 && out[count] == -5, name, __FILE__, __LINE__);
    CHECK_OK(dtrain_allreduce(name, in, in, count, DTRAIN_DTYPE_I32, DTRAIN_OP_SUM));
    check_that(memcmp(in, out, (size_t)count * sizeof *in) == 0, name, __FILE__, __LINE__);
    free(in);
    free(out);
}

static void check_broadcast(int root, int64_t count)
{
    char name[64];
    snprintf(name, sizeof name, "broadcast of %lld from %d", (long long)count, root);
    int32_t *values = malloc(((size_t)count + 1) * sizeof *values);
    if (!CHECK(values != NULL))
        return;
    for (int64_t i = 0; i <= count; i++)
        values[i] = rank == root ? (int32_t)(i * 3 + root) : -1;
    values[count] = -7;
    CHECK_OK(dtrain_broadcast(name, values, count, DTRAIN_DTYPE_I32, root));
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad += values[i] != (int32_t)(i * 3 + root);
    check_that(bad == 0 && values[count] == -7, name, __FILE__, __LINE__);
    free(values);
}

static void check_sizes(void)
{
    static const int64_t counts[] = {0, 1, 2, 15, 17, 1000, 16383, 16385, 100003, 1 << 20, 3000001};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        check_count(counts[i]);
    for (int root = 0; root < size; root++) {
        check_broadcast(root, 0);
        check_broadcast(root, 1);
        check_broadcast(root, 1000);
        check_broadcast(root, 300007);
    }
}

/* ---- Options and shapes
 * ----------------------------------------------------------------------------- */

static void check_options(void)
{
    float in[6] = {1, 2, 3, 4, 5, 6}, out[6];
    static const int64_t shape[2] = {2, 3}, empty[3] = {4, 0, 2};
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 2,
                              .name = "scaled",
                              .in = in,
                              .out = out,
                              .shape = shape,
                              .dtype = DTRAIN_DTYPE_F32};
    dtrain_options_t options = {.struct_size = sizeof options, .prescale = 0.5, .postscale = 4};
    dtrain_handle_t handle;
    CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handle));
    CHECK_OK(check_finish(handle));
    for (int i = 0; i < 6; i++)
        CHECK(out[i] == in[i] * 2 * (float)size);
    tensor.name = "scalar";
    tensor.ndim = 0;
    tensor.shape = NULL;
    CHECK_OK(dtrain_allreduce_async(&tensor, NULL, &handle));
    CHECK_OK(check_finish(handle));
    CHECK(out[0] == (float)size);
    CHECK(out[1] == in[1] * 2 * (float)size);
    tensor = (dtrain_tensor_t){.struct_size = sizeof tensor,
                               .ndim = 3,
                               .name = "empty",
                               .shape = empty,
                               .dtype = DTRAIN_DTYPE_F64};
    CHECK_OK(dtrain_allreduce_async(&tensor, NULL, &handle));
    CHECK_OK(check_finish(handle));
    CHECK_OK(dtrain_broadcast_async(&tensor, size - 1, NULL, &handle));
    CHECK_OK(check_finish(handle));
}

static void check_broadcast_buffers(void)
{
    int64_t values[3] = {rank, rank, rank}, copy[3] = {-1, -1, -1}, count = 3;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = "buffers",
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_I64};
    dtrain_handle_t handle;
    int root = size - 1;
    tensor.in = rank == root ? values : NULL;
    tensor.out = rank == root ? NULL : values; /* the root wants nothing written */
    CHECK_OK(dtrain_broadcast_async(&tensor, root, NULL, &handle));
    CHECK_OK(check_finish(handle));
    CHECK(values[0] == root && values[2] == root);
    tensor.out = copy;
    CHECK_OK(dtrain_broadcast_async(&tensor, root, NULL, &handle));
    CHECK_OK(check_finish(handle));
    CHECK(copy[0] == root && copy[2] == root);
}

/* ---- Many at once
 * -------------------------------------------------------------------------------------- */

#define MANY 300

/* Small and large ones, each rank in an order of its own; three times, so that bits are used. */
static void check_many(void)
{
    dtrain_handle_t handles[MANY], barriers[3];
    float *values[MANY];
    dtrain_status_t each[MANY];
    for (int i = 0; i < MANY; i++) {
        values[i] = malloc(sizeof(float) * (i % 50 ? 20 : 70000));
        if (!CHECK(values[i] != NULL))
            return;
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            int k = (i * 7 + rank * 31) % MANY, count = k % 50 ? 1 + k % 20 : 70000;
            char name[32];
            snprintf(name, sizeof name, "many.%d", k);
            for (int e = 0; e < count; e++)
                values[k][e] = (float)(k + rank);
            CHECK_OK(check_submit(name, values[k], count, 0, &handles[k]));
            if (i % 100 == 50)
                CHECK_OK(dtrain_barrier_async(NULL, &barriers[i / 100]));
        }
        CHECK_OK(dtrain_wait_all(handles, MANY, each));
        CHECK_OK(dtrain_wait_all(barriers, 3, NULL));
        int bad = 0;
        for (int k = 0; k < MANY; k++) {
            int count = k % 50 ? 1 + k % 20 : 70000;
            float wanted = (float)(k * size + size * (size - 1) / 2);
            for (int e = 0; e < count; e++)
                bad += values[k][e] != wanted;
            bad += each[k] != DTRAIN_OK || dtrain_release(handles[k]) != DTRAIN_OK;
        }
        for (int i = 0; i < 3; i++)
            bad += dtrain_release(barriers[i]) != DTRAIN_OK;
        CHECK(bad == 0);
    }
    for (int i = 0; i < MANY; i++)
        free(values[i]);
}

/* ---- Waiting
 * --------------------------------------------------------------------------------------------- */

static void check_waiting(void)
{
    float value = 1;
    dtrain_handle_t handle;
    int done = 0;
    if (rank == 0) {
        CHECK_OK(check_submit("waited for", &value, 1, 0, &handle));
        if (size > 1) {
            CHECK_STATUS(dtrain_wait_for(handle, 30), DTRAIN_IN_PROGRESS);
            CHECK_STATUS(dtrain_release(handle), DTRAIN_IN_PROGRESS);
            CHECK_OK(dtrain_poll(handle, &done));
            CHECK(done == 0);
        }
    }
    CHECK_OK(dtrain_barrier()); /* now the others submit it too */
    if (rank != 0)
        CHECK_OK(check_submit("waited for", &value, 1, 0, &handle));
    while (dtrain_wait_for(handle, 0) == DTRAIN_IN_PROGRESS) {
    }
    CHECK_OK(dtrain_poll(handle, &done));
    CHECK(done == 1 && value == (float)size);
    CHECK_OK(check_finish(handle));
    CHECK_STATUS(dtrain_wait(handle), DTRAIN_ERR_INVALID_HANDLE);
    CHECK_STATUS(dtrain_poll(handle, &done), DTRAIN_ERR_INVALID_HANDLE);
    CHECK_STATUS(dtrain_release(handle), DTRAIN_ERR_INVALID_HANDLE);
}

static void check_library_memory(void)
{
    void *memory = NULL;
    if (!CHECK_OK(dtrain_mem_alloc(&memory, 1 << 20, DTRAIN_DEVICE_CPU)))
        return;
    float *values = memory;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1 << 18; i++)
            values[i] = (float)(i % 100 + rank);
        CHECK_OK(dtrain_allreduce("library memory", values, values, 1 << 18, DTRAIN_DTYPE_F32,
                                  DTRAIN_OP_SUM));
        int bad = 0;
        for (int i = 0; i < 1 << 18; i++)
            bad += values[i] != (float)(i % 100 * size + size * (size - 1) / 2);
        CHECK(bad == 0);
    }
    CHECK_OK(dtrain_mem_free(memory));
}

int main(void)
{
    check_begin("test_collectives", 100);
    if (!CHECK_OK(check_init(0)))
        return check_end();
    rank = dtrain_rank();
    size = dtrain_size();
    check_reductions();
    check_sizes();
    check_options();
    check_broadcast_buffers();
    check_many();
    check_waiting();
    check_library_memory();
    for (int i = 0; i < 20; i++)
        CHECK_OK(dtrain_barrier());
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
