/*
 * optim.cuh - updates and sums of squares on the device, with the operations of optim/update.h and
 * optim/norm.h in the same order, each rounded by itself (nvcc -fmad=false), so that a GPU and a
 * CPU come to the same bits. Memory is read and written 16 bytes at a time where it is aligned.
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

/* Neighbouring elements that a thread loads, or stores, at once. */
template <typename T, int N> struct lanes {
    typedef typename word<sizeof(T) * N>::type word_t;
    T of[N];

    DT_DEVICE lanes load(const void *memory, int64_t first)
    {
        lanes found;
        const word_t word = *(const word_t *)((const T *)memory + first);
        memcpy((void *)found.of, &word, sizeof word);
        return found;
    }
    DT_DEVICE lanes load_once(const void *memory, int64_t first)
    {
        lanes found;
        const word_t word = ::load_once((const word_t *)((const T *)memory + first));
        memcpy((void *)found.of, &word, sizeof word);
        return found;
    }
    DT_DEVICE void store(const lanes &values, void *memory, int64_t first)
    {
        word_t word;
        memcpy(&word, (const void *)values.of, sizeof word);
        *(word_t *)((T *)memory + first) = word;
    }
};

DT_DEVICE int is_aligned(const void *memory, size_t bytes)
{
    return (uintptr_t)memory % bytes == 0;
}

/* The factors in the type of the parameters. */
template <typename P> struct factors {
    P scale, decay, shrink, rate, momentum;
    P beta1, gain1, beta2, gain2, root_factor, epsilon;
};

template <typename P> DT_DEVICE factors<P> make_factors(const dt_device_update_t &args)
{
    factors<P> f;
    f.scale = (P)args.scale;
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

enum { TYPE_COPY_F16 = 5 }; /* DTRAIN_DTYPE_F16; the other is bfloat16 */

template <int N>
DT_DEVICE void store_copy(const dt_device_update_t &args, int64_t first, const lanes<float, N> &p)
{
    lanes<__half, N> halves;
    lanes<__nv_bfloat16, N> bfloats;
    if (args.copy == NULL)
        return;
    for (int k = 0; k < N; k++) {
        halves.of[k] = __float2half_rn(p.of[k]);
        bfloats.of[k] = __float2bfloat16_rn(p.of[k]);
    }
    if (args.copy_dtype == TYPE_COPY_F16)
        lanes<__half, N>::store(halves, args.copy, first);
    else
        lanes<__nv_bfloat16, N>::store(bfloats, args.copy, first);
}

template <int N>
DT_DEVICE void store_copy(const dt_device_update_t &, int64_t, const lanes<double, N> &)
{
}

/* What to take off the parameters; `g` is scaled and decayed. */
template <typename P, int N>
DT_DEVICE lanes<P, N> sgd_steps(const dt_device_update_t &args, const factors<P> &f, lanes<P, N> g,
                                int64_t first)
{
    lanes<P, N> step;
    if (args.first == NULL) {
        for (int k = 0; k < N; k++)
            step.of[k] = f.rate * g.of[k];
        return step;
    }
    lanes<P, N> momenta = lanes<P, N>::load(args.first, first);
    for (int k = 0; k < N; k++) {
        const P b = f.momentum * momenta.of[k] + g.of[k];
        momenta.of[k] = b;
        step.of[k] = f.rate * (args.nesterov ? g.of[k] + f.momentum * b : b);
    }
    lanes<P, N>::store(momenta, args.first, first);
    return step;
}

template <typename P, int N>
DT_DEVICE lanes<P, N> adam_steps(const dt_device_update_t &args, const factors<P> &f, lanes<P, N> g,
                                 int64_t first)
{
    lanes<P, N> step, means = lanes<P, N>::load(args.first, first);
    lanes<P, N> squares = lanes<P, N>::load(args.second, first);
    for (int k = 0; k < N; k++) {
        const P m = f.beta1 * means.of[k] + f.gain1 * g.of[k];
        const P v = f.beta2 * squares.of[k] + f.gain2 * g.of[k] * g.of[k];
        const P root = square_root(v) * f.root_factor;
        means.of[k] = m;
        squares.of[k] = v;
        step.of[k] = f.rate * (m / (root + f.epsilon));
    }
    lanes<P, N>::store(means, args.first, first);
    lanes<P, N>::store(squares, args.second, first);
    return step;
}

/* G: type of the gradients; P: of parameters and state. */
template <typename G, typename P, int N>
DT_DEVICE void update_lanes(const dt_device_update_t &args, const factors<P> &f, int64_t first)
{
    const lanes<G, N> gradients = lanes<G, N>::load_once(args.gradients, first);
    lanes<P, N> g, p = lanes<P, N>::load(args.parameters, first);
    for (int k = 0; k < N; k++) {
        g.of[k] = (P)arithmetic<G>::load(gradients.of[k]) * f.scale;
        if (f.decay != 0)
            g.of[k] = g.of[k] + f.decay * p.of[k];
        if (f.shrink != 1)
            p.of[k] = p.of[k] * f.shrink;
    }
    const lanes<P, N> step =
        args.is_adam ? adam_steps<P, N>(args, f, g, first) : sgd_steps<P, N>(args, f, g, first);
    for (int k = 0; k < N; k++)
        p.of[k] = p.of[k] - step.of[k];
    lanes<P, N>::store(p, args.parameters, first);
    store_copy(args, first, p);
}

/* Whether all memory is on borders of the words of N elements; NULL is. */
template <typename G, typename P, int N> DT_DEVICE int are_aligned(const dt_device_update_t &args)
{
    return is_aligned(args.gradients, sizeof(G) * N) &&
           is_aligned(args.parameters, sizeof(P) * N) && is_aligned(args.first, sizeof(P) * N) &&
           is_aligned(args.second, sizeof(P) * N) && is_aligned(args.copy, sizeof(__half) * N);
}

template <typename G, typename P>
DT_DEVICE void update_all(const dt_device_update_t &args, const place_t &place)
{
    const int wide = 16 / sizeof(P);
    const factors<P> f = make_factors<P>(args);
    const int64_t groups = are_aligned<G, P, wide>(args) ? args.count / wide : 0;
    const int64_t begin = (int64_t)place.block * place.num_threads + place.thread;
    const int64_t step = (int64_t)place.num_blocks * place.num_threads;
    for (int64_t i = begin; i < groups; i += step)
        update_lanes<G, P, wide>(args, f, i * wide);
    for (int64_t i = groups * wide + begin; i < args.count; i += step)
        update_lanes<G, P, 1>(args, f, i);
}

/* ---- Norms ----------------------------------------------------------------------------------- */

#define DT_SQUARES_BLOCK 4096
#define DT_SQUARES_SUMS 16 /* of a block: of elements whose position modulo 16 is the same */

/* Neighbouring positions are one thread's: as many as 16 bytes hold. */
template <typename T> struct squares_shape {
    enum { POSITIONS = 16 / sizeof(T), THREADS = DT_SQUARES_SUMS / POSITIONS };
};

/* Threads of a block of threads that work on one block of elements. On the host one does. */
template <typename T> DT_DEVICE int squares_threads(const place_t &place)
{
    return place.num_threads < squares_shape<T>::THREADS ? 1 : squares_shape<T>::THREADS;
}

template <typename T> DT_DEVICE void add_square(T element, double *sum, int *is_finite)
{
    const double value = (double)arithmetic<T>::load(element);
    *sum += value * value;
    *is_finite &= value - value == 0;
}

/* The sums of the positions from `first` on, over the elements from `begin` to `end`. */
template <typename T>
DT_DEVICE void square_positions(const dt_squares_t &args, int64_t begin, int64_t end, int first,
                                double *sums)
{
    const int positions = squares_shape<T>::POSITIONS;
    const T *values = (const T *)args.values;
    double sum[positions];
    int is_finite[positions];
    for (int k = 0; k < positions; k++) {
        sum[k] = 0;
        is_finite[k] = 1;
    }
    int64_t i = begin + first;
    if (is_aligned(args.values, 16)) {
#pragma unroll 4
        for (; i + positions <= end; i += DT_SQUARES_SUMS) {
            const lanes<T, positions> loaded = lanes<T, positions>::load_once(values, i);
            for (int k = 0; k < positions; k++)
                add_square(loaded.of[k], &sum[k], &is_finite[k]);
        }
    }
    for (; i < end; i += DT_SQUARES_SUMS) {
        for (int k = 0; k < positions && i + k < end; k++)
            add_square(load_once(values + i + k), &sum[k], &is_finite[k]);
    }
    for (int k = 0; k < positions; k++)
        sums[first + k] = is_finite[k] ? sum[k] : (double)NAN;
}

/* First half: each thread leaves its sums in shared[element block][position]. */
template <typename T>
DT_DEVICE void square_lanes(const dt_squares_t &args, int64_t block, double *shared,
                            const place_t &place)
{
    const int threads = squares_threads<T>(place);
    double *sums = shared + (int)place.thread / threads * DT_SQUARES_SUMS;
    const int64_t begin = block * DT_SQUARES_BLOCK;
    int64_t end = begin + DT_SQUARES_BLOCK;
    if (end > args.count)
        end = args.count;
    for (int first = (int)place.thread % threads * squares_shape<T>::POSITIONS;
         first < DT_SQUARES_SUMS; first += threads * squares_shape<T>::POSITIONS)
        square_positions<T>(args, begin, end, first, sums);
}

/* Second half, of the first thread of each: adds the 16 sums up. */
template <typename T>
DT_DEVICE void square_join(const dt_squares_t &args, int64_t block, double *shared,
                           const place_t &place)
{
    const int threads = squares_threads<T>(place);
    if ((int)place.thread % threads != 0)
        return;
    double *sums = shared + (int)place.thread / threads * DT_SQUARES_SUMS;
    for (int width = DT_SQUARES_SUMS / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++)
            sums[i] += sums[i + width];
    }
    args.sums[block] = sums[0];
}

#endif
