/* checksum.h - a checksum by which ranks compare tensors: fast, 64 bits, not against intent. */
#ifndef DT_OBSERVE_CHECKSUM_H
#define DT_OBSERVE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Of any bytes: any change shows but for one chance in 2^64 or so. Depends on the byte order. */
uint64_t dt_checksum(const void *bytes, size_t length);

#endif
