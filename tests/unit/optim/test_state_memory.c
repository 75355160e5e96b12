/* Memory that runs out anywhere is an error, and nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failing_memory.h"
#include "saves.h"

static dtrain_status_t write_index(void)
{
    dt_state_save_t save = {.step = 5, .id = 50, .num_shards = 3};
    return dt_state_write_index(saves_path, &save);
}

static dtrain_status_t write_shard(void)
{
    return saves_write_shard(5, 50, 0, 3);
}

static dtrain_status_t load(void)
{
    return saves_load(5);
}

static void check(dtrain_status_t (*call)(void))
{
    int live = memory_live();
    for (int n = 1;; n++) {
        memory_fail_at(n);
        dtrain_status_t status = call();
        int failed = memory_has_failed();
        memory_fail_at(0);
        assert_int_equal(memory_live(), live);
        if (!failed) {
            assert_int_equal(status, DTRAIN_OK);
            assert_true(n > 1);
            return;
        }
        assert_int_equal(status, DTRAIN_ERR_OUT_OF_MEMORY);
    }
}

static void test_state_memory_that_runs_out_is_an_error_without_a_leak(void **state)
{
    (void)state;
    saves_write_all(5, 50, 3);
    check(load);
    check(write_shard);
    check(write_index);
    assert_int_equal(saves_load(5), DTRAIN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_state_memory_that_runs_out_is_an_error_without_a_leak,
                                        saves_begin, saves_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
