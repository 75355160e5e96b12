/* shm_slots.h - which part of a task's vector a chunk is, and where in the arena its values are. */
#ifndef DT_COMM_SHM_SHM_SLOTS_H
#define DT_COMM_SHM_SHM_SLOTS_H

#include "comm/shm/shm_stream.h"

/* A rank's slot of the chunk. */
uint8_t *dt_shm_slot(const dt_shm_stream_t *stream, int rank, uint64_t chunk);

/* In a rank's slot: its values of another rank's share, and the result of its own. */
uint8_t *dt_shm_input(const dt_shm_stream_t *stream, int rank, int owner, uint64_t chunk);
uint8_t *dt_shm_result(const dt_shm_stream_t *stream, int rank, uint64_t chunk);

/* What a rank has for another one, and has taken from it; and its copies of that, by entry. */
dt_shm_pair_t *dt_shm_pair(const dt_shm_stream_t *stream, int rank, int other);
uint8_t *dt_shm_copy(const dt_shm_stream_t *stream, int other, uint64_t entry);

/* Whether all ranks are through with what was in the chunk's slot before, as far as `event`. */
int dt_shm_slot_is_free(dt_shm_stream_t *stream, dt_shm_event_t event, uint64_t chunk);

/* The whole vector, and a rank's share of it. */
dt_span_t dt_shm_all(const dt_shm_task_t *task);
dt_span_t dt_shm_share(const dt_shm_stream_t *stream, const dt_shm_task_t *task, int rank);

/* A rank's share of a chunk, where chunks are segments of every share. */
dt_span_t dt_shm_segment(const dt_shm_stream_t *stream, const dt_shm_task_t *task, int rank,
                         uint64_t chunk);

/* The same of a rank's part of a vector, where there are counts; `places` are the task's. */
dt_span_t dt_shm_part_of(const dt_shm_task_t *task, const int64_t *places, int rank,
                         uint64_t chunk);

/* A chunk of a RELAY task. */
dt_span_t dt_shm_relayed(const dt_shm_task_t *task, uint64_t chunk);

/* Chunks of a task whose path was decided; sets its segment. */
uint64_t dt_shm_task_cut(const dt_shm_stream_t *stream, dt_shm_task_t *task);

#endif
