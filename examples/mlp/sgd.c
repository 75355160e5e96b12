#include "sgd.h"

#include <math.h>
#include <stdlib.h>

int sgd_create(int64_t count, double momentum, sgd_t *out, mlp_error_t *error)
{
    float *velocity = calloc((size_t)count, sizeof *velocity);
    if (velocity == NULL)
        return mlp_fail(error, "no memory for the momentum of the parameters");
    out->velocity = velocity;
    out->count = count;
    out->momentum = (float)momentum;
    return 0;
}

void sgd_free(sgd_t *sgd)
{
    free(sgd->velocity);
    sgd->velocity = NULL;
}

void sgd_step(sgd_t *sgd, float *parameters, const float *gradients, double rate)
{
    float *velocity = sgd->velocity;
    for (int64_t i = 0; i < sgd->count; i++) {
        velocity[i] = sgd->momentum * velocity[i] + gradients[i];
        parameters[i] -= (float)rate * velocity[i];
    }
}

double sgd_rate(double peak, int64_t step, int64_t steps)
{
    return peak * 0.5 * (1.0 + cos(3.14159265358979323846 * (double)step / (double)steps));
}
