/* Every kind of damage to a save is an error, and nothing is loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <zlib.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/status.h"
#include "saves.h"

static void assert_fails(const char *word)
{
    assert_int_equal(saves_load(5), DTRAIN_ERR_FILE);
    if (!strstr(dt_last_error(), word))
        fail_msg("no '%s' in: %s", word, dt_last_error());
}

/* Cuts the file off at every length, and adds a byte. */
static void check_lengths(const char *path)
{
    size_t length;
    unsigned char *bytes = saves_read(path, &length);
    for (size_t cut = 0; cut < length; cut++) {
        saves_write(path, bytes, cut);
        assert_int_equal(saves_load(5), DTRAIN_ERR_FILE);
    }
    bytes[length] = 0;
    saves_write(path, bytes, length + 1);
    assert_int_equal(saves_load(5), DTRAIN_ERR_FILE);
    saves_write(path, bytes, length);
    assert_int_equal(saves_load(5), DTRAIN_OK);
    free(bytes);
}

static void check_flips(const char *path)
{
    size_t length;
    unsigned char *bytes = saves_read(path, &length);
    for (size_t i = 0; i < length; i++) {
        bytes[i] ^= (unsigned char)(1 << i % 8);
        saves_write(path, bytes, length);
        assert_int_equal(saves_load(5), DTRAIN_ERR_FILE);
        bytes[i] ^= (unsigned char)(1 << i % 8);
    }
    saves_write(path, bytes, length);
    assert_int_equal(saves_load(5), DTRAIN_OK);
    free(bytes);
}

static void test_damage_file_cut_at_any_byte_is_an_error(void **state)
{
    (void)state;
    saves_write_all(5, 50, 1);
    check_lengths(saves_path);
}

static void test_damage_any_byte_flipped_is_an_error(void **state)
{
    (void)state;
    saves_write_all(5, 50, 1);
    check_flips(saves_path);
}

static void test_damage_to_an_index_or_a_shard_is_an_error(void **state)
{
    (void)state;
    char shard[200];
    saves_write_all(5, 50, 3);
    check_lengths(saves_path);
    check_flips(saves_path);
    saves_find("1-of-3", shard, sizeof shard);
    check_lengths(shard);
    check_flips(shard);
}

static void test_damage_names_the_file_and_the_tensor(void **state)
{
    (void)state;
    char shard[200];
    size_t length;
    saves_write_all(5, 50, 3);
    saves_find("1-of-3", shard, sizeof shard);
    unsigned char *bytes = saves_read(shard, &length);
    bytes[length - 1] ^= 1;
    saves_write(shard, bytes, length);
    free(bytes);
    assert_fails("1-of-3");
    assert_fails("'weights'");
}

static void test_damage_another_format_or_no_state_at_all_says_so(void **state)
{
    (void)state;
    size_t length;
    saves_write_all(5, 50, 1);
    unsigned char *bytes = saves_read(saves_path, &length);
    bytes[8] = 7;
    saves_write(saves_path, bytes, length);
    free(bytes);
    assert_fails("format 7");
    char text[200];
    memset(text, 'x', sizeof text);
    saves_write(saves_path, text, sizeof text);
    assert_fails("no training state");
    saves_write(saves_path, text, 0);
    assert_fails("cut off");
    assert_int_equal(unlink(saves_path), 0);
    assert_fails("No such file");
    strcpy(saves_path, saves_folder);
    assert_fails("no file");
}

static void test_damage_missing_shard_is_named(void **state)
{
    (void)state;
    char shard[200];
    saves_write_all(5, 50, 3);
    saves_find("2-of-3", shard, sizeof shard);
    assert_int_equal(unlink(shard), 0);
    assert_fails("2-of-3");
}

static void test_damage_shard_opened_alone_points_to_the_index(void **state)
{
    (void)state;
    char shard[200];
    dt_state_t *opened = NULL;
    saves_write_all(5, 50, 3);
    saves_find("2-of-3", shard, sizeof shard);
    assert_int_equal(dt_state_open(shard, &opened), DTRAIN_ERR_FILE);
    assert_non_null(strstr(dt_last_error(), "index"));
}

/* Puts another save's shard 1 in the place of this one's. */
static void swap_in(int64_t step, uint64_t id, int shard, int size, const char *name)
{
    char mine[200], other[200];
    saves_write_all(5, 50, 3);
    saves_find("0032.1-of-3", mine, sizeof mine);
    assert_int_equal(saves_write_shard(step, id, shard, size), DTRAIN_OK);
    saves_find(name, other, sizeof other);
    assert_int_equal(rename(other, mine), 0);
}

static void test_damage_shards_of_several_saves_do_not_mix(void **state)
{
    (void)state;
    swap_in(6, 51, 1, 3, "0033.1-of-3");
    assert_fails("step 6");
    swap_in(5, 51, 1, 3, "0033.1-of-3");
    assert_fails("another save of the same step");
    swap_in(5, 50, 2, 3, "0032.2-of-3");
    assert_fails("not shard 1 of 3");
    swap_in(5, 50, 1, 4, "0032.1-of-4");
    assert_fails("not shard 1 of 3");
}

static void test_damage_shard_written_again_is_not_what_the_index_names(void **state)
{
    (void)state;
    static const int64_t shape[] = {10, WEIGHTS / 10};
    float zeros[WEIGHTS] = {0};
    saves_write_all(5, 50, 2);
    dt_state_save_t save = {.step = 5, .id = 50, .shard = 1, .num_shards = 2};
    dt_state_tensor_t part = {"weights", DTRAIN_DTYPE_F32, 2, shape, 500, 1000, zeros};
    assert_int_equal(dt_state_write(saves_path, &save, &part, 1), DTRAIN_OK);
    assert_fails("its index names");
}

static dtrain_status_t open_two(int64_t first_end, int64_t second_begin, int64_t second_end,
                                const int64_t *second_shape)
{
    static const int64_t shape[] = {10, WEIGHTS / 10};
    float zeros[WEIGHTS] = {0};
    dt_state_save_t save = {.step = 5, .id = 50, .num_shards = 1};
    dt_state_tensor_t parts[] = {{"w", DTRAIN_DTYPE_F32, 2, shape, 0, first_end, zeros},
                                 {"w", DTRAIN_DTYPE_F32, 2, second_shape ? second_shape : shape,
                                  second_begin, second_end, zeros}};
    dt_state_t *opened = NULL;
    assert_int_equal(dt_state_write(saves_path, &save, parts, 2), DTRAIN_OK);
    dtrain_status_t status = dt_state_open(saves_path, &opened);
    if (status == DTRAIN_OK)
        dt_state_close(opened);
    return status;
}

static void test_damage_tensor_not_covered_once_is_an_error(void **state)
{
    (void)state;
    static const int64_t other[] = {WEIGHTS / 10, 10};
    assert_int_equal(open_two(400, 400, 1000, NULL), DTRAIN_OK);
    assert_int_equal(open_two(400, 401, 1000, NULL), DTRAIN_ERR_FILE);
    assert_non_null(strstr(dt_last_error(), "400 on are missing"));
    assert_int_equal(open_two(400, 399, 1000, NULL), DTRAIN_ERR_FILE);
    assert_non_null(strstr(dt_last_error(), "399 on are there twice"));
    assert_int_equal(open_two(400, 400, 999, NULL), DTRAIN_ERR_FILE);
    assert_non_null(strstr(dt_last_error(), "999 on are missing"));
    assert_int_equal(open_two(400, 400, 1000, other), DTRAIN_ERR_FILE);
    assert_non_null(strstr(dt_last_error(), "another type or shape"));
}

static uint32_t random_number(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

/* Headers that lie: bytes are changed and the checksum is made right again, so that the decoder
 * has to find out. It may accept what makes sense; it must not read outside, and not hang. */
static void test_damage_lying_headers_are_never_believed_beyond_the_file(void **state)
{
    (void)state;
    size_t length;
    int refused = 0;
    saves_write_all(5, 50, 1);
    unsigned char *good = saves_read(saves_path, &length);
    unsigned char *bytes = malloc(length);
    assert_non_null(bytes);
    uint64_t header;
    memcpy(&header, good + 24, sizeof header);
    for (int round = 0; round < 20000; round++) {
        memcpy(bytes, good, length);
        for (uint32_t changes = random_number() % 3 + 1; changes > 0; changes--) {
            size_t at = 12 + random_number() % (header - 16);
            static const unsigned char ends[] = {0, 1, 0x7f, 0x80, 0xff};
            bytes[at] = random_number() % 2 ? (unsigned char)random_number()
                                            : ends[random_number() % sizeof ends];
        }
        uint32_t sum = (uint32_t)crc32_z(0, bytes, header - 4);
        memcpy(bytes + header - 4, &sum, sizeof sum);
        saves_write(saves_path, bytes, length);
        dt_state_t *opened = NULL;
        dtrain_status_t status = dt_state_open(saves_path, &opened);
        assert_true(status == DTRAIN_OK || status == DTRAIN_ERR_FILE);
        refused += status == DTRAIN_ERR_FILE;
        if (status == DTRAIN_OK)
            dt_state_close(opened);
    }
    assert_true(refused > 10000);
    free(bytes);
    free(good);
}

#define SAVES_TEST(name) cmocka_unit_test_setup_teardown(name, saves_begin, saves_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SAVES_TEST(test_damage_file_cut_at_any_byte_is_an_error),
        SAVES_TEST(test_damage_any_byte_flipped_is_an_error),
        SAVES_TEST(test_damage_to_an_index_or_a_shard_is_an_error),
        SAVES_TEST(test_damage_names_the_file_and_the_tensor),
        SAVES_TEST(test_damage_another_format_or_no_state_at_all_says_so),
        SAVES_TEST(test_damage_missing_shard_is_named),
        SAVES_TEST(test_damage_shard_opened_alone_points_to_the_index),
        SAVES_TEST(test_damage_shards_of_several_saves_do_not_mix),
        SAVES_TEST(test_damage_shard_written_again_is_not_what_the_index_names),
        SAVES_TEST(test_damage_tensor_not_covered_once_is_an_error),
        SAVES_TEST(test_damage_lying_headers_are_never_believed_beyond_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
