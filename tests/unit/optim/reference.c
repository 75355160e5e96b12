#include "reference.h"

#include <math.h>

/* beta^step as a product from left to right: another order than the library's. */
static double power(double beta, int64_t step)
{
    double result = 1;
    for (int64_t i = 0; i < step; i++)
        result *= beta;
    return result;
}

#define DEFINE_UPDATE(name, real, element_t, root)                                        \
    void name(const dt_update_settings_t *s, int64_t step, double scale, real gradient,   \
              element_t *e)                                                               \
    {                                                                                     \
        real g = gradient * (real)scale;                                                  \
        if (s->rule != DT_UPDATE_ADAMW && s->weight_decay != 0)                           \
            g = g + (real)s->weight_decay * e->parameter;                                 \
        if (s->rule == DT_UPDATE_SGD) {                                                   \
            real d = g;                                                                   \
            if (s->momentum != 0) {                                                       \
                e->first = (real)s->momentum * e->first + g;                              \
                d = s->nesterov ? g + (real)s->momentum * e->first : e->first;            \
            }                                                                             \
            e->parameter = e->parameter - (real)s->learning_rate * d;                     \
            return;                                                                       \
        }                                                                                 \
        if (s->rule == DT_UPDATE_ADAMW)                                                   \
            e->parameter = e->parameter * (real)(1 - s->learning_rate * s->weight_decay); \
        e->first = (real)s->beta1 * e->first + (real)(1 - s->beta1) * g;                  \
        e->second = (real)s->beta2 * e->second + ((real)(1 - s->beta2) * g) * g;          \
        real rate = (real)(s->learning_rate / (1 - power(s->beta1, step)));               \
        real root_factor = (real)(1 / sqrt(1 - power(s->beta2, step)));                   \
        real denominator = root(e->second) * root_factor + (real)s->epsilon;              \
        e->parameter = e->parameter - rate * (e->first / denominator);                    \
    }

DEFINE_UPDATE(reference_update_f32, float, element_f32_t, sqrtf)
DEFINE_UPDATE(reference_update_f64, double, element_f64_t, sqrt)
