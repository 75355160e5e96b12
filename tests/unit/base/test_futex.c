#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/futex.h"

#define SLEEPERS 3

typedef struct bed {
    _Atomic uint32_t word;   /* [atomic] 0 until the sleepers may go on */
    _Atomic uint32_t awoken; /* [atomic] */
} bed_t;

static void sleep_in(bed_t *bed)
{
    while (atomic_load(&bed->word) == 0)
        dt_futex_wait(&bed->word, 0, DT_NEVER);
    atomic_fetch_add(&bed->awoken, 1);
}

static void *sleeper(void *context)
{
    sleep_in(context);
    return NULL;
}

static void test_futex_wake_reaches_all_threads(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        bed_t bed = {0};
        pthread_t threads[SLEEPERS];
        for (int i = 0; i < SLEEPERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, sleeper, &bed), 0);
        atomic_store(&bed.word, 1);
        dt_futex_wake(&bed.word, INT32_MAX);
        for (int i = 0; i < SLEEPERS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(atomic_load(&bed.awoken), SLEEPERS);
    }
}

static void test_futex_wake_reaches_another_process(void **state)
{
    (void)state;
    bed_t *bed = mmap(NULL, sizeof *bed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bed, MAP_FAILED);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        sleep_in(bed);
        _exit(0);
    }
    atomic_store(&bed->word, 1);
    dt_futex_wake(&bed->word, 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&bed->awoken), 1);
    munmap(bed, sizeof *bed);
}

static void test_futex_other_value_does_not_sleep(void **state)
{
    (void)state;
    _Atomic uint32_t word = 1;
    dt_futex_wait(&word, 0, DT_NEVER);
    assert_int_equal(atomic_load(&word), 1);
}

static void test_futex_without_time_does_not_sleep(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    dt_futex_wait(&word, 0, 0);
    dt_futex_wait(&word, 0, -5);
    assert_int_equal(atomic_load(&word), 0);
}

static void test_futex_limited_wait_ends_after_its_time(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    int64_t deadline = dt_now_ns() + 2 * DT_NS_PER_MS;
    int64_t left;
    while ((left = deadline - dt_now_ns()) > 0)
        dt_futex_wait(&word, 0, left);
    assert_true(dt_now_ns() >= deadline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_futex_wake_reaches_all_threads),
        cmocka_unit_test(test_futex_wake_reaches_another_process),
        cmocka_unit_test(test_futex_other_value_does_not_sleep),
        cmocka_unit_test(test_futex_without_time_does_not_sleep),
        cmocka_unit_test(test_futex_limited_wait_ends_after_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
