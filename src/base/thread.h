/* thread.h - the library's own threads. They block all signals: the application's handlers run on
 * the application's threads. */
#ifndef DT_BASE_THREAD_H
#define DT_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* `name` is at most 15 bytes. 0, or what pthread_create says. */
int dt_thread_start(pthread_t *thread, const char *name, void *(*main)(void *argument),
                    void *argument);

/* Waits for the thread's end, at most for limit_ns (DT_NEVER: as long as it takes). 0, or -1: it
 * still runs. */
int dt_thread_join(pthread_t thread, int64_t limit_ns);

#endif
