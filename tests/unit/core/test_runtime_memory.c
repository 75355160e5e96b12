/* The runtime when memory runs out: an error, nothing left behind, and the next call works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "comm/loopback/loopback.h"
#include "comm/self/self_world.h"
#include "core/runtime.h"
#include "failing_memory.h"

static const dt_config_t config = {.log_level = DTRAIN_LOG_OFF,
                                   .fusion_threshold = 1 << 20,
                                   .fusion_tensor_limit = 1 << 16,
                                   .timeout_ns = 10 * DT_NS_PER_S,
                                   .stall_warning_ns = DT_NEVER};

static void test_runtime_create_out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    int before = memory_live();
    for (int rank = 0; rank < 2; rank++) {
        for (int n = 1, failed = 1; failed; n++) {
            dt_loopback_t *loopback = dt_loopback_create(2, 1);
            dt_world_t world;
            dt_runtime_t *runtime = NULL;
            assert_int_equal(dt_loopback_join(loopback, rank, &world), DTRAIN_OK);
            memory_fail_at(n);
            dtrain_status_t status = dt_runtime_create(&world, &config, NULL, &runtime);
            failed = memory_has_failed();
            memory_fail_at(0);
            assert_int_equal(status, failed ? DTRAIN_ERR_OUT_OF_MEMORY : DTRAIN_OK);
            if (failed)
                assert_null(runtime);
            else
                dt_runtime_destroy(runtime);
            dt_loopback_free(loopback);
            assert_int_equal(memory_live(), before);
        }
    }
}

/* Submits, waits, releases. */
static dtrain_status_t add(dt_runtime_t *runtime, const char *name, float *values)
{
    int64_t count = 4;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = name,
                              .in = values,
                              .out = values,
                              .ndim = 1,
                              .shape = &count,
                              .dtype = DTRAIN_DTYPE_F32};
    dt_submission_t submission = {.kind = DT_KIND_ALLREDUCE, .tensor = &tensor, .will_wait = 1};
    dtrain_handle_t handle;
    dtrain_status_t status = dt_runtime_submit(runtime, &submission, &handle);
    if (status != DTRAIN_OK)
        return status;
    status = dt_runtime_wait(runtime, handle, -1);
    assert_int_equal(dt_runtime_release(runtime, handle), DTRAIN_OK);
    return status;
}

/* Whatever allocation of a first operation fails, the call ends with an error. */
static void test_runtime_operation_out_of_memory_ends_with_an_error(void **state)
{
    (void)state;
    int before = memory_live();
    for (int n = 1, failed = 1; failed; n++) {
        dt_world_t world;
        dt_runtime_t *runtime;
        float values[4] = {1, 2, 3, 4};
        assert_int_equal(dt_self_join(&world), DTRAIN_OK);
        assert_int_equal(dt_runtime_create(&world, &config, NULL, &runtime), DTRAIN_OK);
        memory_fail_at(n);
        dtrain_status_t status = add(runtime, "x", values);
        failed = memory_has_failed();
        memory_fail_at(0);
        assert_int_equal(status, failed ? DTRAIN_ERR_OUT_OF_MEMORY : DTRAIN_OK);
        /* Refused before it was under way, the next one works; otherwise the world is over. */
        status = add(runtime, "y", values);
        assert_true(status == DTRAIN_OK || status == DTRAIN_ERR_OUT_OF_MEMORY);
        assert_int_equal(dt_runtime_shutdown(runtime), status);
        dt_runtime_destroy(runtime);
        assert_int_equal(memory_live(), before);
    }
}

static void test_runtime_abort_without_memory_for_its_text_ends_the_world(void **state)
{
    (void)state;
    int before = memory_live();
    dt_world_t world;
    dt_runtime_t *runtime;
    float values[4] = {0};
    assert_int_equal(dt_self_join(&world), DTRAIN_OK);
    assert_int_equal(dt_runtime_create(&world, &config, NULL, &runtime), DTRAIN_OK);
    memory_fail_at(1);
    assert_int_equal(dt_runtime_abort(runtime, 1, "why"), DTRAIN_OK);
    memory_fail_at(0);
    assert_int_equal(add(runtime, "x", values), DTRAIN_ERR_ABORTED);
    assert_int_equal(dt_runtime_shutdown(runtime), DTRAIN_ERR_ABORTED);
    dt_runtime_destroy(runtime);
    assert_int_equal(memory_live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runtime_create_out_of_memory_leaves_nothing),
        cmocka_unit_test(test_runtime_operation_out_of_memory_ends_with_an_error),
        cmocka_unit_test(test_runtime_abort_without_memory_for_its_text_ends_the_world),
    };
    dt_log_set_level(DTRAIN_LOG_OFF); /* a line for every allocation that fails is not news */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
