/*
 * flight.h - the flight recorder: what a rank's last operations were, and how far each has come.
 *
 * It is always on, so it costs a few stores an operation: no lock, no clock, no allocation. One
 * thread at a time writes (the holder of the runtime's baton), with a time that it notes once for
 * a batch. What is written lies in a board, which other processes of the node may map: so a rank
 * can be read that hangs or has died. A reader never holds a writer up; it checks instead that
 * what it read was not overwritten meanwhile.
 */
#ifndef DT_OBSERVE_FLIGHT_H
#define DT_OBSERVE_FLIGHT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

#define DT_FLIGHT_RECORDS 1024 /* a power of two */
#define DT_FLIGHT_NAME_MAX 56  /* with the final zero; of a longer name the end is kept */

/* How far an operation has come. */
typedef enum dt_flight_stage {
    DT_FLIGHT_SUBMITTED = 0, /* the engine has taken it in */
    DT_FLIGHT_AGREED = 1,    /* all ranks have submitted it */
    DT_FLIGHT_STARTED = 2,   /* its data has begun to move */
    DT_FLIGHT_FINISHED = 3,
    DT_FLIGHT_STAGES = 4
} dt_flight_stage_t;

const char *dt_flight_stage_name(dt_flight_stage_t stage);

/* ---- The board ---------------------------------------------------------------------------- */

#define DT_FLIGHT_WORDS 16

/* [shared, atomic] One operation, as words whose meaning flight.c knows. The first is written last,
 * and is 0 while the others change. */
typedef struct dt_flight_slot {
    _Alignas(64) _Atomic uint64_t words[DT_FLIGHT_WORDS];
} dt_flight_slot_t;

/* [shared, atomic] The last operation that has reached a stage. */
typedef struct dt_flight_mark {
    _Atomic uint64_t count; /* operations that have */
    _Atomic uint64_t last;  /* its reference */
    _Atomic int64_t time_ns;
} dt_flight_mark_t;

/* All zeros is an empty board. */
typedef struct dt_flight_board {
    _Alignas(64) dt_flight_mark_t marks[DT_FLIGHT_STAGES];
    _Atomic uint32_t is_claimed; /* dt_flight_claim was called */
    dt_flight_slot_t slots[DT_FLIGHT_RECORDS];
} dt_flight_board_t;

/* ---- Writing ------------------------------------------------------------------------------ */

/* Names an operation's record: its number and its slot. 0: none. */
typedef uint64_t dt_flight_ref_t;

/* A rank's own recorder. */
typedef struct dt_flight {
    dt_flight_board_t *board; /* borrowed */
    int64_t now_ns;           /* when what is noted next has happened */
    uint64_t num_submitted;
    uint32_t next_slot;
} dt_flight_t;

/* What is known of an operation from the start. */
typedef struct dt_flight_operation {
    const char *name; /* `length` bytes */
    size_t length;
    int64_t count; /* elements on this rank */
    int32_t set;
    uint8_t kind, dtype; /* numbers for which the reader has names */
} dt_flight_operation_t;

/* `board` is all zeros. */
void dt_flight_init(dt_flight_t *flight, dt_flight_board_t *board);

/* What is noted from here on happens at `now_ns`. */
static inline void dt_flight_at(dt_flight_t *flight, int64_t now_ns)
{
    flight->now_ns = now_ns;
}

/* A new operation. Its record takes the place of the oldest one that is finished; while none is, of
 * the oldest. */
dt_flight_ref_t dt_flight_submit(dt_flight_t *flight, const dt_flight_operation_t *operation);

/* All ranks have submitted it; `place` counts what was agreed on in its process set, from 1 and
 * alike on all ranks of the set. */
void dt_flight_agree(dt_flight_t *flight, dt_flight_ref_t ref, uint64_t place);

/* Its data has begun to move. Only the first call for an operation counts. */
void dt_flight_start(dt_flight_t *flight, dt_flight_ref_t ref);

/* It is over. One that went well without a start has started just now. */
void dt_flight_finish(dt_flight_t *flight, dt_flight_ref_t ref, dtrain_status_t status);

/* 1 for the first of all processes that call it on a board, who then does what is to be done once;
 * else 0. */
int dt_flight_claim(dt_flight_board_t *board);

/* ---- Reading ------------------------------------------------------------------------------ */

/* A copy of one record. */
typedef struct dt_flight_record {
    uint64_t number;                    /* from 1, in the order of submission */
    int64_t times_ns[DT_FLIGHT_STAGES]; /* 0: not yet */
    int64_t count;
    uint64_t place; /* 0: not agreed */
    int32_t set;
    int32_t status; /* DTRAIN_IN_PROGRESS until it is finished */
    uint8_t kind, dtype;
    char name[DT_FLIGHT_NAME_MAX];
} dt_flight_record_t;

/* Where a rank stands: for each stage how many operations have reached it, when the last one did,
 * and which (number 0: its record is gone, or there was none). */
typedef struct dt_flight_position {
    uint64_t counts[DT_FLIGHT_STAGES];
    int64_t times_ns[DT_FLIGHT_STAGES];
    dt_flight_record_t last[DT_FLIGHT_STAGES];
} dt_flight_position_t;

/* Any thread or process, at any time. */
void dt_flight_read_position(const dt_flight_board_t *board, dt_flight_position_t *position);

/* Copies one slot's record: 1, or 0 when there is none or it is changing just now. */
int dt_flight_read_slot(const dt_flight_board_t *board, int slot, dt_flight_record_t *record);

/* Copies all records, in the order of submission. Returns how many there are. */
int dt_flight_read(const dt_flight_board_t *board, dt_flight_record_t records[DT_FLIGHT_RECORDS]);

#endif
