/*
 * sigpipe.h - for calls into libraries that write to sockets without MSG_NOSIGNAL, as Open MPI's
 * TCP transport does: when the peer is gone the kernel raises SIGPIPE on the calling thread, which
 * would end the application. Meanwhile it is held back on this thread alone; the application's
 * handler is left as it is, and signals of its own making reach it.
 */
#ifndef DT_BASE_SIGPIPE_H
#define DT_BASE_SIGPIPE_H

#include <signal.h>

typedef struct dt_sigpipe {
    sigset_t before;
    int is_held; /* it was not blocked before */
} dt_sigpipe_t;

/* Both on the same thread. What was raised between them is dropped. */
void dt_sigpipe_hold(dt_sigpipe_t *held);
void dt_sigpipe_release(const dt_sigpipe_t *held);

#endif
