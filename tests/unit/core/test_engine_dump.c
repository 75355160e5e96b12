/* Dumps of the flight recorders by ranks that are threads: what is in them stands in
 * tests/parallel/flight.py and tests/tools/test_flight.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "engine_world.h"

#define TEXT_MAX (1 << 20)

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/dtrain-dump-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* Removes it with what is in it. Returns how many files that were; the last one's text is `text`,
 * unless NULL. */
static int clear_folder(char *text)
{
    int count = 0;
    char path[512];
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "re");
        if (text && file)
            text[fread(text, 1, TEXT_MAX - 1, file)] = '\0';
        if (file)
            fclose(file);
        unlink(path);
        count++;
    }
    if (files)
        closedir(files);
    rmdir(folder);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    clear_folder(NULL);
    return 0;
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

/* All write at a time, into files of their own and into one. */
static void write_all(engine_rank_t *self)
{
    char path[128];
    engine_check_works(self, "before");
    engine_meet(self);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i == 2 ? 9 : self->rank);
        ENGINE_OK(self, dt_dump_write(self->runtime, path, "a \"reason\""));
        engine_check_works(self, "meanwhile");
    }
    snprintf(path, sizeof path, "%s/no/such", folder);
    ENGINE_STATUS(self, dt_dump_write(self->runtime, path, ""), DTRAIN_ERR_FILE);
    ENGINE_TEXT(self, dt_last_error(), "No such file or directory");
    engine_check_works(self, "after");
}

static void test_engine_dump_by_all_ranks_at_a_time_is_whole(void **state)
{
    (void)state;
    char *text = malloc(TEXT_MAX);
    assert_non_null(text);
    engine_run(3, NULL, write_all, NULL);
    assert_int_equal(clear_folder(text), 4);
    assert_non_null(strstr(text, "\"size\":3,"));
    assert_non_null(strstr(text, "\"reason\":\"a \\\"reason\\\"\"}\n"));
    for (int rank = 0; rank < 3; rank++) {
        char line[64];
        snprintf(line, sizeof line, "{\"type\":\"rank\",\"rank\":%d,", rank);
        assert_int_equal(count_of(text, line), 1);
        snprintf(line, sizeof line, "\"rank\":%d,\"number\":1,\"kind\":\"allreduce\"", rank);
        assert_int_equal(count_of(text, line), 1);
    }
    assert_string_equal(text + strlen(text) - 15, "{\"type\":\"end\"}\n");
    free(text);
}

/* Process sets, and what waits in them. */
static void write_with_sets(engine_rank_t *self)
{
    static const int some[] = {2, 0};
    char path[128];
    dtrain_pset_t pset;
    ENGINE_OK(self, engine_pset_add(self, some, 2, &pset));
    snprintf(path, sizeof path, "%s/x", folder);
    if (self->rank == 0)
        ENGINE_OK(self, dt_dump_write(self->runtime, path, ""));
    engine_meet(self);
}

static void test_engine_dump_has_the_process_sets(void **state)
{
    (void)state;
    char *text = malloc(TEXT_MAX);
    assert_non_null(text);
    engine_run(3, NULL, write_with_sets, NULL);
    assert_int_equal(clear_folder(text), 1);
    assert_non_null(strstr(text, "{\"type\":\"set\",\"set\":1,\"ranks\":[2,0]}\n"));
    free(text);
}

/* All ranks see the end, and each other's boards. */
static void abort_all(engine_rank_t *self)
{
    self->end = DTRAIN_ERR_ABORTED;
    engine_check_works(self, "before");
    engine_meet(self);
    if (self->rank == 1)
        ENGINE_OK(self, dt_runtime_abort(self->runtime, 1, "why not"));
    engine_op_t op = {.name = "w", .in = folder, .out = NULL, .count = 0};
    ENGINE_STATUS(self, engine_do(self, &op), DTRAIN_ERR_ABORTED);
}

static void test_engine_dump_at_the_end_is_written_once(void **state)
{
    (void)state;
    char *text = malloc(TEXT_MAX);
    dt_config_t config = engine_config();
    assert_non_null(text);
    snprintf(config.flight_dir, sizeof config.flight_dir, "%s", folder);
    engine_run(4, &config, abort_all, NULL);
    assert_int_equal(clear_folder(text), 1);
    assert_int_equal(count_of(text, "{\"type\":\"rank\""), 4);
    assert_non_null(strstr(text, "why not"));
    free(text);
}

static void work(engine_rank_t *self)
{
    engine_check_works(self, "w");
}

static void test_engine_dump_at_a_good_end_is_not_written(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    snprintf(config.flight_dir, sizeof config.flight_dir, "%s", folder);
    engine_run(2, &config, work, NULL);
    assert_int_equal(clear_folder(NULL), 0);
}

/* The world ends all the same. */
static void abort_unwritten(engine_rank_t *self)
{
    abort_all(self);
    ENGINE_CHECK(self, engine_log_wait(self, "the last operations are not written to "));
}

static void test_engine_dump_that_cannot_be_written_is_logged(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    snprintf(config.flight_dir, sizeof config.flight_dir, "%s/no/such", folder);
    engine_run(2, &config, abort_unwritten, NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_engine_dump_by_all_ranks_at_a_time_is_whole),
        CASE(test_engine_dump_has_the_process_sets),
        CASE(test_engine_dump_at_the_end_is_written_once),
        CASE(test_engine_dump_at_a_good_end_is_not_written),
        CASE(test_engine_dump_that_cannot_be_written_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
