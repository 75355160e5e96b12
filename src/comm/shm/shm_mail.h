/*
 * shm_mail.h - messages between two ranks of a node through memory that both see: a ring of bytes
 * in each direction. One thread at a time writes a ring and one reads it.
 */
#ifndef DT_COMM_SHM_SHM_MAIL_H
#define DT_COMM_SHM_SHM_MAIL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

#define DT_SHM_RING_BYTES 32768 /* a power of two */
#define DT_SHM_MAIL_LINE 128

/* [shared] All zeros is an empty ring. */
typedef struct dt_shm_ring {
    _Alignas(DT_SHM_MAIL_LINE) _Atomic uint64_t written; /* [atomic] bytes so far; the writer's */
    _Alignas(DT_SHM_MAIL_LINE) _Atomic uint64_t taken;   /* [atomic] the reader's */
    _Alignas(DT_SHM_MAIL_LINE) uint8_t bytes[DT_SHM_RING_BYTES];
} dt_shm_ring_t;

/*
 * [shared] The post between the lowest rank of the node and another one, in the other one's heap.
 * `dozing` counts that rank's threads which sleep, or are about to: whoever writes to it wakes it.
 */
typedef struct dt_shm_mail {
    dt_shm_ring_t up;                              /* to the lowest rank */
    dt_shm_ring_t down;                            /* from it */
    _Alignas(DT_SHM_MAIL_LINE) _Atomic int dozing; /* [atomic] of the heap's owner */
} dt_shm_mail_t;

/* A rank's end for writing: what the ring has no room for waits in `queue`. */
typedef struct dt_shm_writer {
    dt_shm_ring_t *ring;
    dt_buffer_t queue;
    size_t sent; /* of the queue */
} dt_shm_writer_t;

/* A rank's end for reading. */
typedef struct dt_shm_reader {
    dt_shm_ring_t *ring;
    uint32_t length;     /* of the message that is being put together; 0: none */
    dt_buffer_t message; /* what there is of it */
} dt_shm_reader_t;

/* Writes a message, or queues what does not fit. 0, or -1 when memory ran out. */
int dt_shm_write(dt_shm_writer_t *writer, const void *data, size_t length);

/* Moves what is queued into the ring, as far as there is room. 1 when something is left. */
int dt_shm_flush(dt_shm_writer_t *writer);

/*
 * The next message: 1, and *data is valid until the next call; 0 when none is complete; -1 when
 * memory ran out or what is in the ring is no message (`longest` is the longest there is).
 */
int dt_shm_read(dt_shm_reader_t *reader, size_t longest, const uint8_t **data, size_t *length);

/* Whether something was written that was not read. Any thread. */
int dt_shm_ring_has_news(const dt_shm_ring_t *ring);

#endif
