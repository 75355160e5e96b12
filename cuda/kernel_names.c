#include "kernels.h"

#include <stddef.h>

const char *dt_kernel_name(dt_kernel_t kernel)
{
    static const char *const names[DT_KERNEL_COUNT] = {
        [DT_KERNEL_MOVE_COPY_FEW] = "dt_move_copy_few",
        [DT_KERNEL_MOVE_F16_FEW] = "dt_move_f16_few",
        [DT_KERNEL_MOVE_BF16_FEW] = "dt_move_bf16_few",
        [DT_KERNEL_MOVE_F32_FEW] = "dt_move_f32_few",
        [DT_KERNEL_MOVE_F64_FEW] = "dt_move_f64_few",
        [DT_KERNEL_MOVE_INTEGERS_FEW] = "dt_move_integers_few",
        [DT_KERNEL_MOVE_ROUNDED_F16_FEW] = "dt_move_rounded_f16_few",
        [DT_KERNEL_MOVE_ROUNDED_BF16_FEW] = "dt_move_rounded_bf16_few",
        [DT_KERNEL_MOVE_COPY_MANY] = "dt_move_copy_many",
        [DT_KERNEL_MOVE_F16_MANY] = "dt_move_f16_many",
        [DT_KERNEL_MOVE_BF16_MANY] = "dt_move_bf16_many",
        [DT_KERNEL_MOVE_F32_MANY] = "dt_move_f32_many",
        [DT_KERNEL_MOVE_F64_MANY] = "dt_move_f64_many",
        [DT_KERNEL_MOVE_INTEGERS_MANY] = "dt_move_integers_many",
        [DT_KERNEL_MOVE_ROUNDED_F16_MANY] = "dt_move_rounded_f16_many",
        [DT_KERNEL_MOVE_ROUNDED_BF16_MANY] = "dt_move_rounded_bf16_many",
        [DT_KERNEL_UPDATE_F16] = "dt_update_f16",
        [DT_KERNEL_UPDATE_BF16] = "dt_update_bf16",
        [DT_KERNEL_UPDATE_F32] = "dt_update_f32",
        [DT_KERNEL_UPDATE_F64] = "dt_update_f64",
        [DT_KERNEL_SQUARES_F16] = "dt_squares_f16",
        [DT_KERNEL_SQUARES_BF16] = "dt_squares_bf16",
        [DT_KERNEL_SQUARES_F32] = "dt_squares_f32",
        [DT_KERNEL_SQUARES_F64] = "dt_squares_f64",
    };
    return kernel >= 0 && kernel < DT_KERNEL_COUNT ? names[kernel] : NULL;
}
