/* Once for real: tensors of more than 2^31 elements, of int8. Needs some 14 GiB for two ranks. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define COUNT ((INT64_C(1) << 31) + 12345678)
#define NEEDED_KIB (INT64_C(14) << 20)

static int rank, size;

static int64_t available_kib(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    static const char label[] = "MemAvailable:";
    int64_t kib = 0;
    while (file && kib == 0 && fgets(line, sizeof line, file)) {
        if (strncmp(line, label, strlen(label)) == 0)
            kib = strtoll(line + strlen(label), NULL, 10);
    }
    if (file)
        fclose(file);
    return kib;
}

static int8_t value(int from, int64_t i)
{
    return (int8_t)((i * 31 + i / 65537 + from * 5) % 50);
}

static void fill(int8_t *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = value(rank, i);
}

static int64_t count_wrong(const int8_t *at, int from, int64_t first, int64_t count)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += at[i] != value(from, first + i);
    return wrong;
}

static int64_t count_wrong_sums(const int8_t *at, int64_t first, int64_t count)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        int sum = 0;
        for (int r = 0; r < size; r++)
            sum += value(r, first + i);
        wrong += at[i] != (int8_t)sum;
    }
    return wrong;
}

static void check_rows(int8_t *in, int8_t *out)
{
    int64_t shape = COUNT, splits[2], found = 0;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = "large",
                              .in = in,
                              .out = out,
                              .shape = &shape,
                              .dtype = DTRAIN_DTYPE_I8,
                              .out_bytes = 2 * COUNT};
    dtrain_handle_t handle;
    /* All but one element of each rank go to rank 1: pieces of more than 2^31 elements. */
    splits[0] = 1;
    splits[1] = COUNT - 1;
    fill(in, COUNT);
    CHECK_OK(dtrain_alltoall_async(&tensor, splits, 2, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    CHECK_OK(dtrain_output(handle, NULL, &found, NULL));
    CHECK(found == (rank == 0 ? 2 : 2 * (COUNT - 1)));
    CHECK(count_wrong(out, 0, rank, found / 2) == 0);
    CHECK(count_wrong(out + found / 2, 1, rank, found / 2) == 0);
    CHECK_OK(dtrain_release(handle));
    shape = rank == 0 ? COUNT : 3;
    CHECK_OK(dtrain_allgather_async(&tensor, NULL, &handle));
    CHECK_OK(dtrain_wait(handle));
    CHECK_OK(dtrain_output(handle, NULL, &found, NULL));
    CHECK(found == COUNT + 3);
    CHECK(count_wrong(out, 0, 0, COUNT) == 0 && count_wrong(out + COUNT, 1, 0, 3) == 0);
    CHECK_OK(dtrain_release(handle));
}

int main(void)
{
    check_begin("large", 550);
    CHECK_OK(check_init(500000));
    rank = dtrain_rank();
    size = dtrain_size();
    int64_t have = available_kib();
    int32_t enough = have >= NEEDED_KIB;
    CHECK_OK(dtrain_allreduce("enough", &enough, &enough, 1, DTRAIN_DTYPE_I32, DTRAIN_OP_MIN));
    if (!enough) {
        printf("skipped: needs %lld KiB of memory, and %lld are available\n", (long long)NEEDED_KIB,
               (long long)have);
        CHECK_OK(dtrain_shutdown());
        return 77;
    }
    int8_t *in = malloc((size_t)COUNT), *out = malloc(2 * (size_t)COUNT);
    if (!CHECK(in && out))
        return check_end();
    fill(in, COUNT);
    CHECK_OK(dtrain_allreduce("large", in, in, COUNT, DTRAIN_DTYPE_I8, DTRAIN_OP_SUM));
    CHECK(count_wrong_sums(in, 0, COUNT) == 0);
    fill(in, COUNT);
    CHECK_OK(dtrain_reducescatter("large", in, out, COUNT, DTRAIN_DTYPE_I8, DTRAIN_OP_SUM));
    int64_t share = COUNT / 2, first = rank == 0 ? 0 : COUNT - share;
    CHECK(count_wrong_sums(out, first, share) == 0);
    CHECK_OK(dtrain_broadcast("large", in, COUNT, DTRAIN_DTYPE_I8, 1));
    CHECK(count_wrong(in, 1, 0, COUNT) == 0);
    CHECK_OK(rank == 0 ? dtrain_recv("large", out, COUNT, DTRAIN_DTYPE_I8, 1)
                       : dtrain_send("large", in, COUNT, DTRAIN_DTYPE_I8, 0));
    CHECK(rank == 1 || count_wrong(out, 1, 0, COUNT) == 0);
    check_rows(in, out);
    free(in);
    free(out);
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
