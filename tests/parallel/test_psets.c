/* Process sets and join. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define LONG_COUNT (1 << 18)

static int rank, size;

static dtrain_status_t reduce_on(dtrain_pset_t pset, const char *name, float *values, int64_t count,
                                 dtrain_op_t op)
{
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .ndim = 1,
                              .name = name,
                              .in = values,
                              .out = values,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32};
    dtrain_options_t options = {.struct_size = sizeof options, .op = op, .pset = pset};
    dtrain_handle_t handle;
    dtrain_status_t status = dtrain_allreduce_async(&tensor, &options, &handle);
    return status == DTRAIN_OK ? check_finish(handle) : status;
}

/* ---- Sets --------------------------------------------------------------------------------------
 */

/* Ranks first, first + step, … of the world, in falling order. */
static int list_ranks(int first, int step, int *ranks)
{
    int n = 0;
    for (int r = size - 1; r >= 0; r--) {
        if (r >= first && (r - first) % step == 0)
            ranks[n++] = r;
    }
    return n;
}

static void check_set(int first, int step, float *values)
{
    int ranks[64], listed[64], n = list_ranks(first, step, ranks), own, included, count;
    dtrain_pset_t pset = 0;
    CHECK_OK(dtrain_pset_add(ranks, n, &pset));
    CHECK(pset > 0);
    CHECK_OK(dtrain_pset_size(pset, &count));
    CHECK(count == n);
    CHECK_OK(dtrain_pset_ranks(pset, listed, 64, &count));
    CHECK(count == n && memcmp(listed, ranks, (size_t)n * sizeof ranks[0]) == 0);
    CHECK_OK(dtrain_pset_ranks(pset, NULL, 0, &count));
    CHECK(count == n);
    CHECK_OK(dtrain_pset_rank(pset, &own));
    CHECK_OK(dtrain_pset_included(pset, &included));
    CHECK(included == (own >= 0));
    if (own >= 0) {
        float sum = 0;
        CHECK(ranks[own] == rank);
        for (int i = 0; i < n; i++)
            sum += (float)ranks[i];
        /* Short and long, several times: with an id and without. */
        for (int i = 0; i < 6; i++) {
            int64_t length = i % 2 ? LONG_COUNT : 3;
            for (int64_t k = 0; k < length; k++)
                values[k] = (float)rank;
            CHECK_OK(reduce_on(pset, i % 2 ? "long" : "short", values, length,
                               i < 3 ? DTRAIN_OP_SUM : DTRAIN_OP_AVERAGE));
            float wanted = i < 3 ? sum : sum / (float)n;
            CHECK(values[0] == wanted && values[length - 1] == wanted);
        }
    }
    check_works("long");
    CHECK_OK(dtrain_pset_remove(pset));
    CHECK_STATUS(dtrain_pset_size(pset, &count), DTRAIN_ERR_INVALID_ARGUMENT);
}

static void check_sets(void)
{
    float *private = malloc(LONG_COUNT * sizeof *private);
    void *shared = NULL;
    CHECK_OK(dtrain_mem_alloc(&shared, LONG_COUNT * sizeof(float), DTRAIN_DEVICE_CPU));
    for (int step = 1; step <= 3; step++) {
        for (int first = 0; first < size; first++) {
            check_set(first, step, private);
            check_set(first, step, shared);
        }
    }
    CHECK_OK(dtrain_mem_free(shared));
    free(private);
}

/* Overlapping sets and the world at once, in an order of each rank's own. */
static void check_interleaved(void)
{
    enum { SETS = 4, ROUNDS = 30 };
    int ranks[SETS][64], n[SETS];
    dtrain_pset_t ids[SETS] = {DTRAIN_PSET_WORLD};
    n[0] = list_ranks(0, 1, ranks[0]);
    for (int s = 1; s < SETS; s++) {
        n[s] = list_ranks(s == 3 ? 1 % size : 0, s == 2 ? 2 : 1, ranks[s]);
        CHECK_OK(dtrain_pset_add(ranks[s], n[s], &ids[s]));
    }
    int64_t count = 100;
    for (int round = 0; round < ROUNDS; round++) {
        float values[SETS][100];
        dtrain_handle_t handles[SETS] = {0};
        for (int i = 0; i < SETS; i++) {
            int s = (i + rank + round) % SETS, included;
            dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                                      .ndim = 1,
                                      .name = "x",
                                      .in = values[s],
                                      .out = values[s],
                                      .shape = &count,
                                      .dtype = DTRAIN_DTYPE_F32};
            dtrain_options_t options = {.struct_size = sizeof options, .pset = ids[s]};
            CHECK_OK(dtrain_pset_included(ids[s], &included));
            for (int k = 0; k < 100; k++)
                values[s][k] = (float)(rank + k);
            if (included)
                CHECK_OK(dtrain_allreduce_async(&tensor, &options, &handles[s]));
        }
        for (int s = 0; s < SETS; s++) {
            float sum = 0;
            for (int i = 0; i < n[s]; i++)
                sum += (float)(ranks[s][i] + 7);
            if (handles[s]) {
                CHECK_OK(check_finish(handles[s]));
                CHECK(values[s][7] == sum);
            }
        }
    }
    for (int s = 1; s < SETS; s++)
        CHECK_OK(dtrain_pset_remove(ids[s]));
}

/* A rank outside a set calls on it; ranks register different sets. */
static void check_disagreement(void)
{
    int none = -3, all[64], n = list_ranks(0, 1, all);
    dtrain_pset_t pset = 0;
    float value = 1;
    CHECK_STATUS(dtrain_pset_add(all, rank == 0 ? n : n - 1, &pset), DTRAIN_ERR_MISMATCH);
    CHECK_ERROR_HAS("rank 0: ");
    CHECK_STATUS(dtrain_pset_add(&none, 1, &pset), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_pset_add(rank == 0 ? NULL : all, n, &pset), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_pset_add(all, n, rank == 0 ? NULL : &pset), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("NULL");
    CHECK_STATUS(dtrain_pset_remove(DTRAIN_PSET_WORLD), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_OK(dtrain_pset_add(all, n - 1, &pset)); /* without rank 0 */
    if (rank == 0)
        CHECK_STATUS(reduce_on(pset, "x", &value, 1, DTRAIN_OP_SUM), DTRAIN_ERR_INVALID_ARGUMENT);
    check_works("meet");
    if (rank > 0) {
        CHECK_STATUS(reduce_on(pset, "x", &value, 1, DTRAIN_OP_SUM), DTRAIN_ERR_INVALID_ARGUMENT);
        CHECK_ERROR_HAS("rank 0 is not in process set");
        value = 1;
        CHECK_OK(reduce_on(pset, "x", &value, 1, DTRAIN_OP_SUM));
        CHECK(value == (float)(size - 1));
    }
    CHECK_OK(dtrain_pset_remove(pset));
    CHECK_STATUS(reduce_on(pset, "x", &value, 1, DTRAIN_OP_SUM), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_pset_rank(DTRAIN_PSET_WORLD, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_pset_ranks(DTRAIN_PSET_WORLD, NULL, 3, &none), DTRAIN_ERR_INVALID_ARGUMENT);
}

static void check_configured(void)
{
    dtrain_config_t config;
    int count, ranks[2];
    setenv("DTRAIN_PROCESS_SETS", "0,99", 1);
    CHECK_STATUS(dtrain_init(NULL), DTRAIN_ERR_CONFIG);
    CHECK_ERROR_HAS("DTRAIN_PROCESS_SETS");
    unsetenv("DTRAIN_PROCESS_SETS");
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    CHECK_OK(dtrain_config_set(&config, "process_sets", "1,0;0"));
    CHECK_OK(dtrain_init(&config));
    CHECK_OK(dtrain_pset_ranks(1, ranks, 2, &count));
    CHECK(count == 2 && ranks[0] == 1 && ranks[1] == 0);
    CHECK_OK(dtrain_pset_size(2, &count));
    CHECK(count == 1);
    float value = (float)(dtrain_rank() + 1);
    if (dtrain_rank() < 2) {
        CHECK_OK(reduce_on(1, "x", &value, 1, DTRAIN_OP_SUM));
        CHECK(value == 3);
    }
    CHECK_OK(dtrain_shutdown());
}

/* ---- Join --------------------------------------------------------------------------------------
 */

/* Rank r has 2 r + 3 steps; what takes part in step s are the ranks that have one. */
static void check_join(float *values, int64_t count)
{
    int last = -1;
    for (int step = 0; step < 2 * rank + 3; step++) {
        float sum = 0, present = 0;
        for (int r = 0; r < size; r++) {
            sum += step < 2 * r + 3 ? (float)r : 0;
            present += step < 2 * r + 3;
        }
        for (int64_t k = 0; k < count; k++)
            values[k] = (float)rank;
        CHECK_OK(reduce_on(DTRAIN_PSET_WORLD, "gradient", values, count,
                           step % 2 ? DTRAIN_OP_SUM : DTRAIN_OP_AVERAGE));
        float wanted = step % 2 ? sum : sum / present;
        CHECK(values[0] == wanted && values[count - 1] == wanted);
        CHECK_OK(dtrain_barrier());
    }
    CHECK_OK(dtrain_join(&last));
    CHECK(last == size - 1);
    CHECK_OK(dtrain_broadcast("weights", values, count, DTRAIN_DTYPE_F32, last));
    check_works("gradient");
}

static void check_join_handle(void)
{
    dtrain_handle_t handle, second;
    int last = -1;
    CHECK_OK(dtrain_join_async(NULL, &handle));
    CHECK_STATUS(dtrain_join_last_rank(handle, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_OK(dtrain_wait(handle));
    CHECK_OK(dtrain_join_last_rank(handle, &last));
    CHECK(last >= 0 && last < size);
    CHECK_OK(dtrain_release(handle));
    CHECK_STATUS(dtrain_join_last_rank(handle, &last), DTRAIN_ERR_INVALID_HANDLE);
    CHECK_OK(dtrain_barrier_async(NULL, &second));
    CHECK_STATUS(dtrain_join_last_rank(second, &last), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_OK(check_finish(second));
    CHECK_OK(dtrain_join(NULL));
}

/* Far more sets over a job's life than there can be at a time. */
static void check_many_cycles(void)
{
    int cycles = size <= 2 ? 10000 : 300, num_failed = 0;
    int *ranks = calloc((size_t)size, sizeof *ranks);
    for (int i = 0; i < size; i++)
        ranks[i] = size - 1 - i;
    dtrain_pset_t before = 0;
    for (int cycle = 0; cycle < cycles && num_failed == 0; cycle++) {
        dtrain_pset_t pset = 0;
        float value = (float)(rank + cycle);
        int64_t one = 1;
        dtrain_handle_t handle;
        num_failed += dtrain_pset_add(ranks, size, &pset) != DTRAIN_OK || pset <= before;
        before = pset;
        dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                                  .ndim = 1,
                                  .name = "cycle",
                                  .in = &value,
                                  .out = &value,
                                  .shape = &one,
                                  .dtype = DTRAIN_DTYPE_F32};
        dtrain_options_t options = {
            .struct_size = sizeof options, .op = DTRAIN_OP_MAX, .pset = pset};
        num_failed += dtrain_allreduce_async(&tensor, &options, &handle) != DTRAIN_OK ||
                      check_finish(handle) != DTRAIN_OK || value != (float)(size - 1 + cycle);
        num_failed += dtrain_pset_remove(pset) != DTRAIN_OK;
    }
    CHECK(num_failed == 0);
    free(ranks);
}

int main(void)
{
    check_begin("test_psets", 100);
    CHECK_STATUS(dtrain_join(NULL), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_OK(check_init(20000));
    rank = dtrain_rank();
    size = dtrain_size();
    float *values = malloc(LONG_COUNT * sizeof *values);
    check_sets();
    check_interleaved();
    if (size > 1)
        check_disagreement();
    for (int i = 0; i < 3; i++) {
        check_join(values, 5);
        check_join(values, LONG_COUNT);
    }
    check_join_handle();
    check_many_cycles();
    free(values);
    CHECK_OK(dtrain_shutdown());
    if (size > 1)
        check_configured();
    return check_end();
}
