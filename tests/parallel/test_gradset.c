/* Gradient sets through the public API, under mpirun: bits, errors, and a rank that is lost. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define PARAMS 5

static const int64_t counts[PARAMS] = {60000, 17, 1, 9000, 4096};
static char names[PARAMS][16];
static int rank, size;

static float value(int r, int step, int index, int64_t element)
{
    uint32_t bits = (uint32_t)(r * 7919 + step * 104729 + index * 1299709 + (int)element * 31);
    bits = bits * 2654435761u;
    bits ^= bits >> 15;
    return ((float)(bits >> 12) - 500000.0f) * (float)(1u << (bits % 20));
}

static float sum(int lo, int hi, int step, int index, int64_t element)
{
    if (hi - lo == 1)
        return value(lo, step, index, element);
    int half = 1;
    while (2 * half < hi - lo)
        half *= 2;
    return sum(lo, lo + half, step, index, element) + sum(lo + half, hi, step, index, element);
}

static dtrain_gradset_t *make(const dtrain_gradset_desc_t *desc)
{
    dtrain_param_t params[PARAMS];
    dtrain_gradset_t *set = NULL;
    for (int i = 0; i < PARAMS; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        params[i] = (dtrain_param_t){.struct_size = sizeof params[i],
                                     .name = names[i],
                                     .ndim = 1,
                                     .shape = &counts[i],
                                     .dtype = DTRAIN_DTYPE_F32};
    }
    CHECK_OK(dtrain_gradset_create(desc, params, PARAMS, &set));
    return set;
}

static float *buffer_of(dtrain_gradset_t *set, int index)
{
    void *buffer = NULL;
    CHECK_OK(dtrain_gradset_buffer(set, index, &buffer));
    return buffer;
}

static void mark(dtrain_gradset_t *set, int step, int index)
{
    float *buffer = buffer_of(set, index);
    for (int64_t e = 0; e < counts[index]; e++)
        buffer[e] = value(rank, step, index, e);
    CHECK_OK(dtrain_gradset_ready(set, index, NULL));
}

static void check_step(dtrain_gradset_t *set, int step)
{
    for (int i = 0; i < PARAMS; i++) {
        const float *buffer = buffer_of(set, i);
        int64_t wrong = 0;
        for (int64_t e = 0; e < counts[i]; e++)
            wrong += buffer[e] != sum(0, size, step, i, e);
        CHECK(wrong == 0);
    }
}

static void train(int64_t first_bytes, int64_t bytes)
{
    dtrain_gradset_desc_t desc = {.struct_size = sizeof desc,
                                  .name = "model",
                                  .first_bucket_bytes = first_bytes,
                                  .bucket_bytes = bytes};
    dtrain_gradset_t *set = make(&desc);
    for (int step = 0; set && step < 5; step++) {
        /* Not in the expected order, and every rank in another one. */
        for (int i = 0; i < PARAMS; i++)
            mark(set, step, (i + rank) % PARAMS);
        CHECK_OK(dtrain_gradset_wait(set));
        check_step(set, step);
    }
    dtrain_gradset_stats_t stats = {.struct_size = sizeof stats};
    CHECK_OK(dtrain_gradset_get_stats(set, &stats));
    CHECK(stats.is_frozen && stats.steps == 5 && stats.num_missing == 0);
    CHECK(stats.num_params == PARAMS && stats.num_buckets >= 1);
    CHECK_OK(dtrain_gradset_destroy(set));
}

/* A rank waits once more than the others. */
static void deviate(int who)
{
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc, .name = "model"};
    dtrain_gradset_t *set = make(&desc);
    char text[64];
    snprintf(text, sizeof text, "rank %d: 4 (with no gradient marked)", who);
    for (int step = 0; set && step < 6; step++) {
        int slips = step == 3 && size > 1;
        for (int i = 0; i < PARAMS && !(slips && rank == who); i++)
            mark(set, step, i);
        CHECK_STATUS(dtrain_gradset_wait(set), slips ? DTRAIN_ERR_MISMATCH : DTRAIN_OK);
        if (slips)
            CHECK_ERROR_HAS(text);
        else
            check_step(set, step);
    }
    CHECK_OK(dtrain_gradset_destroy(set));
}

/* The library's memory is reduced where it lies; the caller's is copied there and back. */
static void copies(void)
{
    enum { COUNT = 300000, STEPS = 3 };
    const int64_t count = COUNT, bytes = count * (int64_t)sizeof(float);
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc};
    float *own = calloc(COUNT, sizeof *own);
    for (int is_own = 0; is_own < 2 && own; is_own++) {
        dtrain_param_t param = {.struct_size = sizeof param,
                                .name = "w",
                                .ndim = 1,
                                .shape = &count,
                                .dtype = DTRAIN_DTYPE_F32,
                                .gradient = is_own ? own : NULL};
        dtrain_gradset_t *set = NULL;
        CHECK_OK(dtrain_gradset_create(&desc, &param, 1, &set));
        for (int step = 0; step < STEPS; step++) {
            CHECK_OK(dtrain_gradset_ready(set, 0, NULL));
            CHECK_OK(dtrain_gradset_wait(set));
        }
        dtrain_gradset_stats_t stats = {.struct_size = sizeof stats};
        CHECK_OK(dtrain_gradset_get_stats(set, &stats));
        /* On the way to other nodes there may be more. */
        int64_t least = is_own ? 2 * STEPS * bytes : 0;
        CHECK(dtrain_local_size() == dtrain_size() ? stats.copied_bytes == least
                                                   : stats.copied_bytes >= least);
        /* A program of the time before there was this field. */
        dtrain_gradset_stats_t old = {.struct_size = offsetof(dtrain_gradset_stats_t, copied_bytes),
                                      .copied_bytes = 77};
        CHECK_OK(dtrain_gradset_get_stats(set, &old));
        CHECK(old.steps == STEPS && old.copied_bytes == 77);
        CHECK_OK(dtrain_gradset_destroy(set));
    }
    CHECK(own);
    free(own);
}

static void arguments(void)
{
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc};
    dtrain_gradset_stats_t stats = {.struct_size = 4};
    dtrain_gradset_t *set = make(&desc);
    const int indices[2] = {1, PARAMS};
    void *buffer;
    CHECK_STATUS(dtrain_gradset_ready(set, PARAMS, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_ready(set, -1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_ready(set, 0, &buffer), DTRAIN_ERR_UNSUPPORTED);
    CHECK_STATUS(dtrain_gradset_ready(NULL, 0, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_ready_n(set, NULL, 1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_ready_n(set, indices, 2, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_ready(set, 1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("'p1' is marked 2 times");
    CHECK_STATUS(dtrain_gradset_buffer(set, 0, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_buffer(set, PARAMS, &buffer), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_wait_one(set, PARAMS), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_get_stats(set, &stats), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_gradset_get_stats(set, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < PARAMS; i++) {
        if (i != 1)
            CHECK_OK(dtrain_gradset_unused(set, i));
    }
    CHECK_OK(dtrain_gradset_wait(set));
    CHECK(*buffer_of(set, 2) == 0);
    CHECK_OK(dtrain_gradset_destroy(set));
    CHECK_OK(dtrain_gradset_destroy(NULL));
}

static void mismatch(void)
{
    int64_t count = rank == size - 1 ? 4 : 3;
    dtrain_param_t param = {.struct_size = sizeof param,
                            .name = "w",
                            .ndim = 1,
                            .shape = &count,
                            .dtype = DTRAIN_DTYPE_F32};
    dtrain_gradset_desc_t desc = {.struct_size = sizeof desc};
    dtrain_gradset_t *set = NULL;
    if (size == 1)
        return;
    CHECK_STATUS(dtrain_gradset_create(&desc, &param, 1, &set), DTRAIN_ERR_MISMATCH);
    CHECK_ERROR_HAS("tensor 'w': shape is [4] on rank");
    CHECK_ERROR_HAS("and [3] on rank 0");
    CHECK(!set);
    check_works("after the mismatch");
}

int main(void)
{
    check_begin("test_gradset", 50);
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc};
    dtrain_gradset_t *set = NULL;
    CHECK_STATUS(dtrain_gradset_create(&desc, NULL, 0, &set), DTRAIN_ERR_NOT_INITIALIZED);
    for (int world = 0; world < 2; world++) {
        if (!CHECK_OK(check_init(0)))
            break;
        rank = dtrain_rank();
        size = dtrain_size();
        train(0, 0);
        train(1, 1);
        train(1 << 15, 1 << 17);
        mismatch();
        deviate(world == 0 ? 0 : size - 1);
        copies();
        arguments();
        set = make(&desc);
        mark(set, 0, 0);
        CHECK_OK(dtrain_shutdown());
        CHECK_STATUS(dtrain_gradset_ready(set, 1, NULL), DTRAIN_ERR_NOT_INITIALIZED);
        if (world == 0)
            CHECK_OK(dtrain_gradset_destroy(set));
    }
    /* One of an earlier world, in a later one. */
    CHECK_OK(check_init(0));
    CHECK_STATUS(dtrain_gradset_wait(set), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_OK(dtrain_gradset_destroy(set));
    check_works("last");
    CHECK_OK(dtrain_shutdown());
    return check_end();
}
