/*
 * optim.cuh - updates and norms on the device, with the operations of optim/update.h and
 * optim/norm.h in the same order, each rounded by itself (nvcc -fmad=false), so that a GPU and a
 * CPU come to the same bits.
 */
#ifndef DT_CUDA_OPTIM_CUH
#define DT_CUDA_OPTIM_CUH

#include <math.h>

#include "kernels.h"
#include "portable.cuh"

/* ---- Updates --------------------------------------------------------------------------------- */

DT_DEVICE float square_root(float value)
{
    return sqrtf(value);
}

DT_DEVICE double square_root(double value)
{
    return sqrt(value);
}

/* The factors in the type of the parameters. */
template <typename P> struct factors {
    P scale, decay, shrink, rate, momentum;
    P beta1, gain1, beta2, gain2, root_factor, epsilon;
};

template <typename P>
DT_DEVICE factors<P> make_factors(const dt_device_update_t &args, double scale)
{
    factors<P> f;
    f.scale = (P)scale;
    f.decay = (P)args.decay;
    f.shrink = (P)args.shrink;
    f.rate = (P)args.rate;
    f.momentum = (P)args.momentum;
    f.beta1 = (P)args.beta1;
    f.gain1 = (P)args.gain1;
    f.beta2 = (P)args.beta2;
    f.gain2 = (P)args.gain2;
    f.root_factor = (P)args.root_factor;
    f.epsilon = (P)args.epsilon;
    return f;
}

/* What to take off the parameter; `g` is scaled and decayed. */
template <typename P>
DT_DEVICE P sgd_step(const dt_device_update_t &args, const factors<P> &f, P g, int64_t i)
{
    if (args.first == NULL)
        return f.rate * g;
    P *momenta = (P *)args.first;
    const P b = f.momentum * momenta[i] + g;
    momenta[i] = b;
    const P d = args.nesterov ? g + f.momentum * b : b;
    return f.rate * d;
}

template <typename P>
DT_DEVICE P adam_step(const dt_device_update_t &args, const factors<P> &f, P g, int64_t i)
{
    P *means = (P *)args.first, *squares = (P *)args.second;
    const P m = f.beta1 * means[i] + f.gain1 * g;
    means[i] = m;
    const P v = f.beta2 * squares[i] + f.gain2 * g * g;
    squares[i] = v;
    const P root = square_root(v) * f.root_factor;
    return f.rate * (m / (root + f.epsilon));
}

enum { TYPE_COPY_F16 = 5 }; /* DTRAIN_DTYPE_F16; the other is bfloat16 */

DT_DEVICE void store_copy(const dt_device_update_t &args, int64_t i, float value)
{
    if (args.copy == NULL)
        return;
    if (args.copy_dtype == TYPE_COPY_F16)
        ((__half *)args.copy)[i] = __float2half_rn(value);
    else
        ((__nv_bfloat16 *)args.copy)[i] = __float2bfloat16_rn(value);
}

DT_DEVICE void store_copy(const dt_device_update_t &, int64_t, double)
{
}

/* G: type of the gradients; P: of parameters and state. */
template <typename G, typename P>
DT_DEVICE void update_all(const dt_device_update_t &args, const place_t &place)
{
    if (args.clip && !args.clip->is_finite)
        return;
    const factors<P> f = make_factors<P>(args, args.clip ? args.clip->scale : args.scale);
    const G *gradients = (const G *)args.gradients;
    P *parameters = (P *)args.parameters;
    const int64_t step = (int64_t)place.num_blocks * place.num_threads;
    for (int64_t i = (int64_t)place.block * place.num_threads + place.thread; i < args.count;
         i += step) {
        P g = (P)arithmetic<G>::load(load_once(gradients + i)) * f.scale;
        P p = parameters[i];
        if (f.decay != 0)
            g = g + f.decay * p;
        if (f.shrink != 1)
            p = p * f.shrink;
        p = p - (args.rule == 0 ? sgd_step(args, f, g, i) : adam_step(args, f, g, i));
        parameters[i] = p;
        store_copy(args, i, p);
    }
}

/* ---- Norms ----------------------------------------------------------------------------------- */

#define DT_SQUARES_BLOCK 4096
#define DT_SQUARES_SUMS 16 /* of a block: of elements whose position modulo 16 is the same */

/* Threads of a block of threads that work on one block of elements. On the host one does. */
DT_DEVICE int lanes_of(const place_t &place)
{
    return place.num_threads < DT_SQUARES_SUMS ? 1 : DT_SQUARES_SUMS;
}

/* First half: each thread leaves its sums in shared[element block][position]. */
template <typename T>
DT_DEVICE void square_lanes(const dt_squares_t &args, int64_t block, double *shared,
                            const place_t &place)
{
    const int lanes = lanes_of(place);
    const int row = (int)place.thread / lanes;
    const T *values = (const T *)args.values;
    const int64_t begin = block * DT_SQUARES_BLOCK;
    int64_t end = begin + DT_SQUARES_BLOCK;
    if (end > args.count)
        end = args.count;
    for (int k = (int)place.thread % lanes; k < DT_SQUARES_SUMS; k += lanes) {
        double sum = 0;
        int is_finite = 1;
        for (int64_t i = begin + k; i < end; i += DT_SQUARES_SUMS) {
            const double value = (double)arithmetic<T>::load(load_once(values + i));
            sum += value * value;
            is_finite &= value - value == 0;
        }
        shared[row * DT_SQUARES_SUMS + k] = sum;
        if (!is_finite)
            *args.not_finite = 1; /* whoever writes, writes the same */
    }
}

/* Second half, of the first thread of each: adds the 16 sums up. */
DT_DEVICE void square_join(const dt_squares_t &args, int64_t block, double *shared,
                           const place_t &place)
{
    const int lanes = lanes_of(place);
    if ((int)place.thread % lanes != 0)
        return;
    double *sums = shared + (int)place.thread / lanes * DT_SQUARES_SUMS;
    for (int width = DT_SQUARES_SUMS / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++)
            sums[i] += sums[i + width];
    }
    args.sums[block] = sums[0];
}

/* One level of the tree over blocks: pairs that are `distance` apart. */
DT_DEVICE void clip_level(const dt_clip_t &args, int64_t distance, const place_t &place)
{
    for (int64_t i = (int64_t)place.thread * 2 * distance; i + distance < args.num_blocks;
         i += (int64_t)place.num_threads * 2 * distance)
        args.sums[i] += args.sums[i + distance];
}

DT_DEVICE void clip_finish(const dt_clip_t &args, const place_t &place)
{
    if (place.thread != 0)
        return;
    dt_clip_result_t result;
    result.reserved = 0;
    result.is_finite = !*args.not_finite;
    const double total = args.num_blocks > 0 ? args.sums[0] : 0;
    result.norm = sqrt(total) * args.scale;
    result.scale = result.is_finite ? args.scale : 0;
    if (result.is_finite && args.max_norm > 0 && result.norm > args.max_norm)
        result.scale = args.scale * (args.max_norm / result.norm);
    *args.result = result;
}

#endif
