/*
 * sock_stream.h - whole messages over one non-blocking stream socket. On the wire a message is
 * its length (32 bits, little endian) and its bytes.
 */
#ifndef DT_COMM_SOCK_SOCK_STREAM_H
#define DT_COMM_SOCK_SOCK_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

#include "base/buffer.h"

#define DT_SOCK_HEADER_BYTES 4

typedef enum dt_sock_end {
    DT_SOCK_OPEN = 0,
    DT_SOCK_CLOSED = 1,  /* the peer closed it, or the connection broke: see `error` */
    DT_SOCK_GARBAGE = 2, /* the peer announced a message longer than there are */
    DT_SOCK_NO_MEMORY = 3
} dt_sock_end_t;

typedef struct dt_sock_stream {
    int fd;
    uint8_t *in; /* received bytes in_begin … in_end have not been taken yet */
    size_t in_capacity, in_begin, in_end;
    dt_buffer_t out; /* from out_sent on: what the socket had no room for */
    size_t out_sent;
    dt_sock_end_t end; /* why nothing more will be received */
    int error;         /* errno of a broken connection; 0: closed in good order */
    int broken;        /* nothing more can be sent */
} dt_sock_stream_t;

/* Takes over a connected socket. */
void dt_sock_stream_open(dt_sock_stream_t *stream, int fd);

/* As dt_control_ops_t.send. */
dtrain_status_t dt_sock_stream_send(dt_sock_stream_t *stream, const void *data, size_t length);

/* Bytes that wait for room in the socket, and an attempt to send them. */
size_t dt_sock_stream_queued(const dt_sock_stream_t *stream);
void dt_sock_stream_flush(dt_sock_stream_t *stream);

/* Receives once. Returns 1 when there is something new: bytes, or the end; else 0. */
int dt_sock_stream_fill(dt_sock_stream_t *stream);

/* Takes the next message that is here as a whole: 1, or 0. *data is valid until the next fill. */
int dt_sock_stream_take(dt_sock_stream_t *stream, const uint8_t **data, size_t *length);

/* Why the stream ended, for a log line. */
const char *dt_sock_stream_reason(const dt_sock_stream_t *stream);

void dt_sock_stream_close(dt_sock_stream_t *stream);

#endif
