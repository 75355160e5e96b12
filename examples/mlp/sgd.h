/* sgd.h - stochastic gradient descent with momentum. */
#ifndef MLP_SGD_H
#define MLP_SGD_H

#include <stdint.h>

#include "error.h"

typedef struct sgd {
    float *velocity;
    int64_t count;
    float momentum;
} sgd_t;

int sgd_create(int64_t count, double momentum, sgd_t *out, mlp_error_t *error);

/* Nothing for an sgd_t of zeros. */
void sgd_free(sgd_t *sgd);

/* velocity = momentum * velocity + gradients; parameters -= rate * velocity. */
void sgd_step(sgd_t *sgd, float *parameters, const float *gradients, double rate);

/* The learning rate of `step` of `steps`: from `peak` to 0 along half a cosine. */
double sgd_rate(double peak, int64_t step, int64_t steps);

#endif
