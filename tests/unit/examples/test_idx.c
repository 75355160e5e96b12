/* idx_read on good files, and on every kind of damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "files.h"
#include "idx.h"

#define CAPACITY 1024
#define DATA_BYTES 24

static const uint32_t dims[3] = {2, 3, 4};
static uint8_t data[DATA_BYTES];
static uint8_t plain[CAPACITY];
static size_t plain_length;
static uint8_t packed[CAPACITY];
static size_t packed_length;

static int setup(void **state)
{
    (void)state;
    files_begin();
    for (int i = 0; i < DATA_BYTES; i++)
        data[i] = (uint8_t)(i * i);
    plain_length = files_idx(plain, 3, dims, data, DATA_BYTES);
    packed_length = files_gzip(packed, CAPACITY, plain, plain_length);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    files_end();
    return 0;
}

/* The file is refused, and the text names it and says `what`. */
static void check_refused(const char *name, int ndim, const char *what)
{
    idx_t idx = {0};
    mlp_error_t error = {.text = ""};
    assert_int_equal(idx_read(files_path(name), ndim, &idx, &error), -1);
    assert_null(idx.data);
    assert_non_null(strstr(error.text, files_path(name)));
    if (strstr(error.text, what) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, what);
}

static void check_bytes_refused(const void *bytes, size_t length, int ndim, const char *what)
{
    files_write("damaged", bytes, length);
    check_refused("damaged", ndim, what);
}

static void check_packed_refused(const void *bytes, size_t length, int ndim, const char *what)
{
    uint8_t out[CAPACITY];
    check_bytes_refused(out, files_gzip(out, CAPACITY, bytes, length), ndim, what);
}

static void check_good(const void *bytes, size_t length)
{
    idx_t idx = {0};
    mlp_error_t error = {.text = ""};
    files_write("good", bytes, length);
    assert_int_equal(idx_read(files_path("good"), 3, &idx, &error), 0);
    assert_int_equal(idx.size, DATA_BYTES);
    for (int i = 0; i < 3; i++)
        assert_int_equal(idx.dims[i], dims[i]);
    assert_memory_equal(idx.data, data, DATA_BYTES);
    idx_free(&idx);
}

static void test_idx_plain_file_is_read(void **state)
{
    (void)state;
    check_good(plain, plain_length);
}

static void test_idx_gzip_file_is_read(void **state)
{
    (void)state;
    check_good(packed, packed_length);
}

static void test_idx_missing_file_is_named(void **state)
{
    (void)state;
    check_refused("nowhere", 3, "No such file");
}

static void test_idx_folder_is_refused(void **state)
{
    (void)state;
    check_refused(".", 3, "not a regular file");
}

static void test_idx_empty_file_is_refused(void **state)
{
    (void)state;
    check_bytes_refused(plain, 0, 3, "too short");
    check_packed_refused(plain, 0, 3, "too short");
}

static void test_idx_wrong_magic_is_refused(void **state)
{
    uint8_t bytes[CAPACITY];
    (void)state;
    check_bytes_refused(plain, plain_length, 1, "wrong magic number 0x00000803");
    check_packed_refused(plain, plain_length, 1, "0x00000801");
    memcpy(bytes, plain, plain_length);
    bytes[2] = 0x0d; /* floats */
    check_bytes_refused(bytes, plain_length, 3, "wrong magic number 0x00000d03");
    memcpy(bytes, packed, packed_length);
    bytes[0] ^= 1; /* no longer recognised as gzip */
    check_bytes_refused(bytes, packed_length, 3, "wrong magic number");
}

static void test_idx_zero_extent_is_refused(void **state)
{
    const uint32_t zero[3] = {2, 0, 4};
    uint8_t bytes[CAPACITY];
    (void)state;
    check_bytes_refused(bytes, files_idx(bytes, 3, zero, data, 0), 3, "extent 2 of 3 is 0");
}

static void test_idx_huge_extents_are_refused_before_allocation(void **state)
{
    const uint32_t huge[3] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const uint32_t wraps[3] = {65536 * 4, 65536, 1u << 30}; /* 2^64: 0 in 64 bits */
    uint8_t bytes[CAPACITY];
    (void)state;
    size_t length = files_idx(bytes, 3, huge, data, DATA_BYTES);
    check_bytes_refused(bytes, length, 3, "promises more");
    check_packed_refused(bytes, length, 3, "promises more");
    length = files_idx(bytes, 3, wraps, data, DATA_BYTES);
    check_bytes_refused(bytes, length, 3, "promises more");
    check_packed_refused(bytes, length, 3, "promises more");
}

static void test_idx_short_data_is_refused(void **state)
{
    (void)state;
    check_bytes_refused(plain, plain_length - 1, 3, "promises 24 bytes of data, the file has 23");
    check_packed_refused(plain, plain_length - 1, 3, "promises 24 bytes of data, the file has 23");
}

static void test_idx_trailing_garbage_is_refused(void **state)
{
    uint8_t bytes[CAPACITY];
    (void)state;
    memcpy(bytes, plain, plain_length);
    bytes[plain_length] = 0;
    check_bytes_refused(bytes, plain_length + 1, 3, "trailing garbage");
    check_packed_refused(bytes, plain_length + 1, 3, "trailing garbage");
    memcpy(bytes, packed, packed_length);
    bytes[packed_length] = 0;
    check_bytes_refused(bytes, packed_length + 1, 3, "trailing garbage after the gzip stream");
}

static void test_idx_wrong_gzip_checksum_is_refused(void **state)
{
    uint8_t bytes[CAPACITY];
    (void)state;
    memcpy(bytes, packed, packed_length);
    bytes[packed_length - 6] ^= 0x40;
    check_bytes_refused(bytes, packed_length, 3, "gzip data is damaged");
    memcpy(bytes, packed, packed_length);
    bytes[packed_length - 1] ^= 0x40; /* the length */
    check_bytes_refused(bytes, packed_length, 3, "gzip data is damaged");
}

/* The bits that fill up the last byte of deflate mean nothing: they may be anything. */
static void test_idx_no_flipped_bit_of_gzip_data_gives_other_data(void **state)
{
    const size_t header = 10; /* holds a time and a system's number, which nobody checks */
    int refused = 0;
    (void)state;
    for (size_t bit = 8 * header; bit < 8 * packed_length; bit++) {
        idx_t idx = {0};
        mlp_error_t error = {.text = ""};
        uint8_t bytes[CAPACITY];
        memcpy(bytes, packed, packed_length);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        files_write("flipped", bytes, packed_length);
        if (idx_read(files_path("flipped"), 3, &idx, &error) == 0) {
            assert_int_equal(idx.size, DATA_BYTES);
            assert_memory_equal(idx.data, data, DATA_BYTES);
            idx_free(&idx);
        } else {
            refused++;
        }
    }
    assert_in_range(refused, 8 * (packed_length - header) - 7, 8 * packed_length);
}

static void test_idx_every_truncation_is_refused(void **state)
{
    (void)state;
    for (size_t length = 0; length < plain_length; length++)
        check_bytes_refused(plain, length, 3, "short");
    for (size_t length = 2; length < packed_length; length++)
        check_bytes_refused(packed, length, 3, "cut short");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx_plain_file_is_read),
        cmocka_unit_test(test_idx_gzip_file_is_read),
        cmocka_unit_test(test_idx_missing_file_is_named),
        cmocka_unit_test(test_idx_folder_is_refused),
        cmocka_unit_test(test_idx_empty_file_is_refused),
        cmocka_unit_test(test_idx_wrong_magic_is_refused),
        cmocka_unit_test(test_idx_zero_extent_is_refused),
        cmocka_unit_test(test_idx_huge_extents_are_refused_before_allocation),
        cmocka_unit_test(test_idx_short_data_is_refused),
        cmocka_unit_test(test_idx_trailing_garbage_is_refused),
        cmocka_unit_test(test_idx_wrong_gzip_checksum_is_refused),
        cmocka_unit_test(test_idx_no_flipped_bit_of_gzip_data_gives_other_data),
        cmocka_unit_test(test_idx_every_truncation_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
