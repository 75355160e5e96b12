/* flight_text.h - a recorder's contents in words, for errors and reports. */
#ifndef DT_OBSERVE_FLIGHT_TEXT_H
#define DT_OBSERVE_FLIGHT_TEXT_H

#include "observe/flight.h"

/* The name of a record's kind, as "allreduce". */
typedef const char *(*dt_flight_kind_fn_t)(uint8_t kind);

/* The unfinished operation that has come furthest, and of those the oldest: what holds the rank up.
 * 1, or 0 when everything is finished. *num_unfinished counts all. */
int dt_flight_find_unfinished(const dt_flight_board_t *board, dt_flight_record_t *record,
                              int *num_unfinished);

/*
 * What a rank was last doing, to go on after "it was last ": "in allreduce 'w' (its operation 812;
 * 3 are unfinished), and had finished allreduce 'v' 1.2 s ago". "" and 0 for a rank that has
 * submitted nothing. Names are made printable.
 */
size_t dt_flight_describe_last(const dt_flight_board_t *board, int64_t now_ns,
                               dt_flight_kind_fn_t kind_name, char *text, size_t cap);

/*
 * Where a rank stands, to go on after its name: "submitted 'b' (allreduce) 2.1 s ago, agreed 'a'
 * (allreduce) 2.2 s ago, started … , finished …; 1 unfinished".
 */
size_t dt_flight_describe_position(const dt_flight_position_t *position, int64_t now_ns,
                                   dt_flight_kind_fn_t kind_name, char *text, size_t cap);

#endif
