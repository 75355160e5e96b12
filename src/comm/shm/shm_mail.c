#include "comm/shm/shm_mail.h"

#include <string.h>

#define PREFIX sizeof(uint32_t)

/* Copies into the ring at its position `at`, around its end. */
static void put(dt_shm_ring_t *ring, uint64_t at, const uint8_t *data, size_t length)
{
    size_t offset = at % DT_SHM_RING_BYTES;
    size_t first = DT_SHM_RING_BYTES - offset;
    if (first > length)
        first = length;
    memcpy(ring->bytes + offset, data, first);
    memcpy(ring->bytes, data + first, length - first);
}

static void get(const dt_shm_ring_t *ring, uint64_t at, uint8_t *data, size_t length)
{
    size_t offset = at % DT_SHM_RING_BYTES;
    size_t first = DT_SHM_RING_BYTES - offset;
    if (first > length)
        first = length;
    memcpy(data, ring->bytes + offset, first);
    memcpy(data + first, ring->bytes, length - first);
}

static size_t room(const dt_shm_ring_t *ring)
{
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    return DT_SHM_RING_BYTES - (size_t)(written - taken);
}

int dt_shm_write(dt_shm_writer_t *writer, const void *data, size_t length)
{
    dt_shm_ring_t *ring = writer->ring;
    uint32_t prefix = (uint32_t)length;
    if (writer->queue.length > 0 || room(ring) < PREFIX + length) {
        dt_buffer_append(&writer->queue, &prefix, PREFIX);
        dt_buffer_append(&writer->queue, data, length);
        dt_shm_flush(writer);
        return writer->queue.failed ? -1 : 0;
    }
    uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    put(ring, at, (const uint8_t *)&prefix, PREFIX);
    put(ring, at + PREFIX, data, length);
    atomic_store_explicit(&ring->written, at + PREFIX + length, memory_order_release);
    return 0;
}

int dt_shm_flush(dt_shm_writer_t *writer)
{
    dt_shm_ring_t *ring = writer->ring;
    size_t left = writer->queue.length - writer->sent;
    size_t part = room(ring);
    if (part > left)
        part = left;
    if (part > 0) {
        uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
        put(ring, at, writer->queue.data + writer->sent, part);
        atomic_store_explicit(&ring->written, at + part, memory_order_release);
        writer->sent += part;
    }
    if (part == left) {
        dt_buffer_clear(&writer->queue);
        writer->sent = 0;
    }
    return part < left;
}

/* Takes the length of the next message. 0, or -1 for one that cannot be. */
static int begin(dt_shm_reader_t *reader, size_t longest, uint64_t *taken, size_t *available)
{
    get(reader->ring, *taken, (uint8_t *)&reader->length, PREFIX);
    *taken += PREFIX;
    *available -= PREFIX;
    dt_buffer_clear(&reader->message);
    return reader->length == 0 || reader->length > longest ? -1 : 0;
}

int dt_shm_read(dt_shm_reader_t *reader, size_t longest, const uint8_t **data, size_t *length)
{
    dt_shm_ring_t *ring = reader->ring;
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    size_t available = (size_t)(atomic_load_explicit(&ring->written, memory_order_acquire) - taken);
    if (available > DT_SHM_RING_BYTES)
        return -1;
    /* A full ring may end in the middle of a message, also of its length. */
    if (available < (reader->length == 0 ? PREFIX : 1))
        return 0;
    if (reader->length == 0 && begin(reader, longest, &taken, &available))
        return -1;
    size_t missing = reader->length - reader->message.length;
    size_t part = available < missing ? available : missing;
    if (part > 0) {
        uint8_t *to = dt_buffer_extend(&reader->message, part);
        if (!to)
            return -1;
        get(ring, taken, to, part);
        taken += part;
    }
    atomic_store_explicit(&ring->taken, taken, memory_order_release);
    if (part < missing)
        return 0;
    *data = reader->message.data;
    *length = reader->length;
    reader->length = 0;
    return 1;
}

int dt_shm_ring_has_news(const dt_shm_ring_t *ring)
{
    return atomic_load_explicit(&ring->written, memory_order_acquire) !=
           atomic_load_explicit(&ring->taken, memory_order_relaxed);
}
