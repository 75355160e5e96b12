/* buffer.h - a growing array of bytes, for messages. */
#ifndef DT_BASE_BUFFER_H
#define DT_BASE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

/* All zeros is an empty buffer. A failed growth sets `failed` and keeps what was there, so that
 * a writer checks once at its end. */
typedef struct dt_buffer {
    uint8_t *data;
    size_t length;
    size_t capacity;
    int failed;
} dt_buffer_t;

void dt_buffer_append(dt_buffer_t *buffer, const void *bytes, size_t length);

/* Makes room for `length` more bytes and returns where they go; NULL when that failed. */
void *dt_buffer_extend(dt_buffer_t *buffer, size_t length);

void dt_buffer_clear(dt_buffer_t *buffer); /* keeps the memory */
void dt_buffer_free(dt_buffer_t *buffer);

#endif
