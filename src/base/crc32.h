/* crc32.h - the CRC-32 of zlib, gzip and PNG: finds every burst of up to 32 wrong bits. */
#ifndef DT_BASE_CRC32_H
#define DT_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* 8 KiB that every use derives for itself, in some microseconds, instead of a global. */
typedef struct dt_crc32 {
    uint32_t table[8][256]; /* [k][b]: what byte b does to the sum, k bytes further on */
} dt_crc32_t;

void dt_crc32_init(dt_crc32_t *crc32);

/* Goes on with the sum of what came before; 0 for nothing. */
uint32_t dt_crc32_update(const dt_crc32_t *crc32, uint32_t sum, const void *bytes, size_t length);

#endif
