#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <fenv.h>

#include "base/fp_mode.h"
#include "base/isa.h"

static void test_isa_cap_is_never_exceeded(void **state)
{
    (void)state;
    assert_int_equal(dt_isa_set_cap("scalar"), 0);
    assert_string_equal(dt_isa_name(), "scalar");
    assert_int_equal(dt_isa(), DT_ISA_SCALAR);
    assert_int_equal(dt_isa_set_cap("avx2"), 0);
    assert_string_not_equal(dt_isa_name(), "avx512");
}

static void test_isa_unknown_cap_changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(dt_isa_set_cap("scalar"), 0);
    assert_int_equal(dt_isa_set_cap("sse9"), -1);
    assert_string_equal(dt_isa_name(), "scalar");
}

static void test_isa_empty_cap_is_none(void **state)
{
    (void)state;
    assert_int_equal(dt_isa_set_cap("auto"), 0);
    dt_isa_t best = dt_isa();
    assert_int_equal(dt_isa_set_cap("scalar"), 0);
    assert_int_equal(dt_isa_set_cap(""), 0);
    assert_int_equal(dt_isa(), best);
}

static void test_fp_mode_of_the_caller_is_put_aside_and_comes_back(void **state)
{
    (void)state;
    volatile float one = 1, tiny = 0x1p-30f;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    dt_fp_mode_t mode = dt_fp_mode_enter();
    volatile float inside = one + tiny;
    dt_fp_mode_leave(mode);
    volatile float outside = one + tiny;
    assert_int_equal(fesetround(FE_TONEAREST), 0);
    assert_true(inside == 1);
    assert_true(outside > 1);
}

static int no_cap(void **state)
{
    (void)state;
    return dt_isa_set_cap("auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isa_cap_is_never_exceeded),
        cmocka_unit_test(test_isa_unknown_cap_changes_nothing),
        cmocka_unit_test(test_isa_empty_cap_is_none),
        cmocka_unit_test(test_fp_mode_of_the_caller_is_put_aside_and_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, no_cap);
}
