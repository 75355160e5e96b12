#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

#define NUM_THREADS 4
#define LINES_EACH 200

typedef struct capture {
    dtrain_log_level_t level;
    int lines;
    char last[4096];
} capture_t;

static void take(dtrain_log_level_t level, const char *line, void *user)
{
    capture_t *capture = user;
    capture->level = level;
    capture->lines++;
    snprintf(capture->last, sizeof capture->last, "%s", line);
}

static capture_t captured;

static int setup(void **state)
{
    (void)state;
    captured = (capture_t){0};
    dt_log_set_sink(take, &captured);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dt_log_set_sink(NULL, NULL);
    dt_log_set_level(DTRAIN_LOG_WARN);
    dt_log_set_rank(-1);
    return 0;
}

static void test_log_line_has_level_and_subsystem(void **state)
{
    (void)state;
    dt_log(DTRAIN_LOG_WARN, "core", "tensor '%s' waits", "w1");
    assert_string_equal(captured.last, "[dtrain] warn core: tensor 'w1' waits");
    assert_int_equal(captured.level, DTRAIN_LOG_WARN);
}

static void test_log_line_has_the_rank_once_known(void **state)
{
    (void)state;
    dt_log_set_rank(0);
    dt_log(DTRAIN_LOG_ERROR, "mpi", "gone");
    assert_string_equal(captured.last, "[dtrain 0] error mpi: gone");
}

static void test_log_lines_above_the_level_are_dropped(void **state)
{
    (void)state;
    dt_log(DTRAIN_LOG_INFO, "core", "no");
    assert_int_equal(captured.lines, 0);
    dt_log_set_level(DTRAIN_LOG_TRACE);
    dt_log(DTRAIN_LOG_TRACE, "core", "yes");
    assert_int_equal(captured.lines, 1);
    dt_log_set_level(DTRAIN_LOG_OFF);
    dt_log(DTRAIN_LOG_ERROR, "core", "no");
    assert_int_equal(captured.lines, 1);
}

static void test_log_level_that_is_none_is_dropped(void **state)
{
    (void)state;
    dt_log_set_level(DTRAIN_LOG_TRACE);
    dt_log(DTRAIN_LOG_OFF, "core", "no");
    dt_log((dtrain_log_level_t)0, "core", "no");
    dt_log((dtrain_log_level_t)7, "core", "no");
    assert_int_equal(captured.lines, 0);
}

static void test_log_text_with_line_breaks_stays_one_line(void **state)
{
    (void)state;
    dt_log(DTRAIN_LOG_WARN, "core", "%s", "a\nb\x1b[31m\tc");
    assert_string_equal(captured.last, "[dtrain] warn core: a b [31m c");
}

static void test_log_long_text_is_cut_with_a_mark(void **state)
{
    (void)state;
    char text[8000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    dt_log(DTRAIN_LOG_WARN, "core", "%s", text);
    size_t length = strlen(captured.last);
    assert_true(length > 1000 && length < 4000);
    assert_string_equal(captured.last + length - 4, "x...");
}

static void test_log_leaves_errno_alone(void **state)
{
    (void)state;
    errno = ENOENT;
    dt_log(DTRAIN_LOG_WARN, "core", "%d", 1);
    assert_int_equal(errno, ENOENT);
}

static void *log_lines(void *context)
{
    for (int i = 0; i < LINES_EACH; i++)
        dt_log(DTRAIN_LOG_WARN, "core", "%s", (const char *)context);
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[NUM_THREADS];
    for (int i = 0; i < NUM_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_lines, "from a thread"), 0);
    for (int i = 0; i < NUM_THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* As when a launcher that ends has closed the pipe. */
static void test_log_without_a_reader_does_not_end_the_process(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    dt_log_set_sink(NULL, NULL);
    dt_log_set_level(DTRAIN_LOG_ERROR);
    dt_log(DTRAIN_LOG_ERROR, "test", "nobody reads this");
    dup2(saved, STDERR_FILENO);
    close(saved);
}

/* As when it hangs instead. */
static void test_log_to_a_reader_that_does_not_read_drops_lines(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDERR_FILENO);
    char byte = 'x';
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], &byte, 1) == 1) {
    }
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], STDERR_FILENO);
    dt_log_set_sink(NULL, NULL);
    dt_log(DTRAIN_LOG_ERROR, "test", "there is no room for this");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[0]);
    close(ends[1]);
}

static void test_log_sink_is_called_one_line_at_a_time(void **state)
{
    (void)state;
    run_threads(); /* the sink counts without a lock of its own */
    assert_int_equal(captured.lines, NUM_THREADS * LINES_EACH);
}

static void test_log_stderr_lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    dt_log_set_sink(NULL, NULL);
    dup2(fileno(file), STDERR_FILENO);
    run_threads();
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    char line[256];
    int lines = 0;
    for (; fgets(line, sizeof line, file); lines++)
        assert_string_equal(line, "[dtrain] warn core: from a thread\n");
    assert_int_equal(lines, NUM_THREADS * LINES_EACH);
    fclose(file);
}

#define LOG_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOG_TEST(test_log_line_has_level_and_subsystem),
        LOG_TEST(test_log_line_has_the_rank_once_known),
        LOG_TEST(test_log_lines_above_the_level_are_dropped),
        LOG_TEST(test_log_level_that_is_none_is_dropped),
        LOG_TEST(test_log_text_with_line_breaks_stays_one_line),
        LOG_TEST(test_log_long_text_is_cut_with_a_mark),
        LOG_TEST(test_log_leaves_errno_alone),
        LOG_TEST(test_log_without_a_reader_does_not_end_the_process),
        LOG_TEST(test_log_to_a_reader_that_does_not_read_drops_lines),
        LOG_TEST(test_log_sink_is_called_one_line_at_a_time),
        LOG_TEST(test_log_stderr_lines_of_threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
