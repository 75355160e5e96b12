#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/pset_key.h"
#include "core/wire.h"

static const dt_signature_t full = {.kind = DT_KIND_ALLREDUCE,
                                    .op = DTRAIN_OP_AVERAGE,
                                    .dtype = DTRAIN_DTYPE_BF16,
                                    .ndim = 3,
                                    .device = -4,
                                    .root = 70000,
                                    .pset = 9,
                                    .peer = -70001,
                                    .priority = INT32_MIN,
                                    .memory = DT_MEMORY_NEW_WINDOW,
                                    .group_size = 80000,
                                    .group_index = 79999,
                                    .group = UINT64_C(0x8123456789abcdef),
                                    .prescale = 0.1,
                                    .postscale = -1e300,
                                    .codec = "a codec name of 23 byte",
                                    .coded_bytes = INT64_MAX - 1,
                                    .shape = {INT64_MAX, 0, 17}};

/* ---- Writers and readers of each message ------------------------------------------------------
 */

/* Reads a whole message. 0, or -1 when it is malformed. */
typedef int (*read_fn_t)(dt_reader_t *reader);

static void write_values(dt_buffer_t *buffer)
{
    dt_put_u8(buffer, 0xfe);
    dt_put_u16(buffer, 0xfedc);
    dt_put_u32(buffer, UINT32_C(0xfedcba98));
    dt_put_u64(buffer, UINT64_C(0xfedcba9876543210));
    dt_put_f64(buffer, -0.5);
    dt_put_text(buffer, "text", 4);
    dt_put_text(buffer, "", 0);
}

static int read_values(dt_reader_t *reader)
{
    size_t length;
    dt_get_u8(reader);
    dt_get_u16(reader);
    dt_get_u32(reader);
    dt_get_u64(reader);
    dt_get_f64(reader);
    dt_get_text(reader, &length);
    dt_get_text(reader, &length);
    return reader->failed ? -1 : 0;
}

static int read_request(dt_reader_t *reader)
{
    dt_request_t request;
    return dt_get_request(reader, &request);
}

static int read_entry(dt_reader_t *reader)
{
    dt_entry_t entry;
    int failed = dt_get_entry(reader, &entry);
    if (!failed)
        (void)dt_entry_excludes(&entry, 3); /* reads all that the entry points to */
    return failed;
}

static int read_end(dt_reader_t *reader)
{
    int32_t status;
    const char *text;
    size_t length;
    return dt_get_end(reader, &status, &text, &length);
}

static int read_header(dt_reader_t *reader)
{
    return dt_get_header(reader) ? 0 : -1;
}

static void write_header(dt_buffer_t *buffer)
{
    dt_put_header(buffer, DT_MESSAGE_BYE);
}

static void write_request(dt_buffer_t *buffer)
{
    dt_request_t request = {.name = "layer.1",
                            .name_length = 7,
                            .signature = full,
                            .stamp = {.step = UINT32_C(3000000000), .passes = 65535, .kind = 2}};
    dt_put_request(buffer, &request);
}

static void write_refusal(dt_buffer_t *buffer)
{
    dt_request_t request = {.name = "g",
                            .name_length = 1,
                            .status = DTRAIN_ERR_UNSUPPORTED,
                            .text = "no",
                            .text_length = 2};
    dt_put_request(buffer, &request);
}

static void write_cached(dt_buffer_t *buffer)
{
    dt_entry_t entry = {.kind = DT_ENTRY_CACHED, .id = 12345678};
    dt_put_entry(buffer, &entry);
}

static const uint32_t absent_ranks[] = {1, 3, 4000000000};

static void write_new(dt_buffer_t *buffer)
{
    dt_entry_t entry = {.kind = DT_ENTRY_NEW,
                        .id = DT_ID_NONE,
                        .name = "layer.1",
                        .name_length = 7,
                        .signature = full,
                        .absent = (const uint8_t *)absent_ranks,
                        .num_absent = 2};
    dt_put_entry(buffer, &entry);
}

static void write_error(dt_buffer_t *buffer)
{
    dt_entry_t entry = {.kind = DT_ENTRY_ERROR,
                        .status = DTRAIN_ERR_TIMEOUT,
                        .step = 77,
                        .name = "layer.1",
                        .name_length = 7,
                        .text = "late",
                        .text_length = 4,
                        .absent = (const uint8_t *)absent_ranks,
                        .num_absent = 3};
    dt_put_entry(buffer, &entry);
}

static void write_end(dt_buffer_t *buffer)
{
    dt_put_end(buffer, DT_MESSAGE_GONE, DTRAIN_ERR_ABORTED, "why");
}

static int read_whole_end(dt_reader_t *reader)
{
    return dt_get_header(reader) ? read_end(reader) : -1;
}

static const struct {
    void (*write)(dt_buffer_t *buffer);
    read_fn_t read;
} messages[] = {
    {write_values, read_values},   {write_header, read_header}, {write_request, read_request},
    {write_refusal, read_request}, {write_cached, read_entry},  {write_new, read_entry},
    {write_error, read_entry},     {write_end, read_whole_end},
};

#define NUM_MESSAGES (sizeof messages / sizeof messages[0])

/* Reads `length` bytes out of memory of just that size, so that a sanitizer sees every overread. */
static int read_exactly(read_fn_t read, const uint8_t *bytes, size_t length, size_t *used)
{
    uint8_t *copy = malloc(length ? length : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, length);
    dt_reader_t reader = dt_reader_make(copy, length);
    int failed = read(&reader);
    assert_true(reader.at <= reader.end);
    if (used)
        *used = (size_t)(reader.at - copy);
    free(copy);
    return failed;
}

/* ---- Round trips ---------------------------------------------------------------------------- */

static void test_wire_values_come_back(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    write_values(&buffer);
    dt_reader_t reader = dt_reader_make(buffer.data, buffer.length);
    size_t length;
    assert_int_equal(dt_get_u8(&reader), 0xfe);
    assert_int_equal(dt_get_u16(&reader), 0xfedc);
    assert_int_equal(dt_get_u32(&reader), UINT32_C(0xfedcba98));
    assert_true(dt_get_u64(&reader) == UINT64_C(0xfedcba9876543210));
    assert_true(dt_get_f64(&reader) == -0.5);
    assert_memory_equal(dt_get_text(&reader, &length), "text", 4);
    assert_int_equal(length, 4);
    dt_get_text(&reader, &length);
    assert_int_equal(length, 0);
    assert_true(!reader.failed && reader.at == reader.end);
    dt_buffer_free(&buffer);
}

static void test_wire_numbers_are_little_endian(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    dt_put_u32(&buffer, 0x01020304);
    dt_put_u16(&buffer, 0x0506);
    dt_patch_u32(&buffer, 0, 0x0a0b0c0d);
    assert_memory_equal(buffer.data, "\x0d\x0c\x0b\x0a\x06\x05", 6);
    dt_buffer_free(&buffer);
}

static void test_wire_request_comes_back(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    dt_request_t request;
    write_request(&buffer);
    write_refusal(&buffer);
    dt_reader_t reader = dt_reader_make(buffer.data, buffer.length);
    assert_int_equal(dt_get_request(&reader, &request), 0);
    assert_int_equal(request.status, DTRAIN_OK);
    assert_int_equal(request.name_length, 7);
    assert_memory_equal(request.name, "layer.1", 7);
    assert_true(dt_signature_equal(&request.signature, &full));
    assert_true(dt_stamp_equal(request.stamp, (dt_stamp_t){UINT32_C(3000000000), 65535, 2}));
    assert_int_equal(dt_get_request(&reader, &request), 0);
    assert_int_equal(request.status, DTRAIN_ERR_UNSUPPORTED);
    assert_memory_equal(request.name, "g", 1);
    assert_int_equal(request.text_length, 2);
    assert_memory_equal(request.text, "no", 2);
    assert_true(reader.at == reader.end);
    dt_buffer_free(&buffer);
}

static void test_wire_definition_of_a_process_set_comes_back(void **state)
{
    (void)state;
    dt_request_t request = {.name = "dtrain.pset",
                            .name_length = 11,
                            .text = "0-3, 8",
                            .text_length = 6,
                            .signature = {.kind = DT_KIND_PSET_ADD, .prescale = 1, .postscale = 1}};
    dt_request_t read;
    dt_buffer_t buffer = {0};
    dt_put_request(&buffer, &request);
    dt_reader_t reader = dt_reader_make(buffer.data, buffer.length);
    assert_int_equal(dt_get_request(&reader, &read), 0);
    assert_int_equal(read.status, DTRAIN_OK);
    assert_true(dt_signature_equal(&read.signature, &request.signature));
    assert_int_equal(read.text_length, 6);
    assert_memory_equal(read.text, "0-3, 8", 6);
    assert_true(reader.at == reader.end);
    dt_buffer_free(&buffer);
}

static void test_wire_entries_come_back(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    dt_entry_t entry;
    write_cached(&buffer);
    write_new(&buffer);
    write_error(&buffer);
    dt_reader_t reader = dt_reader_make(buffer.data, buffer.length);
    assert_int_equal(dt_get_entry(&reader, &entry), 0);
    assert_int_equal(entry.kind, DT_ENTRY_CACHED);
    assert_int_equal(entry.id, 12345678);
    assert_int_equal(dt_get_entry(&reader, &entry), 0);
    assert_int_equal(entry.kind, DT_ENTRY_NEW);
    assert_true(entry.id == DT_ID_NONE);
    assert_memory_equal(entry.name, "layer.1", 7);
    assert_true(dt_signature_equal(&entry.signature, &full));
    assert_int_equal(entry.num_absent, 2);
    for (int rank = 0; rank < 6; rank++)
        assert_int_equal(dt_entry_excludes(&entry, rank), rank == 1 || rank == 3);
    assert_int_equal(dt_get_entry(&reader, &entry), 0);
    assert_int_equal(entry.kind, DT_ENTRY_ERROR);
    assert_int_equal(entry.status, DTRAIN_ERR_TIMEOUT);
    assert_int_equal(entry.step, 77);
    assert_memory_equal(entry.name, "layer.1", 7);
    assert_memory_equal(entry.text, "late", 4);
    assert_int_equal(entry.num_absent, 3);
    for (int rank = 0; rank < 6; rank++)
        assert_int_equal(dt_entry_excludes(&entry, rank), rank == 1 || rank == 3);
    assert_true(reader.at == reader.end);
    dt_buffer_free(&buffer);
}

static void test_wire_end_comes_back(void **state)
{
    (void)state;
    dt_buffer_t buffer = {0};
    int32_t status;
    const char *text;
    size_t length;
    write_end(&buffer);
    dt_reader_t reader = dt_reader_make(buffer.data, buffer.length);
    assert_int_equal(dt_get_header(&reader), DT_MESSAGE_GONE);
    assert_int_equal(dt_get_end(&reader, &status, &text, &length), 0);
    assert_int_equal(status, DTRAIN_ERR_ABORTED);
    assert_int_equal(length, 3);
    assert_memory_equal(text, "why", 3);
    dt_buffer_free(&buffer);
}

static void test_wire_long_text_is_cut_at_what_its_length_can_say(void **state)
{
    (void)state;
    size_t length = 70000;
    char *text = calloc(1, length);
    dt_buffer_t buffer = {0};
    assert_non_null(text);
    dt_put_text(&buffer, text, length);
    dt_reader_t reader = dt_reader_make(buffer.data, buffer.length);
    dt_get_text(&reader, &length);
    assert_int_equal(length, 65535);
    assert_true(!reader.failed && reader.at == reader.end);
    dt_buffer_free(&buffer);
    free(text);
}

/* ---- Malformed messages ------------------------------------------------------------------------
 */

static void test_wire_every_truncation_fails_without_overread(void **state)
{
    (void)state;
    for (size_t m = 0; m < NUM_MESSAGES; m++) {
        dt_buffer_t buffer = {0};
        size_t used;
        messages[m].write(&buffer);
        assert_int_equal(read_exactly(messages[m].read, buffer.data, buffer.length, &used), 0);
        assert_int_equal(used, buffer.length);
        for (size_t length = 0; length < buffer.length; length++)
            assert_int_equal(read_exactly(messages[m].read, buffer.data, length, NULL), -1);
        dt_buffer_free(&buffer);
    }
}

static void test_wire_every_changed_byte_is_read_within_bounds(void **state)
{
    (void)state;
    static const uint8_t masks[] = {0x01, 0x80, 0xff, 0x55};
    for (size_t m = 0; m < NUM_MESSAGES; m++) {
        dt_buffer_t buffer = {0};
        messages[m].write(&buffer);
        for (size_t at = 0; at < buffer.length; at++) {
            for (size_t i = 0; i < sizeof masks; i++) {
                buffer.data[at] ^= masks[i];
                (void)read_exactly(messages[m].read, buffer.data, buffer.length, NULL);
                buffer.data[at] ^= masks[i];
            }
        }
        dt_buffer_free(&buffer);
    }
}

static void test_wire_random_bytes_are_read_within_bounds(void **state)
{
    (void)state;
    uint64_t random = 12345;
    uint8_t bytes[160];
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            /* Many small values, so that lengths and kinds are often plausible. */
            bytes[i] = (uint8_t)(random >> 60 & 1 ? random >> 40 : random >> 40 & 7);
        }
        size_t length = random >> 33 & 127;
        (void)read_exactly(messages[round % (int)NUM_MESSAGES].read, bytes, length, NULL);
    }
}

static void test_wire_reads_after_a_failure_give_zeros(void **state)
{
    (void)state;
    uint8_t bytes[5] = {1, 2, 3, 4, 5};
    size_t length = 9;
    dt_reader_t reader = dt_reader_make(bytes, sizeof bytes);
    assert_true(dt_get_u64(&reader) == 0);
    assert_true(reader.failed);
    assert_int_equal(dt_get_u8(&reader), 0);
    assert_int_equal(dt_get_u32(&reader), 0);
    assert_true(dt_get_f64(&reader) == 0);
    assert_string_equal(dt_get_text(&reader, &length), "");
    assert_int_equal(length, 0);
}

static void test_wire_header_of_another_version_is_no_message(void **state)
{
    (void)state;
    uint8_t bytes[2] = {DT_MESSAGE_BYE, DT_WIRE_VERSION + 1};
    dt_reader_t reader = dt_reader_make(bytes, sizeof bytes);
    assert_int_equal(dt_get_header(&reader), 0);
    reader = dt_reader_make(bytes, 0);
    assert_int_equal(dt_get_header(&reader), 0);
}

static int read_signature(dt_reader_t *reader)
{
    dt_signature_t signature;
    return dt_get_signature(reader, &signature);
}

static int signature_fails(dt_signature_t signature)
{
    dt_buffer_t buffer = {0};
    /* dt_put_signature writes as many extents as ndim says: all that there are, at most. */
    uint8_t ndim = signature.ndim;
    signature.ndim = ndim > DTRAIN_NDIM_MAX ? DTRAIN_NDIM_MAX : ndim;
    dt_put_signature(&buffer, &signature);
    buffer.data[3] = ndim;
    int failed = read_exactly(read_signature, buffer.data, buffer.length, NULL);
    dt_buffer_free(&buffer);
    return failed;
}

static void test_wire_signature_that_no_rank_can_have_sent_fails(void **state)
{
    (void)state;
    dt_signature_t signature = full;
    assert_int_equal(signature_fails(signature), 0);
    signature.ndim = DTRAIN_NDIM_MAX;
    assert_int_equal(signature_fails(signature), 0);
    signature.ndim = DTRAIN_NDIM_MAX + 1;
    assert_int_equal(signature_fails(signature), -1);
    signature.ndim = 255;
    assert_int_equal(signature_fails(signature), -1);
    signature = full;
    signature.kind = 0;
    assert_int_equal(signature_fails(signature), -1);
    signature.kind = DT_KIND_LAST + 1;
    assert_int_equal(signature_fails(signature), -1);
    signature = full;
    signature.group = 0; /* a group of some size without a name */
    assert_int_equal(signature_fails(signature), -1);
    signature = full;
    signature.dtype = 0;
    assert_int_equal(signature_fails(signature), -1);
    signature.dtype = 255;
    assert_int_equal(signature_fails(signature), -1);
    signature = full;
    signature.shape[2] = -1;
    assert_int_equal(signature_fails(signature), -1);
    signature.shape[1] = 1;
    signature.shape[2] = 17; /* beyond 2^63 bytes */
    assert_int_equal(signature_fails(signature), -1);
}

/* A request and an error with a name of some length. */
static int request_fails(size_t name_length, int32_t status)
{
    char name[DT_KEY_MAX + 1];
    memset(name, 'n', sizeof name);
    dt_request_t request = {.name = name,
                            .name_length = name_length,
                            .status = status,
                            .text = "text",
                            .text_length = 4,
                            .signature = full};
    dt_buffer_t buffer = {0};
    dt_put_request(&buffer, &request);
    int failed = read_exactly(read_request, buffer.data, buffer.length, NULL);
    dt_buffer_free(&buffer);
    return failed;
}

static int error_fails(size_t name_length, int32_t status)
{
    char name[DT_KEY_MAX + 1];
    memset(name, 'n', sizeof name);
    dt_entry_t entry = {.kind = DT_ENTRY_ERROR,
                        .name = name,
                        .name_length = name_length,
                        .status = status,
                        .text = "text",
                        .text_length = 4};
    dt_buffer_t buffer = {0};
    dt_put_entry(&buffer, &entry);
    int failed = read_exactly(read_entry, buffer.data, buffer.length, NULL);
    dt_buffer_free(&buffer);
    return failed;
}

static void test_wire_names_are_as_long_as_names_may_be(void **state)
{
    (void)state;
    assert_int_equal(request_fails(1, DTRAIN_OK), 0);
    assert_int_equal(request_fails(DT_KEY_MAX, DTRAIN_ERR_MISMATCH), 0);
    assert_int_equal(error_fails(DT_KEY_MAX, DTRAIN_ERR_MISMATCH), 0);
    assert_int_equal(request_fails(0, DTRAIN_OK), -1);
    assert_int_equal(request_fails(DT_KEY_MAX + 1, DTRAIN_OK), -1);
    assert_int_equal(error_fails(0, DTRAIN_ERR_MISMATCH), -1);
    assert_int_equal(error_fails(DT_KEY_MAX + 1, DTRAIN_ERR_MISMATCH), -1);
}

static void test_wire_error_status_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(request_fails(1, DTRAIN_IN_PROGRESS), -1);
    assert_int_equal(error_fails(1, DTRAIN_OK), -1);
    assert_int_equal(error_fails(1, 5), -1);
    dt_buffer_t buffer = {0};
    dt_put_end(&buffer, DT_MESSAGE_ABORT, DTRAIN_OK, "");
    assert_int_equal(read_exactly(read_whole_end, buffer.data, buffer.length, NULL), -1);
    dt_buffer_free(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire_values_come_back),
        cmocka_unit_test(test_wire_numbers_are_little_endian),
        cmocka_unit_test(test_wire_request_comes_back),
        cmocka_unit_test(test_wire_definition_of_a_process_set_comes_back),
        cmocka_unit_test(test_wire_entries_come_back),
        cmocka_unit_test(test_wire_end_comes_back),
        cmocka_unit_test(test_wire_long_text_is_cut_at_what_its_length_can_say),
        cmocka_unit_test(test_wire_every_truncation_fails_without_overread),
        cmocka_unit_test(test_wire_every_changed_byte_is_read_within_bounds),
        cmocka_unit_test(test_wire_random_bytes_are_read_within_bounds),
        cmocka_unit_test(test_wire_reads_after_a_failure_give_zeros),
        cmocka_unit_test(test_wire_header_of_another_version_is_no_message),
        cmocka_unit_test(test_wire_signature_that_no_rank_can_have_sent_fails),
        cmocka_unit_test(test_wire_names_are_as_long_as_names_may_be),
        cmocka_unit_test(test_wire_error_status_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
