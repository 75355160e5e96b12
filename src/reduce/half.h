/* half.h - fp16 and bf16 to fp32 and back, round to nearest even, one value at a time: the
 * reference for the vector kernels. */
#ifndef DT_REDUCE_HALF_H
#define DT_REDUCE_HALF_H

#include <stdint.h>

float dt_f16_to_f32(uint16_t bits);
uint16_t dt_f32_to_f16(float value);
float dt_bf16_to_f32(uint16_t bits);
uint16_t dt_f32_to_bf16(float value);

#endif
