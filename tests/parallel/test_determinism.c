/* Promise 2: the bits of a result depend on the ranks' values and numbers alone. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "test_random.h"

#define TENSORS 24
#define RANKS_MAX 8

static int rank, size;

static int count_of(int tensor)
{
    static const int counts[] = {1, 5, 63, 1000, 4097, 30011, 200003};
    return counts[tensor % 7];
}

/* Of a wide range, so that another order of additions shows. */
static void fill(int tensor, int r, float *values)
{
    uint64_t state = (uint64_t)(tensor * 100 + r);
    for (int i = 0; i < count_of(tensor); i++) {
        uint64_t random = test_random(&state);
        values[i] = (float)ldexp((double)(int32_t)random, (int)(random >> 32) % 40 - 50);
    }
}

/* dtrain.h: a balanced binary tree over rank numbers. */
static float add_up(const float *const *inputs, int lo, int hi, int i)
{
    if (hi - lo == 1)
        return inputs[lo][i];
    int half = 1;
    while (2 * half < hi - lo)
        half *= 2;
    return add_up(inputs, lo, lo + half, i) + add_up(inputs, lo + half, hi, i);
}

static float *allocate(int count)
{
    float *memory = malloc((size_t)count * sizeof *memory);
    if (!memory)
        abort();
    return memory;
}

static float *expected[TENSORS];

static void expect_all(void)
{
    for (int t = 0; t < TENSORS; t++) {
        const float *inputs[RANKS_MAX];
        expected[t] = allocate(count_of(t));
        for (int r = 0; r < size; r++) {
            float *input = allocate(count_of(t));
            fill(t, r, input);
            inputs[r] = input;
        }
        for (int i = 0; i < count_of(t); i++)
            expected[t][i] = add_up(inputs, 0, size, i);
        for (int r = 0; r < size; r++)
            free((void *)inputs[r]);
    }
}

/* All tensors, `in_flight` at a time; each rank in an order of its own when all are at once. */
static void run(uint64_t seed, int in_flight, int use_library_memory)
{
    dtrain_handle_t handles[TENSORS];
    float *values[TENSORS];
    uint64_t state = in_flight == TENSORS ? seed + (uint64_t)rank : seed;
    int start = (int)(test_random(&state) % TENSORS), step = test_random(&state) % 2 ? 5 : 7;
    for (int i = 0; i < TENSORS; i++) {
        int t = (start + i * step) % TENSORS;
        size_t bytes = (size_t)count_of(t) * sizeof(float);
        void *memory = NULL;
        if (use_library_memory && t % 2)
            CHECK_OK(dtrain_mem_alloc(&memory, bytes, DTRAIN_DEVICE_CPU));
        values[t] = memory ? memory : allocate(count_of(t));
        fill(t, rank, values[t]);
        char name[32];
        snprintf(name, sizeof name, "t%d", t);
        CHECK_OK(check_submit(name, values[t], count_of(t), 0, &handles[i]));
        for (int k = i - in_flight + 1; (i + 1) % in_flight == 0 && k <= i; k++)
            CHECK_OK(check_finish(handles[k]));
    }
    for (int t = 0; t < TENSORS; t++) {
        char what[96];
        snprintf(what, sizeof what, "tensor %d of %d elements, seed %llu, %d in flight", t,
                 count_of(t), (unsigned long long)seed, in_flight);
        check_that(memcmp(values[t], expected[t], (size_t)count_of(t) * sizeof(float)) == 0, what,
                   __FILE__, __LINE__);
        if (use_library_memory && t % 2)
            CHECK_OK(dtrain_mem_free(values[t]));
        else
            free(values[t]);
    }
}

int main(void)
{
    static const struct {
        int64_t threshold, limit;
    } settings[] = {{-1, 0}, {1 << 12, 1 << 12}, {1 << 16, 1 << 10}, {1 << 26, 1 << 26}};
    check_begin("test_determinism", 50);
    for (int s = 0; s < 4; s++) {
        dtrain_config_t config;
        CHECK_OK(dtrain_config_init(&config, sizeof config));
        config.fusion_threshold = settings[s].threshold;
        config.fusion_tensor_limit = settings[s].limit;
        if (!CHECK_OK(dtrain_init(&config)))
            break;
        rank = dtrain_rank();
        size = dtrain_size();
        if (s == 0)
            expect_all();
        run((uint64_t)s + 1, TENSORS, 0);
        run((uint64_t)s + 11, TENSORS, 1);
        run((uint64_t)s + 21, 4, s % 2);
        run((uint64_t)s + 31, 1, 0);
        CHECK_OK(dtrain_shutdown());
    }
    for (int t = 0; t < TENSORS; t++)
        free(expected[t]);
    return check_end();
}
