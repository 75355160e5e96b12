/* optimizer_training.h - a training of the small model (gradset_model.h): for tests of optimizers.
 */
#ifndef DT_TEST_OPTIMIZER_TRAINING_H
#define DT_TEST_OPTIMIZER_TRAINING_H

#include <math.h>

#include "gradset_model.h"
#include "train/optimizer_state.h"

#define TRAINING_TOTAL (5000 + 33 + 20000 + 1 + 4096 + 257)

/* What a training is to be, and what came of it. */
typedef struct training {
    dtrain_optimizer_desc_t desc;
    int own_memory;       /* of the caller, for every other parameter */
    dtrain_dtype_t dtype; /* of parameters; 0: float32 */
    int64_t bucket_bytes;
    int waits;              /* the program calls the wait itself */
    int bad_step, bad_rank; /* whose gradients are not finite; bad_rank -1: nobody's */
    float gradient_scale;
    float values[TRAINING_TOTAL]; /* of rank 0 at the end, as float32 */
    dtrain_step_info_t last;
    int num_skipped;
    int64_t state_bytes; /* of rank 0 */
} training_t;

static inline void training_write(const dtrain_gradset_t *set, const training_t *training, int rank,
                                  int step, int index)
{
    float *buffer = dt_gradset_buffer(set, index);
    for (int64_t e = 0; e < model_counts[index]; e++)
        buffer[e] = training->gradient_scale * 1e-10f * model_value(rank, step, index, e);
    if (step == training->bad_step && rank == training->bad_rank && index == 3)
        buffer[12345] = INFINITY;
}

static inline dtrain_gradset_t *training_make_set(engine_rank_t *self, const training_t *training)
{
    model_t model;
    dtrain_gradset_t *set = NULL;
    const dtrain_gradset_desc_t desc = {.struct_size = sizeof desc,
                                        .first_bucket_bytes = 4096,
                                        .bucket_bytes = training->bucket_bytes};
    model_fill(&model);
    for (int i = 0; i < MODEL_PARAMS; i++) {
        model.params[i].gradient_dtype = DTRAIN_DTYPE_F32;
        if (training->dtype)
            model.params[i].dtype = training->dtype;
        if (training->dtype == DTRAIN_DTYPE_F64)
            model.params[i].gradient_dtype = DTRAIN_DTYPE_F64;
        if (training->own_memory && i % 2)
            model.params[i].data = engine_buffer(self, (size_t)model_counts[i] * 8 + 8);
    }
    ENGINE_OK(self, dt_gradset_create(self->runtime, &desc, model.params, MODEL_PARAMS, &set));
    return set;
}

static inline training_t training_plain(int rule)
{
    return (training_t){.desc = {.struct_size = sizeof(dtrain_optimizer_desc_t),
                                 .rule = rule,
                                 .weight_decay = 0.01},
                        .bucket_bytes = 40000,
                        .bad_rank = -1,
                        .gradient_scale = 1};
}

#endif
