/* update.c - checks settings, derives the factors of a step and calls the kernels for this CPU. */
#include "optim/update.h"

#include <math.h>

#include "base/fp_mode.h"
#include "base/status.h"
#include "optim/kernels.h"

static dtrain_status_t check_number(const char *name, double value)
{
    if (!isfinite(value) || value < 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s is %g; it must be finite and not negative",
                       name, value);
    return DTRAIN_OK;
}

static dtrain_status_t check_beta(const char *name, double value)
{
    if (!(value >= 0 && value < 1))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s is %g; it must be at least 0 and below 1",
                       name, value);
    return DTRAIN_OK;
}

static dtrain_status_t check_sgd(const dt_update_settings_t *settings)
{
    dtrain_status_t status = check_number("momentum", settings->momentum);
    if (status == DTRAIN_OK && settings->nesterov && settings->momentum == 0)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "Nesterov needs a momentum above 0");
    return status;
}

static dtrain_status_t check_adam(const dt_update_settings_t *settings)
{
    dtrain_status_t status = check_beta("beta1", settings->beta1);
    if (status == DTRAIN_OK)
        status = check_beta("beta2", settings->beta2);
    if (status == DTRAIN_OK)
        status = check_number("epsilon", settings->epsilon);
    return status;
}

dtrain_status_t dt_update_check(const dt_update_settings_t *settings)
{
    if ((int)settings->rule < DT_UPDATE_SGD || (int)settings->rule > DT_UPDATE_ADAMW)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%d is no optimizer", (int)settings->rule);
    dtrain_status_t status = check_number("learning rate", settings->learning_rate);
    if (status == DTRAIN_OK)
        status = check_number("weight decay", settings->weight_decay);
    if (status != DTRAIN_OK)
        return status;
    return settings->rule == DT_UPDATE_SGD ? check_sgd(settings) : check_adam(settings);
}

int dt_update_num_states(const dt_update_settings_t *settings)
{
    if (settings->rule != DT_UPDATE_SGD)
        return 2;
    return settings->momentum != 0;
}

/* By squaring and not by libm, whose last bit differs between versions and machines. */
static double power(double base, int64_t exponent)
{
    double result = 1;
    while (exponent > 0) {
        if (exponent % 2)
            result *= base;
        base *= base;
        exponent /= 2;
    }
    return result;
}

static dt_update_factors_t derive(const dt_update_settings_t *settings, int64_t step, double scale)
{
    dt_update_factors_t factors = {.is_adam = settings->rule != DT_UPDATE_SGD,
                                   .scale = scale,
                                   .decay = settings->weight_decay,
                                   .shrink = 1,
                                   .rate = settings->learning_rate};
    if (settings->rule == DT_UPDATE_SGD) {
        factors.momentum = settings->momentum;
        factors.nesterov = settings->nesterov;
        return factors;
    }
    if (settings->rule == DT_UPDATE_ADAMW) {
        factors.decay = 0;
        factors.shrink = 1 - settings->learning_rate * settings->weight_decay;
    }
    factors.rate = settings->learning_rate / (1 - power(settings->beta1, step));
    factors.beta1 = settings->beta1;
    factors.gain1 = 1 - settings->beta1;
    factors.beta2 = settings->beta2;
    factors.gain2 = 1 - settings->beta2;
    factors.root_factor = 1 / sqrt(1 - power(settings->beta2, step));
    factors.epsilon = settings->epsilon;
    return factors;
}

const dt_optim_kernels_t *dt_optim_kernels(void)
{
    static const dt_optim_kernels_t *const sets[DT_ISA_COUNT] = {
        [DT_ISA_SCALAR] = &dt_optim_scalar,
#if defined(__x86_64__)
        [DT_ISA_AVX2] = &dt_optim_avx2,
        [DT_ISA_AVX512] = &dt_optim_avx512,
#elif defined(__aarch64__)
        [DT_ISA_NEON] = &dt_optim_neon,
#endif
    };
    return sets[dt_isa()];
}

dt_update_factors_t dt_update_factors(const dt_update_settings_t *settings, int64_t step,
                                      double scale)
{
    dt_fp_mode_t mode = dt_fp_mode_enter();
    dt_update_factors_t factors = derive(settings, step, scale);
    dt_fp_mode_leave(mode);
    return factors;
}

void dt_update(const dt_update_settings_t *settings, int64_t step, double scale,
               const dt_update_range_t *range)
{
    const dt_optim_kernels_t *kernels = dt_optim_kernels();
    dt_fp_mode_t mode = dt_fp_mode_enter();
    dt_update_factors_t factors = derive(settings, step, scale);
    dt_update_fn_t update = factors.is_adam ? kernels->adam[range->gradient_dtype]
                                            : kernels->sgd[range->gradient_dtype];
    update(&factors, range);
    dt_fp_mode_leave(mode);
}
