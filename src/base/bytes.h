/* bytes.h - numbers in messages, little endian, at any address. */
#ifndef DT_BASE_BYTES_H
#define DT_BASE_BYTES_H

#include <stdint.h>

static inline void dt_put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static inline uint32_t dt_get_u32(const uint8_t *from)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)from[i] << (8 * i);
    return value;
}

#endif
