/* adasum.h - the arithmetic of adasum (dtrain.h says what it is): in double, on a part of a tensor,
 * while the dot products belong to the whole. */
#ifndef DT_REDUCE_ADASUM_H
#define DT_REDUCE_ADASUM_H

#include <stddef.h>

#include <dtrain/dtrain.h>

/* out = scale * in, exactly rounded in double; and back, rounded once to the type. Floating-point
 * types only. */
void dt_adasum_load(dtrain_dtype_t dtype, double scale, const void *in, double *out, size_t count);
void dt_adasum_store(dtrain_dtype_t dtype, double scale, const double *in, void *out, size_t count);

/* What a pair needs to be combined: a.b, a.a, b.b. */
#define DT_ADASUM_DOTS 3

void dt_adasum_dots(const double *a, const double *b, size_t count, double dots[DT_ADASUM_DOTS]);

/* a = a (1 - a.b / 2 a.a) + b (1 - a.b / 2 b.b); a vector of zeros takes nothing from the other. */
void dt_adasum_combine(double *a, const double *b, size_t count, const double dots[DT_ADASUM_DOTS]);

#endif
