/* kernels_host.cc - the bodies of the kernels as the host's compiler sees them, one thread a block.
 */
#include "kernels_host.h"

#include "move.cuh"
#include "optim.cuh"

typedef void (*body_fn_t)(const void *args, const place_t &place);

template <typename ARGS, void (*BODY)(const ARGS &, const place_t &)>
static void call(const void *args, const place_t &place)
{
    BODY(*(const ARGS *)args, place);
}

template <typename T> static void squares(const dt_squares_t &args, const place_t &place)
{
    double shared[DT_SQUARES_SUMS];
    const int64_t blocks = (args.count + DT_SQUARES_BLOCK - 1) / DT_SQUARES_BLOCK;
    for (int64_t block = place.block; block < blocks; block += place.num_blocks) {
        square_lanes<T>(args, block, shared, place);
        square_join<T>(args, block, shared, place);
    }
}

typedef struct host_kernel {
    body_fn_t run;
    size_t args_bytes;
} host_kernel_t;

template <typename ARGS, void (*BODY)(const ARGS &, const place_t &)>
static constexpr host_kernel_t kernel()
{
    return {call<ARGS, BODY>, sizeof(ARGS)};
}

typedef dt_move_few_t few_t;
typedef dt_move_many_t many_t;
typedef dt_device_update_t update_t;

/* In the order of dt_kernel_t. */
static const host_kernel_t kernels[DT_KERNEL_COUNT] = {
    kernel<few_t, move_copy<few_t>>(),
    kernel<few_t, move_scaled<__half, few_t>>(),
    kernel<few_t, move_scaled<__nv_bfloat16, few_t>>(),
    kernel<few_t, move_scaled<float, few_t>>(),
    kernel<few_t, move_scaled<double, few_t>>(),
    kernel<few_t, move_integers<few_t>>(),
    kernel<few_t, move_rounded<__half, few_t>>(),
    kernel<few_t, move_rounded<__nv_bfloat16, few_t>>(),
    kernel<many_t, move_copy<many_t>>(),
    kernel<many_t, move_scaled<__half, many_t>>(),
    kernel<many_t, move_scaled<__nv_bfloat16, many_t>>(),
    kernel<many_t, move_scaled<float, many_t>>(),
    kernel<many_t, move_scaled<double, many_t>>(),
    kernel<many_t, move_integers<many_t>>(),
    kernel<many_t, move_rounded<__half, many_t>>(),
    kernel<many_t, move_rounded<__nv_bfloat16, many_t>>(),
    kernel<update_t, update_all<__half, float>>(),
    kernel<update_t, update_all<__nv_bfloat16, float>>(),
    kernel<update_t, update_all<float, float>>(),
    kernel<update_t, update_all<double, double>>(),
    kernel<dt_squares_t, squares<__half>>(),
    kernel<dt_squares_t, squares<__nv_bfloat16>>(),
    kernel<dt_squares_t, squares<float>>(),
    kernel<dt_squares_t, squares<double>>(),
};

void dt_kernel_run_on_host(dt_kernel_t kernel, const void *args, uint32_t num_blocks)
{
    for (uint32_t block = 0; block < num_blocks; block++) {
        const place_t place = {block, num_blocks, 0, 1};
        kernels[kernel].run(args, place);
    }
}

dt_kernel_t dt_kernel_find(const char *name)
{
    int kernel = 0;
    while (kernel < DT_KERNEL_COUNT && strcmp(name, dt_kernel_name((dt_kernel_t)kernel)) != 0)
        kernel++;
    return (dt_kernel_t)kernel;
}

size_t dt_kernel_args_bytes(dt_kernel_t kernel)
{
    return kernels[kernel].args_bytes;
}
