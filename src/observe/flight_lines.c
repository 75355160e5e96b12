#include "observe/flight_lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/text.h"

/* The bytes of the UTF-8 character that `text` begins with; 0 when it begins with none. */
static size_t utf8_length(const unsigned char *text)
{
    size_t length = text[0] < 0x80   ? 1
                    : text[0] < 0xC2 ? 0
                    : text[0] < 0xE0 ? 2
                    : text[0] < 0xF0 ? 3
                    : text[0] < 0xF5 ? 4
                                     : 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    }
    /* Overlong forms, surrogates, and what lies beyond the last character. */
    if ((text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xED && text[1] > 0x9F) ||
        (text[0] == 0xF0 && text[1] < 0x90) || (text[0] == 0xF4 && text[1] > 0x8F))
        return 0;
    return length;
}

size_t dt_flight_quote(const char *text, char *quoted, size_t cap)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = 0;
    quoted[length++] = '"';
    while (*at) {
        char piece[8];
        size_t taken = utf8_length(at);
        if (taken == 0)
            snprintf(piece, sizeof piece, "?");
        else if (*at == '"' || *at == '\\')
            snprintf(piece, sizeof piece, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            snprintf(piece, sizeof piece, "\\u%04x", *at);
        else
            snprintf(piece, sizeof piece, "%.*s", (int)taken, (const char *)at);
        if (length + strlen(piece) + 2 > cap)
            break;
        memcpy(quoted + length, piece, strlen(piece));
        length += strlen(piece);
        at += taken > 0 ? taken : 1;
    }
    quoted[length++] = '"';
    quoted[length] = '\0';
    return length;
}

size_t dt_flight_rank_line(int rank, const char *host, int pid, const dt_flight_board_t *board,
                           int64_t now_ns, int64_t epoch_ns, char line[DT_FLIGHT_LINE_MAX + 1])
{
    char quoted[256];
    dt_flight_position_t position;
    dt_flight_read_position(board, &position);
    dt_flight_quote(host, quoted, sizeof quoted);
    return (size_t)snprintf(
        line, DT_FLIGHT_LINE_MAX + 1,
        "{\"type\":\"rank\",\"rank\":%d,\"host\":%s,\"pid\":%d,\"time_ns\":%" PRId64
        ",\"submitted\":%" PRIu64 ",\"agreed\":%" PRIu64 ",\"started\":%" PRIu64
        ",\"finished\":%" PRIu64 "}",
        rank, quoted, pid, now_ns + epoch_ns, position.counts[DT_FLIGHT_SUBMITTED],
        position.counts[DT_FLIGHT_AGREED], position.counts[DT_FLIGHT_STARTED],
        position.counts[DT_FLIGHT_FINISHED]);
}

size_t dt_flight_record_line(int rank, const dt_flight_record_t *record, int64_t epoch_ns,
                             dt_flight_kind_fn_t kind_name, char line[DT_FLIGHT_LINE_MAX + 1])
{
    char name[6 * DT_FLIGHT_NAME_MAX + 8];
    dt_flight_quote(record->name, name, sizeof name);
    size_t length = (size_t)snprintf(
        line, DT_FLIGHT_LINE_MAX + 1,
        "{\"type\":\"op\",\"rank\":%d,\"number\":%" PRIu64
        ",\"kind\":\"%s\",\"name\":%s,\"set\":%d,\"dtype\":\"%s\",\"count\":%" PRId64
        ",\"place\":%" PRIu64 ",\"status\":%d,\"state\":\"%s\"",
        rank, record->number, kind_name(record->kind), name, (int)record->set,
        record->dtype ? dt_dtype_name((dtrain_dtype_t)record->dtype) : "", record->count,
        record->place, (int)record->status, dt_status_string((dtrain_status_t)record->status));
    for (int stage = 0; stage < DT_FLIGHT_STAGES; stage++) {
        const char *key = dt_flight_stage_name((dt_flight_stage_t)stage);
        int64_t time_ns = record->times_ns[stage];
        size_t room = DT_FLIGHT_LINE_MAX + 1 - length;
        length += (size_t)(time_ns == 0 ? snprintf(line + length, room, ",\"%s_ns\":null", key)
                                        : snprintf(line + length, room, ",\"%s_ns\":%" PRId64, key,
                                                   time_ns + epoch_ns));
    }
    return length + (size_t)snprintf(line + length, DT_FLIGHT_LINE_MAX + 1 - length, "}");
}
