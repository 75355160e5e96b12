/* Detectors' frames. What can be read is written again, and read as the same. */
#include <stdlib.h>
#include <string.h>

#include "comm/detect/detect_codec.h"
#include "fuzz.h"

#define RANKS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1); /* exactly what there is, so that a read past it is seen */
    uint8_t *at = bytes;
    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    for (size_t left = size; left > 0;) {
        dt_detect_message_t message, again;
        uint8_t frame[DT_DETECT_FRAME_MAX];
        int length = dt_detect_decode(at, left, RANKS, &message);
        if (length <= 0)
            break;
        FUZZ_CHECK((size_t)length <= left);
        size_t written = dt_detect_encode(&message, frame);
        FUZZ_CHECK(dt_detect_decode(frame, written, RANKS, &again) == (int)written);
        FUZZ_CHECK(again.type == message.type && again.epoch == message.epoch &&
                   again.rank == message.rank && again.text_length == message.text_length);
        at += length;
        left -= (size_t)length;
    }
    free(bytes);
    return 0;
}
