/*
 * dump.h - the flight recorders of all ranks in one file (observe/flight_lines.h): those of the own
 * node are read off their boards, the others' newest records come by their failure detectors. None
 * of it needs an engine that works, or a world that has not ended.
 */
#ifndef DT_CORE_DUMP_H
#define DT_CORE_DUMP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"
#include "comm/detector.h"

typedef struct dt_runtime dt_runtime_t;

typedef struct dt_dump {
    pthread_mutex_t asking;    /* one question at a time; `lock` is taken under it */
    pthread_mutex_t lock;      /* under it the detector's */
    pthread_cond_t heard;      /* [lock] num_open has become less */
    dt_buffer_t lines;         /* [lock] answers that came */
    uint8_t *is_open;          /* [lock] by rank: an answer is waited for */
    int num_open;              /* [lock] */
    _Atomic uint32_t question; /* [atomic] for records, the last one */
} dt_dump_t;

/* OUT_OF_MEMORY. */
dtrain_status_t dt_dump_init(dt_dump_t *dump, int size);
void dt_dump_free(dt_dump_t *dump);

/* Writes all ranks' records to a file, in place of what it held. `reason` stands in it. FILE. Any
 * thread; waits for other nodes, two seconds at most. */
dtrain_status_t dt_dump_write(dt_runtime_t *runtime, const char *path, const char *reason);

/* The same, to a new file in the setting's directory, or in the working directory. Says in the log
 * which, or why not. */
void dt_dump_on_request(dt_runtime_t *runtime, const char *reason);

/* The world has ended: the first of the ranks that see each other's boards to call it writes the
 * records of all of them, where the setting says. Whoever sees rank 0 asks the other nodes too, and
 * waits for half a second at most, since their ranks are leaving as well. Any thread. */
void dt_dump_on_end(dt_runtime_t *runtime, const char *reason);

/* On the detector's thread: answers with a rank's records, or takes such an answer. */
void dt_dump_answer(dt_runtime_t *runtime, int rank, dt_detector_emit_fn_t emit, void *context);
void dt_dump_answered(dt_runtime_t *runtime, int rank, uint32_t question, const char *line);

#endif
