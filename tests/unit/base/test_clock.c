#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

static void test_clock_never_goes_back(void **state)
{
    (void)state;
    int64_t before = dt_now_ns();
    assert_true(before > 0);
    for (int i = 0; i < 1000; i++) {
        int64_t now = dt_now_ns();
        assert_true(now >= before);
        before = now;
    }
    assert_true(before < DT_NEVER);
}

static void test_clock_system_tells_the_same_time(void **state)
{
    (void)state;
    dt_clock_t clock = dt_clock_system();
    int64_t before = dt_now_ns();
    int64_t told = clock.now(clock.context);
    assert_true(told >= before);
    assert_true(dt_now_ns() >= told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock_never_goes_back),
        cmocka_unit_test(test_clock_system_tells_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
