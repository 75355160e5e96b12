/* Handles, and several threads of a rank that submit, wait and poll. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "engine_world.h"

/* ---- Handles --------------------------------------------------------------------------------- */

static void check_stale(engine_rank_t *self, dtrain_handle_t handle)
{
    int done = 7;
    char text[64] = "kept";
    dt_runtime_t *runtime = self->runtime;
    ENGINE_STATUS(self, dt_runtime_poll(runtime, handle, &done), DTRAIN_ERR_INVALID_HANDLE);
    ENGINE_STATUS(self, dt_runtime_wait(runtime, handle, -1), DTRAIN_ERR_INVALID_HANDLE);
    ENGINE_STATUS(self, dt_runtime_wait(runtime, handle, 0), DTRAIN_ERR_INVALID_HANDLE);
    ENGINE_STATUS(self, dt_runtime_release(runtime, handle), DTRAIN_ERR_INVALID_HANDLE);
    ENGINE_STATUS(self, dt_runtime_handle_error(runtime, handle, text, sizeof text),
                  DTRAIN_ERR_INVALID_HANDLE);
    ENGINE_CHECK(self, done == 7 && strcmp(text, "kept") == 0);
}

static void use_handles(engine_rank_t *self)
{
    float value = 1;
    engine_op_t op = {.name = "x", .in = &value, .out = &value, .count = 1};
    dtrain_handle_t first, second;
    ENGINE_OK(self, engine_submit(self, &op, &first));
    ENGINE_OK(self, dt_runtime_wait(self->runtime, first, -1));
    ENGINE_OK(self, dt_runtime_wait(self->runtime, first, 0)); /* as often as one likes */
    int done = 0;
    ENGINE_OK(self, dt_runtime_poll(self->runtime, first, &done));
    ENGINE_CHECK(self, done == 1);
    ENGINE_OK(self, dt_runtime_release(self->runtime, first));
    check_stale(self, first);
    ENGINE_OK(self, engine_submit(self, &op, &second)); /* most likely in the same place */
    ENGINE_CHECK(self, second != first);
    check_stale(self, first);
    ENGINE_OK(self, engine_finish(self, second));
    check_stale(self, 0);
    check_stale(self, UINT64_MAX);
    check_stale(self, second + (UINT64_C(1) << 20));
    check_stale(self, 12345);
}

static void test_engine_released_handle_is_an_error_for_ever(void **state)
{
    (void)state;
    engine_run(2, NULL, use_handles, NULL);
}

static void read_error(engine_rank_t *self)
{
    float values[4] = {0};
    engine_op_t op = {.name = "x", .in = values, .out = values, .count = 3 + self->rank};
    dtrain_handle_t handle;
    char text[DT_ERROR_MAX] = "before", small[8];
    if (self->rank == 0) {
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        ENGINE_OK(self, dt_runtime_handle_error(self->runtime, handle, text, sizeof text));
        ENGINE_CHECK(self, text[0] == '\0');
    }
    engine_meet(self);
    if (self->rank == 1)
        ENGINE_OK(self, engine_submit(self, &op, &handle));
    ENGINE_STATUS(self, dt_runtime_wait(self->runtime, handle, -1), DTRAIN_ERR_MISMATCH);
    ENGINE_OK(self, dt_runtime_handle_error(self->runtime, handle, text, sizeof text));
    ENGINE_CHECK(self, strcmp(text, dt_last_error()) == 0 && strstr(text, "[3]"));
    ENGINE_OK(self, dt_runtime_handle_error(self->runtime, handle, small, sizeof small));
    ENGINE_CHECK(self, strcmp(small, "allredu") == 0);
    ENGINE_STATUS(self, dt_runtime_handle_error(self->runtime, handle, NULL, 5),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_STATUS(self, dt_runtime_handle_error(self->runtime, handle, text, 0),
                  DTRAIN_ERR_INVALID_ARGUMENT);
    ENGINE_OK(self, dt_runtime_release(self->runtime, handle));
}

static void test_engine_handle_has_its_own_error_text(void **state)
{
    (void)state;
    engine_run(2, NULL, read_error, NULL);
}

static void poll_until_done(engine_rank_t *self)
{
    for (int round = 0; round < 20; round++) {
        float values[300];
        for (int i = 0; i < 300; i++)
            values[i] = 1;
        engine_op_t op = {.name = "x", .in = values, .out = values, .count = 300};
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        if (self->rank == 0) {
            while (dt_runtime_wait(self->runtime, handle, 0) == DTRAIN_IN_PROGRESS)
                sched_yield();
        } else {
            int done = 0;
            while (dt_runtime_poll(self->runtime, handle, &done) == DTRAIN_OK && !done)
                sched_yield();
        }
        ENGINE_OK(self, engine_finish(self, handle));
        ENGINE_CHECK(self, values[0] == (float)self->size && values[299] == (float)self->size);
    }
}

static void test_engine_poll_sees_the_operation_become_done(void **state)
{
    (void)state;
    engine_run(3, NULL, poll_until_done, NULL);
}

/* ---- Several threads ----------------------------------------------------------------------------
 */

#define THREADS 3

typedef struct worker {
    engine_rank_t *rank;
    int index;
    dtrain_handle_t handle;
    pthread_barrier_t *start;
} worker_t;

static void run_workers(engine_rank_t *self, void *(*work)(void *), dtrain_handle_t handle)
{
    pthread_t threads[THREADS];
    worker_t workers[THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker_t){.rank = self, .index = i, .handle = handle, .start = &start};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

/* Threads of a rank with names of their own: some wait at once, some have many in flight. */
static void *submit_own(void *argument)
{
    const worker_t *worker = argument;
    engine_rank_t *self = worker->rank;
    enum { NUM = 12 };
    float values[NUM];
    dtrain_handle_t handles[NUM];
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < NUM; i++) {
            char name[32];
            snprintf(name, sizeof name, "w%d.%d", worker->index, i);
            values[i] = (float)i;
            engine_op_t op = {.name = name, .in = &values[i], .out = &values[i], .count = 1};
            if (worker->index == 0)
                ENGINE_OK(self, engine_do(self, &op));
            else
                ENGINE_OK(self, engine_submit(self, &op, &handles[i]));
        }
        for (int i = 0; i < NUM; i++) {
            if (worker->index != 0)
                ENGINE_OK(self, engine_finish(self, handles[i]));
            ENGINE_CHECK(self, values[i] == (float)(i * self->size));
        }
    }
    return NULL;
}

static void submit_from_threads(engine_rank_t *self)
{
    run_workers(self, submit_own, 0);
}

static void test_engine_several_threads_submit_and_wait(void **state)
{
    (void)state;
    engine_run(1, NULL, submit_from_threads, NULL);
    engine_run(3, NULL, submit_from_threads, NULL);
}

static void *wait_for_same(void *argument)
{
    const worker_t *worker = argument;
    engine_rank_t *self = worker->rank;
    pthread_barrier_wait(worker->start);
    dtrain_status_t status = dt_runtime_wait(self->runtime, worker->handle, -1);
    ENGINE_CHECK(self, status == DTRAIN_OK || status == DTRAIN_ERR_MISMATCH ||
                           status == DTRAIN_ERR_INVALID_HANDLE);
    /* Whoever is first gives it back, while others may still be on their way out of the wait. */
    status = dt_runtime_release(self->runtime, worker->handle);
    ENGINE_CHECK(self, status == DTRAIN_OK || status == DTRAIN_ERR_INVALID_HANDLE);
    return NULL;
}

static void wait_from_threads(engine_rank_t *self)
{
    float values[4];
    for (int round = 0; round < 20; round++) {
        int is_wrong = round % 3 == 2;
        int count = is_wrong && self->rank == 0 ? 3 : 4;
        for (int i = 0; i < 4; i++)
            values[i] = 1;
        engine_op_t op = {.name = "x", .in = values, .out = values, .count = count};
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        run_workers(self, wait_for_same, handle);
        if (!is_wrong)
            ENGINE_CHECK(self, values[3] == (float)self->size);
    }
    ENGINE_CHECK(self, dt_handle_count(self->runtime->handles) == 0);
}

static void test_engine_several_threads_wait_for_one_handle(void **state)
{
    (void)state;
    engine_run(2, NULL, wait_from_threads, NULL);
}

/* ---- A wait that sleeps must not hold up others
 * ---------------------------------------------------- */

static void *wait_for_x(void *argument)
{
    engine_rank_t *self = argument;
    engine_check_works(self, "x");
    return NULL;
}

/* Rank 0 waits for x in one thread and does y in another, and rank 1 comes to x after y. */
static void wait_beside_a_wait(engine_rank_t *self)
{
    for (int round = 0; round < 5; round++) {
        if (self->rank == 1) {
            engine_check_works(self, "y");
            engine_check_works(self, "x");
            continue;
        }
        pthread_t thread;
        pthread_create(&thread, NULL, wait_for_x, self);
        dt_baton_t *baton = &self->runtime->baton;
        while (atomic_load(&baton->helpers) == 0 || atomic_load(&baton->dozing) == 0)
            sched_yield();
        engine_check_works(self, "y");
        pthread_join(thread, NULL);
    }
}

static void test_engine_wait_of_one_thread_does_not_hold_up_another(void **state)
{
    (void)state;
    engine_run(2, NULL, wait_beside_a_wait, NULL);
    dt_config_t config = engine_config();
    config.spin_ns = 0;
    engine_run(2, &config, wait_beside_a_wait, NULL);
}

/* A rank goes away from a wait with work left: the background thread goes on with it. */
static void leave_work_behind(engine_rank_t *self)
{
    for (int round = 0; round < 30; round++) {
        float value = 1;
        engine_op_t op = {.name = "left", .in = &value, .out = &value, .count = 1};
        dtrain_handle_t handle;
        ENGINE_OK(self, engine_submit(self, &op, &handle));
        if (self->rank == round % self->size)
            (void)dt_runtime_wait(self->runtime, handle, 0);
        int64_t start = dt_now_ns();
        int done = 0;
        while (!done && dt_now_ns() - start < 10 * DT_NS_PER_S) {
            ENGINE_OK(self, dt_runtime_poll(self->runtime, handle, &done));
            sched_yield();
        }
        ENGINE_CHECK(self, done);
        ENGINE_OK(self, engine_finish(self, handle));
    }
}

static void test_engine_background_thread_goes_on_after_a_wait(void **state)
{
    (void)state;
    engine_run(2, NULL, leave_work_behind, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_released_handle_is_an_error_for_ever),
        cmocka_unit_test(test_engine_handle_has_its_own_error_text),
        cmocka_unit_test(test_engine_poll_sees_the_operation_become_done),
        cmocka_unit_test(test_engine_several_threads_submit_and_wait),
        cmocka_unit_test(test_engine_several_threads_wait_for_one_handle),
        cmocka_unit_test(test_engine_wait_of_one_thread_does_not_hold_up_another),
        cmocka_unit_test(test_engine_background_thread_goes_on_after_a_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
