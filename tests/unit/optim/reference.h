/* reference.h - optimizers, written down plainly: once in the parameters' own type, every
 * operation rounded as update.h says, and once in double throughout. */
#ifndef DT_TEST_OPTIM_REFERENCE_H
#define DT_TEST_OPTIM_REFERENCE_H

#include "optim/update.h"

/* One element's parameter and state. */
typedef struct element_f32 {
    float parameter, first, second;
} element_f32_t;

typedef struct element_f64 {
    double parameter, first, second;
} element_f64_t;

void reference_update_f32(const dt_update_settings_t *settings, int64_t step, double scale,
                          float gradient, element_f32_t *element);

/* The exact operations for F64 parameters; for F32 ones the truth but for rounding. */
void reference_update_f64(const dt_update_settings_t *settings, int64_t step, double scale,
                          double gradient, element_f64_t *element);

#endif
