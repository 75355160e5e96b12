#include "base/buffer.h"

#include <string.h>

#include "base/memory.h"

#define FIRST_CAPACITY 256

/* Room for `needed` bytes in all; doubling keeps the cost of many small appends linear. */
static int reserve(dt_buffer_t *buffer, size_t needed)
{
    if (buffer->data && needed <= buffer->capacity)
        return 0;
    size_t capacity = buffer->capacity ? buffer->capacity : FIRST_CAPACITY;
    while (capacity < needed)
        capacity = capacity <= SIZE_MAX / 2 ? capacity * 2 : needed;
    uint8_t *data = dt_realloc(buffer->data, capacity);
    if (!data)
        return -1;
    buffer->data = data;
    buffer->capacity = capacity;
    return 0;
}

void *dt_buffer_extend(dt_buffer_t *buffer, size_t length)
{
    /* After a failure nothing is added any more: what is there stays free of gaps. */
    if (buffer->failed)
        return NULL;
    if (length > SIZE_MAX - buffer->length || reserve(buffer, buffer->length + length) != 0) {
        buffer->failed = 1;
        return NULL;
    }
    void *end = buffer->data + buffer->length;
    buffer->length += length;
    return end;
}

void dt_buffer_append(dt_buffer_t *buffer, const void *bytes, size_t length)
{
    void *end = dt_buffer_extend(buffer, length);
    if (end && length > 0)
        memcpy(end, bytes, length);
}

void dt_buffer_clear(dt_buffer_t *buffer)
{
    buffer->length = 0;
    buffer->failed = 0;
}

void dt_buffer_free(dt_buffer_t *buffer)
{
    dt_free(buffer->data);
    *buffer = (dt_buffer_t){0};
}
