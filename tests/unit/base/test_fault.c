#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/config_table.h"
#include "base/fault.h"
#include "base/memory.h"

static int disarm(void **state)
{
    (void)state;
    dt_fault_disarm();
    return 0;
}

/* How a child ends that passes a point so often, as waitpid tells it; 0: it lives. */
static int fate(const char *rule, int rank, dt_fault_t point, int times)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers take it */
        if (dt_fault_arm(rule, rank) != DTRAIN_OK)
            _exit(99);
        for (int i = 0; i < times; i++)
            dt_fault_point(point);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (WIFSTOPPED(status)) {
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    return status;
}

static void assert_signalled(int status, int signal_wanted)
{
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), signal_wanted);
}

static void test_fault_point_passed_often_enough_ends_the_process(void **state)
{
    (void)state;
    assert_signalled(fate("1:pack:3:kill", 1, DT_FAULT_PACK, 3), SIGKILL);
    assert_signalled(fate("*:pack:1:abort", 1, DT_FAULT_PACK, 1), SIGABRT);
    assert_signalled(fate("0:reduce:1:segv", 0, DT_FAULT_REDUCE, 1), SIGSEGV);
    int stopped = fate("0:reduce:1:stop", 0, DT_FAULT_REDUCE, 1);
    assert_true(WIFSTOPPED(stopped) && WSTOPSIG(stopped) == SIGSTOP);
    int ended = fate("0:init-share:2:exit", 0, DT_FAULT_INIT_SHARE, 9);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 1);
}

static void test_fault_of_another_point_rank_or_time_is_nothing(void **state)
{
    (void)state;
    assert_int_equal(fate("1:pack:3:kill", 1, DT_FAULT_PACK, 2), 0);
    assert_int_equal(fate("1:pack:1:kill", 0, DT_FAULT_PACK, 5), 0);
    assert_int_equal(fate("1:pack:1:kill", 1, DT_FAULT_UNPACK, 5), 0);
}

static void test_fault_leaves_word_of_its_time(void **state)
{
    (void)state;
    char path[] = "/tmp/dt_fault_XXXXXX";
    int file = mkstemp(path);
    char rule[128], line[256] = "";
    assert_true(file >= 0);
    snprintf(rule, sizeof rule, "2:enqueue:1:kill:%s", path);
    assert_signalled(fate(rule, 2, DT_FAULT_ENQUEUE, 1), SIGKILL);
    assert_true(read(file, line, sizeof line - 1) > 0);
    close(file);
    unlink(path);
    assert_non_null(strstr(line, "\"victim\": 2, \"pid\": "));
    assert_non_null(strstr(line, "\"action\": \"kill\", \"ns\": "));
}

static void test_fault_of_an_allocation_fails_that_one_alone(void **state)
{
    (void)state;
    assert_int_equal(dt_fault_arm("0:alloc:2:fail", 0), DTRAIN_OK);
    void *first = dt_alloc(1), *second = dt_calloc(1, 1), *third = dt_realloc(NULL, 1);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    dt_free(first);
    dt_free(third);
}

static void test_fault_armed_again_goes_on_counting(void **state)
{
    (void)state;
    assert_int_equal(dt_fault_arm("0:alloc:2:fail", 0), DTRAIN_OK);
    assert_int_equal(dt_fault_fails(DT_FAULT_ALLOC), 0);
    assert_int_equal(dt_fault_arm("0:alloc:2:fail", 0), DTRAIN_OK);
    assert_int_equal(dt_fault_fails(DT_FAULT_ALLOC), 1);
    assert_int_equal(dt_fault_arm("0:alloc:1:fail", 0), DTRAIN_OK);
    assert_int_equal(dt_fault_fails(DT_FAULT_ALLOC), 1);
}

static void test_fault_rule_that_cannot_be_read_lists_what_there_is(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "0",
                                        "0:pack",
                                        "0:pack:1",
                                        "0:peck:1:kill",
                                        "x:pack:1:kill",
                                        ":pack:1:kill",
                                        "0:pack:0:kill",
                                        "0:pack:1:die",
                                        "0:pack:1:fail",
                                        "-1:pack:1:kill"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(dt_fault_arm(wrong[i], 0), DTRAIN_ERR_CONFIG);
        for (const char *word = "init-mpi\0pack\0shutdown-leave\0segv\0"; *word;
             word += strlen(word) + 1)
            assert_non_null(strstr(dt_last_error(), word));
    }
}

static void test_fault_rule_comes_from_the_environment(void **state)
{
    (void)state;
    dt_config_t config;
    char *armed[] = {"OMPI_COMM_WORLD_RANK=3", "DTRAIN_FAULT=3:alloc:1:fail", NULL};
    char *wrong[] = {"DTRAIN_FAULT=3:nowhere:1:kill", NULL};
    assert_int_equal(dt_config_resolve_from(NULL, armed, &config), DTRAIN_OK);
    assert_int_equal(dt_fault_fails(DT_FAULT_ALLOC), 1);
    assert_int_equal(dt_config_resolve_from(NULL, wrong, &config), DTRAIN_ERR_CONFIG);
    assert_non_null(strstr(dt_last_error(), "DTRAIN_FAULT='3:nowhere:1:kill'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_fault_point_passed_often_enough_ends_the_process, disarm),
        cmocka_unit_test_teardown(test_fault_of_another_point_rank_or_time_is_nothing, disarm),
        cmocka_unit_test_teardown(test_fault_leaves_word_of_its_time, disarm),
        cmocka_unit_test_teardown(test_fault_of_an_allocation_fails_that_one_alone, disarm),
        cmocka_unit_test_teardown(test_fault_armed_again_goes_on_counting, disarm),
        cmocka_unit_test_teardown(test_fault_rule_that_cannot_be_read_lists_what_there_is, disarm),
        cmocka_unit_test_teardown(test_fault_rule_comes_from_the_environment, disarm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
