#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/share.h"
#include "saves.h"

char saves_folder[64];
char saves_path[96];

static const int64_t shape[] = {10, WEIGHTS / 10};
static const int64_t sampler_shape[] = {5};

int saves_begin(void **state)
{
    (void)state;
    strcpy(saves_folder, "/tmp/dtrain-saves-XXXXXX");
    if (!mkdtemp(saves_folder))
        return -1;
    snprintf(saves_path, sizeof saves_path, "%s/state", saves_folder);
    return 0;
}

/* Calls `use` with each file's path; returns how many names contain `part`. */
static int each_file(const char *part, void (*use)(const char *path, void *argument),
                     void *argument)
{
    int count = 0;
    DIR *folder = opendir(saves_folder);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.' || !strstr(entry->d_name, part))
            continue;
        char path[400];
        snprintf(path, sizeof path, "%s/%s", saves_folder, entry->d_name);
        use(path, argument);
        count++;
    }
    closedir(folder);
    return count;
}

static void remove_file(const char *path, void *argument)
{
    (void)argument;
    unlink(path);
}

static void do_nothing(const char *path, void *argument)
{
    (void)path;
    (void)argument;
}

static void copy_path(const char *path, void *argument)
{
    strcpy(argument, path);
}

int saves_end(void **state)
{
    (void)state;
    each_file("", remove_file, NULL);
    return rmdir(saves_folder);
}

int saves_count_files(const char *part)
{
    return each_file(part, do_nothing, NULL);
}

void saves_find(const char *part, char *path, size_t cap)
{
    char found[400];
    assert_int_equal(each_file(part, copy_path, found), 1);
    assert_true(strlen(found) < cap);
    strcpy(path, found);
}

unsigned char *saves_read(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *length = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*length + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *length, file), *length);
    fclose(file);
    return bytes;
}

void saves_write(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

float saves_weight(int64_t step, int64_t i)
{
    return (float)(step * 10000 + i);
}

dtrain_status_t saves_write_shard(int64_t step, uint64_t id, int shard, int size)
{
    int64_t begin, end;
    float weights[WEIGHTS];
    double rate = (double)step;
    dt_share(WEIGHTS, shard, size, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        weights[i] = saves_weight(step, i);
    dt_state_save_t save = {.step = step, .id = id, .shard = shard, .num_shards = size};
    dt_state_tensor_t tensors[] = {
        {"weights", DTRAIN_DTYPE_F32, 2, shape, begin, end, weights + begin},
        {"rate", DTRAIN_DTYPE_F64, 0, NULL, 0, 1, &rate},
        {"sampler", DTRAIN_DTYPE_U8, 1, sampler_shape, 0, 5, (char[]){1, 2, 3, 4, 5}},
    };
    return dt_state_write(saves_path, &save, tensors, shard == 0 ? 3 : 1);
}

void saves_write_all(int64_t step, uint64_t id, int size)
{
    for (int shard = 0; shard < size; shard++)
        assert_int_equal(saves_write_shard(step, id, shard, size), DTRAIN_OK);
    dt_state_save_t save = {.step = step, .id = id, .num_shards = size};
    if (size > 1)
        assert_int_equal(dt_state_write_index(saves_path, &save), DTRAIN_OK);
}

dtrain_status_t saves_load(int64_t step)
{
    float weights[WEIGHTS];
    double rate = -1;
    unsigned char sampler[5];
    memset(weights, 0xa5, sizeof weights);
    memset(sampler, 0xa5, sizeof sampler);
    float before = weights[0];
    dt_state_tensor_t tensors[] = {
        {"sampler", DTRAIN_DTYPE_U8, 1, sampler_shape, 0, 5, sampler},
        {"weights", DTRAIN_DTYPE_F32, 2, shape, 0, WEIGHTS, weights},
        {"rate", DTRAIN_DTYPE_F64, 0, NULL, 0, 1, &rate},
    };
    dt_state_t *state = NULL;
    dtrain_status_t status = dt_state_open(saves_path, &state);
    if (status == DTRAIN_OK) {
        assert_int_equal(dt_state_step(state), step);
        assert_int_equal(dt_state_num_tensors(state), 3);
        status = dt_state_read(state, tensors, 3);
        dt_state_close(state);
    }
    for (int64_t i = 0; i < WEIGHTS; i++) {
        float expected = status == DTRAIN_OK ? saves_weight(step, i) : before;
        assert_memory_equal(&weights[i], &expected, sizeof expected);
    }
    assert_true(rate == (status == DTRAIN_OK ? (double)step : -1));
    for (int i = 0; i < 5; i++)
        assert_int_equal(sampler[i], status == DTRAIN_OK ? i + 1 : 0xa5);
    return status;
}
