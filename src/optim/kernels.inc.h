/*
 * kernels.inc.h - the kernels of optimizers, compiled once for each instruction set by
 * kernels_<set>.c, which defines DT_KERNELS (the table's name), DT_VECTOR_BYTES and
 * DT_VECTOR_NATIVE as for reductions.
 *
 * An element goes through the operations that update.h lists, in that order, in a vector of
 * parameters' type; the elements that fill no vector go through the same ones alone. What is the
 * same for all elements is decided inside the loop: a branch that always goes the same way is free.
 */
#include "optim/kernels.h"
#include "reduce/vec.h"

/* ---- Updates -------------------------------------------------------------------------------- */

DT_INLINE vec_t splat(dtrain_dtype_t type, double value)
{
    if (type == DTRAIN_DTYPE_F64)
        return (vec_t)((vec_f64_t){0} + value);
    return (vec_t)((vec_f32_t){0} + (float)value);
}

DT_INLINE vec_t difference(dtrain_dtype_t type, vec_t a, vec_t b)
{
    if (type == DTRAIN_DTYPE_F64)
        return (vec_t)((vec_f64_t)a - (vec_f64_t)b);
    return (vec_t)((vec_f32_t)a - (vec_f32_t)b);
}

DT_INLINE vec_t quotient(dtrain_dtype_t type, vec_t a, vec_t b)
{
    if (type == DTRAIN_DTYPE_F64)
        return (vec_t)((vec_f64_t)a / (vec_f64_t)b);
    return (vec_t)((vec_f32_t)a / (vec_f32_t)b);
}

/* The factors in the type of the parameters, in every lane. */
typedef struct lanes {
    vec_t scale, decay, shrink, rate, momentum;
    vec_t beta1, gain1, beta2, gain2, root_factor, epsilon;
    int decays, shrinks, remembers, nesterov;
} lanes_t;

DT_INLINE lanes_t make_lanes(dtrain_dtype_t type, const dt_update_factors_t *factors)
{
    return (lanes_t){
        .scale = splat(type, factors->scale),
        .decay = splat(type, factors->decay),
        .shrink = splat(type, factors->shrink),
        .rate = splat(type, factors->rate),
        .momentum = splat(type, factors->momentum),
        .beta1 = splat(type, factors->beta1),
        .gain1 = splat(type, factors->gain1),
        .beta2 = splat(type, factors->beta2),
        .gain2 = splat(type, factors->gain2),
        .root_factor = splat(type, factors->root_factor),
        .epsilon = splat(type, factors->epsilon),
        .decays = factors->decay != 0,
        .shrinks = factors->shrink != 1,
        .remembers = factors->momentum != 0,
        .nesterov = factors->nesterov,
    };
}

/* A vector, or one element, of a range. */
typedef struct place {
    const dt_update_range_t *range;
    size_t offset; /* bytes, of parameters and state */
    int whole;
} place_t;

DT_INLINE char *first_of(const place_t *place)
{
    return (char *)place->range->first + place->offset;
}

DT_INLINE char *second_of(const place_t *place)
{
    return (char *)place->range->second + place->offset;
}

/* What to take off the parameter; `g` is scaled and decayed. */
DT_INLINE vec_t sgd(dtrain_dtype_t type, const lanes_t *f, vec_t g, const place_t *place)
{
    if (!f->remembers)
        return vec_product(type, f->rate, g);
    vec_t b = vec_load(type, place->whole, first_of(place));
    b = vec_sum(type, vec_product(type, f->momentum, b), g);
    vec_store(type, place->whole, first_of(place), b);
    vec_t d = f->nesterov ? vec_sum(type, g, vec_product(type, f->momentum, b)) : b;
    return vec_product(type, f->rate, d);
}

DT_INLINE vec_t adam(dtrain_dtype_t type, const lanes_t *f, vec_t g, const place_t *place)
{
    vec_t m = vec_load(type, place->whole, first_of(place));
    m = vec_sum(type, vec_product(type, f->beta1, m), vec_product(type, f->gain1, g));
    vec_store(type, place->whole, first_of(place), m);

    vec_t v = vec_load(type, place->whole, second_of(place));
    vec_t squared = vec_product(type, vec_product(type, f->gain2, g), g);
    v = vec_sum(type, vec_product(type, f->beta2, v), squared);
    vec_store(type, place->whole, second_of(place), v);

    vec_t root = vec_product(type, vec_sqrt(type, v), f->root_factor);
    vec_t ratio = quotient(type, m, vec_sum(type, root, f->epsilon));
    return vec_product(type, f->rate, ratio);
}

/* Updates from element `done` on, as far as whole vectors (or single elements) reach; returns the
 * elements done by then. */
DT_INLINE size_t update_from(dtrain_dtype_t type, dtrain_dtype_t gradient_type,
                             dt_update_rule_t rule, int whole, size_t done, const lanes_t *f,
                             const dt_update_range_t *range)
{
    const size_t step = whole ? vec_lanes(type) : 1;
    for (; range->count - done >= step; done += step) {
        const char *gradient = (const char *)range->gradients + done * vec_element(gradient_type);
        place_t place = {.range = range, .offset = done * vec_element(type), .whole = whole};
        char *parameter = (char *)range->parameters + place.offset;
        vec_t g = vec_product(type, vec_load(gradient_type, whole, gradient), f->scale);
        vec_t p = vec_load(type, whole, parameter);
        if (f->decays)
            g = vec_sum(type, g, vec_product(type, f->decay, p));
        if (f->shrinks)
            p = vec_product(type, p, f->shrink);
        vec_t d = rule == DT_UPDATE_SGD ? sgd(type, f, g, &place) : adam(type, f, g, &place);
        p = difference(type, p, d);
        vec_store(type, whole, parameter, p);
        if (type == DTRAIN_DTYPE_F64 || range->copy == NULL)
            continue;
        char *copy = (char *)range->copy + done * sizeof(uint16_t);
        if (range->copy_dtype == DTRAIN_DTYPE_F16)
            vec_store(DTRAIN_DTYPE_F16, whole, copy, p);
        else
            vec_store(DTRAIN_DTYPE_BF16, whole, copy, p);
    }
    return done;
}

DT_INLINE void update(dtrain_dtype_t gradient_type, dt_update_rule_t rule,
                      const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    const dtrain_dtype_t type =
        gradient_type == DTRAIN_DTYPE_F64 ? DTRAIN_DTYPE_F64 : DTRAIN_DTYPE_F32;
    const lanes_t lanes = make_lanes(type, factors);
    size_t done = update_from(type, gradient_type, rule, 1, 0, &lanes, range);
    update_from(type, gradient_type, rule, 0, done, &lanes, range);
}

static void sgd_f16(const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    update(DTRAIN_DTYPE_F16, DT_UPDATE_SGD, factors, range);
}

static void sgd_bf16(const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    update(DTRAIN_DTYPE_BF16, DT_UPDATE_SGD, factors, range);
}

static void sgd_f32(const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    update(DTRAIN_DTYPE_F32, DT_UPDATE_SGD, factors, range);
}

static void sgd_f64(const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    update(DTRAIN_DTYPE_F64, DT_UPDATE_SGD, factors, range);
}

static void adam_f16(const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    update(DTRAIN_DTYPE_F16, DT_UPDATE_ADAM, factors, range);
}

static void adam_bf16(const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    update(DTRAIN_DTYPE_BF16, DT_UPDATE_ADAM, factors, range);
}

static void adam_f32(const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    update(DTRAIN_DTYPE_F32, DT_UPDATE_ADAM, factors, range);
}

static void adam_f64(const dt_update_factors_t *factors, const dt_update_range_t *range)
{
    update(DTRAIN_DTYPE_F64, DT_UPDATE_ADAM, factors, range);
}

/* ---- Sums of squares ------------------------------------------------------------------------ */

#define SUMS 16 /* of a block, whatever the width of a vector */
#define SUMS_A_VECTOR (DT_VECTOR_BYTES / sizeof(double))

typedef struct sums {
    vec_f64_t part[SUMS / SUMS_A_VECTOR];
} sums_t;

/* Adds the squares of the 2 * SUMS_A_VECTOR elements at `index` of the SUMS at `from`. */
DT_INLINE void add_pair(dtrain_dtype_t type, const char *from, size_t index, sums_t *sums)
{
    from += index * vec_element(type);
    vec_f64_t *part = sums->part + index / SUMS_A_VECTOR;
    vec_f64_t low, high;
    if (type == DTRAIN_DTYPE_F64) {
        low = (vec_f64_t)vec_load(type, 1, from);
        high = (vec_f64_t)vec_load(type, 1, from + DT_VECTOR_BYTES);
    } else {
        vec_t both = vec_load(type, 1, from);
        low = vec_low_f64(both);
        high = vec_high_f64(both);
    }
    part[0] += low * low;
    part[1] += high * high;
}

/* Written out, so that the sums stay in registers. */
DT_INLINE void add_group(dtrain_dtype_t type, const char *from, sums_t *sums)
{
    const size_t pair = 2 * SUMS_A_VECTOR;
    add_pair(type, from, 0, sums);
    if (pair < SUMS)
        add_pair(type, from, pair, sums);
    if (2 * pair < SUMS) {
        add_pair(type, from, 2 * pair, sums);
        add_pair(type, from, 3 * pair, sums);
    }
}

DT_INLINE double squares(dtrain_dtype_t type, const void *values, size_t count)
{
    const size_t size = vec_element(type);
    const char *at = values;
    sums_t sums = {0};
    size_t left = count;
    for (; left >= SUMS; left -= SUMS, at += SUMS * size)
        add_group(type, at, &sums);
    if (left > 0) {
        char rest[SUMS * sizeof(double)] = {0};
        memcpy(rest, at, left * size);
        add_group(type, rest, &sums);
    }
    double flat[SUMS];
    memcpy(flat, &sums, sizeof flat);
    for (int width = SUMS / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            flat[i] += flat[i + width];
    return flat[0];
}

static double squares_f16(const void *values, size_t count)
{
    return squares(DTRAIN_DTYPE_F16, values, count);
}

static double squares_bf16(const void *values, size_t count)
{
    return squares(DTRAIN_DTYPE_BF16, values, count);
}

static double squares_f32(const void *values, size_t count)
{
    return squares(DTRAIN_DTYPE_F32, values, count);
}

static double squares_f64(const void *values, size_t count)
{
    return squares(DTRAIN_DTYPE_F64, values, count);
}

const dt_optim_kernels_t DT_KERNELS = {.sgd = {[DTRAIN_DTYPE_F16] = sgd_f16,
                                               [DTRAIN_DTYPE_BF16] = sgd_bf16,
                                               [DTRAIN_DTYPE_F32] = sgd_f32,
                                               [DTRAIN_DTYPE_F64] = sgd_f64},
                                       .adam = {[DTRAIN_DTYPE_F16] = adam_f16,
                                                [DTRAIN_DTYPE_BF16] = adam_bf16,
                                                [DTRAIN_DTYPE_F32] = adam_f32,
                                                [DTRAIN_DTYPE_F64] = adam_f64},
                                       .squares = {[DTRAIN_DTYPE_F16] = squares_f16,
                                                   [DTRAIN_DTYPE_BF16] = squares_bf16,
                                                   [DTRAIN_DTYPE_F32] = squares_f32,
                                                   [DTRAIN_DTYPE_F64] = squares_f64}};
