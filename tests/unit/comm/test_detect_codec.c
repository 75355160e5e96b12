#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "comm/detect/detect_codec.h"

#define SIZE 5

static const char long_text[] = "rank 3 on host gpu7 (pid 4711) is lost: it died";

static dt_detect_message_t message_of(dt_detect_type_t type)
{
    dt_detect_message_t message = {.type = type, .epoch = 7};
    if (type != DT_DETECT_BEAT)
        message.rank = 4;
    if (type == DT_DETECT_SILENCE) {
        message.version = 0xfffffffd;
        message.age_ms = 1234567;
    } else if (type == DT_DETECT_END) {
        message.status = DTRAIN_ERR_RANK_LOST;
        message.text = long_text;
        message.text_length = strlen(long_text);
    } else if (type == DT_DETECT_LEAVING) {
        message.is_over = 1;
    } else if (type == DT_DETECT_ASK) {
        message.number = 0xfffffffe;
        message.what = 255;
    } else if (type == DT_DETECT_ANSWER) {
        message.asker = 1;
        message.number = 3;
        message.is_last = 1;
        message.text = long_text;
        message.text_length = strlen(long_text);
    }
    return message;
}

static void assert_same(const dt_detect_message_t *a, const dt_detect_message_t *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->age_ms, b->age_ms);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->is_over, b->is_over);
    assert_int_equal(a->asker, b->asker);
    assert_int_equal(a->number, b->number);
    assert_int_equal(a->what, b->what);
    assert_int_equal(a->is_last, b->is_last);
    assert_int_equal(a->text_length, b->text_length);
    if (a->text_length > 0)
        assert_memory_equal(a->text, b->text, a->text_length);
}

static void test_detect_codec_each_type_comes_back(void **state)
{
    (void)state;
    for (int type = DT_DETECT_BEAT; type <= DT_DETECT_ANSWER; type++) {
        uint8_t frame[DT_DETECT_FRAME_MAX];
        dt_detect_message_t sent = message_of((dt_detect_type_t)type), got;
        size_t length = dt_detect_encode(&sent, frame);
        assert_int_equal(dt_detect_decode(frame, sizeof frame, SIZE, &got), length);
        assert_same(&sent, &got);
    }
}

static void test_detect_codec_frame_cut_short_needs_more(void **state)
{
    (void)state;
    for (int type = DT_DETECT_BEAT; type <= DT_DETECT_ANSWER; type++) {
        uint8_t frame[DT_DETECT_FRAME_MAX];
        dt_detect_message_t sent = message_of((dt_detect_type_t)type), got;
        size_t length = dt_detect_encode(&sent, frame);
        for (size_t part = 0; part < length; part++)
            assert_int_equal(dt_detect_decode(frame, part, SIZE, &got), 0);
    }
}

static void test_detect_codec_text_too_long_is_cut(void **state)
{
    (void)state;
    static char text[3 * DT_DETECT_TEXT_MAX];
    uint8_t frame[DT_DETECT_FRAME_MAX];
    dt_detect_message_t sent = message_of(DT_DETECT_END), got;
    memset(text, 'x', sizeof text);
    sent.text = text;
    sent.text_length = sizeof text;
    assert_int_equal(dt_detect_encode(&sent, frame), DT_DETECT_FRAME_MAX);
    assert_int_equal(dt_detect_decode(frame, sizeof frame, SIZE, &got), DT_DETECT_FRAME_MAX);
    assert_int_equal(got.text_length, DT_DETECT_TEXT_MAX);
    sent = message_of(DT_DETECT_ANSWER);
    sent.text = text;
    sent.text_length = sizeof text;
    assert_true(dt_detect_encode(&sent, frame) <= DT_DETECT_FRAME_MAX);
    assert_true(dt_detect_decode(frame, sizeof frame, SIZE, &got) > 0);
    assert_int_equal(got.text_length, DT_DETECT_LINE_MAX);
}

static void test_detect_codec_text_with_control_characters_is_made_printable(void **state)
{
    (void)state;
    uint8_t frame[DT_DETECT_FRAME_MAX];
    dt_detect_message_t sent = message_of(DT_DETECT_END), got;
    sent.text = "a\033[2J\nb";
    sent.text_length = strlen(sent.text);
    dt_detect_encode(&sent, frame);
    assert_true(dt_detect_decode(frame, sizeof frame, SIZE, &got) > 0);
    assert_memory_equal(got.text, "a?[2J?b", got.text_length);
}

/* Makes a frame wrong in one place. */
static int decode_changed(dt_detect_type_t type, size_t at, uint8_t value)
{
    uint8_t frame[DT_DETECT_FRAME_MAX] = {0};
    dt_detect_message_t sent = message_of(type), got;
    dt_detect_encode(&sent, frame);
    frame[at] = value;
    return dt_detect_decode(frame, sizeof frame, SIZE, &got);
}

static void test_detect_codec_wrong_bytes_are_no_message(void **state)
{
    (void)state;
    assert_int_equal(decode_changed(DT_DETECT_BEAT, 0, 0), -1);
    assert_int_equal(decode_changed(DT_DETECT_BEAT, 0, 7), -1);
    assert_int_equal(decode_changed(DT_DETECT_BEAT, 1, 1), -1);
    assert_int_equal(decode_changed(DT_DETECT_BEAT, 2, 1), -1);
    assert_int_equal(decode_changed(DT_DETECT_SILENCE, 2, 11), -1);
    assert_int_equal(decode_changed(DT_DETECT_END, 3, 0xff), -1);
    assert_int_equal(decode_changed(DT_DETECT_END, 2, 7), -1);
    assert_int_equal(decode_changed(DT_DETECT_LEAVING, 12, 2), -1);
    assert_int_equal(decode_changed(DT_DETECT_ASK, 2, 8), -1);
    assert_int_equal(decode_changed(DT_DETECT_ANSWER, 12, SIZE), -1); /* no asker */
    assert_int_equal(decode_changed(DT_DETECT_ANSWER, 20, 2), -1);
    assert_int_equal(decode_changed(DT_DETECT_ANSWER, 2, 12), -1);
    for (int type = DT_DETECT_SILENCE; type <= DT_DETECT_ANSWER; type++) {
        assert_int_equal(decode_changed((dt_detect_type_t)type, 8, SIZE), -1);  /* no rank */
        assert_int_equal(decode_changed((dt_detect_type_t)type, 11, 0xff), -1); /* nor below 0 */
    }
    assert_int_equal(decode_changed(DT_DETECT_END, 15, 0), -1); /* a status that is no error */
}

/* Any bytes: nothing outside them is touched (the sanitizers look), and what is taken is in range.
 */
static void test_detect_codec_random_bytes_stay_in_bounds(void **state)
{
    (void)state;
    uint64_t seed = 0x9e3779b97f4a7c15;
    int taken = 0;
    for (int i = 0; i < 200000; i++) {
        uint8_t bytes[64];
        for (size_t at = 0; at < sizeof bytes; at++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes[at] = (uint8_t)(seed >> 56);
        }
        bytes[0] = (uint8_t)(bytes[0] % 8);
        if (i % 2) {
            bytes[1] = bytes[3] = bytes[9] = bytes[10] = bytes[11] = 0;
            bytes[2] %= 16;
        }
        size_t length = bytes[63] % sizeof bytes;
        dt_detect_message_t message;
        int used = dt_detect_decode(bytes, length, SIZE, &message);
        assert_in_range(used + 1, 0, length + 1);
        if (used > 0) {
            taken++;
            assert_in_range(message.rank, 0, SIZE - 1);
            assert_true(message.text_length <= (size_t)used);
        }
    }
    assert_true(taken > 100); /* else the loop has tried nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detect_codec_each_type_comes_back),
        cmocka_unit_test(test_detect_codec_frame_cut_short_needs_more),
        cmocka_unit_test(test_detect_codec_text_too_long_is_cut),
        cmocka_unit_test(test_detect_codec_text_with_control_characters_is_made_printable),
        cmocka_unit_test(test_detect_codec_wrong_bytes_are_no_message),
        cmocka_unit_test(test_detect_codec_random_bytes_stay_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
