/*
 * detect_codec.h - what detectors say to each other. A frame is 8 bytes of header (type, a zero,
 * the payload's length, the epoch; little endian) and a payload:
 *
 *     BEAT      nothing: the sender's thread runs
 *     SILENCE   rank, version, age in ms. Versions of a rank only grow; an odd one says that it has
 *               been silent for the age, an even one that it is back. What is not newer is dropped,
 *               so that a flood ends.
 *     END       rank, status, text: the world is over, for a reason that concerns this rank
 *     LEAVING   rank, is_over: the sender's connections will end, and that is no loss. With is_over
 *               every rank has called dtrain_shutdown, so no end of a connection is one any more.
 *     ASK       rank, number, what: a question of that rank to all others (detect_ask.c)
 *     ANSWER    rank, asker, number, is_last, text: a line about the rank, for the asker
 */
#ifndef DT_COMM_DETECT_DETECT_CODEC_H
#define DT_COMM_DETECT_DETECT_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

#include "comm/detector.h"

#define DT_DETECT_HEADER_BYTES 8
#define DT_DETECT_TEXT_MAX 1000
#define DT_DETECT_FRAME_MAX (DT_DETECT_HEADER_BYTES + 8 + DT_DETECT_TEXT_MAX)

#define DT_DETECT_LINE_MAX DT_DETECTOR_LINE_MAX /* of an answer */

typedef enum dt_detect_type {
    DT_DETECT_BEAT = 1,
    DT_DETECT_SILENCE = 2,
    DT_DETECT_END = 3,
    DT_DETECT_LEAVING = 4,
    DT_DETECT_ASK = 5,
    DT_DETECT_ANSWER = 6
} dt_detect_type_t;

typedef struct dt_detect_message {
    dt_detect_type_t type;
    uint32_t epoch;
    int rank; /* all but BEAT */
    uint32_t version, age_ms;
    dtrain_status_t status; /* negative */
    int is_over;
    int asker;
    uint32_t number;
    int what; /* a byte */
    int is_last;
    /* END and ANSWER: `text_length` printable bytes, without a zero behind them */
    const char *text;
    size_t text_length;
} dt_detect_message_t;

/* Writes the frame, cutting the text if need be; returns its length. */
size_t dt_detect_encode(const dt_detect_message_t *message, uint8_t frame[DT_DETECT_FRAME_MAX]);

/*
 * Reads the frame that `bytes` begins with, in a world of `size` ranks. Returns its length; 0 when
 * more bytes are needed; -1 when it is none. The text points into `bytes`, in which what is not
 * printable is replaced.
 */
int dt_detect_decode(uint8_t *bytes, size_t length, int size, dt_detect_message_t *message);

#endif
