#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "saves.h"

#define BIG 1500000 /* elements of two bytes: nearly three chunks */

static void assert_text(const char *word)
{
    if (!strstr(dt_last_error(), word))
        fail_msg("no '%s' in: %s", word, dt_last_error());
}

static void test_state_any_number_of_shards_loads_as_a_whole(void **state)
{
    (void)state;
    for (int size = 1; size <= 7; size++) {
        saves_write_all(size, 100 + (uint64_t)size, size);
        assert_int_equal(saves_load(size), DTRAIN_OK);
    }
    assert_int_equal(saves_count_files("tmp"), 0);
}

static void test_state_more_shards_than_elements_load(void **state)
{
    (void)state;
    saves_write_all(3, 9, WEIGHTS + 10);
    assert_int_equal(saves_load(3), DTRAIN_OK);
}

/* Saved by `from` ranks, read by `to`: each rank has its own range. */
static void test_state_saved_at_one_number_of_ranks_is_read_at_another(void **state)
{
    (void)state;
    static const int64_t shape[] = {3, 500000};
    static uint16_t out[BIG];
    uint16_t *values = malloc(BIG * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < BIG; i++)
        values[i] = (uint16_t)(i * 2654435761u >> 7);
    for (int from = 1; from <= 4; from++) {
        dt_state_save_t save = {.step = 1, .id = (uint64_t)from, .num_shards = from};
        for (int k = 0; k < from; k++) {
            int64_t begin = (int64_t)BIG * k / from, end = (int64_t)BIG * (k + 1) / from;
            dt_state_tensor_t part = {"m", DTRAIN_DTYPE_BF16, 2, shape, begin, end, values + begin};
            save.shard = k;
            assert_int_equal(dt_state_write(saves_path, &save, &part, 1), DTRAIN_OK);
        }
        if (from > 1)
            assert_int_equal(dt_state_write_index(saves_path, &save), DTRAIN_OK);
        dt_state_t *opened = NULL;
        assert_int_equal(dt_state_open(saves_path, &opened), DTRAIN_OK);
        for (int to = 1; to <= 7; to++) {
            memset(out, 0, sizeof out);
            for (int k = 0; k < to; k++) {
                int64_t begin = (int64_t)BIG * k / to, end = (int64_t)BIG * (k + 1) / to;
                dt_state_tensor_t part = {"m", DTRAIN_DTYPE_BF16, 2, shape, begin,
                                          end, out + begin};
                assert_int_equal(dt_state_read(opened, &part, 1), DTRAIN_OK);
            }
            assert_memory_equal(out, values, sizeof out);
        }
        dt_state_close(opened);
    }
    free(values);
}

static void test_state_several_ranges_of_a_tensor_in_one_file_load(void **state)
{
    (void)state;
    static const int64_t shape[] = {8};
    int32_t in[] = {0, 1, 2, 3, 4, 5, 6, 7}, out[6] = {0};
    dt_state_save_t save = {.step = 1, .id = 1, .num_shards = 1};
    dt_state_tensor_t parts[] = {
        {"a", DTRAIN_DTYPE_I32, 1, shape, 5, 8, in + 5},
        {"b", DTRAIN_DTYPE_I32, 1, shape, 0, 8, in},
        {"a", DTRAIN_DTYPE_I32, 1, shape, 0, 2, in},
        {"a", DTRAIN_DTYPE_I32, 1, shape, 3, 3, in},
        {"a", DTRAIN_DTYPE_I32, 1, shape, 2, 5, in + 2},
    };
    assert_int_equal(dt_state_write(saves_path, &save, parts, 5), DTRAIN_OK);
    dt_state_t *opened = NULL;
    assert_int_equal(dt_state_open(saves_path, &opened), DTRAIN_OK);
    assert_int_equal(dt_state_num_tensors(opened), 2);
    dt_state_info_t info = dt_state_info(opened, 0);
    assert_string_equal(info.name, "a");
    assert_int_equal(info.dtype, DTRAIN_DTYPE_I32);
    assert_int_equal(info.ndim, 1);
    assert_int_equal(info.shape[0], 8);
    dt_state_tensor_t wanted = {"a", DTRAIN_DTYPE_I32, 1, shape, 1, 7, out};
    assert_int_equal(dt_state_read(opened, &wanted, 1), DTRAIN_OK);
    assert_memory_equal(out, in + 1, sizeof out);
    dt_state_close(opened);
}

static void test_state_without_tensors_or_elements_loads(void **state)
{
    (void)state;
    static const int64_t empty[] = {4, 0};
    dt_state_save_t save = {.step = 8, .id = 1, .num_shards = 1};
    dt_state_t *opened = NULL;
    assert_int_equal(dt_state_write(saves_path, &save, NULL, 0), DTRAIN_OK);
    assert_int_equal(dt_state_open(saves_path, &opened), DTRAIN_OK);
    assert_int_equal(dt_state_step(opened), 8);
    assert_int_equal(dt_state_num_tensors(opened), 0);
    dt_state_close(opened);
    dt_state_tensor_t none = {"none", DTRAIN_DTYPE_F32, 2, empty, 0, 0, NULL};
    assert_int_equal(dt_state_write(saves_path, &save, &none, 1), DTRAIN_OK);
    assert_int_equal(dt_state_open(saves_path, &opened), DTRAIN_OK);
    assert_int_equal(dt_state_read(opened, &none, 1), DTRAIN_OK);
    dt_state_close(opened);
}

/* Shards of a new save without its index: as after a crash between the two. */
static void test_state_interrupted_save_leaves_the_one_before(void **state)
{
    (void)state;
    saves_write_all(5, 50, 3);
    assert_int_equal(saves_write_shard(6, 60, 0, 3), DTRAIN_OK);
    assert_int_equal(saves_write_shard(6, 60, 2, 3), DTRAIN_OK);
    assert_int_equal(saves_load(5), DTRAIN_OK);
    dt_state_save_t save = {.step = 6, .id = 60, .num_shards = 3};
    assert_int_equal(dt_state_write_index(saves_path, &save), DTRAIN_ERR_FILE);
    assert_text("1-of-3");
    assert_int_equal(saves_load(5), DTRAIN_OK);
    assert_int_equal(saves_write_shard(6, 60, 1, 3), DTRAIN_OK);
    assert_int_equal(dt_state_write_index(saves_path, &save), DTRAIN_OK);
    assert_int_equal(saves_load(6), DTRAIN_OK);
}

static void test_state_new_save_removes_the_shards_of_the_old_one(void **state)
{
    (void)state;
    saves_write_all(5, 50, 3);
    assert_int_equal(saves_count_files("-of-3"), 3);
    saves_write_all(6, 60, 4);
    assert_int_equal(saves_count_files("-of-3"), 0);
    assert_int_equal(saves_count_files("-of-4"), 4);
    saves_write_all(7, 70, 1);
    assert_int_equal(saves_count_files(""), 1);
    assert_int_equal(saves_load(7), DTRAIN_OK);
}

static void test_state_write_into_no_folder_is_refused_with_the_reason(void **state)
{
    (void)state;
    saves_write_all(5, 50, 1);
    char nowhere[128];
    snprintf(nowhere, sizeof nowhere, "%s/no/state", saves_folder);
    dt_state_save_t save = {.step = 1, .id = 1, .num_shards = 1};
    assert_int_equal(dt_state_write(nowhere, &save, NULL, 0), DTRAIN_ERR_FILE);
    assert_text("No such file");
    assert_int_equal(saves_load(5), DTRAIN_OK);
}

/* /dev/full takes the open and refuses the bytes; the temporary name is a link to it. */
static void test_state_full_disk_leaves_the_save_before(void **state)
{
    (void)state;
    char temporary[160];
    saves_write_all(5, 50, 1);
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", saves_path, (long)getpid());
    if (symlink("/dev/full", temporary) != 0)
        fail_msg("no link to /dev/full");
    assert_int_equal(saves_write_shard(6, 60, 0, 1), DTRAIN_ERR_FILE);
    assert_text("No space");
    assert_int_equal(saves_load(5), DTRAIN_OK);
    assert_int_equal(saves_count_files(""), 1);
}

static void test_state_write_refuses_bad_tensors_by_name(void **state)
{
    (void)state;
    static const int64_t shape[] = {4}, huge[] = {INT64_MAX, 2}, negative[] = {-1};
    static char long_name[DTRAIN_NAME_MAX + 2];
    memset(long_name, 'x', sizeof long_name - 1);
    float data[4] = {0};
    const dt_state_tensor_t bad[] = {
        {"", DTRAIN_DTYPE_F32, 1, shape, 0, 4, data},
        {NULL, DTRAIN_DTYPE_F32, 1, shape, 0, 4, data},
        {long_name, DTRAIN_DTYPE_F32, 1, shape, 0, 4, data},
        {"w", (dtrain_dtype_t)99, 1, shape, 0, 4, data},
        {"w", DTRAIN_DTYPE_F32, DTRAIN_NDIM_MAX + 1, shape, 0, 4, data},
        {"w", DTRAIN_DTYPE_F32, 2, huge, 0, 4, data},
        {"w", DTRAIN_DTYPE_F32, 1, negative, 0, 0, data},
        {"w", DTRAIN_DTYPE_F32, 1, shape, 0, 5, data},
        {"w", DTRAIN_DTYPE_F32, 1, shape, 3, 2, data},
        {"w", DTRAIN_DTYPE_F32, 1, shape, -1, 2, data},
    };
    dt_state_save_t save = {.step = 1, .id = 1, .num_shards = 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(dt_state_write(saves_path, &save, &bad[i], 1),
                         DTRAIN_ERR_INVALID_ARGUMENT);
    save.num_shards = 0;
    assert_int_equal(dt_state_write(saves_path, &save, NULL, 0), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dt_state_write_index(saves_path, &save), DTRAIN_ERR_INVALID_ARGUMENT);
    save = (dt_state_save_t){.num_shards = 2, .shard = 2};
    assert_int_equal(dt_state_write(saves_path, &save, NULL, 0), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(saves_count_files(""), 0);
}

static void assert_unreadable(const dt_state_t *opened, dt_state_tensor_t wanted,
                              dtrain_status_t status, const char *word)
{
    float first = 1, out[WEIGHTS];
    out[0] = -1;
    dt_state_tensor_t tensors[] = {wanted, wanted};
    static const int64_t shape[] = {10, WEIGHTS / 10};
    tensors[0] = (dt_state_tensor_t){"weights", DTRAIN_DTYPE_F32, 2, shape, 0, 1, &first};
    tensors[1].data = out;
    assert_int_equal(dt_state_read(opened, tensors, 2), status);
    assert_text(word);
    assert_true(first == 1 && out[0] == -1);
}

static void test_state_read_of_what_is_not_there_fills_in_nothing(void **state)
{
    (void)state;
    static const int64_t shape[] = {10, WEIGHTS / 10}, other[] = {WEIGHTS / 10, 10};
    saves_write_all(5, 50, 3);
    dt_state_t *opened = NULL;
    assert_int_equal(dt_state_open(saves_path, &opened), DTRAIN_OK);
    dt_state_tensor_t wanted = {"bias", DTRAIN_DTYPE_F32, 2, shape, 0, 1, NULL};
    assert_unreadable(opened, wanted, DTRAIN_ERR_FILE, "'bias'");
    wanted.name = "weights";
    wanted.dtype = DTRAIN_DTYPE_I32;
    assert_unreadable(opened, wanted, DTRAIN_ERR_FILE, "float32");
    wanted.dtype = DTRAIN_DTYPE_F32;
    wanted.shape = other;
    assert_unreadable(opened, wanted, DTRAIN_ERR_FILE, "shape");
    wanted.shape = shape;
    wanted.ndim = 1;
    assert_unreadable(opened, wanted, DTRAIN_ERR_FILE, "shape");
    wanted.ndim = 2;
    wanted.end = WEIGHTS + 1;
    assert_unreadable(opened, wanted, DTRAIN_ERR_INVALID_ARGUMENT, "1001");
    dt_state_close(opened);
}

#define SAVES_TEST(name) cmocka_unit_test_setup_teardown(name, saves_begin, saves_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SAVES_TEST(test_state_any_number_of_shards_loads_as_a_whole),
        SAVES_TEST(test_state_more_shards_than_elements_load),
        SAVES_TEST(test_state_saved_at_one_number_of_ranks_is_read_at_another),
        SAVES_TEST(test_state_several_ranges_of_a_tensor_in_one_file_load),
        SAVES_TEST(test_state_without_tensors_or_elements_loads),
        SAVES_TEST(test_state_interrupted_save_leaves_the_one_before),
        SAVES_TEST(test_state_new_save_removes_the_shards_of_the_old_one),
        SAVES_TEST(test_state_write_into_no_folder_is_refused_with_the_reason),
        SAVES_TEST(test_state_full_disk_leaves_the_save_before),
        SAVES_TEST(test_state_write_refuses_bad_tensors_by_name),
        SAVES_TEST(test_state_read_of_what_is_not_there_fills_in_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
