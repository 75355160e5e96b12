#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "core/handle_table.h"
#include "failing_memory.h"

static dtrain_handle_t handle_of(const dt_operation_t *operation)
{
    return atomic_load(&operation->handle);
}

static void test_handle_table_handle_finds_its_operation(void **state)
{
    (void)state;
    dt_handle_table_t *table = dt_handle_table_create();
    dt_operation_t *a = dt_handle_acquire(table), *b = dt_handle_acquire(table);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    assert_true(handle_of(a) != 0 && handle_of(a) != handle_of(b));
    assert_ptr_equal(dt_handle_find(table, handle_of(a)), a);
    assert_ptr_equal(dt_handle_find(table, handle_of(b)), b);
    assert_int_equal(dt_handle_count(table), 2);
    dt_handle_table_free(table);
}

static void test_handle_table_operation_starts_cleared(void **state)
{
    (void)state;
    dt_handle_table_t *table = dt_handle_table_create();
    for (int round = 0; round < 2; round++) {
        dt_operation_t *operation = dt_handle_acquire(table);
        assert_int_equal(operation->status, DTRAIN_IN_PROGRESS);
        assert_int_equal(atomic_load(&operation->done), 0);
        assert_null(operation->error);
        assert_int_equal(operation->is_refused, 0);
        assert_int_equal(operation->is_agreed, 0);
        assert_int_equal(operation->is_withdrawn, 0);
        operation->status = DTRAIN_ERR_TIMEOUT;
        operation->error = dt_strdup("why");
        operation->is_refused = operation->is_agreed = operation->is_withdrawn = 1;
        atomic_store(&operation->done, 1);
        assert_int_equal(dt_handle_release(table, operation, handle_of(operation)), 0);
    }
    dt_handle_table_free(table);
}

static void test_handle_table_stale_handles_find_nothing_for_ever(void **state)
{
    (void)state;
    dt_handle_table_t *table = dt_handle_table_create();
    dtrain_handle_t stale[100];
    for (int i = 0; i < 100; i++) {
        dt_operation_t *operation = dt_handle_acquire(table);
        stale[i] = handle_of(operation);
        for (int k = 0; k < i; k++) {
            assert_true(stale[k] != stale[i]);
            assert_null(dt_handle_find(table, stale[k]));
            assert_int_equal(dt_handle_release(table, operation, stale[k]), -1);
        }
        assert_int_equal(dt_handle_release(table, operation, stale[i]), 0);
        assert_int_equal(dt_handle_release(table, operation, stale[i]), -1);
    }
    assert_int_equal(dt_handle_count(table), 0);
    dt_handle_table_free(table);
}

static void test_handle_table_made_up_handles_find_nothing(void **state)
{
    (void)state;
    dt_handle_table_t *table = dt_handle_table_create();
    assert_null(dt_handle_find(table, 0));
    assert_null(dt_handle_find(table, 1));
    assert_null(dt_handle_find(table, UINT64_MAX));
    dt_operation_t *operation = dt_handle_acquire(table);
    dtrain_handle_t handle = handle_of(operation);
    assert_null(dt_handle_find(table, 0));
    for (int bit = 0; bit < 64; bit++)
        assert_null(dt_handle_find(table, handle ^ UINT64_C(1) << bit));
    dt_handle_table_free(table);
}

static void test_handle_table_grows_and_keeps_what_is_out(void **state)
{
    (void)state;
    enum { NUM = 5000 };
    static dt_operation_t *operations[NUM];
    static dtrain_handle_t handles[NUM];
    dt_handle_table_t *table = dt_handle_table_create();
    for (int i = 0; i < NUM; i++) {
        operations[i] = dt_handle_acquire(table);
        assert_non_null(operations[i]);
        handles[i] = handle_of(operations[i]);
    }
    assert_int_equal(dt_handle_count(table), NUM);
    for (int i = 0; i < NUM; i += 2)
        assert_int_equal(dt_handle_release(table, operations[i], handles[i]), 0);
    for (int i = 0; i < NUM; i++)
        assert_ptr_equal(dt_handle_find(table, handles[i]), i % 2 ? operations[i] : NULL);
    int before = memory_live();
    for (int i = 0; i < NUM; i += 2)
        assert_non_null(dt_handle_acquire(table));
    assert_int_equal(memory_live(), before);
    dt_handle_table_free(table);
}

static void test_handle_table_result_is_that_of_its_handle(void **state)
{
    (void)state;
    dt_handle_table_t *table = dt_handle_table_create();
    dt_operation_t *operation = dt_handle_acquire(table);
    dtrain_handle_t handle = handle_of(operation);
    dtrain_status_t status = DTRAIN_OK;
    char text[8] = "before";
    operation->status = DTRAIN_ERR_MISMATCH;
    operation->error = dt_strdup("a long text");
    assert_int_equal(dt_handle_result(table, operation, handle, &status, text, sizeof text), 0);
    assert_int_equal(status, DTRAIN_ERR_MISMATCH);
    assert_string_equal(text, "a long ");
    assert_int_equal(dt_handle_release(table, operation, handle), 0);
    assert_int_equal(dt_handle_result(table, operation, handle, &status, text, sizeof text), -1);
    operation = dt_handle_acquire(table);
    assert_int_equal(dt_handle_result(table, operation, handle, &status, text, sizeof text), -1);
    operation->status = DTRAIN_OK;
    handle = handle_of(operation);
    assert_int_equal(dt_handle_result(table, operation, handle, &status, text, sizeof text), 0);
    assert_string_equal(text, "");
    dt_handle_table_free(table);
}

static void test_handle_table_frees_errors_that_were_not_released(void **state)
{
    (void)state;
    int before = memory_live();
    dt_handle_table_t *table = dt_handle_table_create();
    dt_handle_acquire(table)->error = dt_strdup("left behind");
    dt_handle_table_free(table);
    dt_handle_table_free(NULL);
    assert_int_equal(memory_live(), before);
}

static void test_handle_table_out_of_memory_gives_no_operation(void **state)
{
    (void)state;
    dt_handle_table_t *table = dt_handle_table_create();
    memory_fail_at(1);
    assert_null(dt_handle_acquire(table));
    assert_null(dt_handle_table_create());
    memory_fail_at(0);
    assert_non_null(dt_handle_acquire(table));
    dt_handle_table_free(table);
}

/* ---- Threads
 * ------------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 400
#define HELD 20

typedef struct user {
    dt_handle_table_t *table;
    int failures;
} user_t;

static void *use_table(void *argument)
{
    user_t *user = argument;
    dt_handle_table_t *table = user->table;
    for (int round = 0; round < ROUNDS; round++) {
        dtrain_handle_t handles[HELD];
        for (int i = 0; i < HELD; i++) {
            dt_operation_t *operation = dt_handle_acquire(table);
            handles[i] = operation ? handle_of(operation) : 0;
            user->failures += !operation;
        }
        for (int i = 0; i < HELD; i++) {
            dt_operation_t *operation = dt_handle_find(table, handles[i]);
            user->failures += !operation || dt_handle_release(table, operation, handles[i]);
            user->failures += dt_handle_find(table, handles[i]) != NULL;
        }
    }
    return NULL;
}

static void test_handle_table_serves_several_threads(void **state)
{
    (void)state;
    user_t users[THREADS] = {{0}};
    pthread_t threads[THREADS];
    dt_handle_table_t *table = dt_handle_table_create();
    for (int i = 0; i < THREADS; i++) {
        users[i].table = table;
        assert_int_equal(pthread_create(&threads[i], NULL, use_table, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].failures, 0);
    }
    assert_int_equal(dt_handle_count(table), 0);
    dt_handle_table_free(table);
}

/* All threads release the same handle: one succeeds. */
typedef struct race {
    dt_handle_table_t *table;
    pthread_barrier_t start;
    dt_operation_t *operation;
    dtrain_handle_t handle;
    _Atomic int successes;
} race_t;

static void *race_to_release(void *argument)
{
    race_t *race = argument;
    dtrain_status_t status;
    char text[64];
    for (int round = 0; round < ROUNDS; round++) {
        if (pthread_barrier_wait(&race->start) == PTHREAD_BARRIER_SERIAL_THREAD) {
            race->operation = dt_handle_acquire(race->table);
            race->operation->error = dt_strdup("text");
            race->handle = handle_of(race->operation);
        }
        pthread_barrier_wait(&race->start);
        (void)dt_handle_result(race->table, race->operation, race->handle, &status, text,
                               sizeof text);
        if (dt_handle_release(race->table, race->operation, race->handle) == 0)
            atomic_fetch_add(&race->successes, 1);
    }
    return NULL;
}

static void test_handle_table_handle_is_released_once(void **state)
{
    (void)state;
    race_t race = {.table = dt_handle_table_create()};
    pthread_t threads[THREADS];
    pthread_barrier_init(&race.start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race_to_release, &race), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&race.successes), ROUNDS);
    assert_int_equal(dt_handle_count(race.table), 0);
    pthread_barrier_destroy(&race.start);
    dt_handle_table_free(race.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handle_table_handle_finds_its_operation),
        cmocka_unit_test(test_handle_table_operation_starts_cleared),
        cmocka_unit_test(test_handle_table_stale_handles_find_nothing_for_ever),
        cmocka_unit_test(test_handle_table_made_up_handles_find_nothing),
        cmocka_unit_test(test_handle_table_grows_and_keeps_what_is_out),
        cmocka_unit_test(test_handle_table_result_is_that_of_its_handle),
        cmocka_unit_test(test_handle_table_frees_errors_that_were_not_released),
        cmocka_unit_test(test_handle_table_out_of_memory_gives_no_operation),
        cmocka_unit_test(test_handle_table_serves_several_threads),
        cmocka_unit_test(test_handle_table_handle_is_released_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
