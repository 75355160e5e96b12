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
    int is_tcp;
    uint64_t sent;   /* bytes that the socket took */
    uint64_t mark;   /* the peer's kernel has not acknowledged so many yet, at the last look, */
    int64_t mark_ns; /* which have been on their way since; DT_NEVER: there are none */
    int is_watched;  /* the poller is to tell when there is room to send */
    dt_buffer_t out; /* what the socket has no room for */
    uint8_t in[2 * DT_DETECT_FRAME_MAX];
    size_t in_begin, in_end;
    int is_drained; /* the last read took all there was: the next is left to the poller */
} dt_detect_link_t;

/*
 * Takes over a connected socket. TCP too is told to end it when nothing is acknowledged for
 * timeout_ns, but may take some hundred milliseconds longer than that: see dt_detect_link_check.
 */
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
void dt_detect_link_beat(dt_detect_link_t *link, uint32_t epoch, int64_t now_ns);

/*
 * Has a TCP peer's kernel acknowledged what it was sent? -1 when it has not for timeout_ns: the
 * connection has ended, see `error`. A process that is only stopped has a kernel that does. Else 0;
 * while mark_ns is not DT_NEVER it is to be asked again timeout_ns after it.
 */
int dt_detect_link_check(dt_detect_link_t *link, int64_t timeout_ns, int64_t now_ns);

/* The next message: 1, valid until the next call. 0: none now. -1: the connection has ended, see
 * `error`. */
int dt_detect_link_receive(dt_detect_link_t *link, int size, dt_detect_message_t *message);

/* Ends it so that what was sent is still received. */
void dt_detect_link_close(dt_detect_link_t *link);

#endif
