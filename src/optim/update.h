/*
 * update.h - the arithmetic of optimizers: one step of SGD, Adam or AdamW over a contiguous range
 * of parameters, with torch.optim's meaning of every setting. Who owns which range, and when the
 * gradients are complete, is not known here.
 */
#ifndef DT_OPTIM_UPDATE_H
#define DT_OPTIM_UPDATE_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

typedef enum dt_update_rule {
    DT_UPDATE_SGD = 0,
    DT_UPDATE_ADAM = 1, /* weight decay is added to the gradient */
    DT_UPDATE_ADAMW = 2 /* weight decay shrinks the parameter */
} dt_update_rule_t;

typedef struct dt_update_settings {
    dt_update_rule_t rule;
    int nesterov; /* SGD */
    double learning_rate;
    double weight_decay;
    double momentum;     /* SGD; 0 for none: then there is no state */
    double beta1, beta2; /* Adam, AdamW */
    double epsilon;      /* Adam, AdamW */
} dt_update_settings_t;

/* The memory of one range of parameters. Nothing overlaps, but `copy` may be `gradients` where
 * both are of 16 bits. Any alignment that the types ask for. */
typedef struct dt_update_range {
    size_t count;
    dtrain_dtype_t dtype;          /* of parameters and state: F32 or F64 */
    dtrain_dtype_t gradient_dtype; /* F32, F16 or BF16; F64 with F64 */
    dtrain_dtype_t copy_dtype;     /* F16 or BF16; not looked at without a copy */
    const void *gradients;
    void *parameters;
    void *first;  /* momentum, or the mean of gradients; zeros before the first step */
    void *second; /* the mean of squared gradients; likewise */
    void *copy;   /* also receives the parameters, rounded to copy_dtype, F32 only; may be NULL */
} dt_update_range_t;

/* What settings and step come to. */
typedef struct dt_update_factors {
    int is_adam; /* or AdamW; else SGD */
    double scale;
    double decay;        /* added to the gradient, times the parameter */
    double shrink;       /* factor on the parameter: AdamW's decay; 1 for none */
    double rate;         /* Adam: over the bias correction */
    double momentum;     /* SGD */
    double beta1, gain1; /* Adam; gain is 1 - beta */
    double beta2, gain2;
    double root_factor; /* Adam: 1 / sqrt(1 - beta2^step) */
    double epsilon;
    int nesterov;
} dt_update_factors_t;

/* OK, or INVALID_ARGUMENT and a text that names the setting: not finite, negative, a beta that is
 * not below 1, or Nesterov without momentum. */
dtrain_status_t dt_update_check(const dt_update_settings_t *settings);

/* How many state buffers a rule needs: 0, 1 (`first`) or 2. */
int dt_update_num_states(const dt_update_settings_t *settings);

/*
 * Does the step numbered `step` (1 is the first) on a range. Every gradient is multiplied by
 * `scale` first: 1 over the loss scale, times the clip factor. Settings and types were checked.
 *
 * With all numbers rounded to the type of the parameters, and every operation as it stands here
 * rounded by itself:
 *
 *     g = gradient * scale
 *     SGD:    g = g + decay * p           when decay is not 0
 *             b = momentum * b + g        when momentum is not 0
 *             d = g + momentum * b with Nesterov, b with momentum, else g
 *             p = p - rate * d
 *     Adam:   g = g + decay * p           when decay is not 0
 *     AdamW:  p = p * (1 - rate * decay)
 *     both:   m = beta1 * m + (1 - beta1) * g
 *             v = beta2 * v + ((1 - beta2) * g) * g
 *             p = p - (rate / (1 - beta1^step)) * (m / (sqrt(v) * (1 / sqrt(1 - beta2^step)) +
 * eps))
 *
 * where what depends on settings and step alone is computed in double and rounded once. So an
 * element's result depends on nothing but its own values: not on where a range begins or ends, on
 * the instruction set, or on the calling thread's floating point mode. Thread-safe.
 */
void dt_update(const dt_update_settings_t *settings, int64_t step, double scale,
               const dt_update_range_t *range);

/* The factors of that, in double, for an update elsewhere. */
dt_update_factors_t dt_update_factors(const dt_update_settings_t *settings, int64_t step,
                                      double scale);

#endif
