/* recording.h - what the flight recorder (observe/flight.h) is told of operations. With the
 * baton, where nothing else is said. */
#ifndef DT_CORE_RECORDING_H
#define DT_CORE_RECORDING_H

#include "core/runtime.h"

/* Gives the runtime a recorder, on its board in the world's or one of its own. OUT_OF_MEMORY. */
dtrain_status_t dt_recording_open(dt_runtime_t *runtime);
void dt_recording_close(dt_runtime_t *runtime);

/* Taken from the intake. Stand-ins and bystanders are never recorded. */
void dt_recording_submitted(dt_runtime_t *runtime, dt_operation_t *operation);

/* Agreed on in a set, which is NULL for changes of sets: these concern all ranks, as the world's
 * operations do. `operation` is NULL when this rank only keeps count. */
void dt_recording_agreed(dt_runtime_t *runtime, dt_pset_t *set, const dt_operation_t *operation);

/* A dt_started_fn_t of a runtime. */
void dt_recording_started(void *runtime, dt_operation_t *const *operations, int n);

/* A rank's board; NULL where it cannot be seen from here. Any thread. */
dt_flight_board_t *dt_recording_board(const dt_runtime_t *runtime, int rank);

/* What detectors ask each other (dt_detector_ask). */
typedef enum dt_question {
    DT_QUESTION_POSITION = 0, /* a line on where the rank stands */
    DT_QUESTION_RECORDS = 1   /* lines of a dump: its newest records */
} dt_question_t;

/* Hooks of the detector, on its thread. */
void dt_recording_answer(void *runtime, int rank, int question, dt_detector_emit_fn_t emit,
                         void *emit_context);
void dt_recording_answered(void *runtime, int rank, uint32_t number, const char *line);

/* A describe hook of the detector (comm/detector.h): what a rank of this node was last doing. Any
 * thread. */
void dt_recording_describe(void *runtime, int rank, char *text, size_t cap);

void dt_recording_finished(dt_runtime_t *runtime, const dt_operation_t *operation,
                           dtrain_status_t status);

#endif
