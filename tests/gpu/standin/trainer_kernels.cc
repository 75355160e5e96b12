/* trainer_kernels.cc - the kernels of the example trainers as the host's compiler sees them, by the
 * names under which a program registers them. */
#include <string.h>

#include <utility>

#include "gpu_kernels.cuh"

extern "C" {
#include "program_kernels.h"
#include "standin.h"
}

template <typename T> struct argument {
    static T take(uint64_t word)
    {
        T value;
        memcpy(&value, &word, sizeof value);
        return value;
    }
};

template <typename T> struct argument<T *> {
    static T *take(uint64_t word)
    {
        return (T *)standin_reach_in_kernel((const void *)word);
    }
};

/* A body with its arguments, each in a word of its own. */
template <auto BODY> struct kernel;
template <typename... A, void (*BODY)(const place_t &, A...)> struct kernel<BODY> {
    static_assert(sizeof...(A) <= STANDIN_ARGUMENTS_MAX, "words for all arguments");

    static void keep(void **args, uint64_t *words)
    {
        size_t i = 0;
        ((memcpy(&words[i], args[i], sizeof(A)), i++), ...);
    }

    template <size_t... I>
    static void call(const place_t &place, const uint64_t *words, std::index_sequence<I...>)
    {
        BODY(place, argument<A>::take(words[I])...);
    }

    static void run(const uint64_t *words, unsigned num_blocks)
    {
        for (unsigned block = 0; block < num_blocks; block++) {
            const place_t place = {(int)block, (int)num_blocks, 0, 1, 0, 1, 0, 1};
            call(place, words, std::index_sequence_for<A...>());
        }
    }
};

template <typename T>
static void sum_all_rows(const place_t &place, const T *delta, T *gradient, int rows, int columns)
{
    float sums[1][COLUMNS];
    sum_rows(place, delta, rows, columns, sums);
    sum_warps(place, gradient, columns, sums);
}

template <auto BODY> static constexpr standin_kernel_t named(const char *name)
{
    return {name, kernel<BODY>::keep, kernel<BODY>::run};
}

typedef __nv_bfloat16 bf16_t;

static const standin_kernel_t kernels[] = {
    named<gather<float>>("mlp_gather_f32"),
    named<gather<bf16_t>>("mlp_gather_bf16"),
    named<convert<float>>("mlp_convert_f32"),
    named<convert<bf16_t>>("mlp_convert_bf16"),
    named<loss<float>>("mlp_loss_f32"),
    named<loss<bf16_t>>("mlp_loss_bf16"),
    named<add_bias<float>>("mlp_add_bias_f32"),
    named<add_bias<bf16_t>>("mlp_add_bias_bf16"),
    named<relu_gradient<float>>("mlp_relu_gradient_f32"),
    named<relu_gradient<bf16_t>>("mlp_relu_gradient_bf16"),
    named<sum_all_rows<float>>("mlp_sum_rows_f32"),
    named<sum_all_rows<bf16_t>>("mlp_sum_rows_bf16"),
    named<sgd<float>>("mlp_sgd_f32"),
    named<sgd<bf16_t>>("mlp_sgd_bf16"),
};

extern "C" const standin_kernel_t *standin_find_kernel(const char *name)
{
    for (const standin_kernel_t &each : kernels) {
        if (strcmp(each.name, name) == 0)
            return &each;
    }
    return NULL;
}
