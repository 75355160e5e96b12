/* The one global: a world that comes and goes under the feet of threads that use it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "api/world.h"
#include "base/status.h"
#include "comm/loopback/loopback.h"
#include "comm/self/self_world.h"

static dtrain_status_t join_self(const void *argument, dt_config_t *config, dt_world_t *world)
{
    (void)argument;
    (void)config;
    return dt_self_join(world);
}

static dtrain_status_t join_nobody(const void *argument, dt_config_t *config, dt_world_t *world)
{
    (void)argument;
    (void)config;
    (void)world;
    return dt_fail(DTRAIN_ERR_COMMUNICATION, "nobody is there");
}

/* Rank 0 of the loopback that is the argument. */
static dtrain_status_t join_loopback(const void *argument, dt_config_t *config, dt_world_t *world)
{
    (void)config;
    return dt_loopback_join((dt_loopback_t *)(uintptr_t)argument, 0, world);
}

static dtrain_status_t add_one(const char *name)
{
    float value = 1;
    return dtrain_allreduce(name, &value, &value, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
}

/* ---- One thread -------------------------------------------------------------------------------
 */

static void test_api_without_a_world_says_so(void **state)
{
    (void)state;
    assert_int_equal(dtrain_is_initialized(), 0);
    assert_int_equal(dtrain_rank(), -1);
    assert_int_equal(add_one("x"), DTRAIN_ERR_NOT_INITIALIZED);
    assert_int_equal(dtrain_refuse((const char *const[]){"x"}, 1, DTRAIN_PSET_WORLD, "no"),
                     DTRAIN_ERR_NOT_INITIALIZED);
    assert_int_equal(dtrain_shutdown(), DTRAIN_ERR_NOT_INITIALIZED);
}

static void test_api_refuse_is_as_the_call_it_stands_for(void **state)
{
    (void)state;
    static const char *const names[] = {"x", "y"}, *const unnamed[] = {"x", ""};
    assert_int_equal(dt_api_init(NULL, join_self, NULL), DTRAIN_OK);
    for (int n = 1; n <= 2; n++) {
        assert_int_equal(dtrain_refuse(names, n, DTRAIN_PSET_WORLD, "it is a list"),
                         DTRAIN_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(dtrain_last_error(), "it is a list"));
    }
    assert_int_equal(dtrain_refuse(unnamed, 2, DTRAIN_PSET_WORLD, "no"),
                     DTRAIN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dtrain_last_error(), "no name"));
    assert_int_equal(dtrain_refuse(NULL, 1, DTRAIN_PSET_WORLD, "no"), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_refuse(names, 0, DTRAIN_PSET_WORLD, "no"), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_refuse(names, 1, DTRAIN_PSET_WORLD, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(add_one("x"), DTRAIN_OK);
    assert_int_equal(dtrain_shutdown(), DTRAIN_OK);
}

static void test_api_join_that_fails_leaves_no_world(void **state)
{
    (void)state;
    assert_int_equal(dt_api_init(NULL, join_nobody, NULL), DTRAIN_ERR_COMMUNICATION);
    assert_string_equal(dtrain_last_error(), "nobody is there");
    assert_int_equal(dtrain_is_initialized(), 0);
    assert_int_equal(dt_api_init(NULL, join_self, NULL), DTRAIN_OK);
    assert_int_equal(dt_api_init(NULL, join_self, NULL), DTRAIN_ERR_ALREADY_INITIALIZED);
    assert_int_equal(dtrain_size(), 1);
    assert_int_equal(dtrain_shutdown(), DTRAIN_OK);
}

static void test_api_wait_all_returns_the_first_failure(void **state)
{
    (void)state;
    assert_int_equal(dt_api_init(NULL, join_self, NULL), DTRAIN_OK);
    dtrain_handle_t handles[4];
    dtrain_status_t each[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(dtrain_barrier_async(NULL, &handles[i]), DTRAIN_OK);
    assert_int_equal(dtrain_wait_all(handles, 4, NULL), DTRAIN_OK);
    assert_int_equal(dtrain_release(handles[1]), DTRAIN_OK);
    assert_int_equal(dtrain_wait_all(handles, 4, each), DTRAIN_ERR_INVALID_HANDLE);
    for (int i = 0; i < 4; i++)
        assert_int_equal(each[i], i == 1 ? DTRAIN_ERR_INVALID_HANDLE : DTRAIN_OK);
    assert_non_null(strstr(dtrain_last_error(), "released"));
    for (int i = 0; i < 4; i++)
        (void)dtrain_release(handles[i]);
    assert_int_equal(dtrain_shutdown(), DTRAIN_OK);
}

static void test_api_refused_call_has_its_text_after_the_blocking_form(void **state)
{
    (void)state;
    float value = 1;
    assert_int_equal(dt_api_init(NULL, join_self, NULL), DTRAIN_OK);
    assert_int_equal(dtrain_broadcast("weights", &value, 1, DTRAIN_DTYPE_F32, 3),
                     DTRAIN_ERR_INVALID_ARGUMENT);
    assert_string_equal(dtrain_last_error(), "broadcast 'weights': root 3 is not a rank of 1");
    assert_int_equal(dtrain_allreduce(NULL, &value, &value, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM),
                     DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_allreduce("x", &value, &value, -1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM),
                     DTRAIN_ERR_INVALID_ARGUMENT);
    assert_int_equal(dtrain_shutdown(), DTRAIN_OK);
}

/* ---- Threads that do not care ------------------------------------------------------------------
 */

#define THREADS 3

static _Atomic int is_over;

static int is_expected(dtrain_status_t status)
{
    return status == DTRAIN_OK || status == DTRAIN_ERR_NOT_INITIALIZED ||
           status == DTRAIN_ERR_SHUT_DOWN || status == DTRAIN_ERR_DUPLICATE_NAME ||
           status == DTRAIN_ERR_INVALID_HANDLE;
}

static void *use_world(void *argument)
{
    _Atomic int *failures = argument;
    while (!atomic_load(&is_over)) {
        int size = dtrain_size(), done = 0;
        dtrain_handle_t handle = 0;
        dtrain_status_t status = dtrain_barrier_async(NULL, &handle);
        int failed = size != -1 && size != 1;
        failed += !is_expected(status) + !is_expected(add_one("shared"));
        failed += !is_expected(dtrain_poll(handle, &done)) + !is_expected(dtrain_wait(handle));
        failed += !is_expected(dtrain_release(handle));
        atomic_fetch_add(failures, failed);
        sched_yield();
    }
    return NULL;
}

static void test_api_world_may_come_and_go_under_other_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    _Atomic int failures = 0;
    dtrain_config_t config;
    assert_int_equal(dtrain_config_init(&config, sizeof config), DTRAIN_OK);
    config.log_level = DTRAIN_LOG_ERROR; /* handles of a world that went are not released */
    atomic_store(&is_over, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_world, &failures), 0);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(dt_api_init(&config, join_self, NULL), DTRAIN_OK);
        sched_yield();
        assert_int_equal(dtrain_shutdown(), DTRAIN_OK);
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
}

/* ---- Threads in a wait
 * ---------------------------------------------------------------------------- */

/* Rank 1, without the API: it leaves at once. */
static void *run_peer(void *argument)
{
    dt_loopback_t *loopback = argument;
    dt_config_t config;
    dt_world_t world;
    dt_runtime_t *runtime;
    if (dt_config_resolve(NULL, &config) != DTRAIN_OK ||
        dt_loopback_join(loopback, 1, &world) != DTRAIN_OK ||
        dt_runtime_create(&world, &config, NULL, &runtime) != DTRAIN_OK)
        return "not even a world";
    dtrain_status_t status = dt_runtime_shutdown(runtime);
    dt_runtime_destroy(runtime);
    return status == DTRAIN_OK ? NULL : "a bad end";
}

static void *wait_in_vain(void *argument)
{
    float value = 1;
    dtrain_status_t *status = argument;
    *status = dtrain_allreduce("in vain", &value, &value, 1, DTRAIN_DTYPE_F32, DTRAIN_OP_SUM);
    return NULL;
}

static void test_api_shutdown_ends_waits_before_it_frees_anything(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        dt_loopback_t *loopback = dt_loopback_create(2, 1);
        dtrain_status_t statuses[THREADS];
        pthread_t threads[THREADS], peer;
        void *complaint = NULL;
        assert_int_equal(dt_api_init(NULL, join_loopback, loopback), DTRAIN_OK);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, wait_in_vain, &statuses[i]), 0);
        assert_int_equal(pthread_create(&peer, NULL, run_peer, loopback), 0);
        assert_int_equal(dtrain_shutdown(), DTRAIN_OK);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(is_expected(statuses[i]) && statuses[i] != DTRAIN_OK);
        }
        pthread_join(peer, &complaint);
        assert_null(complaint);
        dt_loopback_free(loopback);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_api_without_a_world_says_so),
        cmocka_unit_test(test_api_refuse_is_as_the_call_it_stands_for),
        cmocka_unit_test(test_api_join_that_fails_leaves_no_world),
        cmocka_unit_test(test_api_wait_all_returns_the_first_failure),
        cmocka_unit_test(test_api_refused_call_has_its_text_after_the_blocking_form),
        cmocka_unit_test(test_api_world_may_come_and_go_under_other_threads),
        cmocka_unit_test(test_api_shutdown_ends_waits_before_it_frees_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
