#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/sigpipe.h"
#include "base/text.h"

#define LINE_MAX_BYTES 2048

/* How long a line waits for a reader before it is dropped. */
#define ROOM_MS 500

static _Atomic int threshold = DTRAIN_LOG_WARN; /* [atomic] relaxed */
static _Atomic int shown_rank = -1;             /* [atomic] relaxed */

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf: nothing else is taken */
static dtrain_log_fn_t sink;                                  /* [sink_lock] */
static void *sink_user;                                       /* [sink_lock] */

static const char *level_name(dtrain_log_level_t level)
{
    static const char *const names[] = {"", "off", "error", "warn", "info", "debug", "trace"};
    return names[level];
}

static size_t write_prefix(char *line, dtrain_log_level_t level, const char *subsystem)
{
    int rank = atomic_load_explicit(&shown_rank, memory_order_relaxed);
    if (rank < 0)
        return dt_text_format(line, LINE_MAX_BYTES, "[dtrain] %s %s: ", level_name(level),
                              subsystem);
    return dt_text_format(line, LINE_MAX_BYTES, "[dtrain %d] %s %s: ", rank, level_name(level),
                          subsystem);
}

/* Names of tensors come from the program: whatever they hold, a line stays one line. */
static void blank_control_characters(char *line)
{
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    }
}

/* Whether a line can be written without waiting for ever: a pipe has room for a whole one when it
 * says so. */
static int has_room(void)
{
    struct pollfd pipe = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&pipe, 1, ROOM_MS) != 0;
}

/* One write a line, so that lines of several threads and processes do not mix. A launcher that ends
 * may have closed the pipe, or read it no more: that must not keep the process from its error. */
static void write_stderr(char *line, size_t length)
{
    dt_sigpipe_t held;
    line[length++] = '\n';
    dt_sigpipe_hold(&held);
    while (length > 0 && has_room()) {
        ssize_t written = write(STDERR_FILENO, line, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        line += written;
        length -= (size_t)written;
    }
    dt_sigpipe_release(&held);
}

static int give_to_sink(dtrain_log_level_t level, const char *line)
{
    pthread_mutex_lock(&sink_lock);
    int is_set = sink != NULL;
    if (is_set)
        sink(level, line, sink_user);
    pthread_mutex_unlock(&sink_lock);
    return is_set;
}

void dt_log(dtrain_log_level_t level, const char *subsystem, const char *format, ...)
{
    if (level <= DTRAIN_LOG_OFF || level > DTRAIN_LOG_TRACE ||
        (int)level > atomic_load_explicit(&threshold, memory_order_relaxed))
        return;
    int saved_errno = errno;
    char line[LINE_MAX_BYTES + 1]; /* and a newline */
    size_t length = write_prefix(line, level, subsystem);
    va_list arguments;
    va_start(arguments, format);
    length += dt_text_vformat(line + length, LINE_MAX_BYTES - length, format, arguments);
    va_end(arguments);
    blank_control_characters(line);
    if (!give_to_sink(level, line))
        write_stderr(line, length);
    errno = saved_errno;
}

void dt_log_set_level(dtrain_log_level_t level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

void dt_log_set_rank(int rank)
{
    atomic_store_explicit(&shown_rank, rank, memory_order_relaxed);
}

void dt_log_set_sink(dtrain_log_fn_t fn, void *user)
{
    pthread_mutex_lock(&sink_lock);
    sink = fn;
    sink_user = user;
    pthread_mutex_unlock(&sink_lock);
}
