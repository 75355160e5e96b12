/* The order in which ranks' values are added depends on rank numbers alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "engine_world.h"
#include "reduce/reduce.h"
#include "test_random.h"

#define TENSORS 30
#define COUNT_MAX 9000
#define ELEMENT_MAX 8

typedef struct tensor {
    int count;
    dtrain_dtype_t dtype;
    dtrain_op_t op;
} tensor_t;

/* The same on all ranks. */
static tensor_t tensor_of(int index)
{
    static const dtrain_dtype_t types[] = {DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F32, DTRAIN_DTYPE_F16,
                                           DTRAIN_DTYPE_BF16, DTRAIN_DTYPE_F64};
    static const int counts[] = {1, 7, 64, 100, 1000, 2049, COUNT_MAX};
    tensor_t tensor = {.count = counts[index % 7],
                       .dtype = types[index % 5],
                       .op = index % 3 == 2 ? DTRAIN_OP_AVERAGE : DTRAIN_OP_SUM};
    return tensor;
}

/* Values of a wide range, so that the order of additions shows; no NaN and no infinity. */
static void fill(const tensor_t *tensor, int index, int rank, char *values)
{
    uint64_t state = (uint64_t)(index * 1000 + rank);
    size_t element = dt_dtype_size(tensor->dtype);
    for (int i = 0; i < tensor->count; i++) {
        uint64_t random = test_random(&state);
        double wide = ldexp((double)(int32_t)random, (int)(random >> 32) % 40 - 50);
        float single = (float)wide;
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        uint16_t half = (uint16_t)(random & 0xb7ff), brain = (uint16_t)(bits >> 16);
        const void *from = &single;
        if (tensor->dtype == DTRAIN_DTYPE_F64)
            from = &wide;
        else if (tensor->dtype == DTRAIN_DTYPE_F16)
            from = &half;
        else if (tensor->dtype == DTRAIN_DTYPE_BF16)
            from = &brain;
        memcpy(values + (size_t)i * element, from, element);
    }
}

/* What dt_reduce makes of all ranks' inputs, all at hand. */
static char expected[TENSORS][COUNT_MAX * ELEMENT_MAX];

static void expect_all(int size)
{
    static char inputs[ENGINE_RANKS_MAX][COUNT_MAX * ELEMENT_MAX];
    for (int t = 0; t < TENSORS; t++) {
        tensor_t tensor = tensor_of(t);
        const void *sources[ENGINE_RANKS_MAX];
        for (int rank = 0; rank < size; rank++) {
            fill(&tensor, t, rank, inputs[rank]);
            sources[rank] = inputs[rank];
        }
        dt_reduction_t reduction = {.dtype = tensor.dtype,
                                    .op = tensor.op,
                                    .divisor = tensor.op == DTRAIN_OP_AVERAGE ? size : 1,
                                    .prescale = 1,
                                    .postscale = 1};
        void *result = expected[t];
        dt_reduce(&reduction, &result, 1, sources, size, (size_t)tensor.count);
    }
}

typedef struct order {
    uint64_t seed;     /* of the order of submission, which each rank has of its own */
    int wait_each_few; /* how many are in flight at most */
} order_t;

static void shuffle(int *order, uint64_t seed)
{
    for (int i = 0; i < TENSORS; i++)
        order[i] = i;
    for (int i = TENSORS - 1; seed != 0 && i > 0; i--) {
        int k = (int)(test_random(&seed) % (uint64_t)(i + 1));
        int swapped = order[i];
        order[i] = order[k];
        order[k] = swapped;
    }
}

static void reduce_all(engine_rank_t *self)
{
    const order_t *how = self->argument;
    int order[TENSORS];
    char *buffers[TENSORS];
    dtrain_handle_t handles[TENSORS];
    /* All ranks in one order where they wait between, each in its own where they do not. */
    shuffle(order,
            how->wait_each_few < TENSORS ? how->seed : how->seed * (uint64_t)(self->rank + 3));
    for (int i = 0; i < TENSORS; i++) {
        int t = order[i];
        tensor_t tensor = tensor_of(t);
        char name[32];
        snprintf(name, sizeof name, "t%d", t);
        buffers[t] = engine_buffer(self, (size_t)tensor.count * ELEMENT_MAX);
        fill(&tensor, t, self->rank, buffers[t]);
        engine_op_t op = {.name = name,
                          .in = buffers[t],
                          .out = buffers[t],
                          .count = tensor.count,
                          .dtype = tensor.dtype,
                          .op = tensor.op};
        ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
        if ((i + 1) % how->wait_each_few == 0 || i == TENSORS - 1) {
            for (int k = i - i % how->wait_each_few; k <= i; k++)
                ENGINE_OK(self, engine_finish(self, handles[k]));
        }
    }
    for (int t = 0; t < TENSORS; t++) {
        tensor_t tensor = tensor_of(t);
        size_t bytes = (size_t)tensor.count * dt_dtype_size(tensor.dtype);
        ENGINE_CHECK(self, memcmp(buffers[t], expected[t], bytes) == 0);
    }
}

static void test_engine_bits_do_not_depend_on_fusion_or_order(void **state)
{
    (void)state;
    static const int64_t thresholds[] = {0, 3000, 40000, INT64_C(64) << 20};
    static const order_t orders[] = {{.wait_each_few = TENSORS},
                                     {.seed = 77, .wait_each_few = TENSORS},
                                     {.seed = 5, .wait_each_few = 4},
                                     {.seed = 6, .wait_each_few = 1}};
    for (int size = 1; size <= ENGINE_RANKS_MAX; size++) {
        expect_all(size);
        for (int i = 0; i < 4; i++) {
            dt_config_t config = engine_config();
            order_t order = orders[(i + size) % 4];
            config.fusion_threshold = thresholds[i];
            config.fusion_tensor_limit = i % 2 ? 1000 : INT64_C(1) << 20;
            engine_run(size, &config, reduce_all, &order);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_bits_do_not_depend_on_fusion_or_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
