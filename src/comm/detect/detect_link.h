/* detect_link.h - a detector's connection to another one: frames over a stream socket, never
 * blocking. */
#ifndef DT_COMM_DETECT_DETECT_LINK_H
#define DT_COMM_DETECT_DETECT_LINK_H

#include "base/buffer.h"
#include "comm/detect/detect_codec.h"

typedef struct dt_detect_link {
    int fd;           /* -1: closed */
    int rank;         /* at the other end */
    int error;        /* once it has ended: 0 for an end in good order, EPROTO for bytes that are no
                         frame, else what broke it */
    int has_left;     /* it said that it leaves */
    int64_t heard_ns; /* when something last came */
    int unanswered;   /* beats sent since */
    int is_watched;   /* the poller is to tell when there is room to send */
    dt_buffer_t out;  /* what the socket has no room for */
    uint8_t in[2 * DT_DETECT_FRAME_MAX];
    size_t in_begin, in_end;
    int is_drained; /* the last read took all there was: the next is left to the poller */
} dt_detect_link_t;

/* Takes over a connected socket. A TCP peer that acknowledges nothing for timeout_ns is lost. */
void dt_detect_link_open(dt_detect_link_t *link, int fd, int rank, int64_t timeout_ns,
                         int64_t now_ns);

/* What cannot leave at once is kept. Failures are told by receive. */
void dt_detect_link_send(dt_detect_link_t *link, const dt_detect_message_t *message);
void dt_detect_link_flush(dt_detect_link_t *link);

/*
 * A beat, unless one is useless: bytes wait for room, or so many went unanswered that the peer must
 * be stopped. Its kernel goes on acknowledging until its buffer is full; that must not happen, or
 * it would be taken for lost.
 */
void dt_detect_link_beat(dt_detect_link_t *link, uint32_t epoch);

/* The next message: 1, valid until the next call. 0: none now. -1: the connection has ended, see
 * `error`. */
int dt_detect_link_receive(dt_detect_link_t *link, int size, dt_detect_message_t *message);

/* Ends it so that what was sent is still received. */
void dt_detect_link_close(dt_detect_link_t *link);

#endif
