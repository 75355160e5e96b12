#include "comm/detect/detect_codec.h"

#include <string.h>

#include "base/bytes.h"

#define LENGTH_AT 2
#define EPOCH_AT 4

/* Payloads without the text. */
#define SILENCE_BYTES 12
#define END_BYTES 8
#define LEAVING_BYTES 5
#define ASK_BYTES 9
#define ANSWER_BYTES 13

_Static_assert(DT_DETECT_HEADER_BYTES + END_BYTES + DT_DETECT_TEXT_MAX == DT_DETECT_FRAME_MAX,
               "an end is the longest frame");
_Static_assert(ANSWER_BYTES + DT_DETECT_LINE_MAX <= END_BYTES + DT_DETECT_TEXT_MAX,
               "an end is the longest frame");

/* Returns the payload's length. */
static size_t encode_payload(const dt_detect_message_t *message, uint8_t *payload)
{
    size_t length = message->text_length;
    if (message->type == DT_DETECT_BEAT)
        return 0;
    dt_put_u32(payload, (uint32_t)message->rank);
    switch (message->type) {
    case DT_DETECT_SILENCE:
        dt_put_u32(payload + 4, message->version);
        dt_put_u32(payload + 8, message->age_ms);
        return SILENCE_BYTES;
    case DT_DETECT_LEAVING:
        payload[4] = (uint8_t)(message->is_over != 0);
        return LEAVING_BYTES;
    case DT_DETECT_ASK:
        dt_put_u32(payload + 4, message->number);
        payload[8] = (uint8_t)message->what;
        return ASK_BYTES;
    case DT_DETECT_ANSWER:
        dt_put_u32(payload + 4, (uint32_t)message->asker);
        dt_put_u32(payload + 8, message->number);
        payload[12] = (uint8_t)(message->is_last != 0);
        length = length < DT_DETECT_LINE_MAX ? length : DT_DETECT_LINE_MAX;
        memcpy(payload + ANSWER_BYTES, message->text, length);
        return ANSWER_BYTES + length;
    default:
        dt_put_u32(payload + 4, (uint32_t)message->status);
        length = length < DT_DETECT_TEXT_MAX ? length : DT_DETECT_TEXT_MAX;
        memcpy(payload + END_BYTES, message->text, length);
        return END_BYTES + length;
    }
}

size_t dt_detect_encode(const dt_detect_message_t *message, uint8_t frame[DT_DETECT_FRAME_MAX])
{
    size_t length = encode_payload(message, frame + DT_DETECT_HEADER_BYTES);
    frame[0] = (uint8_t)message->type;
    frame[1] = 0;
    frame[LENGTH_AT] = (uint8_t)length;
    frame[LENGTH_AT + 1] = (uint8_t)(length >> 8);
    dt_put_u32(frame + EPOCH_AT, message->epoch);
    return DT_DETECT_HEADER_BYTES + length;
}

/* Whether a payload may be as long. */
static int is_length_right(int type, size_t length)
{
    switch (type) {
    case DT_DETECT_BEAT:
        return length == 0;
    case DT_DETECT_SILENCE:
        return length == SILENCE_BYTES;
    case DT_DETECT_LEAVING:
        return length == LEAVING_BYTES;
    case DT_DETECT_ASK:
        return length == ASK_BYTES;
    case DT_DETECT_ANSWER:
        return length >= ANSWER_BYTES && length <= ANSWER_BYTES + DT_DETECT_LINE_MAX;
    case DT_DETECT_END:
        return length >= END_BYTES && length <= END_BYTES + DT_DETECT_TEXT_MAX;
    default:
        return 0;
    }
}

/* It ends up in logs and on terminals. */
static void make_printable(uint8_t *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] < ' ' || text[i] == 0x7f)
            text[i] = '?';
    }
}

static int decode_answer(uint8_t *payload, size_t length, int size, dt_detect_message_t *message)
{
    uint32_t asker = dt_get_u32(payload + 4);
    if (asker >= (uint32_t)size || payload[12] > 1)
        return -1;
    make_printable(payload + ANSWER_BYTES, length - ANSWER_BYTES);
    message->asker = (int)asker;
    message->number = dt_get_u32(payload + 8);
    message->is_last = payload[12];
    message->text = (const char *)payload + ANSWER_BYTES;
    message->text_length = length - ANSWER_BYTES;
    return 0;
}

static int decode_payload(uint8_t *payload, size_t length, int size, dt_detect_message_t *message)
{
    if (message->type == DT_DETECT_BEAT)
        return 0;
    uint32_t rank = dt_get_u32(payload);
    if (rank >= (uint32_t)size)
        return -1;
    message->rank = (int)rank;
    if (message->type == DT_DETECT_SILENCE) {
        message->version = dt_get_u32(payload + 4);
        message->age_ms = dt_get_u32(payload + 8);
    } else if (message->type == DT_DETECT_LEAVING) {
        message->is_over = payload[4];
        return payload[4] <= 1 ? 0 : -1;
    } else if (message->type == DT_DETECT_ASK) {
        message->number = dt_get_u32(payload + 4);
        message->what = payload[8];
    } else if (message->type == DT_DETECT_ANSWER) {
        return decode_answer(payload, length, size, message);
    } else {
        message->status = (dtrain_status_t)(int32_t)dt_get_u32(payload + 4);
        make_printable(payload + END_BYTES, length - END_BYTES);
        message->text = (const char *)payload + END_BYTES;
        message->text_length = length - END_BYTES;
        return message->status < 0 ? 0 : -1;
    }
    return 0;
}

int dt_detect_decode(uint8_t *bytes, size_t length, int size, dt_detect_message_t *message)
{
    if (length < DT_DETECT_HEADER_BYTES)
        return length >= 2 && bytes[1] != 0 ? -1 : 0;
    size_t payload = (size_t)(bytes[LENGTH_AT] | bytes[LENGTH_AT + 1] << 8);
    if (bytes[1] != 0 || !is_length_right(bytes[0], payload))
        return -1;
    if (length < DT_DETECT_HEADER_BYTES + payload)
        return 0;
    *message = (dt_detect_message_t){.type = (dt_detect_type_t)bytes[0],
                                     .epoch = dt_get_u32(bytes + EPOCH_AT)};
    if (decode_payload(bytes + DT_DETECT_HEADER_BYTES, payload, size, message) != 0)
        return -1;
    return (int)(DT_DETECT_HEADER_BYTES + payload);
}
