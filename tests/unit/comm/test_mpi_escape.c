/* Open MPI's struct, with the function that it ends a process with, is here one of the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/mpi/mpi_escape.h"

typedef struct ess {
    int (*init)(void);
    int (*finalize)(void);
    void (*abort)(int code, bool report);
} ess_t;

static int aborted, went_on;

static void test_abort(int code, bool report)
{
    (void)report;
    aborted = code;
}

__attribute__((visibility("default"))) ess_t orte_ess = {.abort = test_abort};

static int event_flag;

__attribute__((visibility("default"))) int opal_progress_set_event_flag(int flag);

int opal_progress_set_event_flag(int flag)
{
    event_flag = flag;
    return 0;
}

static int call_that_works(void *arguments)
{
    return *(int *)arguments;
}

static int call_that_ends_the_process(void *arguments)
{
    orte_ess.abort(*(int *)arguments, true);
    went_on = 1;
    return 0;
}

static void test_mpi_escape_outside_of_a_guarded_call_does_as_before(void **state)
{
    (void)state;
    int code = 7;
    assert_int_equal(dt_mpi_guard(call_that_works, &code), 7);
    orte_ess.abort(8, false);
    assert_int_equal(aborted, 8);
    assert_int_equal(dt_mpi_has_escaped(), 0);
}

/* Once, 1, and without waiting, 2: libevent's. */
static void test_mpi_escape_event_loop_ends_after_a_round(void **state)
{
    (void)state;
    assert_int_equal(event_flag, 1 | 2);
}

static void test_mpi_escape_from_a_guarded_call_comes_back_and_mpi_is_left_alone(void **state)
{
    (void)state;
    int code = 9;
    aborted = 0;
    assert_int_equal(dt_mpi_guard(call_that_ends_the_process, &code), DT_MPI_ESCAPED);
    assert_int_equal(aborted, 0);
    assert_int_equal(went_on, 0);
    assert_int_equal(dt_mpi_has_escaped(), 1);
    assert_int_equal(dt_mpi_guard(call_that_works, &code), DT_MPI_ESCAPED);
    orte_ess.abort(10, false); /* whoever else ends the process still may */
    assert_int_equal(aborted, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpi_escape_event_loop_ends_after_a_round),
        cmocka_unit_test(test_mpi_escape_outside_of_a_guarded_call_does_as_before),
        cmocka_unit_test(test_mpi_escape_from_a_guarded_call_comes_back_and_mpi_is_left_alone),
    };
    dt_mpi_escape_install();
    dt_mpi_escape_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
