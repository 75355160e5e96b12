/*
 * flight_lines.h - a recorder's contents as lines of JSON, which is what a dump is made of and what
 * dtrain-flight reads: an object a line, so that a file that was cut is valid up to its last line.
 *
 *     {"type":"dump", …}    first: version, who wrote it, the size of the world, why
 *     {"type":"set", …}     a process set beside the world, and its ranks
 *     {"type":"rank", …}    a rank: host, pid, and how many operations have reached each stage
 *     {"type":"op", …}      one of its operations; a time is null when it has not come so far
 *     {"type":"missing", …} a rank of which nothing could be read
 *     {"type":"end"}        last: the file is whole
 *
 * Times are nanoseconds since 1970, by the clock of the rank's node.
 */
#ifndef DT_OBSERVE_FLIGHT_LINES_H
#define DT_OBSERVE_FLIGHT_LINES_H

#include "base/buffer.h"
#include "observe/flight_text.h"

#define DT_FLIGHT_DUMP_VERSION 1

/* What a record's line may take, at most, without a zero. */
#define DT_FLIGHT_LINE_MAX 960

/* Writes `text` as a JSON string with its quotes: what is no UTF-8 becomes "?". Returns the length;
 * the text is cut where it does not fit. cap >= 8. */
size_t dt_flight_quote(const char *text, char *quoted, size_t cap);

/* A rank's line. `epoch_ns` is what its times are to be raised by. */
size_t dt_flight_rank_line(int rank, const char *host, int pid, const dt_flight_board_t *board,
                           int64_t now_ns, int64_t epoch_ns, char line[DT_FLIGHT_LINE_MAX + 1]);

size_t dt_flight_record_line(int rank, const dt_flight_record_t *record, int64_t epoch_ns,
                             dt_flight_kind_fn_t kind_name, char line[DT_FLIGHT_LINE_MAX + 1]);

#endif
