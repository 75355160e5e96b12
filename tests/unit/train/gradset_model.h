/* gradset_model.h - a small model for tests of gradient sets: its parameters, and gradients whose
 * values tell rank, step, tensor and element apart. */
#ifndef DT_TEST_GRADSET_MODEL_H
#define DT_TEST_GRADSET_MODEL_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "engine_world.h"
#include "train/gradset.h"

#define MODEL_PARAMS 7

/* One cuts across several blocks, one is empty, one a scalar. */
static const int64_t model_counts[MODEL_PARAMS] = {5000, 33, 0, 20000, 1, 4096, 257};

typedef struct model {
    char names[MODEL_PARAMS][16];
    dtrain_param_t params[MODEL_PARAMS];
} model_t;

static inline void model_fill(model_t *model)
{
    for (int i = 0; i < MODEL_PARAMS; i++) {
        snprintf(model->names[i], sizeof model->names[i], "p%d", i);
        model->params[i] = (dtrain_param_t){.struct_size = sizeof(dtrain_param_t),
                                            .name = model->names[i],
                                            .ndim = 1,
                                            .shape = &model_counts[i],
                                            .dtype = DTRAIN_DTYPE_F32};
    }
}

/* Of a wide range, so that another order of additions shows. */
static inline float model_value(int rank, int step, int index, int64_t element)
{
    uint32_t bits = (uint32_t)(rank * 7919 + step * 104729 + index * 1299709 + (int)element * 31);
    bits = bits * 2654435761u;
    bits ^= bits >> 15;
    float scale = (float)(1u << (bits % 20));
    return ((float)(bits >> 12) - 500000.0f) * scale;
}

static inline void model_write(const dtrain_gradset_t *set, int rank, int step, int index)
{
    float *buffer = dt_gradset_buffer(set, index);
    for (int64_t e = 0; e < model_counts[index]; e++)
        buffer[e] = model_value(rank, step, index, e);
}

/* dtrain.h: a balanced binary tree over rank numbers. */
static inline float model_sum(int lo, int hi, int step, int index, int64_t element)
{
    if (hi - lo == 1)
        return model_value(lo, step, index, element);
    int half = 1;
    while (2 * half < hi - lo)
        half *= 2;
    return model_sum(lo, lo + half, step, index, element) +
           model_sum(lo + half, hi, step, index, element);
}

/* How many elements of [begin, end) of a gradient are not the sum over all ranks. */
static inline int64_t model_wrong(const dtrain_gradset_t *set, int size, int step, int index,
                                  int64_t begin, int64_t end)
{
    const float *buffer = dt_gradset_buffer(set, index);
    int64_t wrong = 0;
    for (int64_t e = begin; e < end; e++)
        wrong += buffer[e] != model_sum(0, size, step, index, e);
    return wrong;
}

#endif
