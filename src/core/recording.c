#include "core/recording.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "core/pset_key.h"
#include "observe/flight_text.h"

_Static_assert(sizeof(dt_flight_board_t) <= DT_BOARD_BYTES, "a board has room for the recorder");

dtrain_status_t dt_recording_open(dt_runtime_t *runtime)
{
    size_t bytes = sizeof *runtime->own_board;
    dt_flight_board_t *board = dt_boards_get(&runtime->world.boards, runtime->world.topology.rank);
    if (board) {
        dt_flight_init(&runtime->flight, board);
        return DTRAIN_OK;
    }
    runtime->own_board = dt_alloc_aligned(_Alignof(dt_flight_board_t), bytes);
    if (!runtime->own_board)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the flight recorder");
    memset(runtime->own_board, 0, bytes);
    dt_flight_init(&runtime->flight, runtime->own_board);
    return DTRAIN_OK;
}

void dt_recording_close(dt_runtime_t *runtime)
{
    dt_free(runtime->own_board);
}

void dt_recording_submitted(dt_runtime_t *runtime, dt_operation_t *operation)
{
    const dt_signature_t *signature = &operation->signature;
    dt_flight_operation_t known = {.name = operation->name->text,
                                   .length = operation->name->length,
                                   .count = operation->count,
                                   .set = signature->pset,
                                   .kind = signature->kind,
                                   .dtype = signature->dtype};
    if (signature->pset != DTRAIN_PSET_WORLD) {
        dt_pset_key_read(operation->name->text, operation->name->length, &known.name);
        known.length -= (size_t)(known.name - operation->name->text);
    }
    operation->flight = dt_flight_submit(&runtime->flight, &known);
}

void dt_recording_agreed(dt_runtime_t *runtime, dt_pset_t *set, const dt_operation_t *operation)
{
    if (!set)
        set = dt_psets_find(&runtime->psets, DTRAIN_PSET_WORLD);
    set->place++;
    if (operation)
        dt_flight_agree(&runtime->flight, operation->flight, set->place);
}

void dt_recording_started(void *runtime, dt_operation_t *const *operations, int n)
{
    dt_runtime_t *self = runtime;
    for (int i = 0; i < n; i++)
        dt_flight_start(&self->flight, operations[i]->flight);
}

void dt_recording_finished(dt_runtime_t *runtime, const dt_operation_t *operation,
                           dtrain_status_t status)
{
    dt_flight_finish(&runtime->flight, operation->flight, status);
}

dt_flight_board_t *dt_recording_board(const dt_runtime_t *runtime, int rank)
{
    if (rank == runtime->world.topology.rank)
        return runtime->flight.board;
    return dt_boards_get(&runtime->world.boards, rank);
}

void dt_recording_answer(void *runtime, int rank, int question, dt_detector_emit_fn_t emit,
                         void *emit_context)
{
    if (question == DT_QUESTION_POSITION)
        dt_stall_answer(runtime, rank, emit, emit_context);
    else if (question == DT_QUESTION_RECORDS)
        dt_dump_answer(runtime, rank, emit, emit_context);
}

void dt_recording_answered(void *runtime, int rank, uint32_t number, const char *line)
{
    dt_runtime_t *self = runtime;
    if (self->negotiator)
        dt_stall_answered(self, rank, number, line);
    dt_dump_answered(self, rank, number, line);
}

void dt_recording_describe(void *runtime, int rank, char *text, size_t cap)
{
    dt_runtime_t *self = runtime;
    const dt_flight_board_t *board = dt_recording_board(self, rank);
    text[0] = '\0';
    if (board)
        dt_flight_describe_last(board, self->clock.now(self->clock.context), dt_kind_name, text,
                                cap);
}
