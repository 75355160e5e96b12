#include "comm/sock/sock_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/control.h"

#define IN_FIRST ((size_t)16 << 10)
/* Buffers that a long message has made larger than this are given back after it. */
#define KEEP_MAX ((size_t)1 << 20)

void dt_sock_stream_open(dt_sock_stream_t *stream, int fd)
{
    *stream = (dt_sock_stream_t){.fd = fd};
}

static void put_header(uint8_t *header, size_t length)
{
    for (int i = 0; i < DT_SOCK_HEADER_BYTES; i++)
        header[i] = (uint8_t)(length >> (8 * i));
}

static size_t get_header(const uint8_t *header)
{
    size_t length = 0;
    for (int i = 0; i < DT_SOCK_HEADER_BYTES; i++)
        length |= (size_t)header[i] << (8 * i);
    return length;
}

static void drop_queue(dt_sock_stream_t *stream)
{
    dt_buffer_free(&stream->out);
    stream->out_sent = 0;
}

/* What is already here may still be received after this. */
static void break_sending(dt_sock_stream_t *stream)
{
    stream->broken = 1;
    drop_queue(stream);
}

/* Sends what the socket has room for; -1 when the connection is broken. */
static ssize_t send_some(int fd, struct iovec *parts, size_t num_parts)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = num_parts};
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS))
        return 0;
    return sent;
}

/* Queues the message's bytes from `sent` on, counted with the header. */
static dtrain_status_t queue_rest(dt_sock_stream_t *stream, const uint8_t *header, const void *data,
                                  size_t length, size_t sent)
{
    size_t rest = DT_SOCK_HEADER_BYTES + length - sent;
    uint8_t *to = dt_buffer_extend(&stream->out, rest);
    if (!to) {
        stream->out.failed = 0;
        if (sent > 0) /* half a message: the peer cannot make sense of what follows */
            break_sending(stream);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory to queue a message of %zu bytes",
                       length);
    }
    if (sent < DT_SOCK_HEADER_BYTES) {
        memcpy(to, header + sent, DT_SOCK_HEADER_BYTES - sent);
        to += DT_SOCK_HEADER_BYTES - sent;
        sent = DT_SOCK_HEADER_BYTES;
    }
    sent -= DT_SOCK_HEADER_BYTES;
    if (length > sent)
        memcpy(to, (const uint8_t *)data + sent, length - sent);
    return DTRAIN_OK;
}

dtrain_status_t dt_sock_stream_send(dt_sock_stream_t *stream, const void *data, size_t length)
{
    if (length > DT_CONTROL_MESSAGE_MAX)
        return dt_fail(DTRAIN_ERR_INTERNAL, "a control message of %zu bytes is too long", length);
    if (stream->broken || stream->end != DT_SOCK_OPEN)
        return DTRAIN_ERR_RANK_LOST;
    uint8_t header[DT_SOCK_HEADER_BYTES];
    put_header(header, length);
    ssize_t sent = 0;
    if (dt_sock_stream_queued(stream) == 0) {
        struct iovec parts[2] = {{header, sizeof header}, {(void *)data, length}};
        sent = send_some(stream->fd, parts, 2);
        if (sent < 0) {
            break_sending(stream);
            return DTRAIN_ERR_RANK_LOST;
        }
        if ((size_t)sent == sizeof header + length)
            return DTRAIN_OK;
    }
    return queue_rest(stream, header, data, length, (size_t)sent);
}

size_t dt_sock_stream_queued(const dt_sock_stream_t *stream)
{
    return stream->out.length - stream->out_sent;
}

/* Keeps the queue's memory in proportion to what is queued. */
static void trim_queue(dt_sock_stream_t *stream)
{
    size_t rest = dt_sock_stream_queued(stream);
    if (rest == 0 && stream->out.capacity > KEEP_MAX) {
        drop_queue(stream);
    } else if (rest == 0 || stream->out_sent > stream->out.length / 2) {
        memmove(stream->out.data, stream->out.data + stream->out_sent, rest);
        stream->out.length = rest;
        stream->out_sent = 0;
    }
}

void dt_sock_stream_flush(dt_sock_stream_t *stream)
{
    size_t rest = dt_sock_stream_queued(stream);
    if (rest == 0)
        return;
    struct iovec part = {stream->out.data + stream->out_sent, rest};
    ssize_t sent = send_some(stream->fd, &part, 1);
    if (sent < 0) {
        break_sending(stream);
        return;
    }
    stream->out_sent += (size_t)sent;
    trim_queue(stream);
}

/* The length of the message at in_begin, header included; 0 while the header is not here. */
static size_t wanted(const dt_sock_stream_t *stream)
{
    if (stream->in_end - stream->in_begin < DT_SOCK_HEADER_BYTES)
        return 0;
    return DT_SOCK_HEADER_BYTES + get_header(stream->in + stream->in_begin);
}

static int grow(dt_sock_stream_t *stream, size_t capacity)
{
    uint8_t *in = dt_realloc(stream->in, capacity);
    if (!in)
        return -1;
    stream->in = in;
    stream->in_capacity = capacity;
    return 0;
}

/* Makes room behind in_end. A long message's buffer grows with what has arrived of it, so that
 * a length alone, which anyone can write, takes no memory. */
static int make_room(dt_sock_stream_t *stream)
{
    size_t here = stream->in_end - stream->in_begin;
    if (here == 0 && stream->in_capacity > KEEP_MAX) {
        dt_free(stream->in);
        stream->in = NULL;
        stream->in_capacity = 0;
    }
    if (here > 0 && stream->in_begin > 0)
        memmove(stream->in, stream->in + stream->in_begin, here);
    stream->in_begin = 0;
    stream->in_end = here;
    if (here < stream->in_capacity)
        return 0;
    size_t needed = wanted(stream);
    size_t capacity = stream->in_capacity ? 2 * stream->in_capacity : IN_FIRST;
    if (capacity > needed && needed > here)
        capacity = needed;
    return grow(stream, capacity);
}

int dt_sock_stream_fill(dt_sock_stream_t *stream)
{
    if (stream->end != DT_SOCK_OPEN)
        return 0;
    if (make_room(stream) != 0) {
        stream->end = DT_SOCK_NO_MEMORY;
        return 1;
    }
    ssize_t got;
    do {
        got = recv(stream->fd, stream->in + stream->in_end, stream->in_capacity - stream->in_end,
                   MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0) {
        stream->error = got < 0 ? errno : 0;
        stream->end = DT_SOCK_CLOSED;
        return 1;
    }
    stream->in_end += (size_t)got;
    return 1;
}

int dt_sock_stream_take(dt_sock_stream_t *stream, const uint8_t **data, size_t *length)
{
    size_t needed = wanted(stream);
    if (needed > DT_SOCK_HEADER_BYTES + (size_t)DT_CONTROL_MESSAGE_MAX) {
        stream->end = DT_SOCK_GARBAGE;
        stream->in_begin = stream->in_end;
        break_sending(stream);
        return 0;
    }
    if (needed == 0 || stream->in_end - stream->in_begin < needed)
        return 0;
    *data = stream->in + stream->in_begin + DT_SOCK_HEADER_BYTES;
    *length = needed - DT_SOCK_HEADER_BYTES;
    stream->in_begin += needed;
    return 1;
}

const char *dt_sock_stream_reason(const dt_sock_stream_t *stream)
{
    switch (stream->end) {
    case DT_SOCK_OPEN:
        return "it is open";
    case DT_SOCK_GARBAGE:
        return "it sent something that is no message of libdtrain";
    case DT_SOCK_NO_MEMORY:
        return "no memory to receive its message";
    case DT_SOCK_CLOSED:
        break;
    }
    return stream->error ? strerror(stream->error) : "it closed the connection";
}

void dt_sock_stream_close(dt_sock_stream_t *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    dt_free(stream->in);
    drop_queue(stream);
    *stream = (dt_sock_stream_t){.fd = -1, .broken = 1, .end = DT_SOCK_CLOSED};
}
