/* The symbols of Open MPI 5 that its transports' errors go by are here the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/mpi/mpi_escape.h"

#define EXPORTED __attribute__((visibility("default")))

typedef void (*broken_fn_t)(void *transport, int32_t flags, void *process, char *info);

typedef struct bml {
    void *component;
    void (*others[7])(void);
    int (*register_error)(broken_fn_t broken);
} bml_t;

static broken_fn_t registered;
static int ended, peer;

static int register_error(broken_fn_t broken)
{
    registered = broken;
    return 0;
}

EXPORTED bool ompi_ftmpi_enabled = true;
EXPORTED bml_t mca_bml = {.component = &mca_bml, .register_error = register_error};

EXPORTED void mca_pml_ob1_error_handler(void *transport, int32_t flags, void *process, char *info);
void mca_pml_ob1_error_handler(void *transport, int32_t flags, void *process, char *info)
{
    (void)transport, (void)flags, (void)process, (void)info;
    ended++;
}

static int call_that_meets_a_broken_connection(void *arguments)
{
    registered(NULL, 0, arguments, NULL);
    return 0;
}

static void test_mpi_escape_where_mpi_is_tolerant_itself_changes_nothing(void **state)
{
    (void)state;
    dt_mpi_escape_install();
    assert_null(registered);
    ompi_ftmpi_enabled = false;
    dt_mpi_escape_install();
    assert_non_null(registered);
}

static void test_mpi_escape_from_other_news_and_other_calls_does_as_before(void **state)
{
    (void)state;
    registered(NULL, 0, &peer, NULL);
    assert_int_equal(ended, 1);
    assert_int_equal(dt_mpi_guard(call_that_meets_a_broken_connection, NULL), 0);
    assert_int_equal(ended, 2);
    assert_int_equal(dt_mpi_has_escaped(), 0);
}

static void test_mpi_escape_from_a_broken_connection_says_so(void **state)
{
    (void)state;
    assert_int_equal(dt_mpi_guard(call_that_meets_a_broken_connection, &peer), DT_MPI_ESCAPED);
    assert_int_equal(ended, 2);
    assert_int_equal(dt_mpi_has_escaped(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpi_escape_where_mpi_is_tolerant_itself_changes_nothing),
        cmocka_unit_test(test_mpi_escape_from_other_news_and_other_calls_does_as_before),
        cmocka_unit_test(test_mpi_escape_from_a_broken_connection_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
