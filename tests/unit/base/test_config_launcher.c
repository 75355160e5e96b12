#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/config_table.h"

static void check(char *const *environment, int size, const char *variable)
{
    const char *told = "not written";
    assert_int_equal(dt_config_launcher_size_from(environment, &told), size);
    if (variable)
        assert_string_equal(told, variable);
    else
        assert_null(told);
}

static void test_launcher_none_is_zero(void **state)
{
    (void)state;
    char *const environment[] = {"PATH=/bin", NULL};
    check(environment, 0, NULL);
    check(NULL, 0, NULL);
}

static void test_launcher_open_mpi_is_seen(void **state)
{
    (void)state;
    char *const environment[] = {"OMPI_COMM_WORLD_SIZE=4", "PMIX_RANK=2", "SLURM_NTASKS=9", NULL};
    check(environment, 4, "OMPI_COMM_WORLD_SIZE");
}

static void test_launcher_mpich_is_seen(void **state)
{
    (void)state;
    char *const environment[] = {"PMI_RANK=0", "PMI_SIZE=3", "MPI_LOCALNRANKS=2", NULL};
    check(environment, 3, "PMI_SIZE");
}

static void test_launcher_count_of_one_is_a_launcher(void **state)
{
    (void)state;
    char *const environment[] = {"OMPI_COMM_WORLD_SIZE=1", NULL};
    check(environment, 1, "OMPI_COMM_WORLD_SIZE");
}

static void test_launcher_slurm_with_pmix_tells_by_its_step(void **state)
{
    (void)state;
    char *const step[] = {"PMIX_RANK=1", "SLURM_NTASKS=16", "SLURM_STEP_NUM_TASKS=8", NULL};
    char *const job[] = {"PMIX_RANK=1", "SLURM_NTASKS=16", NULL};
    char *const pmi[] = {"PMI_RANK=1", "SLURM_NTASKS=16", NULL};
    check(step, 8, "SLURM_STEP_NUM_TASKS");
    check(job, 16, "SLURM_NTASKS");
    check(pmi, 16, "SLURM_NTASKS");
}

static void test_launcher_inside_a_batch_script_is_none(void **state)
{
    (void)state;
    char *const environment[] = {"SLURM_PROCID=0", "SLURM_NTASKS=16", "SLURM_STEP_NUM_TASKS=1",
                                 "MPI_LOCALNRANKS=2", NULL};
    check(environment, 0, NULL);
}

static void test_launcher_of_unknown_size_counts_as_one(void **state)
{
    (void)state;
    char *const environment[] = {"PMIX_RANK=3", NULL};
    check(environment, 1, "PMIX_RANK");
}

static void test_launcher_values_that_are_no_count_are_passed_over(void **state)
{
    (void)state;
    static char *const lines[] = {"OMPI_COMM_WORLD_SIZE=",   "OMPI_COMM_WORLD_SIZE=0",
                                  "OMPI_COMM_WORLD_SIZE=-3", "OMPI_COMM_WORLD_SIZE=4x",
                                  "OMPI_COMM_WORLD_SIZE= 4", "OMPI_COMM_WORLD_SIZE=99999999999"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char *const environment[] = {lines[i], "PMI_SIZE=2", NULL};
        check(environment, 2, "PMI_SIZE");
    }
}

static void test_suggestion_does_not_replace_what_the_user_has_set(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("ANOTHER_LIBRARY"), 0);
    dt_config_suggest("ANOTHER_LIBRARY", "ours");
    assert_string_equal(getenv("ANOTHER_LIBRARY"), "ours");
    assert_int_equal(setenv("ANOTHER_LIBRARY", "theirs", 1), 0);
    dt_config_suggest("ANOTHER_LIBRARY", "ours");
    assert_string_equal(getenv("ANOTHER_LIBRARY"), "theirs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launcher_none_is_zero),
        cmocka_unit_test(test_launcher_open_mpi_is_seen),
        cmocka_unit_test(test_launcher_mpich_is_seen),
        cmocka_unit_test(test_launcher_count_of_one_is_a_launcher),
        cmocka_unit_test(test_launcher_slurm_with_pmix_tells_by_its_step),
        cmocka_unit_test(test_launcher_inside_a_batch_script_is_none),
        cmocka_unit_test(test_launcher_of_unknown_size_counts_as_one),
        cmocka_unit_test(test_launcher_values_that_are_no_count_are_passed_over),
        cmocka_unit_test(test_suggestion_does_not_replace_what_the_user_has_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
