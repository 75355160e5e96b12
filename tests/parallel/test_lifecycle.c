/* init, shutdown, again and again; before, after, and in a child. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* ---- Without a world ----------------------------------------------------------------------------
 */

static void check_without_world(void)
{
    float value = 1;
    int done = 7;
    char text[8] = "kept";
    dtrain_handle_t handle = 5;
    CHECK(dtrain_is_initialized() == 0);
    CHECK(dtrain_rank() == -1 && dtrain_size() == -1);
    CHECK(dtrain_local_rank() == -1 && dtrain_local_size() == -1);
    CHECK(dtrain_cross_rank() == -1 && dtrain_cross_size() == -1);
    CHECK(dtrain_is_homogeneous() == -1);
    CHECK_STATUS(check_submit("x", &value, 1, 0, &handle), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_ERROR_HAS("dtrain_init");
    CHECK_STATUS(dtrain_allreduce("x", &value, &value, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM),
                 DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_broadcast("x", &value, 1, DTRAIN_DTYPE_F32, 0), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_barrier(), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_barrier_async(NULL, &handle), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_poll(5, &done), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_wait(5), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_wait_for(5, 1), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_release(5), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_handle_error(5, text, sizeof text), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_abort(1, NULL), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK_STATUS(dtrain_shutdown(), DTRAIN_ERR_NOT_INITIALIZED);
    CHECK(handle == 5 && done == 7 && strcmp(text, "kept") == 0);
    CHECK(dtrain_version() == DTRAIN_VERSION);
    CHECK(strcmp(dtrain_version_string(), DTRAIN_VERSION_STRING) == 0);
    CHECK(dtrain_built(DTRAIN_FEATURE_MPI) == 1);
}

/* ---- With one
 * -------------------------------------------------------------------------------------- */

static void check_topology(void)
{
    int rank = dtrain_rank(), size = dtrain_size();
    CHECK(dtrain_is_initialized() == 1);
    CHECK(rank >= 0 && rank < size);
    /* All ranks of this test are on one machine. */
    CHECK(dtrain_local_rank() == rank && dtrain_local_size() == size);
    CHECK(dtrain_cross_rank() == 0 && dtrain_cross_size() == 1);
    CHECK(dtrain_is_homogeneous() == 1);
    int32_t sum = rank;
    CHECK_OK(dtrain_allreduce("ranks", &sum, &sum, 1, DTRAIN_DTYPE_I32, DTRAIN_OP_SUM));
    CHECK(sum == size * (size - 1) / 2);
}

static void check_init_twice(void)
{
    int rank = dtrain_rank();
    CHECK_STATUS(dtrain_init(NULL), DTRAIN_ERR_ALREADY_INITIALIZED);
    CHECK_STATUS(check_init(0), DTRAIN_ERR_ALREADY_INITIALIZED);
    CHECK(dtrain_is_initialized() == 1 && dtrain_rank() == rank);
    check_works("after init twice");
}

static void check_bad_calls(void)
{
    dtrain_handle_t handle;
    CHECK_STATUS(dtrain_poll(0, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_wait_for(0, -1), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_wait(0), DTRAIN_ERR_INVALID_HANDLE);
    CHECK_STATUS(dtrain_wait_all(NULL, 2, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_wait_all(NULL, -1, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_OK(dtrain_wait_all(NULL, 0, NULL));
    CHECK_STATUS(dtrain_allreduce_async(NULL, NULL, &handle), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(dtrain_handle_error(77, NULL, 0), DTRAIN_ERR_INVALID_HANDLE);
    check_works("after bad calls");
}

/* ---- In a child
 * ----------------------------------------------------------------------------------------- */

/* The child's checks; exits at once, as a child should, or through exit's handlers. */
static void run_child(int through_exit)
{
    int failed = 0;
    float value = 1;
    dtrain_handle_t handle;
    failed |= dtrain_barrier() != DTRAIN_ERR_FORKED;
    failed |= check_submit("x", &value, 1, 0, &handle) != DTRAIN_ERR_FORKED;
    failed |= strstr(dtrain_last_error(), "fork") == NULL;
    failed |= dtrain_init(NULL) != DTRAIN_ERR_FORKED;
    failed |= dtrain_shutdown() != DTRAIN_ERR_FORKED;
    failed |= dtrain_is_initialized() != 0 || dtrain_rank() != -1;
    if (through_exit)
        exit(failed);
    _exit(failed);
}

static void check_fork(void)
{
    for (int through_exit = 0; through_exit < 2; through_exit++) {
        float value = 1;
        dtrain_handle_t handle;
        if (dtrain_rank() == 0)
            CHECK_OK(check_submit("forked", &value, 1, 0, &handle)); /* in flight meanwhile */
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            run_child(through_exit);
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (dtrain_rank() != 0)
            CHECK_OK(check_submit("forked", &value, 1, 0, &handle));
        CHECK_OK(check_finish(handle));
        CHECK(value == (float)dtrain_size());
        check_works("after fork");
    }
}

/* ---- Again and again
 * ----------------------------------------------------------------------------------- */

static int count_entries(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static int count_mappings(void)
{
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; maps && (c = fgetc(maps)) != EOF;)
        count += c == '\n';
    if (maps)
        fclose(maps);
    return count;
}

static void check_repeat(void)
{
    int threads = 0, descriptors = 0, mappings = 0;
    for (int i = 0; i < 20; i++) {
        if (!CHECK_OK(check_init(0)))
            return;
        check_works("again");
        check_works("again");
        CHECK_OK(dtrain_shutdown());
        CHECK_STATUS(dtrain_barrier(), DTRAIN_ERR_NOT_INITIALIZED);
        if (i < 5) {
            threads = count_entries("/proc/self/task");
            descriptors = count_entries("/proc/self/fd");
            mappings = count_mappings();
        }
    }
    CHECK(count_entries("/proc/self/task") == threads);
    CHECK(count_entries("/proc/self/fd") == descriptors);
    CHECK(count_mappings() < mappings + 15); /* the heap may come in more pieces */
}

int main(void)
{
    check_begin("test_lifecycle", 50);
    check_without_world();
    if (!CHECK_OK(check_init(0)))
        return check_end();
    check_topology();
    check_init_twice();
    check_bad_calls();
    check_fork();
    CHECK_OK(dtrain_shutdown());
    check_without_world();
    check_repeat();
    return check_end();
}
