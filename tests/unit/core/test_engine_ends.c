/* How worlds end: by shutdown on all ranks or on one, by abort, by a rank that is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "comm/self/self_world.h"
#include "engine_world.h"

static engine_op_t sum_of(engine_rank_t *self, const char *name)
{
    float *values = engine_buffer(self, 4 * sizeof *values);
    return (engine_op_t){.name = name, .in = values, .out = values, .count = 4};
}

/* An operation that ends with `status`, and whose text has both parts. */
static void expect(engine_rank_t *self, const char *name, dtrain_status_t status, const char *part,
                   const char *other)
{
    engine_op_t op = sum_of(self, name);
    ENGINE_STATUS(self, engine_do(self, &op), status);
    ENGINE_TEXT(self, dt_last_error(), part);
    ENGINE_TEXT(self, dt_last_error(), other);
}

/* ---- Shutdown -------------------------------------------------------------------------------- */

/* The last rank leaves; what the others have pending, and what they try later, needs it. */
static void one_leaves(engine_rank_t *self)
{
    int last = self->size - 1;
    dtrain_handle_t handle;
    engine_check_works(self, "x");
    if (self->rank == last) {
        engine_meet(self);
        ENGINE_OK(self, engine_shutdown(self));
        return;
    }
    engine_op_t pending = sum_of(self, "pending");
    ENGINE_OK(self, engine_submit(self, &pending, &handle));
    engine_meet(self);
    ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_SHUT_DOWN);
    /* With more ranks than two another one may be on its way out by now. */
    const char *who = self->size == 2 ? "needs rank 1, which has called dtrain_shutdown"
                                      : ", which has called dtrain_shutdown";
    ENGINE_TEXT(self, dt_last_error(), who);
    for (int i = 0; i < 3; i++) {
        expect(self, "x", DTRAIN_ERR_SHUT_DOWN, "'x'", who);
        expect(self, "later", DTRAIN_ERR_SHUT_DOWN, "'later'", who);
    }
    engine_op_t barrier = {.kind = DT_KIND_BARRIER};
    ENGINE_STATUS(self, engine_do(self, &barrier), DTRAIN_ERR_SHUT_DOWN);
}

static void test_engine_operations_that_need_a_rank_that_left_end(void **state)
{
    (void)state;
    engine_run(2, NULL, one_leaves, NULL);
    engine_run(4, NULL, one_leaves, NULL);
}

/* What a rank has pending when it leaves, its barriers too, is over for it. */
static void leave_with_pending(engine_rank_t *self)
{
    enum { BARRIERS = 3 };
    int leaver = *(int *)self->argument;
    dtrain_handle_t handles[BARRIERS], handle;
    engine_op_t barrier = {.kind = DT_KIND_BARRIER}, lonely = sum_of(self, "lonely");
    if (self->rank == leaver) {
        ENGINE_OK(self, engine_submit(self, &lonely, &handle));
        for (int i = 0; i < BARRIERS; i++)
            ENGINE_OK(self, engine_submit(self, &barrier, &handles[i]));
        ENGINE_OK(self, engine_shutdown(self));
        ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_SHUT_DOWN);
        for (int i = 0; i < BARRIERS; i++) {
            int done = 0;
            ENGINE_OK(self, dt_runtime_poll(self->runtime, handles[i], &done));
            if (ENGINE_CHECK(self, done))
                ENGINE_STATUS(self, engine_finish(self, handles[i]), DTRAIN_ERR_SHUT_DOWN);
        }
        ENGINE_STATUS(self, engine_submit(self, &lonely, &handle), DTRAIN_ERR_SHUT_DOWN);
    }
}

static void test_engine_shutdown_ends_what_its_rank_has_pending(void **state)
{
    (void)state;
    for (int leaver = 0; leaver < 2; leaver++)
        engine_run(2, NULL, leave_with_pending, &leaver);
}

/* What all ranks have submitted is carried out, though nobody waits for it. */
static void leave_with_agreed(engine_rank_t *self)
{
    enum { NUM = 40, COUNT = 3000 };
    float *values = engine_buffer(self, NUM * COUNT * sizeof *values);
    dtrain_handle_t handles[NUM];
    for (int i = 0; i < NUM * COUNT; i++)
        values[i] = 1;
    for (int i = 0; i < NUM; i++) {
        char name[32];
        float *mine = values + i * COUNT;
        snprintf(name, sizeof name, "t%d", i);
        engine_op_t op = {.name = name, .in = mine, .out = mine, .count = COUNT};
        ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
    }
    engine_meet(self);
    ENGINE_OK(self, engine_shutdown(self));
    int bad = 0;
    for (int i = 0; i < NUM; i++)
        ENGINE_OK(self, engine_finish(self, handles[i]));
    for (int i = 0; i < NUM * COUNT; i++)
        bad += values[i] != (float)self->size;
    ENGINE_CHECK(self, bad == 0);
}

static void test_engine_shutdown_cuts_off_nothing_that_all_have_submitted(void **state)
{
    (void)state;
    engine_run(3, NULL, leave_with_agreed, NULL);
    dt_config_t config = engine_config();
    config.fusion_threshold = 0;
    engine_run(3, &config, leave_with_agreed, NULL);
}

/* A thread that waits while its rank shuts down. */
static void *wait_meanwhile(void *argument)
{
    engine_rank_t *self = argument;
    engine_op_t op = {.kind = DT_KIND_BARRIER};
    for (int i = 0; i < 200; i++) {
        dtrain_status_t status = engine_do(self, &op);
        if (status != DTRAIN_OK) {
            ENGINE_CHECK(self, status == DTRAIN_ERR_SHUT_DOWN);
            return NULL;
        }
    }
    return NULL;
}

static void leave_under_a_wait(engine_rank_t *self)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, wait_meanwhile, self);
    for (int i = 0; i < 3; i++)
        engine_check_works(self, "x");
    ENGINE_OK(self, engine_shutdown(self));
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void test_engine_shutdown_ends_the_waits_of_other_threads(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        engine_run(3, NULL, leave_under_a_wait, NULL);
}

/* ---- Again and again
 * ----------------------------------------------------------------------------- */

static int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && readdir(tasks))
        count++;
    if (tasks)
        closedir(tasks);
    return count;
}

static void work_a_little(engine_rank_t *self)
{
    engine_check_works(self, "again");
    engine_check_works(self, "again");
}

static void test_engine_made_20_times_leaves_no_thread(void **state)
{
    (void)state;
    engine_run(3, NULL, work_a_little, NULL);
    int before = count_threads();
    for (int i = 0; i < 20; i++)
        engine_run(1 + i % 4, NULL, work_a_little, NULL);
    assert_int_equal(count_threads(), before);
}

static void test_engine_world_of_one_works_without_a_thread(void **state)
{
    (void)state;
    int before = count_threads();
    dt_config_t config = engine_config();
    dt_world_t world;
    dt_runtime_t *runtime;
    assert_int_equal(dt_self_join(&world), DTRAIN_OK);
    assert_int_equal(dt_runtime_create(&world, &config, NULL, &runtime), DTRAIN_OK);
    assert_int_equal(count_threads(), before);
    engine_rank_t self = {.runtime = runtime, .size = 1};
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    engine_op_t op = {.name = "x", .in = in, .out = out, .count = 4, .prescale = 2};
    engine_op_t copy = {.name = "y", .kind = DT_KIND_BROADCAST, .in = in, .out = out, .count = 4};
    engine_op_t barrier = {.kind = DT_KIND_BARRIER}, wrong = copy;
    wrong.root = 1;
    for (int i = 0; i < 3; i++) {
        dtrain_handle_t handle;
        int done = 0;
        assert_int_equal(engine_submit(&self, &op, &handle), DTRAIN_OK);
        assert_int_equal(dt_runtime_poll(runtime, handle, &done), DTRAIN_OK);
        assert_true(done);
        assert_int_equal(engine_finish(&self, handle), DTRAIN_OK);
        assert_true(out[3] == 8);
        assert_int_equal(engine_do(&self, &copy), DTRAIN_OK);
        assert_true(out[3] == 4);
        assert_int_equal(engine_do(&self, &barrier), DTRAIN_OK);
        assert_int_equal(engine_do(&self, &wrong), DTRAIN_ERR_INVALID_ARGUMENT);
    }
    assert_int_equal(dt_runtime_shutdown(runtime), DTRAIN_OK);
    assert_int_equal(engine_do(&self, &op), DTRAIN_ERR_SHUT_DOWN);
    dt_runtime_destroy(runtime);
}

static void keep_line(dtrain_log_level_t level, const char *line, void *user)
{
    (void)level;
    snprintf(user, 256, "%s", line);
}

static void test_engine_handles_that_were_not_released_are_reported(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    dt_world_t world;
    dt_runtime_t *runtime;
    char line[256] = "";
    assert_int_equal(dt_self_join(&world), DTRAIN_OK);
    assert_int_equal(dt_runtime_create(&world, &config, NULL, &runtime), DTRAIN_OK);
    engine_rank_t self = {.runtime = runtime, .size = 1};
    engine_op_t barrier = {.kind = DT_KIND_BARRIER};
    for (int i = 0; i < 3; i++) {
        dtrain_handle_t handle;
        assert_int_equal(engine_submit(&self, &barrier, &handle), DTRAIN_OK);
        if (i == 1)
            assert_int_equal(engine_finish(&self, handle), DTRAIN_OK);
    }
    dt_log_set_sink(keep_line, line);
    assert_int_equal(dt_runtime_shutdown(runtime), DTRAIN_OK);
    dt_runtime_destroy(runtime);
    dt_log_set_sink(NULL, NULL);
    assert_non_null(strstr(line, "2 handle(s) were not released"));
}

static void test_engine_world_of_one_can_be_aborted(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    dt_world_t world;
    dt_runtime_t *runtime;
    assert_int_equal(dt_self_join(&world), DTRAIN_OK);
    config.log_level = DTRAIN_LOG_OFF;
    assert_int_equal(dt_runtime_create(&world, &config, NULL, &runtime), DTRAIN_OK);
    engine_rank_t self = {.runtime = runtime, .size = 1};
    engine_op_t barrier = {.kind = DT_KIND_BARRIER};
    assert_int_equal(dt_runtime_abort(runtime, 3, NULL), DTRAIN_OK);
    assert_int_equal(engine_do(&self, &barrier), DTRAIN_ERR_ABORTED);
    assert_string_equal(dt_last_error(), "rank 0 called dtrain_abort with code 3");
    assert_int_equal(dt_runtime_shutdown(runtime), DTRAIN_ERR_ABORTED);
    dt_runtime_destroy(runtime);
}

/* ---- Abort
 * ---------------------------------------------------------------------------------------- */

static void abort_world(engine_rank_t *self)
{
    int who = *(int *)self->argument;
    char rank[32];
    snprintf(rank, sizeof rank, "rank %d called dtrain_abort", who);
    self->end = DTRAIN_ERR_ABORTED;
    engine_check_works(self, "x");
    engine_op_t pending = sum_of(self, "pending");
    dtrain_handle_t handle = 0;
    if (self->rank != who)
        ENGINE_OK(self, engine_submit(self, &pending, &handle));
    engine_meet(self);
    if (self->rank == who)
        ENGINE_OK(self, dt_runtime_abort(self->runtime, 28, "no space left"));
    else
        ENGINE_STATUS(self, engine_finish(self, handle), DTRAIN_ERR_ABORTED);
    expect(self, "later", DTRAIN_ERR_ABORTED, rank, "code 28: no space left");
}

static void test_engine_abort_ends_the_world_on_all_ranks(void **state)
{
    (void)state;
    for (int who = 0; who < 3; who++)
        engine_run(3, NULL, abort_world, &who);
}

static void *abort_too(void *argument)
{
    engine_rank_t *self = argument;
    ENGINE_OK(self, dt_runtime_abort(self->runtime, self->rank, "all at once"));
    return NULL;
}

static void all_abort(engine_rank_t *self)
{
    pthread_t thread;
    self->end = DTRAIN_ERR_ABORTED;
    pthread_create(&thread, NULL, abort_too, self);
    abort_too(self);
    expect(self, "later", DTRAIN_ERR_ABORTED, "called dtrain_abort", "all at once");
    pthread_join(thread, NULL);
}

static void test_engine_abort_by_all_at_once_has_one_text_a_rank(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        engine_run(3, NULL, all_abort, NULL);
}

/* ---- Loss
 * ------------------------------------------------------------------------------------------ */

typedef struct loss {
    int who;
    int by_destroy; /* the rank's runtime goes without a word, instead of its cables being cut */
} loss_t;

static void lose_rank(engine_rank_t *self)
{
    const loss_t *loss = self->argument;
    char text[32];
    snprintf(text, sizeof text, "rank %d", loss->who);
    self->end = DTRAIN_ERR_RANK_LOST;
    engine_check_works(self, "x");
    engine_op_t pending = sum_of(self, "pending"), again = sum_of(self, "x");
    engine_op_t barrier = {.kind = DT_KIND_BARRIER};
    dtrain_handle_t handles[3];
    if (self->rank == loss->who) {
        engine_meet(self);
        if (!loss->by_destroy)
            dt_loopback_kill(self->loopback, self->rank);
        self->has_left = 1; /* its runtime is destroyed as it is */
        return;
    }
    ENGINE_OK(self, engine_submit(self, &pending, &handles[0]));
    ENGINE_OK(self, engine_submit(self, &barrier, &handles[1]));
    ENGINE_OK(self, engine_submit(self, &again, &handles[2]));
    engine_meet(self);
    for (int i = 0; i < 3; i++) {
        ENGINE_STATUS(self, engine_finish(self, handles[i]), DTRAIN_ERR_RANK_LOST);
        ENGINE_TEXT(self, dt_last_error(), text);
        ENGINE_TEXT(self, dt_last_error(), "lost");
    }
    for (int i = 0; i < 3; i++)
        expect(self, "later", DTRAIN_ERR_RANK_LOST, text, "lost");
}

static void test_engine_lost_rank_ends_all_operations_of_the_others(void **state)
{
    (void)state;
    for (int who = 0; who < 3; who++) {
        loss_t loss = {.who = who};
        engine_run(3, NULL, lose_rank, &loss);
        loss.by_destroy = 1;
        engine_run(3, NULL, lose_rank, &loss);
    }
}

/* In the middle of much data, fused and not, of which some is under way. */
static void lose_rank_under_load(engine_rank_t *self)
{
    enum { NUM = 60, COUNT = 4000 };
    float *values = engine_buffer(self, NUM * COUNT * sizeof *values);
    dtrain_handle_t handles[NUM];
    int num = 0, is_lost = 0;
    self->end = DTRAIN_ERR_RANK_LOST;
    for (int round = 0; round < 200 && !is_lost; round++) {
        for (num = 0; num < NUM; num++) {
            char name[32];
            snprintf(name, sizeof name, "t%d", num);
            float *mine = values + num * COUNT;
            int count = num % 3 ? 100 : COUNT;
            engine_op_t op = {.name = name, .in = mine, .out = mine, .count = count};
            if (engine_submit(self, &op, &handles[num]) != DTRAIN_OK)
                break;
        }
        if (self->rank == 1 && round == 2)
            dt_loopback_kill(self->loopback, self->rank);
        is_lost = num < NUM;
        for (int i = 0; i < num; i++) {
            dtrain_status_t status = engine_finish(self, handles[i]);
            is_lost |= status != DTRAIN_OK;
            ENGINE_CHECK(self, status == DTRAIN_OK || status == DTRAIN_ERR_RANK_LOST);
        }
    }
    ENGINE_CHECK(self, is_lost);
    expect(self, "later", DTRAIN_ERR_RANK_LOST, "rank ", "lost");
    ENGINE_CHECK(self, dt_handle_count(self->runtime->handles) == 0);
}

static void test_engine_lost_rank_under_load_is_noticed_by_all(void **state)
{
    (void)state;
    dt_config_t config = engine_config();
    for (int i = 0; i < 6; i++) {
        config.fusion_threshold = i % 2 ? 0 : 16384;
        engine_run(4, &config, lose_rank_under_load, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_operations_that_need_a_rank_that_left_end),
        cmocka_unit_test(test_engine_shutdown_ends_what_its_rank_has_pending),
        cmocka_unit_test(test_engine_shutdown_cuts_off_nothing_that_all_have_submitted),
        cmocka_unit_test(test_engine_shutdown_ends_the_waits_of_other_threads),
        cmocka_unit_test(test_engine_made_20_times_leaves_no_thread),
        cmocka_unit_test(test_engine_world_of_one_works_without_a_thread),
        cmocka_unit_test(test_engine_handles_that_were_not_released_are_reported),
        cmocka_unit_test(test_engine_world_of_one_can_be_aborted),
        cmocka_unit_test(test_engine_abort_ends_the_world_on_all_ranks),
        cmocka_unit_test(test_engine_abort_by_all_at_once_has_one_text_a_rank),
        cmocka_unit_test(test_engine_lost_rank_ends_all_operations_of_the_others),
        cmocka_unit_test(test_engine_lost_rank_under_load_is_noticed_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
