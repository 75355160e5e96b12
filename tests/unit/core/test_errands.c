#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "core/errands.h"

#define THREADS 4
#define EACH 20000

typedef struct numbered {
    dt_errand_t errand;
    int thread, number;
} numbered_t;

static void test_errands_are_taken_in_the_order_they_were_added(void **state)
{
    (void)state;
    static dt_errands_t errands;
    numbered_t some[5] = {0};
    assert_false(dt_errands_are_waiting(&errands));
    assert_null(dt_errands_take(&errands));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) {
            some[i].number = i;
            dt_errands_add(&errands, &some[i].errand);
        }
        assert_true(dt_errands_are_waiting(&errands));
        dt_errand_t *errand = dt_errands_take(&errands);
        for (int i = 0; i < 5; i++, errand = errand->next)
            assert_ptr_equal(errand, &some[i].errand);
        assert_null(errand);
        assert_false(dt_errands_are_waiting(&errands));
    }
}

static dt_errands_t shared;
static numbered_t all[THREADS][EACH];

static void *add_all(void *argument)
{
    numbered_t *own = argument;
    for (int i = 0; i < EACH; i++)
        dt_errands_add(&shared, &own[i].errand);
    return NULL;
}

static void test_errands_of_several_threads_come_once_each_in_its_threads_order(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int next[THREADS] = {0}, taken = 0;
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < EACH; i++)
            all[t][i] = (numbered_t){.thread = t, .number = i};
    }
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, add_all, all[t]), 0);
    while (taken < THREADS * EACH) {
        for (dt_errand_t *errand = dt_errands_take(&shared); errand; errand = errand->next) {
            const numbered_t *numbered = (const numbered_t *)errand;
            assert_int_equal(numbered->number, next[numbered->thread]++);
            taken++;
        }
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    assert_false(dt_errands_are_waiting(&shared));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errands_are_taken_in_the_order_they_were_added),
        cmocka_unit_test(test_errands_of_several_threads_come_once_each_in_its_threads_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
