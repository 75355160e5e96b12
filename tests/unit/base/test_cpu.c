/* test_cpu.c - cores that this process may use. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cpu.h"

static void test_cpu_allowed_is_the_threads_affinity(void **state)
{
    (void)state;
    cpu_set_t all, one;
    uint64_t mask[DT_CPU_WORDS];
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    dt_cpu_allowed(mask);
    assert_int_equal(dt_cpu_count(mask), CPU_COUNT(&all));
    int core = 0;
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    dt_cpu_allowed(mask);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(dt_cpu_count(mask), 1);
    assert_true(mask[core / 64] >> (core % 64) & 1);
}

static void test_cpu_quota_is_at_least_one_core(void **state)
{
    (void)state;
    assert_true(dt_cpu_quota() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_allowed_is_the_threads_affinity),
        cmocka_unit_test(test_cpu_quota_is_at_least_one_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
